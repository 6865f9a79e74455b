//! Decoding of generated WAV files, and of the files that `tests/reference/audio_files.py` writes.

#![expect(
    clippy::cast_possible_truncation,
    reason = "samples are rounded to the format of the file"
)]

use std::f64::consts::PI;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use tabla_audio::{AudioReader, PcmConverter};
use tabla_core::error::{ErrorKind, Result};

/// A compressed chirp.
struct Golden {
    name: &'static str,
    rate: u32,
    frames: usize,
    channels: usize,
    /// Frames that the format cannot mark as added by the encoder: at the start, and at most at the end.
    delay: usize,
    padding: usize,
}

const fn golden(name: &'static str, rate: u32, frames: usize, channels: usize) -> Golden {
    Golden {
        name,
        rate,
        frames,
        channels,
        delay: 0,
        padding: 0,
    }
}

impl Golden {
    const fn padded(self, delay: usize, padding: usize) -> Self {
        Self {
            delay,
            padding,
            ..self
        }
    }
}

const GOLDEN: [Golden; 15] = [
    golden("chirp.mp3", 22050, 16537, 1),
    golden("chirp.flac", 8000, 4801, 1),
    golden("chirp.ogg", 16000, 12001, 2),
    golden("chirp.opus", 48000, 36013, 1),
    golden("chirp_voice.opus", 48000, 48000, 1),
    golden("chirp_hybrid.opus", 48000, 33007, 2),
    golden("chirp_surround.opus", 48000, 12000, 6),
    golden("chirp.m4a", 22050, 16537, 1),
    golden("chirp_alac.m4a", 8000, 4801, 1),
    golden("chirp_fragmented.m4a", 22050, 16537, 2).padded(0, 1024),
    golden("chirp.aac", 16000, 8192, 1).padded(1024, 0),
    golden("chirp.webm", 48000, 36013, 1).padded(0, 960),
    golden("chirp_vorbis.webm", 16000, 12001, 1).padded(0, 1024),
    golden("chirp_adpcm.wav", 8000, 4801, 1).padded(0, 2048),
    golden("chirp_alaw.wav", 8000, 4801, 1),
];

fn path(name: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden.join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).expect(name)
}

/// All samples of a reader, in reads of one size.
#[expect(
    clippy::panic_in_result_fn,
    reason = "errors are expected, wrong counts are not"
)]
fn read_all(mut reader: AudioReader, size: usize) -> Result<Vec<f32>> {
    let mut out = Vec::new();
    loop {
        let before = out.len();
        let count = reader.read(size, &mut out)?;
        assert_eq!(out.len(), before + count);
        assert!(count <= size);
        assert!(out.len() < 100_000_000, "endless audio");
        if count == 0 {
            return Ok(out);
        }
    }
}

fn decode(bytes: Vec<u8>) -> Result<Vec<f32>> {
    read_all(AudioReader::from_bytes(bytes)?, 5000)
}

/// The chirp of the reference at 16 kHz.
fn chirp(seconds: f64) -> Vec<f64> {
    let sample = |i: usize| {
        let t = i as f64 / 16000.0;
        let fade = (t / 0.02).min((seconds - t) / 0.02).min(1.0);
        0.5 * fade * (2.0 * PI * (400.0 * t + 900.0 * t * t / seconds)).sin()
    };
    (0..(seconds * 16000.0).round() as usize)
        .map(sample)
        .collect()
}

/// Correlation with a signal that starts `lag` samples later.
fn correlation(found: &[f32], expected: &[f64], lag: isize) -> f64 {
    let (mut product, mut a, mut b) = (0.0, 0.0, 0.0);
    for (i, y) in expected.iter().enumerate() {
        let at = i.checked_add_signed(lag);
        let x = at.and_then(|at| found.get(at));
        let x = f64::from(x.copied().unwrap_or(0.0));
        product += x * y;
        a += x * x;
        b += y * y;
    }
    product / (a * b).sqrt()
}

