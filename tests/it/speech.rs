//! Transcription: small models against transformers, and tiny.en against recorded texts.

use crate::common::{
    argmax, convert, devices, devices_for, exhaustive, export, fast_devices, golden, speech_model,
    testdata,
};
use crate::compiled::compile;
use crate::npy::Npy;
use crate::speech_model::{CONTEXT, SHAPES, Shape, numbers};
use crate::temp_folder::Folder;
use std::path::{Path, PathBuf};
use tabla::audio::AudioReader;
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::speech::Segment;
use tabla::tools::speech_logits;
use tabla::{Cancel, ErrorKind, Model, TranscribeOptions, Transcription};

/// Tokens of the golden files, and the distance of stored logits.
const TOKENS: usize = 12;
const EVERY: usize = 97;

/// Writes the model as a ggml file.
pub(crate) fn write(shape: &Shape, folder: &Folder) -> PathBuf {
    folder.write(&format!("whisper_{}.bin", shape.mels), &shape.ggml())
}

pub(crate) fn load(path: &PathBuf, options: &LoadOptions) -> Model {
    Model::builder(path)
        .options(options.clone())
        .load()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Panics unless all numbers agree within 1e-4 of the largest.
fn check(what: &str, found: impl Iterator<Item = f32>, expected: &[f32]) {
    let largest = expected.iter().fold(1.0f32, |max, x| max.max(x.abs()));
    let mut count = 0;
    for (i, (x, y)) in found.zip(expected).enumerate() {
        assert!(
            (x - y).abs() <= 1e-4 * largest,
            "{what}[{i}]: {x}, expected {y}"
        );
        count += 1;
    }
    assert_eq!(count, expected.len(), "{what}");
}

#[test]
fn encoder_states_and_logits_match_transformers() {
    let folder = Folder::new("speech");
    for shape in SHAPES {
        let path = write(&shape, &folder);
        let reference = Npy::read(&golden(&format!("whisper_{}.npy", shape.mels))).data;
        let (states, rest) = reference.split_at(CONTEXT * shape.dim);
        let (logits, ids) = rest.split_at(rest.len() - TOKENS - 1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "ids are whole numbers"
        )]
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        let mel = numbers("mel", 2 * CONTEXT * shape.mels);
        // The other shape has the same operations.
        let on_gpu = SHAPES[0].mels.to_string();
        for (device, options) in devices_for(&shape.mels.to_string(), &[&on_gpu], Precision::Exact)
        {
            let model = load(&path, &options);
            let found = speech_logits(&model, &mel, &ids[..TOKENS]).expect("it runs");
            check(
                &format!("{device}: states"),
                found.encoder.into_iter(),
                states,
            );
            let rows = found.logits.chunks_exact(shape.vocab);
            let sampled = rows
                .clone()
                .flat_map(|row| row.iter().copied().step_by(EVERY));
            check(&format!("{device}: logits"), sampled, logits);
            for (row, next) in rows.zip(&ids[1..]) {
                assert_eq!(argmax(row), *next as usize, "{device}");
            }
        }
    }
}

pub(crate) fn cpu() -> LoadOptions {
    LoadOptions::default().device(DeviceChoice::Cpu)
}

/// The options of greedy transcriptions.
fn greedy() -> TranscribeOptions {
    TranscribeOptions::default().beam_size(1)
}

/// Transcribes samples that arrive in pieces of this size.
fn transcribe(
    model: &Model,
    samples: &[f32],
    options: &TranscribeOptions,
    piece: usize,
) -> Vec<Segment> {
    let mut transcription = Transcription::new(model, options).expect("a speech model");
    let mut segments = Vec::new();
    for piece in samples.chunks(piece) {
        transcription.push(piece).expect("finite samples");
        while let Some(segment) = transcription.next_segment().expect("it runs") {
            segments.push(segment);
        }
    }
    transcription.finish();
    while let Some(segment) = transcription.next_segment().expect("it runs") {
        segments.push(segment);
    }
    segments
}

/// The speech of `jfk.wav`, and tiny.en from both files.
fn real() -> Option<(Vec<f32>, [Model; 2])> {
    let audio = testdata("audio/jfk.wav")?;
    let paths = [
        speech_model("ggml-tiny.en.bin")?,
        speech_model("whisper-tiny.en")?,
    ];
    Some((samples(&audio), paths.map(|path| load(&path, &cpu()))))
}

