//! Stub of `recorded` for targets without Vulkan.

use super::device::Device;
use super::link_plan::LinkPlan;
use parking_lot::MutexGuard;
use tabla_core::error::{Result, bail};
use tabla_core::exec::Executor;

pub(super) fn check_support(_: &wgpu::Device) -> Result<()> {
    bail!(Unsupported, "gpu: recorded replay requires Vulkan");
}

pub(super) fn wait_idle(_: &wgpu::Device, _: &MutexGuard<'_, ()>) {}

pub(super) fn link(device: &Device, _: LinkPlan) -> Result<Box<dyn Executor>> {
    check_support(&device.wgpu)?;
    unreachable!("`check_support` always fails")
}
