//! Stub of `recorded` for targets without Vulkan.

use super::device::Device;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Executor, Program};

pub(super) fn check_support(_: &wgpu::Device) -> Result<()> {
    bail!(Unsupported, "gpu: recorded replay requires Vulkan");
}

pub(super) fn cores(_: &wgpu::Adapter) -> u32 {
    0
}

pub(super) fn wait_idle(_: &Device) {}

pub(super) fn link(device: Device, _: Program) -> Result<Box<dyn Executor>> {
    check_support(&device.wgpu)?;
    unreachable!("`check_support` always fails")
}
