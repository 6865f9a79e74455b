//! Synchronization primitives. The `loom/` package replaces them with those of loom to test all
//! thread interleavings.

pub(super) use parking_lot::{Condvar, Mutex};
