//! Tests of `tabla transcribe`.

use super::speech_model::{ENGLISH, MULTILINGUAL, SEGMENTS, TEXT, TURBO, ggml_model, wav};
use super::{Ran, Scratch, check_failure, program, tabla, tabla_with_bytes};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Options under which the small model is greedy and has one attempt per window.
const GREEDY: [&str; 6] = [
    "--device",
    "cpu",
    "--beam-size",
    "1",
    "--temperature-increment",
    "0",
];

/// A small model.
struct SmallModel(Scratch);

impl SmallModel {
    fn new(vocab: usize, test: &str) -> Self {
        let name = format!("speech-{test}-{vocab}.bin");
        Self(Scratch::with_bytes(&name, &ggml_model(vocab)))
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let model = ["transcribe", "-m", self.0.path()];
        [&model[..], &GREEDY, more].concat()
    }

    fn run(&self, more: &[&str]) -> Ran {
        tabla(&self.args(more))
    }
}

#[test]
fn writes_every_format() {
    let model = SmallModel::new(ENGLISH, "formats");
    let audio = Scratch::with_bytes("formats.wav", &wav(30, None));
    let run = |format| model.run(&[audio.path(), "--format", format]);
    let text = run("text");
    assert_eq!(text.text(), format!("{}\n", TEXT.trim()).repeat(SEGMENTS));
    assert_eq!(text.stderr, "");
    let srt = run("srt");
    let cues =
        "1\n00:00:00,000 --> 00:00:10,000\nw300\n\n2\n00:00:10,000 --> 00:00:20,000\nw300\n\n";
    assert!(srt.text().starts_with(cues), "{}", srt.text());
    let vtt = run("vtt");
    let cues = "WEBVTT\n\n00:00.000 --> 00:10.000\nw300\n\n";
    assert!(vtt.text().starts_with(cues), "{}", vtt.text());
    let tsv = run("tsv");
    let rows = "start\tend\ttext\n0\t10000\tw300\n";
    assert!(tsv.text().starts_with(rows), "{}", tsv.text());
    let lrc = run("lrc");
    let lines = "[by:tabla]\n[00:00.00]w300\n[00:10.00]w300\n";
    assert!(lrc.text().starts_with(lines), "{}", lrc.text());
    let json = run("json").json();
    assert_eq!(json["text"], TEXT.repeat(SEGMENTS).trim());
    assert_eq!(json["usage"]["seconds"], 30);

    let verbose = run("verbose_json").json();
    assert_eq!(verbose["task"], "transcribe");
    assert_eq!(verbose["language"], "english");
    assert_eq!(verbose["duration"], 30.0);
    let segments = verbose["segments"].as_array().expect("segments");
    assert_eq!(segments.len(), SEGMENTS);
    for (id, segment) in segments.iter().enumerate() {
        assert_eq!(segment["id"], id);
        assert_eq!(segment["text"], TEXT);
        assert_eq!(segment["start"], 10.0 * id as f64);
        for key in ["avg_logprob", "compression_ratio", "no_speech_prob"] {
            assert!(segment[key].is_f64(), "{key}");
        }
    }
    assert!(verbose["words"].is_null());
}

#[test]
fn reads_containers_and_raw_audio_from_stdin() {
    let model = SmallModel::new(ENGLISH, "stdin");
    let run = |more: &[&str], input: &[u8]| {
        let args = model.args(&[&["-", "--format", "verbose_json"], more].concat());
        tabla_with_bytes(&args, input).json()["duration"].clone()
    };
    assert_eq!(run(&[], &wav(3, None)), 3.0);
    // Programs that write to a pipe do not know the length.
    for unknown in [0, 0x7fff_ff00, 0x8000_0000, u32::MAX] {
        assert_eq!(run(&[], &wav(3, Some(unknown))), 3.0, "{unknown:x}");
    }
    let samples = &wav(3, None)[44..];
    assert_eq!(run(&["--sample-format", "s16"], samples), 3.0);
    assert_eq!(run(&["--rate", "8000"], samples), 6.0);
    assert_eq!(run(&["--channels", "2"], samples), 1.5);
    let floats: Vec<u8> = (0..16_000)
        .flat_map(|i| (i as f32 * 0.3).sin().to_le_bytes())
        .collect();
    assert_eq!(run(&["--sample-format", "f32"], &floats), 1.0);
}

