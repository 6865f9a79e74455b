//! Milliseconds of the encoder, of a token, and of a whole recording, next to whisper.cpp.
//!
//! `cargo bench --bench speech -- MODEL AUDIO [WHISPER_CLI]`: a ggml file, a recording of at most 30
//! seconds, and the program of whisper.cpp, which runs alternately with the same files and threads.
//! Both decode greedily without fallback. Printed are medians of several rounds and their ratios.
#![expect(clippy::print_stdout, reason = "a benchmark that prints results")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tabla::audio::AudioReader;
use tabla::load::DeviceChoice;
use tabla::tools::speech_logits;
use tabla::{Model, Result, TableId, TranscribeOptions, Transcription};

const ROUNDS: usize = 7;
const THREADS: u32 = 2;
/// Tokens of the measured sequence.
const TOKENS: usize = 27;
/// Frames of a window.
const FRAMES: usize = 3000;

/// Milliseconds of the encoder, of a token, and of the whole recording without loading.
type Times = [f64; 3];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| *a != "--bench")
        .collect();
    let [model, audio, cli @ ..] = &args[..] else {
        println!("expected MODEL AUDIO [WHISPER_CLI]; nothing was measured");
        return Ok(());
    };
    let loaded = Model::builder(*model)
        .device(DeviceChoice::Cpu)
        .threads(THREADS)
        .load()?;
    let mut samples = Vec::new();
    let mut reader = AudioReader::open(Path::new(audio))?;
    while reader.read(1 << 16, &mut samples)? > 0 {}
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(measure(&loaded, &samples)?);
        if let [cli] = cli {
            theirs.extend(measure_peer(cli, model, audio));
        }
    }
    for (at, name) in ["encoder", "token", "recording"].iter().enumerate() {
        let own = median(&ours, at);
        match theirs.is_empty() {
            true => println!("{name}: {own:.2} ms"),
            false => {
                let peer = median(&theirs, at);
                println!(
                    "{name}: {own:.2} ms, whisper.cpp {peer:.2} ms, {:.2} x",
                    peer / own
                );
            }
        }
    }
    Ok(())
}

fn median(all: &[Times], at: usize) -> f64 {
    let mut values: Vec<f64> = all.iter().map(|times| times[at]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn measure(model: &Model, samples: &[f32]) -> Result<Times> {
    let mels = model
        .table(TableId::Encode)
        .and_then(|table| table.slots.iter().find(|slot| slot.name == "mel"))
        .map_or(0, |slot| slot.cols as usize);
    let silence = vec![-0.5; FRAMES * mels];
    let start = Instant::now();
    speech_logits(model, &silence, &[0])?;
    let encoder = milliseconds(start);
    let start = Instant::now();
    speech_logits(model, &silence, &[0; TOKENS + 1])?;
    let token = (milliseconds(start) - encoder) / TOKENS as f64;
    let options = TranscribeOptions::default()
        .beam_size(1)
        .temperature_increment(None);
    let start = Instant::now();
    let mut transcription = Transcription::new(model, &options)?;
    transcription.push(samples)?;
    transcription.finish();
    while transcription.next_segment()?.is_some() {}
    Ok([encoder, token, milliseconds(start)])
}

/// Times that the program of whisper.cpp prints.
fn measure_peer(cli: &str, model: &str, audio: &str) -> Option<Times> {
    let threads = THREADS.to_string();
    let options = [
        "-t", &threads, "-bs", "1", "-bo", "1", "-nf", "-m", model, "-f", audio,
    ];
    let output = Command::new(cli).args(options).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.contains(name))?;
        let value = |text: &str| text.trim().split(' ').next()?.parse::<f64>().ok();
        let total = value(line.split_once('=')?.1)?;
        let each = line.split_once('(').and_then(|(_, each)| value(each));
        Some((total, each.unwrap_or(total)))
    };
    let [load, total] = [of("load time")?.0, of("total time")?.0];
    Some([of("encode time")?.1, of("decode time")?.1, total - load])
}
