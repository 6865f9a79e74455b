//! Linking: creates the executor of a program.

use super::arena::Arena;
use super::device::Device;
use super::encoded_tables;
use super::readback::Readback;
use super::recorded;
use super::run::EncodedExecutor;
use tabla_core::error::Result;
use tabla_core::exec::{Copies, Executor, Program, Programs};

/// Links tables to a device.
///
/// # Errors
///
/// `Unsupported` for an unsupported head dimension, `TooLarge` for a tensor over the device's
/// limit, `Memory` if an allocation fails, `Format` for an invalid custom shader, `Device` and
/// `DeviceLost` from the driver.
pub fn link(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    if device.recorded {
        recorded::link(&device, program)
    } else {
        link_encoded(device, program)
    }
}

/// Links for replay through wgpu.
fn link_encoded(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    let mut tables = encoded_tables::link(&device, program, &Arena::default())?;
    let readback = Readback::new(&device)?;
    device.check()?;
    let count = tables.commands.len();
    Ok(Box::new(EncodedExecutor {
        arena: std::mem::take(&mut tables.arena),
        programs: Programs::new(tables, count),
        readback,
        copies: Copies::default(),
        timer: None,
        device,
    }))
}