#[test]
fn converted_models_have_the_same_transcript() {
    let model = SmallModel::new(ENGLISH, "converted");
    let audio = Scratch::with_bytes("converted.wav", &wav(3, None));
    let expected = model.run(&[audio.path()]).text().to_string();
    let original = model.0.path().to_string();
    for name in ["converted-new.bin", "converted-new.gguf"] {
        let new = Scratch::new(name);
        tabla(&["convert", &original, new.path()]);
        let found = tabla(&[&["transcribe", "-m", new.path(), audio.path()], &GREEDY[..]].concat());
        assert_eq!(found.text(), expected, "{name}");
    }
    let folder = Scratch::new("converted-folder");
    let converted = tabla(&["convert", &original, folder.path(), "--dtype", "f16"]);
    // The filters of this model are made up.
    let note = "no mel filters: transformers computes its own";
    assert!(converted.stderr.contains(note), "{}", converted.stderr);
    let found = tabla(
        &[
            &["transcribe", "-m", folder.path(), audio.path()],
            &GREEDY[..],
        ]
        .concat(),
    );
    std::fs::remove_dir_all(&folder.path).expect("a folder");
    assert_eq!(found.text(), expected, "Hugging Face");
}

#[test]
fn prints_segments_before_the_end_of_a_stream() {
    let model = SmallModel::new(ENGLISH, "stream");
    let mut child = program(&model.args(&["-"]))
        .stdin(Stdio::piped())
        .spawn()
        .expect("program starts");
    let mut stdin = child.stdin.take().expect("piped stream");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped stream"));
    stdin
        .write_all(&wav(35, Some(u32::MAX)))
        .expect("open stdin");
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line.trim_end(), TEXT.trim());
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("UTF-8");
    // Those of the first window, and of the rest.
    assert_eq!(rest.lines().count(), 2 * SEGMENTS - 1);
    assert!(child.wait().expect("program exits").success());
}

#[test]
fn warns_of_models_that_do_not_translate() {
    let audio = Scratch::with_bytes("turbo.wav", &wav(1, None));
    let model = SmallModel::new(TURBO, "turbo");
    assert_eq!(model.run(&[audio.path()]).stderr, "");
    let translated = model.run(&[audio.path(), "--translate"]);
    assert_eq!(translated.text().lines().count(), SEGMENTS);
    let warning = "warning: large-v3-turbo was not trained to translate";
    assert!(translated.stderr.starts_with(warning));
}

#[test]
fn transcribes_several_files() {
    let model = SmallModel::new(ENGLISH, "several");
    let short = Scratch::with_bytes("short.wav", &wav(1, None));
    // Two windows, before which the whole file is measured.
    let long = Scratch::with_bytes("long.wav", &wav(31, None));
    let files = [short.path(), long.path()];
    let text = model.run(&files);
    let lines = |count| format!("{}\n", TEXT.trim()).repeat(count);
    let expected = format!(
        "{}:\n{}{}:\n{}",
        files[0],
        lines(SEGMENTS),
        files[1],
        lines(2 * SEGMENTS)
    );
    assert_eq!(text.text(), expected);

    let json = model.run(&[&files[..], &["--format", "json"]].concat());
    let objects: Vec<Value> = json
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("valid JSON"))
        .collect();
    let seconds = objects.iter().map(|object| &object["usage"]["seconds"]);
    assert!(seconds.eq([1, 31]), "{objects:?}");

    // The second recording is over first, and waits.
    let reversed = [files[1], files[0], files[0]];
    let text = model.run(&reversed);
    let parallel = model.run(&[&reversed[..], &["--parallel", "3"]].concat());
    assert_eq!(parallel.text(), text.text());
    let stdin = model.run(&[files[0], "-", "--parallel", "2"]);
    assert_eq!(stdin.code, Some(2), "{}", stdin.stderr);
    assert!(
        stdin.stderr.contains("--parallel is for files"),
        "{}",
        stdin.stderr
    );

    let srt = model.run(&[&files[..], &["--format", "srt"]].concat());
    assert_eq!(srt.code, Some(2), "{}", srt.stderr);
    assert!(srt.stderr.contains("--output-dir"), "{}", srt.stderr);
    let folder = Scratch::new("transcripts");
    let written = [&files[..], &["--format", "srt", "-o", folder.path()]].concat();
    let written = model.run(&written);
    assert_eq!(written.text(), "");
    for (file, last) in files.iter().zip(["3", "6"]) {
        let name = Path::new(file).with_extension("srt");
        let path = folder.path.join(name.file_name().expect("a name"));
        let srt = std::fs::read_to_string(&path).expect("output file");
        assert!(srt.contains(&format!("\n{last}\n00:00:")), "{srt}");
        assert!(written.stderr.contains(path.to_str().expect("UTF-8 path")));
    }
    std::fs::remove_dir_all(&folder.path).expect("the folder");
    let twice = model.run(&[files[0], files[0], "-o", folder.path()]);
    assert_eq!(twice.code, Some(2), "{}", twice.stderr);
}

