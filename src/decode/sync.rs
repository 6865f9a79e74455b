//! What threads meet by. `loom/` puts loom's in their place and tries every order of threads.

pub(super) use parking_lot::{Condvar, Mutex};
pub(super) use std::sync::atomic::{AtomicU8, Ordering};
