//! Linking: creates the executor of a program in the replay mode of the device.

use super::device::Device;
use super::encoded::EncodedReplay;
use super::executor;
use super::recorded;
use tabla_core::error::Result;
use tabla_core::exec::{Executor, Program};

/// Links tables to a device.
///
/// # Errors
///
/// `Unsupported` for an unsupported head dimension, `TooLarge` for a tensor over the device's
/// limit, `Memory` if an allocation fails, `Format` for an invalid custom shader, `Device` and
/// `DeviceLost` from the driver.
pub fn link(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    if device.recorded {
        recorded::link(device, program)
    } else {
        executor::link::<EncodedReplay>(device, program)
    }
}
