//! Synchronization primitives. The `loom/` package replaces them with those of loom to test all
//! thread interleavings.

pub(crate) use std::sync::atomic::{AtomicU8, Ordering};
