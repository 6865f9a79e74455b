//! One integration binary, so that the library is linked once.

#[cfg(feature = "gpu")]
mod gpu;
