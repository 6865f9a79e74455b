//! Executors of the CPU and of GPUs.

pub use tabla_core::exec::*;
pub use tabla_cpu as cpu;
#[cfg(feature = "gpu")]
pub use tabla_gpu as gpu;

/// Returns names and sources of the GPU kernels, which are part of the digests in tuning files and
/// saved sessions. Empty without the feature `gpu`.
pub(crate) fn shader_sources() -> &'static [(&'static str, &'static str)] {
    #[cfg(feature = "gpu")]
    return tabla_shaders::SOURCES;
    #[cfg(not(feature = "gpu"))]
    &[]
}
