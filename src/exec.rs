//! Executors: what each one offers, and those there are.

pub use tabla_core::exec::*;
pub use tabla_cpu as cpu;
#[cfg(feature = "gpu")]
pub use tabla_gpu as gpu;

/// Names and texts of the kernels of GPUs, of which tunings and saved sessions keep a digest; none
/// without the feature `gpu`.
pub(crate) fn shader_sources() -> &'static [(&'static str, &'static str)] {
    #[cfg(feature = "gpu")]
    return tabla_shaders::SOURCES;
    #[cfg(not(feature = "gpu"))]
    &[]
}