fn resampled(frames: usize, rate: u32) -> usize {
    let (frames, rate) = (frames as u64, u64::from(rate));
    usize::try_from((frames * 16000 + rate / 2) / rate).expect("a second or two")
}

#[test]
fn compressed_chirps_are_aligned_and_have_their_length() {
    for g in &GOLDEN {
        let name = g.name;
        let reader = AudioReader::open(&path(name)).expect(name);
        assert_eq!(
            (reader.sample_rate(), reader.channels()),
            (g.rate, g.channels),
            "{name}"
        );
        let seconds = g.frames as f64 / f64::from(g.rate);
        if let Some(duration) = reader.duration() {
            let added = (g.delay + g.padding) as f64 / f64::from(g.rate);
            let range = seconds - 1e-3..seconds + added + 1e-3;
            assert!(
                range.contains(&duration),
                "{name}: {duration} of {seconds} s"
            );
        }
        let found = read_all(reader, 1000).expect(name);
        let (least, most) = (g.frames + g.delay, g.frames + g.delay + g.padding);
        let range = resampled(least, g.rate)..=resampled(most, g.rate);
        assert!(
            range.contains(&found.len()),
            "{name}: {} samples",
            found.len()
        );
        let expected = chirp(seconds);
        let delay = resampled(g.delay, g.rate).cast_signed();
        let lags = delay - 40..=delay + 40;
        let correlations = lags.map(|lag| (lag, correlation(&found, &expected, lag)));
        let (lag, best) = correlations
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .expect("lags");
        assert!(
            (lag - delay).abs() <= 1,
            "{name}: {} samples late",
            lag - delay
        );
        // The speech mode of Opus shifts phases; the reference decoder gives the same samples.
        let least = match name {
            "chirp_voice.opus" | "chirp_hybrid.opus" => 0.97,
            _ => 0.99,
        };
        assert!(best > least, "{name}: correlation of {best}");
    }
}

/// A box of an MP4 file.
fn mp4_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32 + 8).to_be_bytes().to_vec();
    out.extend(kind);
    out.extend(body);
    out
}

/// Position of the kind of a box.
fn find(file: &[u8], kind: &[u8; 4]) -> usize {
    file.windows(4).position(|w| w == kind).expect("a box")
}

#[test]
fn the_padding_of_itunes_is_used_without_an_edit_list() {
    let expected = decode(bytes("chirp.m4a")).expect("an edit list");
    let mut file = bytes("chirp.m4a");
    let edits = find(&file, b"edts");
    file[edits..edits + 4].copy_from_slice(b"free");
    assert!(decode(file.clone()).expect("no trimming").len() > expected.len());
    let comment = b" 00000000 00000400 00000347 0000000000004099 00000000";
    let text = |prefix: usize, text: &[u8]| [&vec![0; prefix][..], text].concat();
    let tag = [
        mp4_box(b"mean", &text(4, b"com.apple.iTunes")),
        mp4_box(b"name", &text(4, b"iTunSMPB")),
        mp4_box(b"data", &[&[0, 0, 0, 1, 0, 0, 0, 0], &comment[..]].concat()),
    ];
    let handler = mp4_box(b"hdlr", b"\0\0\0\0\0\0\0\0mdirappl\0\0\0\0\0\0\0\0\0");
    let list = mp4_box(b"ilst", &mp4_box(b"----", &tag.concat()));
    let meta = mp4_box(b"meta", &text(4, &[handler, list].concat()));
    let data = mp4_box(b"udta", &meta);
    // The last box is that of the movie.
    let movie = find(&file, b"moov") - 4;
    let size = (file.len() - movie + data.len()) as u32;
    file[movie..movie + 4].copy_from_slice(&size.to_be_bytes());
    file.extend(data);
    assert!(decode(file).expect("a comment") == expected);
}

