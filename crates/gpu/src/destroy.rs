//! Destruction of a device.

use super::device::Device;
use super::recorded;

impl Device {
    /// Destroys the device, with the effect of a driver reset: all models on it fail with `DeviceLost`.
    pub fn destroy(&self) {
        let _guard = self.queue_lock.lock();
        if self.recorded {
            recorded::wait_idle(self);
        }
        self.wgpu.destroy();
        self.poll_loss();
    }
}
