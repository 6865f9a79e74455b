//! Destruction of a device, for tests of device loss.

use super::device::Device;
use super::recorded;

impl Device {
    /// Destroys the device, with the effect of a driver reset. For tests of device loss.
    pub fn destroy(&self) {
        let guard = self.queue_lock.lock();
        if self.recorded {
            recorded::wait_idle(&self.wgpu, &guard);
        }
        self.wgpu.destroy();
        self.poll_loss();
    }
}
