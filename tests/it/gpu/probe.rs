//! Tests of the memory bandwidth probe.

use super::{device, log};
use tabla::ErrorKind;
use tabla::exec::gpu::Probe;

#[test]
fn measures_bandwidth_and_reports_device_loss() {
    let Some(device) = device(1) else {
        return;
    };
    // A wrong sum is an error.
    let mut probe = Probe::new(&device).unwrap();
    let rate = probe.round().unwrap();
    assert!(rate.is_finite() && rate > 0.0, "{rate} bytes per second");
    log(format_args!("memory: {:.1} GB/s", rate / 1e9));
    device.destroy();
    let error = probe.round().expect_err("the device is lost");
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
}
