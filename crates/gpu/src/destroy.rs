//! Destroying a device, for tests of what follows its loss.

use super::device::Device;
use super::recorded;

impl Device {
    /// Loses the device, as when a driver resets it: for tests of what comes after.
    pub fn destroy(&self) {
        let turn = self.turn.lock();
        if self.recorded {
            recorded::idle(&self.wgpu, &turn);
        }
        self.wgpu.destroy();
        self.hear();
    }
}
