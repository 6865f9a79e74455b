//! Stands for `recorded` where there is no Vulkan.

use super::device::Device;
use super::parts::Parts;
use parking_lot::MutexGuard;
use tabla_core::error::{Result, bail};
use tabla_core::exec::Executor;

pub(super) fn able(_: &wgpu::Device) -> Result<()> {
    bail!(Unsupported, "gpu: recorded replay is for Vulkan");
}

pub(super) fn idle(_: &wgpu::Device, _: &MutexGuard<'_, ()>) {}

pub(super) fn link(device: &Device, _: Parts) -> Result<Box<dyn Executor>> {
    able(&device.wgpu)?;
    unreachable!("no device is able")
}