#[test]
fn multilingual_models_detect_the_language_and_translate() {
    let model = SmallModel::new(MULTILINGUAL, "languages");
    let audio = Scratch::with_bytes("languages.wav", &wav(1, None));
    let run = |more: &[&str]| {
        let args = [&[audio.path(), "--format", "verbose_json"], more].concat();
        model.run(&args).json()
    };
    assert_eq!(run(&[])["language"], "german");
    assert_eq!(run(&["--language", "French"])["language"], "french");
    let translated = run(&["--translate"]);
    assert_eq!(translated["task"], "translate");
    assert_eq!(translated["segments"][0]["text"], TEXT);
}

#[test]
fn rejects_invalid_input() {
    let model = SmallModel::new(ENGLISH, "errors");
    let audio = Scratch::with_bytes("errors.wav", &wav(1, None));
    let text = Scratch::with_bytes("errors.txt", b"This is a text.");
    let missing = model.run(&["no such file.wav"]);
    check_failure(&missing, "no such file.wav: ");
    check_failure(&model.run(&[text.path()]), "not an audio file");
    let stdin = tabla_with_bytes(&model.args(&["-"]), b"This is a text.");
    check_failure(&stdin, "standard input: not an audio file");
    check_failure(&model.run(&[audio.path(), "--translate"]), "translate");
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/story.gguf");
    let story = tabla(&["transcribe", "--device", "cpu", "-m", story, audio.path()]);
    check_failure(&story, "the model is no speech model and cannot transcribe");
    for (args, expected) in [
        (&["transcribe", "x.wav"][..], "no model: use -m FILE"),
        (&["transcribe", "-m", "x", "-", "-"], "once only"),
        (&["transcribe"], "<FILE>"),
        (&["transcribe", "x", "--language", "klingon"], "klingon"),
        (&["transcribe", "x", "--format", "xml"], "verbose_json"),
        (&["transcribe", "x", "--beam-size", "9"], "1..=8"),
        (&["transcribe", "x", "--silence-level", "loud"], "dBFS"),
        (&["transcribe", "x", "--rate", "7"], "1000"),
    ] {
        let ran = tabla(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

/// Needs `TABLA_SPEECH`, a folder with `ggml-tiny.en.bin`, and `TABLA_TESTDATA`; skipped without them.
#[test]
fn transcribes_a_speech() {
    let folders = ["TABLA_SPEECH", "TABLA_TESTDATA"].map(std::env::var_os);
    let [Some(models), Some(data)] = folders.map(|folder| folder.map(PathBuf::from)) else {
        let _ = writeln!(
            std::io::stderr().lock(),
            "SKIPPED: TABLA_SPEECH or TABLA_TESTDATA is not set"
        );
        return;
    };
    let model = models.join("ggml-tiny.en.bin");
    let audio = data.join("audio/jfk.wav");
    let args = [
        "transcribe",
        "--device",
        "cpu",
        "-m",
        model.to_str().expect("UTF-8 path"),
        audio.to_str().expect("UTF-8 path"),
        "--format",
        "verbose_json",
        "--beam-size",
        "1",
    ];
    let object = tabla(&args).json();
    let segments = object["segments"].as_array().expect("segments");
    let texts: String = segments
        .iter()
        .map(|segment| segment["text"].as_str().expect("a text"))
        .collect();
    assert_eq!(
        texts,
        " And so my fellow Americans ask not what your country can do for you ask what you can do \
         for your country."
    );
    let times = segments.iter().map(|s| (&s["start"], &s["end"]));
    let times: Vec<_> = times.map(|(a, b)| (a.as_f64(), b.as_f64())).collect();
    assert_eq!(times, [(Some(0.0), Some(8.0)), (Some(8.0), Some(11.0))]);
}
