//! Options for opening a device.

use std::path::PathBuf;
use tabla_core::device::{GpuFeatures, KernelVariant, Replay};

/// Which adapter to take, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A part of its name, or its index in [`adapters`](super::adapters); the best one where absent.
    pub adapter: Option<String>,
    /// Whether an adapter that is the CPU in disguise (lavapipe, WARP) may be taken.
    pub allow_software: bool,
    /// A folder laid out like `shaders/`, whose files stand in front of the built-in ones.
    pub shader_folder: Option<PathBuf>,
    /// What is asked of the device.
    pub features: GpuFeatures,
    /// The forms of kernels that may be used, where the device can run them; `None`: all.
    pub forms: Option<Vec<KernelVariant>>,
    /// How tables are replayed.
    pub replay: Replay,
    /// A folder that keeps compiled kernels for the next time.
    pub kernel_folder: Option<PathBuf>,
}
