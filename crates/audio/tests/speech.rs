//! Ranges of speech from probabilities.

use tabla_audio::{VOICE_WINDOW, VoiceOptions, speech_ranges};

/// Default padding in samples.
const PADDING: usize = 480;

/// Probabilities of parts: a probability and a number of windows.
fn windows(parts: &[(f32, usize)]) -> Vec<f32> {
    let part = |(probability, count): &(f32, usize)| std::iter::repeat_n(*probability, *count);
    parts.iter().flat_map(part).collect()
}

/// Ranges with the default options but without padding, in windows.
fn ranges(parts: &[(f32, usize)]) -> Vec<(usize, usize)> {
    let options = VoiceOptions {
        padding_ms: 0,
        ..VoiceOptions::default()
    };
    let window = |at: usize| {
        assert_eq!(at % VOICE_WINDOW, 0);
        at / VOICE_WINDOW
    };
    let found = samples(&windows(parts), &options).into_iter();
    found
        .map(|(start, end)| (window(start), window(end)))
        .collect()
}

/// Starts and ends of ranges in samples.
fn samples(probabilities: &[f32], options: &VoiceOptions) -> Vec<(usize, usize)> {
    let found = speech_ranges(probabilities, options).into_iter();
    found.map(|range| (range.start, range.end)).collect()
}

#[test]
fn silence_has_no_ranges() {
    for parts in [&[][..], &[(0.0, 50)], &[(0.49, 50)], &[(f32::NAN, 50)]] {
        assert_eq!(ranges(parts), [], "{parts:?}");
    }
}

#[test]
fn speech_starts_at_the_threshold_and_ends_below_the_lower_one() {
    let low = VoiceOptions::default().end_threshold();
    assert!((low - 0.35).abs() < 1e-6);
    assert_eq!(
        ranges(&[(0.49, 10), (0.5, 10), (low, 10), (0.34, 10)]),
        [(10, 30)]
    );
    assert_eq!(ranges(&[(0.49, 10), (0.5, 10), (0.36, 10)]), [(10, 30)]);
    let options = VoiceOptions {
        threshold: 0.1,
        ..VoiceOptions::default()
    };
    assert!((options.end_threshold() - 0.01).abs() < 1e-9);
    let probabilities = windows(&[(0.1, 20), (0.02, 20), (0.009, 20)]);
    let expected = (0, 40 * VOICE_WINDOW + PADDING);
    assert_eq!(samples(&probabilities, &options), [expected]);
}

#[test]
fn short_silence_does_not_end_speech() {
    // The silence has 100 ms at the fifth window below the threshold: 4 * 32 ms before it.
    for (count, expected) in [(1, vec![(0, 31)]), (4, vec![(0, 34)]), (5, vec![(0, 35)])] {
        assert_eq!(ranges(&[(0.9, 10), (0.1, count), (0.9, 20)]), expected);
    }
    // Silence is measured from its first window, and a window between the thresholds does not end it.
    let parts = [(0.9, 10), (0.1, 1), (0.4, 30), (0.1, 1), (0.9, 20)];
    assert_eq!(ranges(&parts), [(0, 10), (42, 62)]);
    // A window of speech does.
    let parts = [(0.9, 10), (0.1, 4), (0.5, 1), (0.1, 4), (0.9, 10)];
    assert_eq!(ranges(&parts), [(0, 29)]);
    // Silence at the end that is too short belongs to the speech.
    assert_eq!(ranges(&[(0.9, 10), (0.1, 4)]), [(0, 14)]);
    assert_eq!(ranges(&[(0.9, 10), (0.1, 5)]), [(0, 10)]);
}

#[test]
fn short_speech_is_dropped() {
    // 250 ms are 7.8 windows.
    assert_eq!(ranges(&[(0.0, 9), (0.9, 7), (0.0, 9)]), []);
    assert_eq!(ranges(&[(0.0, 9), (0.9, 8), (0.0, 9)]), [(9, 17)]);
    assert_eq!(ranges(&[(0.0, 9), (0.9, 7)]), []);
    assert_eq!(ranges(&[(0.0, 9), (0.9, 8)]), [(9, 17)]);
    // Speech of exactly the minimum is dropped, as by whisper.cpp.
    let options = VoiceOptions {
        min_speech_ms: 320,
        ..VoiceOptions::default()
    };
    assert_eq!(samples(&[0.9; 10], &options), []);
    assert_eq!(samples(&[0.9; 11], &options), [(0, 11 * VOICE_WINDOW)]);
}

#[test]
fn near_ranges_are_merged() {
    // 200 ms are 6.25 windows.
    let gap = |count| ranges(&[(0.9, 10), (0.1, count), (0.9, 10)]);
    assert_eq!(gap(6), [(0, 26)]);
    assert_eq!(gap(7), [(0, 10), (17, 27)]);
    // Short speech is dropped before, so it does not connect its neighbours.
    let parts = [(0.9, 10), (0.1, 6), (0.9, 7), (0.1, 6), (0.9, 10)];
    assert_eq!(ranges(&parts), [(0, 10), (29, 39)]);
    let parts = [(0.9, 10), (0.1, 6), (0.9, 8), (0.1, 6), (0.9, 10)];
    assert_eq!(ranges(&parts), [(0, 40)]);
}

#[test]
fn padding_stays_within_the_recording_and_shares_gaps() {
    let at = |window: usize| window * VOICE_WINDOW;
    let probabilities = windows(&[(0.1, 1), (0.9, 10), (0.1, 9), (0.9, 10), (0.1, 20)]);
    let found = samples(&probabilities, &VoiceOptions::default());
    assert_eq!(
        found,
        [
            (at(1) - PADDING, at(11) + PADDING),
            (at(20) - PADDING, at(30) + PADDING)
        ]
    );
    let wide = |padding_ms| VoiceOptions {
        padding_ms,
        ..VoiceOptions::default()
    };
    // The gap has 9 windows: 288 ms.
    let middle = at(11) + (at(20) - at(11)) / 2;
    let found = samples(&probabilities, &wide(400));
    assert_eq!(found, [(0, middle), (middle, at(30) + 6400)]);
    let found = samples(&probabilities, &wide(u32::MAX));
    assert_eq!(found, [(0, middle), (middle, at(50))]);
    let found = samples(&[0.9; 10], &VoiceOptions::default());
    assert_eq!(found, [(0, at(10))]);
}
