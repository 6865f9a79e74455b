//! The device of a loaded model.

use tabla::device::{DeviceKind, Profile};
use tabla::exec::cpu;
use tabla::load::LoadOptions;

/// Returns the backend name of llama-bench.
pub(crate) fn backend(profile: &Profile) -> String {
    match (profile.kind, profile.backend.as_str()) {
        (DeviceKind::Cpu, _) => "CPU".to_string(),
        (DeviceKind::Gpu, "vulkan") => "Vulkan".to_string(),
        (DeviceKind::Gpu, "metal") => "Metal".to_string(),
        (DeviceKind::Gpu, "dx12") => "DX12".to_string(),
        (DeviceKind::Gpu, other) => other.to_string(),
    }
}

/// Returns the options of the CPU that a model was loaded to.
pub(crate) fn cpu_options(options: &LoadOptions, profile: &Profile) -> cpu::LinkOptions {
    cpu::LinkOptions::default()
        .threads(profile.threads)
        .level(options.level)
        .precision(options.precision)
}
