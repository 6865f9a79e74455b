//! Generation: requests of all APIs become a [`request::Generate`], answers a stream of
//! [`events::Event`]s.

pub(crate) mod admission;
pub(crate) mod answer_grammar;
pub(crate) mod blocking;
pub(crate) mod chat;
mod clock;
pub(crate) mod collect;
pub(crate) mod conversation;
pub(crate) mod events;
pub(crate) mod extra_fields;
mod line_limits;
pub(crate) mod messages;
pub(crate) mod numbers;
pub(crate) mod output;
pub(crate) mod parameters;
pub(crate) mod request;
pub(crate) mod run;
#[rustfmt::skip] // generated
pub(crate) mod sampling_fields;
pub(crate) mod samplers;
pub(crate) mod tools;
