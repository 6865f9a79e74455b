//! The models of the server: loads them on demand, and unloads idle ones.

mod loaded;
mod registry;

pub(crate) use loaded::{Kind, Loaded};
pub(crate) use registry::{Entry, Lease, REASON_IN_LOG, Registry, Status};