fn samples(audio: &Path) -> Vec<f32> {
    let mut samples = Vec::new();
    let mut reader = AudioReader::open(audio).expect("a recording");
    while reader.read(1 << 16, &mut samples).expect("a recording") > 0 {}
    samples
}

fn texts(segments: &[Segment]) -> Vec<(f64, f64, &str)> {
    let texts = segments.iter().map(|s| (s.start, s.end, s.text.as_str()));
    texts.collect()
}

#[test]
fn speech_has_the_text_and_times_of_the_reference() {
    let Some((samples, models)) = real() else {
        return;
    };
    let folder = Folder::new("speech-real");
    let (ggml, hf) = (
        speech_model("ggml-tiny.en.bin"),
        speech_model("whisper-tiny.en"),
    );
    let (Some(ggml), Some(hf)) = (ggml, hf) else {
        return;
    };
    let [copy, gguf] = ["copy.bin", "tiny.gguf"].map(|name| folder.0.join(name));
    convert(&ggml, &copy, None).expect("ggml to ggml");
    assert!(
        std::fs::read(&copy).ok() == std::fs::read(&ggml).ok(),
        "the published file"
    );
    convert(&hf, &gguf, None).expect("Hugging Face to GGUF");
    let exported = folder.0.join("tiny.en");
    export(&ggml, &exported, None);
    let converted = [gguf, exported].map(|path| load(&path, &cpu()));
    let models = models.into_iter().chain(converted);
    let rest = (8.0, 11.0, " ask what you can do for your country.");
    for model in models {
        let found = transcribe(&model, &samples, &greedy(), samples.len());
        let first = " And so my fellow Americans ask not what your country can do for you";
        assert_eq!(texts(&found), [(0.0, 8.0, first), rest]);
        // The average of Hugging Face for the same samples.
        assert!((found[0].avg_logprob + 0.288).abs() < 2e-3, "{found:?}");
        let beams = TranscribeOptions::default();
        let found = transcribe(&model, &samples, &beams, samples.len());
        let first = " And so, my fellow Americans ask not what your country can do for you";
        assert_eq!(texts(&found), [(0.0, 8.0, first), rest]);
    }
}

/// A model of two layers that has learnt one recording, from its quantized file, as GGUF and compiled, on every
/// device.
#[test]
fn memorized_speech_is_transcribed() {
    let (Some(model), Some(audio)) = (
        testdata("whisper/jfk-memo3.en-q5_1.bin"),
        testdata("audio/jfk.wav"),
    ) else {
        return;
    };
    let samples = samples(&audio);
    let folder = Folder::new("speech-memo");
    let gguf = folder.0.join("memo.gguf");
    convert(&model, &gguf, None).expect("ggml to GGUF");
    let text = " And so my fellow Americans, ask not what your country can do for you, ask what you \
                can do for your country.";
    let mut runs: Vec<_> = fast_devices(Precision::Fast)
        .into_iter()
        .map(|(device, options)| (device, options, &model))
        .collect();
    runs.push(("the CPU, from GGUF".to_string(), cpu(), &gguf));
    let compiled = folder.0.join("memo.tabla");
    compile(&model, &compiled, &[DeviceChoice::Cpu], &cpu());
    runs.push(("the CPU, compiled".to_string(), cpu(), &compiled));
    for (device, options, path) in runs {
        let found = transcribe(&load(path, &options), &samples, &greedy(), samples.len());
        assert_eq!(texts(&found), [(0.0, 11.0, text)], "{device}");
    }
}

#[test]
fn words_have_the_times_of_the_reference() {
    let Some((samples, [model, _])) = real() else {
        return;
    };
    let options = greedy().word_timestamps(true);
    let found = transcribe(&model, &samples, &options, samples.len());
    let words = found.iter().flat_map(|segment| &segment.words);
    // Ends of words of OpenAI's program.
    let expected = [
        ("And", 0.76),
        ("so", 1.06),
        ("my", 1.46),
        ("fellow", 1.76),
        ("Americans", 2.26),
        ("ask", 3.88),
        ("not", 4.52),
        ("what", 5.70),
        ("your", 6.02),
        ("country", 6.36),
        ("can", 6.76),
        ("do", 7.02),
        ("for", 7.26),
        ("you", 8.06),
        ("ask", 8.66),
        ("what", 8.94),
        ("you", 9.28),
        ("can", 9.50),
        ("do", 9.72),
        ("for", 9.92),
        ("your", 10.22),
        ("country", 10.50),
    ];
    let mut count = 0;
    let mut start = 0.0;
    for (word, (text, end)) in words.zip(expected) {
        assert_eq!(word.text.trim_matches([' ', '.']), text);
        assert!((word.end - end).abs() <= 0.06, "{word:?}: {end}");
        assert!((word.start - start).abs() < 1e-9, "{word:?}: {start}");
        start = word.end;
        count += 1;
    }
    assert_eq!(count, expected.len());
}

