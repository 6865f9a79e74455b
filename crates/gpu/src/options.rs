//! Options for opening a device.

use std::path::PathBuf;
use std::time::Duration;
use tabla_core::device::{GpuFeatures, KernelVariant, Replay};

tabla_core::options! {
    /// Options for [`open`](super::open).
    #[derive(Clone, Debug, Default)]
    pub struct DeviceOptions {
        /// Part of the adapter's name, case-insensitive, or its index in [`adapters`](super::adapters).
        /// Default: the best adapter.
        pub adapter: Option<String>,
        /// Allows software adapters (lavapipe, WARP).
        pub allow_software: bool,
        /// Folder with the layout of `shaders/`, whose files override the built-in ones.
        pub shader_path: Option<PathBuf>,
        /// Optional device features to enable.
        pub features: GpuFeatures,
        /// Kernel variants to use if the device supports them. Default: all.
        pub variants: Option<Vec<KernelVariant>>,
        /// Replay mode of tables.
        pub replay: Replay,
        /// Folder of the pipeline cache, which stores compiled kernels between loads.
        pub pipeline_cache_path: Option<PathBuf>,
        /// Maximum time of waiting for submitted work, after which the device counts as lost. Default:
        /// 120 s, of a software adapter 3600 s.
        pub timeout: Option<Duration>,
    }
}