#[test]
fn the_samples_do_not_depend_on_the_reads_or_the_source() {
    for g in &GOLDEN {
        let name = g.name;
        let all = decode(bytes(name)).expect(name);
        for size in [1, 7, 160, 1 << 20] {
            let reader = AudioReader::from_bytes(bytes(name)).expect(name);
            assert!(
                read_all(reader, size).expect(name) == all,
                "{name} in reads of {size}"
            );
        }
        let reader = AudioReader::from_reader(Cursor::new(bytes(name)));
        if name == "chirp.m4a" {
            let error = reader.expect_err("the header follows the audio");
            assert!(error.message().contains("cannot seek"), "{error}");
            continue;
        }
        let reader = reader.expect(name);
        let streamed = read_all(reader, 999).expect(name);
        assert!(streamed == all, "{name} as a stream");
    }
}

/// Format of the samples of a WAV file.
#[derive(Clone, Copy, Debug)]
enum Pcm {
    U8,
    S16,
    S24,
    S32,
    F32,
}

impl Pcm {
    /// Code of the format, and bits per sample.
    fn code(self) -> (u16, u16) {
        match self {
            Self::U8 => (1, 8),
            Self::S16 => (1, 16),
            Self::S24 => (1, 24),
            Self::S32 => (1, 32),
            Self::F32 => (3, 32),
        }
    }

    fn push(self, x: f64, out: &mut Vec<u8>) {
        let scaled = |bits: i32| (x * 2f64.powi(bits - 1)).round();
        match self {
            Self::U8 => out.push((scaled(8) as i16 + 128) as u8),
            Self::S16 => out.extend((scaled(16) as i16).to_le_bytes()),
            Self::S24 => out.extend(&(scaled(24) as i32).to_le_bytes()[..3]),
            Self::S32 => out.extend((scaled(32) as i32).to_le_bytes()),
            Self::F32 => out.extend((x as f32).to_le_bytes()),
        }
    }
}

