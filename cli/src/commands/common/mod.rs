//! Functions that several commands share: loading, prefill, measurement and reports.

pub(crate) mod devices;
pub(crate) mod open;
pub(crate) mod prefill;
pub(crate) mod probe;
pub(crate) mod roofline;
pub(crate) mod written;
