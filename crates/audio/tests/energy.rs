//! The energy gate on generated recordings.

use tabla_audio::{DEFAULT_THRESHOLD, SAMPLE_RATE, loud_ranges};

/// Samples of a number of milliseconds.
fn milliseconds(count: usize) -> usize {
    count * SAMPLE_RATE as usize / 1000
}

/// A recording of parts: amplitude and milliseconds.
fn recording(parts: &[(f32, usize)]) -> Vec<f32> {
    let part = |(amplitude, length): &(f32, usize)| {
        let amplitude = *amplitude;
        (0..milliseconds(*length)).map(move |i| if i % 2 == 0 { amplitude } else { -amplitude })
    };
    parts.iter().flat_map(part).collect()
}

#[test]
fn silence_has_no_ranges() {
    for length in [0, 1, 49, 50, 499, 500, 501, 3000] {
        let samples = recording(&[(0.0, length)]);
        assert_eq!(loud_ranges(&samples, DEFAULT_THRESHOLD), [], "{length} ms");
    }
    let nan = vec![f32::NAN; 20_000];
    assert_eq!(loud_ranges(&nan, DEFAULT_THRESHOLD), []);
}

#[test]
fn a_recording_of_one_level_is_loud_or_silent() {
    for length in [1, 333, 500, 777, 4000] {
        // -45 dBFS is 0.00562.
        let (quiet, loud) = (
            recording(&[(0.0055, length)]),
            recording(&[(0.0058, length)]),
        );
        assert_eq!(loud_ranges(&quiet, DEFAULT_THRESHOLD), [], "{length} ms");
        let ranges = loud_ranges(&loud, DEFAULT_THRESHOLD);
        assert!(
            ranges.len() == 1 && ranges[0] == (0..loud.len()),
            "{length} ms"
        );
        assert_eq!(loud_ranges(&loud, -44.0), [], "{length} ms");
    }
}

#[test]
fn sounds_are_found_with_padding_and_merged() {
    let samples = recording(&[
        (0.0, 3000),
        (0.5, 1000),
        (0.0, 3000),
        (0.5, 100),
        (0.0, 900),
        (0.5, 100),
        (0.0, 3000),
    ]);
    let ranges = loud_ranges(&samples, DEFAULT_THRESHOLD);
    // Half a second of a window and the padding, at each side.
    let expected = [(3000 - 650, 4000 + 650), (7000 - 650, 8100 + 650)];
    let expected = expected.map(|(start, end)| milliseconds(start)..milliseconds(end));
    assert_eq!(ranges, expected);
}

#[test]
fn the_end_of_a_recording_is_not_lost() {
    let samples = recording(&[(0.0, 2000), (0.5, 20)]);
    let ranges = loud_ranges(&samples, DEFAULT_THRESHOLD);
    assert_eq!(ranges.len(), 1);
    assert_eq!(ranges[0].end, samples.len());
}