/// Header of a WAV file whose data has `size` bytes.
fn wav_header(format: Pcm, rate: u32, channels: u16, size: u32) -> Vec<u8> {
    let (code, bits) = format.code();
    let frame = channels.wrapping_mul(bits / 8);
    let mut out = b"RIFF".to_vec();
    out.extend(size.saturating_add(36).to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(16u32.to_le_bytes());
    out.extend(code.to_le_bytes());
    out.extend(channels.to_le_bytes());
    out.extend(rate.to_le_bytes());
    out.extend(rate.wrapping_mul(u32::from(frame)).to_le_bytes());
    out.extend(frame.to_le_bytes());
    out.extend(bits.to_le_bytes());
    out.extend(b"data");
    out.extend(size.to_le_bytes());
    out
}

/// A WAV file of interleaved samples.
fn wav(format: Pcm, rate: u32, channels: u16, samples: &[f64]) -> Vec<u8> {
    let mut data = Vec::new();
    samples.iter().for_each(|x| format.push(*x, &mut data));
    let mut out = wav_header(format, rate, channels, data.len() as u32);
    out.extend(data);
    out
}

fn sine(hertz: f64, rate: u32, count: usize) -> Vec<f64> {
    let turn = 2.0 * PI * hertz / f64::from(rate);
    (0..count).map(|i| 0.5 * (turn * i as f64).sin()).collect()
}

/// Largest difference, away from the ends.
fn worst(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let inner = 200..found.len() - 200;
    let differences = inner.map(|i| (f64::from(found[i]) - expected[i]).abs());
    differences.fold(0.0, f64::max)
}

#[test]
fn sines_of_all_rates_match_the_analytic_sine() {
    for rate in [
        8000, 11025, 12000, 16001, 22050, 24000, 32000, 44100, 44101, 48000, 96000, 192_000,
        767_999,
    ] {
        for count in [rate as usize, rate as usize / 3 + 7] {
            let samples = sine(1000.0, rate, count);
            let found = decode(wav(Pcm::F32, rate, 1, &samples)).expect("a WAV file");
            let expected = sine(1000.0, 16000, resampled(count, rate));
            let worst = worst(&found, &expected);
            assert!(worst < 1e-3, "{rate} Hz: {worst:e} at worst");
        }
    }
}

#[test]
fn frequencies_above_8_khz_are_removed() {
    for (hertz, rate) in [
        (10_000.0, 48000),
        (8_500.0, 44100),
        (20_000.0, 44100),
        (9_000.0, 22050),
        (8_500.0, 44101),
        (8_500.0, 191_999),
        (8_500.0, 767_999),
    ] {
        let samples = sine(hertz, rate, rate as usize);
        let found = decode(wav(Pcm::F32, rate, 1, &samples)).expect("a WAV file");
        let inner = &found[1600..14400];
        let power: f64 = inner.iter().map(|x| f64::from(*x).powi(2)).sum();
        let decibel = 10.0 * (power / inner.len() as f64 / 0.125).log10();
        assert!(decibel < -60.0, "{hertz} Hz at {rate} Hz: {decibel} dB");
    }
}

#[test]
fn sample_formats_are_exact_at_16_khz() {
    let samples = sine(440.0, 16000, 3000);
    let formats = [Pcm::U8, Pcm::S16, Pcm::S24, Pcm::S32, Pcm::F32];
    for (format, step) in formats.into_iter().zip([8, 16, 24, 32, 0]) {
        let found = decode(wav(format, 16000, 1, &samples)).expect("a WAV file");
        for (i, (found, x)) in found.iter().zip(&samples).enumerate() {
            let rounded = match step {
                0 => *x as f32,
                bits => ((x * 2f64.powi(bits - 1)).round() / 2f64.powi(bits - 1)) as f32,
            };
            assert_eq!(*found, rounded, "{format:?}, sample {i}");
        }
        assert_eq!(found.len(), samples.len(), "{format:?}");
    }
}

#[test]
fn channels_are_mixed_to_their_mean() {
    for channels in [1, 2, 6, 8, 18, 26] {
        let frames = 1000;
        let sample = |i| f64::from(i as u8) / 512.0 - 0.25;
        let samples: Vec<f64> = (0..frames * usize::from(channels)).map(sample).collect();
        let file = wav(Pcm::S16, 16000, channels, &samples);
        let reader = AudioReader::from_bytes(file).expect("a WAV file");
        assert_eq!(reader.channels(), usize::from(channels));
        assert_eq!(reader.duration(), Some(frames as f64 / 16000.0));
        let found = read_all(reader, 333).expect("samples");
        assert_eq!(found.len(), frames);
        for (found, frame) in found.iter().zip(samples.chunks(channels.into())) {
            let mean = frame.iter().sum::<f64>() / f64::from(channels);
            assert!(
                (f64::from(*found) - mean).abs() < 1e-6,
                "{channels} channels"
            );
        }
    }
}

#[test]
fn raw_pcm_is_converted_in_pieces_of_any_size() {
    let samples: Vec<i16> = (0..9001)
        .map(|i: i32| (i * 7919 % 65536 - 32768) as i16)
        .collect();
    let floats: Vec<f32> = samples.iter().map(|x| f32::from(*x) / 32768.0).collect();
    for rate in [8000, 16000, 44100] {
        let mut whole = Vec::new();
        let mut converter = PcmConverter::new(rate, 1).expect("a converter");
        converter.push(&floats, &mut whole).expect("samples");
        converter.finish(&mut whole).expect("the end");
        assert_eq!(whole.len(), resampled(samples.len(), rate));
        for size in [1, 100, 5000] {
            let mut pieces = Vec::new();
            let mut converter = PcmConverter::new(rate, 1).expect("a converter");
            for piece in samples.chunks(size) {
                converter.push_i16(piece, &mut pieces).expect("samples");
            }
            converter.finish(&mut pieces).expect("the end");
            assert!(pieces == whole, "{rate} Hz in pieces of {size}");
        }
    }
    let mut out = Vec::new();
    let converter = PcmConverter::new(44100, 2).expect("a converter");
    converter.finish(&mut out).expect("the end");
    assert!(out.is_empty());
}

#[test]
fn invalid_pcm_is_rejected() {
    for (rate, channels) in [(0, 1), (999, 1), (768_001, 1), (16000, 0), (16000, 33)] {
        let error = PcmConverter::new(rate, channels).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
    let mut converter = PcmConverter::new(16000, 2).expect("a converter");
    let mut out = Vec::new();
    let error = converter
        .push(&[0.0; 3], &mut out)
        .expect_err("half a frame");
    assert_eq!(error.kind(), ErrorKind::Argument);
    converter.push(&[0.0; 20], &mut out).expect("ten frames");
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let error = converter.push(&[x, 0.0], &mut out).expect_err("not finite");
        assert_eq!(error.kind(), ErrorKind::Format);
        assert!(error.message().starts_with("sample 10 is "), "{error}");
    }
}

#[track_caller]
fn rejects(bytes: Vec<u8>, kind: ErrorKind, part: &str) {
    let error = decode(bytes).expect_err(part);
    assert!(error.message().contains(part), "{error}");
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn files_that_cannot_be_decoded_are_rejected() {
    rejects(Vec::new(), ErrorKind::Format, "empty");
    let error = AudioReader::from_reader(Cursor::new([])).expect_err("empty");
    assert_eq!(error.kind(), ErrorKind::Format);
    let unknown = "no decoder recognizes its content";
    rejects(b"# Not audio\n".repeat(99), ErrorKind::Unsupported, unknown);
    rejects(vec![0; 100_000], ErrorKind::Unsupported, unknown);
    rejects(b"x".to_vec(), ErrorKind::Unsupported, unknown);
    rejects(bytes("chirp_ac3.mkv"), ErrorKind::Unsupported, "AC-3");
    // Object type 5 instead of 2: SBR.
    let mut file = bytes("chirp.m4a");
    let config = file.windows(3).position(|w| w == [0x13, 0x88, 0x56]);
    let config = config.expect("a configuration");
    file[config..config + 3].copy_from_slice(&[0x2b, 0x8a, 0x08]);
    rejects(file, ErrorKind::Unsupported, "HE-AAC");
    let error = AudioReader::open(Path::new("/no/such/file.wav")).expect_err("no file");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.message().starts_with("/no/such/file.wav: "),
        "{error}"
    );
    let error = AudioReader::open(Path::new(env!("CARGO_MANIFEST_DIR"))).expect_err("a folder");
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn invalid_wav_headers_are_rejected() {
    let file = |rate, channels| wav(Pcm::S16, rate, channels, &[0.0; 4000]);
    rejects(file(0, 1), ErrorKind::Format, "0 Hz");
    rejects(file(500, 1), ErrorKind::Unsupported, "500 Hz");
    rejects(file(u32::MAX, 1), ErrorKind::Unsupported, "4294967295 Hz");
    rejects(file(16000, 0), ErrorKind::Unsupported, "number of channels");
    rejects(
        file(16000, 48),
        ErrorKind::Unsupported,
        "number of channels",
    );
    rejects(
        file(16000, u16::MAX),
        ErrorKind::Unsupported,
        "number of channels",
    );
    rejects(
        file(16000, 1)[..30].to_vec(),
        ErrorKind::Format,
        "truncated",
    );
}

#[test]
fn samples_that_are_not_finite_are_reported_after_those_before() {
    let mut samples = sine(440.0, 16000, 5000);
    samples[3000] = f64::NAN;
    let mut reader = AudioReader::from_bytes(wav(Pcm::F32, 16000, 1, &samples)).expect("a file");
    let mut out = Vec::new();
    let error = loop {
        match reader.read(100, &mut out) {
            Ok(count) => assert!(count > 0),
            Err(e) => break e,
        }
    };
    assert!(error.message().contains("sample 3000 is NaN"), "{error}");
    assert_eq!(out.len(), 3000);
    assert_eq!(reader.read(100, &mut out).expect("the end"), 0);
}

#[test]
fn a_file_without_samples_ends_at_once() {
    for rate in [8000, 16000, 44100] {
        let mut reader = AudioReader::from_bytes(wav(Pcm::S16, rate, 2, &[])).expect("a file");
        let mut out = Vec::new();
        assert_eq!(reader.read(100, &mut out).expect("the end"), 0);
        assert_eq!((reader.sample_rate(), reader.channels()), (rate, 2));
    }
}

#[test]
fn a_length_of_0_is_unknown() {
    let samples = sine(440.0, 16000, 50_000);
    let mut file = wav_header(Pcm::S16, 16000, 1, 0);
    samples.iter().for_each(|x| Pcm::S16.push(*x, &mut file));
    let stream = AudioReader::from_reader(Cursor::new(file.clone())).expect("a stream");
    let streamed = read_all(stream, 5000).expect("samples");
    let shared: std::sync::Arc<[u8]> = file.into();
    let reader = AudioReader::from_bytes(shared).expect("a file");
    assert_eq!(reader.duration(), Some(3.125), "the file has an end");
    let found = read_all(reader, 5000).expect("samples");
    assert_eq!(found.len(), 50_000);
    assert_eq!(streamed, found);
}

#[test]
fn a_truncated_file_ends_where_its_data_ends() {
    let samples = sine(440.0, 16000, 5000);
    let mut file = wav_header(Pcm::S16, 16000, 1, 0xffff_fff0);
    samples.iter().for_each(|x| Pcm::S16.push(*x, &mut file));
    assert_eq!(decode(file.clone()).expect("a file").len(), 5000);
    let reader = AudioReader::from_reader(Cursor::new(file)).expect("a file");
    assert_eq!(read_all(reader, 512).expect("a file").len(), 5000);
    for g in &GOLDEN {
        let (name, file) = (g.name, bytes(g.name));
        let all = decode(file.clone()).expect(name).len();
        for end in (0..file.len()).step_by(97) {
            if let Ok(found) = decode(file[..end].to_vec()) {
                assert!(found.len() <= all + 2048, "{name} of {end} bytes");
            }
            if let Ok(reader) = AudioReader::from_reader(Cursor::new(file[..end].to_vec())) {
                // An error is as good as an end.
                let _ = read_all(reader, 4000);
            }
        }
    }
}

#[test]
fn damaged_files_neither_panic_nor_hang() {
    let mut seed = 1u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize
    };
    for g in &GOLDEN {
        let file = bytes(g.name);
        for count in [1, 1, 1, 1, 1, 1, 1, 4, 20, 100] {
            for limit in [64, 500, file.len()] {
                let mut damaged = file.clone();
                for _ in 0..count {
                    damaged[random() % limit.min(file.len())] = random() as u8;
                }
                // Any result is fine.
                let _ = decode(damaged);
            }
        }
    }
}

#[test]
#[cfg_attr(panic = "abort", ignore = "a panic ends the module")]
fn known_panics_of_the_decoder_are_caught() {
    let fragmented: &[_] = &[(3821, 171), (3822, 145), (3823, 198), (3824, 22)];
    let codebook: &[_] = &[(1528, 255), (1951, 128), (2400, 255)];
    let floor: &[_] = &[(3583, 105), (3584, 123), (3585, 170), (3586, 8)];
    for (name, damage) in [
        ("chirp_fragmented.m4a", fragmented),
        ("chirp_vorbis.webm", codebook),
        ("chirp_vorbis.webm", floor),
    ] {
        let mut file = bytes(name);
        damage.iter().for_each(|(at, byte)| file[*at] = *byte);
        if let Err(error) = decode(file) {
            assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        }
    }
}