/// Four speeches with silences between them, 75 seconds.
#[test]
fn silence_has_no_text() {
    let Some((speech, [model, _])) = real() else {
        return;
    };
    let silence = |seconds: usize| vec![0.0; 16_000 * seconds];
    let mut samples = Vec::new();
    for pause in [3, 8, 12, 5] {
        samples.extend(silence(pause));
        samples.extend(&speech);
    }
    samples.resize(75 * 16_000, 0.0);
    // Pieces of a second, as from a microphone.
    let found = transcribe(&model, &samples, &greedy(), 16_000);
    let text: String = found.iter().map(|segment| segment.text.as_str()).collect();
    let sentence = " And so my fellow Americans ask not what your country can do for you ask what \
                    you can do for your country.";
    assert_eq!(text, sentence.repeat(4));
    assert!(found.iter().all(|s| s.end <= 75.0), "{:?}", texts(&found));
    let at_once = transcribe(&model, &samples, &greedy(), samples.len());
    assert_eq!(at_once, found, "pieces do not matter");
    assert_eq!(transcribe(&model, &silence(65), &greedy(), 1 << 20), []);
}

#[test]
fn transcriptions_of_one_model_are_independent() {
    let Some((samples, [model, _])) = real() else {
        return;
    };
    let options = TranscribeOptions::default()
        .temperature(0.5)
        .best_of(3)
        .seed(7);
    let alone = transcribe(&model, &samples, &options, samples.len());
    let other = std::thread::spawn({
        let (model, samples) = (model.clone(), samples.clone());
        move || {
            transcribe(
                &model,
                &samples,
                &greedy().word_timestamps(true),
                samples.len(),
            )
        }
    });
    let again = transcribe(&model, &samples, &options, samples.len());
    let words = other.join().expect("no panic");
    assert_eq!(alone, again, "the seed decides");
    assert_eq!(words.len(), 2);
}

/// Greedy, beams, samples and word times in one batch, with more recordings than places.
#[test]
fn recordings_at_once_have_the_segments_of_each_alone() {
    let folder = Folder::new("speech-parallel");
    let path = write(&SHAPES[1], &folder);
    let options = greedy().temperature_increment(None);
    let all = [
        options.clone(),
        options.clone().beam_size(5).word_timestamps(true),
        options.clone().temperature(0.5).best_of(4).seed(u64::MAX),
        options.clone().language("de".to_string()),
        options.clone().beam_size(8),
        options.temperature(0.2).best_of(8).timestamps(false),
    ];
    let sounds = [0, 1, 2, 3, 4, 5].map(|i| numbers(&format!("sound {i}"), 4_000 + 700 * i));
    let devices = fast_devices(Precision::Fast);
    let best = devices
        .iter()
        .rposition(|(name, _)| name.starts_with("cpu"));
    for (at, (device, load_options)) in devices.into_iter().enumerate() {
        // The others are slow.
        let (count, places) = if Some(at) == best || exhaustive() {
            (6, 3)
        } else {
            (2, 2)
        };
        let (sounds, all) = (&sounds[..count], &all[..count]);
        // Texts of at most 20 tokens.
        let load_options = load_options.max_context(40);
        let [one, model] = [1, places].map(|n| load(&path, &load_options.clone().sequences(n)));
        let sequences = [&one, &model].map(|model| model.facts().sequences);
        assert_eq!(sequences, [1, places]);
        let alone: Vec<_> = (sounds.iter().zip(all))
            .map(|(sound, options)| transcribe(&one, sound, options, 16_000))
            .collect();
        let model = &model;
        let together: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (sounds.iter().zip(all))
                .map(|(sound, options)| {
                    scope.spawn(move || transcribe(model, sound, options, 16_000))
                })
                .collect();
            let results = threads.into_iter().map(|t| t.join().expect("no panic"));
            results.collect()
        });
        assert_eq!(together, alone, "{device}");
        assert!(
            alone.iter().all(|segments| !segments.is_empty()),
            "{device}"
        );
    }
}

