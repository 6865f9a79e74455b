//! Peak rates and memory reads at every level.

use tabla_cpu::{Level, LinkOptions, peak, read};

#[test]
fn reads_every_byte() {
    let mut bytes = [0; 11 * 64];
    for level in Level::available() {
        assert_eq!(read(level, &bytes).expect("an available level"), 0);
        for at in 0..bytes.len() {
            bytes[at] = 1;
            let found = read(level, &bytes).expect("an available level");
            assert_eq!(found.to_ne_bytes()[at % 8], 1, "{level:?}, byte {at}");
            bytes[at] = 0;
        }
    }
}

#[test]
fn every_level_has_a_peak_rate() {
    for level in Level::available() {
        let options = LinkOptions::default().threads(2).level(level);
        let peak = peak(&options).expect("an available level");
        assert!(
            peak.int8 > 0.0 && peak.float > 0.0 && peak.bf16 > 0.0,
            "{level:?}: {peak:?}"
        );
    }
}
