//! Structs of options of the C API, generated from `options/`.

pub(crate) mod chat;
pub(crate) mod classify;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod load;
pub(crate) mod transcribe;