#[test]
fn cancellation_of_a_recording_leaves_the_others() {
    let folder = Folder::new("speech-parallel-cancel");
    let path = write(&SHAPES[0], &folder);
    let model = &load(&path, &cpu().sequences(2).max_context(60));
    let sound = numbers("sound", 8_000);
    let alone = transcribe(model, &sound, &greedy(), 16_000);
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let again = || transcribe(model, &sound, &greedy(), 16_000);
            (0..2).map(|_| again()).collect::<Vec<_>>()
        });
        // Most of these are within a window, some before one.
        for milliseconds in [0, 1, 4, 16, 64] {
            let cancel = Cancel::new();
            let options = greedy().cancel(Some(cancel.clone()));
            let mut t = Transcription::new(model, &options).expect("a speech model");
            t.push(&sound).expect("finite samples");
            t.finish();
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(milliseconds));
                cancel.cancel();
            });
            let mut segments = Vec::new();
            loop {
                match t.next_segment() {
                    Ok(Some(segment)) => segments.push(segment),
                    Ok(None) => break,
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
                }
            }
            assert_eq!(
                segments, alone,
                "after a cancellation the window is decoded again"
            );
        }
        other.join().expect("no panic")
    });
    assert_eq!(found, [alone.clone(), alone]);
    let error = Model::builder(&path).options(cpu()).sequences(33).load();
    let error = error.expect_err("too many").to_string();
    assert!(
        error.contains("33 recordings at once are over the limit of 32"),
        "{error}"
    );
}

/// First timestamp of the vocabulary of the larger small model.
const TIMESTAMPS: u32 = 50_365;

/// A model that answers at random states times of the whole window for recordings of less than a second.
#[test]
fn no_time_is_after_the_end_of_the_recording() {
    let folder = Folder::new("speech-end");
    let model = load(&write(&SHAPES[1], &folder), &cpu().max_context(60));
    let options = greedy().temperature_increment(None).silence_level(None);
    let mut late = 0;
    for (at, options) in [
        options.clone(),
        options.clone().word_timestamps(true),
        options.clone().temperature(0.7).word_timestamps(true),
        options.timestamps(false).word_timestamps(true),
    ]
    .into_iter()
    .enumerate()
    {
        for (seed, samples) in [(1, 4_000), (2, 4_799), (3, 15_999)] {
            let sound = numbers(&format!("sound {at}"), samples);
            let duration = samples as f64 / 16_000.0;
            let found = transcribe(&model, &sound, &options.clone().seed(seed), 1600);
            assert!(!found.is_empty(), "{at}: {samples} samples");
            for segment in &found {
                let words = segment.words.iter().map(|word| [word.start, word.end]);
                for [start, end] in words.chain([[segment.start, segment.end]]) {
                    assert!(0.0 <= start && start <= end, "{start} {end}: {segment:?}");
                    assert!(end <= duration, "{end} of {duration} s: {segment:?}");
                }
                let times = segment
                    .tokens
                    .iter()
                    .filter_map(|t| t.checked_sub(TIMESTAMPS));
                late += times.filter(|t| f64::from(*t) * 0.02 > duration).count();
            }
        }
    }
    assert!(late > 2, "the model states {late} late times");
}

#[test]
fn recordings_over_the_limit_are_refused() {
    let model = small();
    let options = greedy().max_duration(Some(2.0));
    let mut t = Transcription::new(&model, &options).expect("a speech model");
    t.push(&[0.0; 32_000]).expect("2 seconds");
    let error = t.push(&[0.0]).expect_err("one sample more");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("longer than 2 seconds"), "{error}");
    // Bytes at the lowest rate.
    let file = |seconds: usize| {
        let mut file = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        file.extend(1000u32.to_le_bytes());
        file.extend(1000u32.to_le_bytes());
        file.extend(b"\x01\0\x08\0data\xff\xff\xff\xff");
        file.resize(file.len() + 1000 * seconds, 128);
        AudioReader::from_bytes(file).expect("a WAV file")
    };
    let mut t = Transcription::new(&model, &options).expect("a speech model");
    t.measure(&mut file(2)).expect("2 seconds");
    let mut long = file(60);
    let error = t.measure(&mut long).expect_err("60 seconds");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let mut rest = Vec::new();
    long.read(16_000, &mut rest).expect("the rest is not read");
    assert_eq!(rest.len(), 16_000);
    let cancel = Cancel::new();
    let options = greedy().cancel(Some(cancel.clone()));
    let mut t = Transcription::new(&model, &options).expect("a speech model");
    cancel.cancel();
    let error = t.measure(&mut file(60)).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// A small model, whose text has no meaning.
