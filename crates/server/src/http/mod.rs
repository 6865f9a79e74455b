//! HTTP: connections, checks of requests, errors and event streams.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod deadline;
pub(crate) mod deadlines;
pub(crate) mod defaults;
pub(crate) mod error;
pub(crate) mod gate;
pub(crate) mod ids;
pub(crate) mod memory;
pub(crate) mod origin;
pub(crate) mod path;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod sse;
