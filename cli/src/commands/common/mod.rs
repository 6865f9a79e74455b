//! Functions that several commands share: loading, prefilling, measuring and reporting.

pub(crate) mod devices;
pub(crate) mod open;
pub(crate) mod prefill;
pub(crate) mod probe;
pub(crate) mod roofline;
pub(crate) mod written;