fn small() -> Model {
    let folder = Folder::new("speech-small");
    load(&write(&SHAPES[0], &folder), &cpu())
}

#[test]
fn bad_input_is_an_error() {
    let model = small();
    let state = |e: tabla::Error| e.kind();
    let mut t = Transcription::new(&model, &greedy()).expect("a speech model");
    let error = t.push(&[0.0, 0.5, f32::NAN]).expect_err("a NaN");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.message().contains("sample 2 is NaN"), "{error}");
    t.push(&[0.0; 100]).expect("less than a frame");
    t.finish();
    assert_eq!(t.next_segment().expect("no frame"), None);
    assert_eq!(t.push(&[0.0]).map_err(state), Err(ErrorKind::State));
    for (options, part) in [
        (greedy().beam_size(9), "beam_size must be 1 to 8, got 9"),
        (greedy().best_of(0), "best_of must be 1 to 8, got 0"),
        (
            greedy().temperature(1.5),
            "temperature must be 0 to 1, got 1.5",
        ),
        (
            greedy().task(tabla::speech::Task::Translate),
            "cannot translate",
        ),
    ] {
        let error = Transcription::new(&model, &options).expect_err(part);
        assert!(error.message().contains(part), "{error}");
    }
    let story = Model::builder(tabla::Source::BuiltIn).options(cpu()).load();
    let story = story.expect("the built-in model");
    let error = Transcription::new(&story, &greedy()).expect_err("no speech model");
    assert!(error.message().contains("no speech model"), "{error}");
    let mut session = tabla::Session::new(model);
    let error = session.prefill(&[1]).expect_err("no text model");
    assert!(error.message().contains("transcribes audio"), "{error}");
}

/// The sampling stages, beams and alignment of every device.
#[test]
fn devices_have_the_same_segments() {
    let folder = Folder::new("speech-devices");
    let path = write(&SHAPES[1], &folder);
    let sound = numbers("sound", 8_000);
    let options = TranscribeOptions::default()
        .beam_size(3)
        .language("de".to_string())
        .word_timestamps(true)
        .temperature_increment(None);
    let mut expected: Option<Vec<Segment>> = None;
    for (device, load_options) in devices(Precision::Exact) {
        // Of 32 positions, the texts are shorter than with 64: a software GPU needs as long for every token.
        let model = load(&path, &load_options.max_context(32));
        let found = transcribe(&model, &sound, &options, 16_000);
        let tokens =
            |s: &[Segment]| -> Vec<Vec<u32>> { s.iter().map(|s| s.tokens.clone()).collect() };
        let expected = expected.get_or_insert_with(|| found.clone());
        assert!(!found.is_empty(), "{device}");
        assert_eq!(tokens(&found), tokens(expected), "{device}");
        for (found, expected) in found.iter().zip(expected.iter()) {
            assert_eq!(found.words.len(), expected.words.len(), "{device}");
            let difference = (found.avg_logprob - expected.avg_logprob).abs();
            assert!(difference < 1e-3, "{device}: {difference}");
        }
    }
}

#[test]
fn cancellation_stops_and_can_be_continued() {
    let model = small();
    let cancel = Cancel::new();
    let options = greedy().cancel(cancel.clone()).temperature_increment(None);
    let mut t = Transcription::new(&model, &options).expect("a speech model");
    let sound = numbers("sound", 16_000);
    t.push(&sound).expect("finite samples");
    t.finish();
    cancel.cancel();
    let error = t.next_segment().expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    t.next_segment().expect("continues");
    let whole = transcribe(
        &model,
        &sound,
        &greedy().temperature_increment(None),
        16_000,
    );
    let mut found = Vec::new();
    let mut t = Transcription::new(&model, &options).expect("a speech model");
    t.push(&sound).expect("finite samples");
    t.finish();
    while let Some(segment) = t.next_segment().expect("it runs") {
        found.push(segment);
    }
    assert_eq!(found, whole);
}
