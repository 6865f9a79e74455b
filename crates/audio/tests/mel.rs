//! Spectrograms and filters compared with those of `transformers`; `tests/reference/mel.py` writes
//! them for the same signals.

#![expect(
    clippy::cast_possible_truncation,
    reason = "samples are rounded to f32"
)]

use std::f64::consts::PI;
use std::path::Path;
use tabla_audio::{HOP, LogMel, MelFilters, normalize};
use tabla_core::error::ErrorKind;

const COUNT: usize = 4000;
const FRAMES: usize = COUNT / HOP;

/// Numbers of a `.npy` file of f32 in C order.
fn golden(name: &str) -> Vec<f32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let bytes = std::fs::read(path.join(name)).expect(name);
    let header = bytes.iter().position(|b| *b == b'\n').expect("a header") + 1;
    let numbers = bytes[header..].as_chunks().0.iter();
    numbers.map(|b| f32::from_le_bytes(*b)).collect()
}

/// Numbers from -1 to 1 of a linear congruential generator.
fn noise(mut seed: u32) -> Vec<f64> {
    let next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(seed >> 16) / 32768.0 - 1.0
    };
    std::iter::repeat_with(next).take(COUNT).collect()
}

/// The signals of the reference: sine, chirp, noise, silence, clipped, clicks, faint noise, constant,
/// two tones, a tone that ends.
fn signals() -> Vec<Vec<f32>> {
    let sine = |hertz: f64, t: usize| (2.0 * PI * hertz * t as f64 / 16000.0).sin();
    let chirp = |t: usize| {
        let seconds = t as f64 / 16000.0;
        let rate = 3500.0 / (2.0 * COUNT as f64 / 16000.0);
        0.8 * (2.0 * PI * (100.0 * seconds + rate * seconds * seconds)).sin()
    };
    let (loud, faint) = (noise(1), noise(2));
    let all: [&dyn Fn(usize) -> f64; 10] = [
        &|t| 0.5 * sine(440.0, t),
        &chirp,
        &|t| 0.3 * loud[t],
        &|_| 0.0,
        &|t| 3.0 * sine(200.0, t),
        &|t| if t % 1000 == 500 { 0.9 } else { 0.0 },
        &|t| 0.0002 * faint[t],
        &|_| 0.25,
        &|t| 0.4 * sine(1000.0, t) + 0.05 * sine(7900.0, t),
        &|t| if t < 2000 { 0.6 * sine(3000.0, t) } else { 0.0 },
    ];
    let sample = |x: f64| {
        let rounded = (x * 32768.0).round_ties_even().clamp(-32768.0, 32767.0);
        rounded as f32 / 32768.0
    };
    let signal = |at: &&dyn Fn(usize) -> f64| (0..COUNT).map(|t| sample(at(t))).collect();
    all.iter().map(signal).collect()
}

/// Frames of a recording, normalized.
fn spectrogram(mel: &mut LogMel, samples: &[f32], len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len / HOP * mel.mels()];
    mel.log_powers(samples, len, 0..len / HOP, &mut out);
    let max = out.iter().copied().fold(f32::MIN, f32::max);
    normalize(&mut out, max);
    out
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

#[test]
fn spectrograms_match_the_reference() {
    let expected = golden("mel.npy");
    assert_eq!(expected.len(), signals().len() * FRAMES * 80);
    let mut mel = LogMel::new(MelFilters::slaney(80));
    for (i, (signal, expected)) in signals()
        .iter()
        .zip(expected.chunks_exact(FRAMES * 80))
        .enumerate()
    {
        let found = spectrogram(&mut mel, signal, COUNT);
        let worst = worst(&found, expected);
        assert!(worst < 1e-4, "signal {i}: {worst:e} at worst");
    }
}

#[test]
fn filters_match_the_reference() {
    let expected = golden("mel_filters.npy");
    let (few, many) = expected.split_at(391);
    for (mels, expected) in [(80, few), (128, many)] {
        let filters = MelFilters::slaney(mels);
        assert_eq!(filters.mels(), mels);
        // Rounding decides whether the edge of a triangle is exactly 0.
        let mut found = filters.to_rows();
        found.retain(|w| *w > 1e-8);
        let worst = worst(&found, expected);
        assert!(worst < 4e-9, "{mels} filters: {worst:e} at worst");
    }
}

#[test]
fn filters_of_a_file_are_used_as_they_are() {
    let mut rows = vec![0.0; 2 * 201];
    (rows[11], rows[13], rows[400]) = (1.0, 0.5, 2.0);
    let filters = MelFilters::from_rows(&rows).expect("two filters");
    assert_eq!(filters.to_rows(), rows);
    // A sine of bin 11 has a power of (400 / 4)^2 with this window, its neighbours a quarter.
    let sine = |t: usize| (2.0 * PI * 440.0 * t as f64 / 16000.0).sin() as f32;
    let samples: Vec<f32> = (0..COUNT).map(sine).collect();
    let mut out = [0.0; 2];
    LogMel::new(filters).log_powers(&samples, COUNT, 5..6, &mut out);
    assert!((out[0] - 4.0).abs() < 1e-4, "{out:?}");
    assert!(out[1] < -6.0, "{out:?}");
    for len in [0, 200, 202] {
        let error = MelFilters::from_rows(&vec![0.0; len]).expect_err("not whole rows");
        assert_eq!(error.kind(), ErrorKind::Argument, "{len} numbers");
    }
}

#[test]
fn silence_may_follow_and_frames_may_be_computed_apart() {
    let signal = &signals()[1];
    let mut mel = LogMel::new(MelFilters::slaney(128));
    let len = 2 * COUNT + 77;
    let mut padded = signal.clone();
    padded.resize(len, 0.0);
    let whole = spectrogram(&mut mel, &padded, len);
    assert_eq!(spectrogram(&mut mel, signal, len), whole);
    let mut all = vec![0.0; len / HOP * 128];
    mel.log_powers(signal, len, 0..len / HOP, &mut all);
    for (i, frame) in all.chunks_exact(128).enumerate() {
        let mut out = [0.0; 128];
        mel.log_powers(signal, len, i..i + 1, &mut out);
        assert_eq!(out, frame, "frame {i}");
    }
}

#[test]
fn short_recordings_have_finite_frames() {
    let mut mel = LogMel::new(MelFilters::slaney(80));
    for len in [1, 2, 159, 160, 199, 200, 201, 399, 400] {
        let samples = vec![0.1; len];
        let found = spectrogram(&mut mel, &samples, len);
        assert_eq!(found.len(), len / HOP * 80);
        assert!(found.iter().all(|x| x.is_finite()), "{len} samples");
    }
}
