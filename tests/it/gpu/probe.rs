//! The probe of a GPU's memory: it reads what was written, and a lost device is an error.

use super::{device, say};
use tabla::error::ErrorKind;
use tabla::exec::gpu::Probe;

#[test]
fn a_probe_reads_every_word_in_a_time() {
    let Some(device) = device(1) else {
        return;
    };
    // A sum that is not that of the words would be an error.
    let mut probe = Probe::new(&device).unwrap();
    let rate = probe.round().unwrap();
    assert!(rate.is_finite() && rate > 0.0, "{rate} bytes per second");
    say(format_args!("memory: {:.1} GB/s", rate / 1e9));
    device.destroy();
    let error = probe.round().expect_err("the device is lost");
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
}
