//! HTTP server of Tabla: the APIs of OpenAI and Anthropic, native endpoints, and a chat page.
//!
//! [`Server::bind`] opens the port, [`Server::run`] serves until the shutdown.

mod api;
mod app;
mod bandwidth;
mod config;
mod engine;
mod heap;
mod http;
#[cfg(feature = "fuzzing")]
mod in_process;
mod metrics;
mod models;
mod prometheus;
mod response_store;
mod server;

pub use config::{
    Config, EventSink, Limits, MetricsCompat, ModelConfig, RequestRecord, ServerEvent,
};
#[cfg(feature = "fuzzing")]
pub use in_process::InProcess;
pub use server::{Server, ShutdownHandle};
