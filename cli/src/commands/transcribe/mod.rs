//! `tabla transcribe`: text and subtitles of recordings.

#[rustfmt::skip] // generated
mod decoding_options;
mod input;
mod options;
mod output;
mod parallel;
mod recording;
mod values;

use crate::args::{DeviceArgs, ModelArg};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use decoding_options::TranscribeOptionArgs;
use input::{Input, RawArgs};
use output::OutputArgs;
use recording::Recording;
use tabla::speech::Task;
use tabla::{Cancel, Facts, Source, TranscribeOptions, Transcription};

/// Number of decoder layers and of tokens of large-v3-turbo, which was not trained to translate.
const TURBO: (u32, u32) = (4, 51_866);

#[derive(Args, Debug)]
pub(crate) struct TranscribeArgs {
    /// Audio files: WAV, MP3, FLAC, Ogg, MP4, M4A, Matroska or AAC; "-" reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<Input>,
    /// Number of files that are transcribed at once with one model, 1 to 32: the next tokens of all are
    /// computed together. Each has the same text as alone
    #[arg(help_heading = "Transcription", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    parallel: u32,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    decoding: TranscribeOptionArgs,
    #[command(flatten)]
    raw: RawArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &TranscribeArgs) -> Result<(), Failure> {
    if args.files.iter().filter(|file| file.is_stdin()).count() > 1 {
        let message = "standard input (\"-\") can be transcribed once only";
        return Err(Failure::Usage(message.to_string()));
    }
    let at_once = args.files.len().min(args.parallel as usize);
    if at_once > 1 && args.files.iter().any(Input::is_stdin) {
        let message = "--parallel is for files: standard input (\"-\") is transcribed alone";
        return Err(Failure::Usage(message.to_string()));
    }
    let cancel = Cancel::new();
    let outputs = (args.output).outputs(&args.files, args.decoding.task(), &cancel)?;
    let source = args.model.source(terminal::note)?;
    if matches!(source, Source::BuiltIn) {
        let message = "no model: use -m FILE or -hf ORG/REPO with a Whisper model";
        return Err(Failure::Usage(message.to_string()));
    }
    for file in &args.files {
        file.check(&args.raw)?;
    }
    let options = args.decoding.options(args.output.words(), &cancel)?;
    let load_options = args.device.options(0)?;
    let windows = u32::try_from(at_once).unwrap_or(u32::MAX);
    let loaded = open::model(&source, &load_options.sequences(windows))?;
    loaded.print_notes(&source);
    warn_of_translation(&options, loaded.model.facts());
    let new = || Transcription::new(&loaded.model, &options);
    let outputs = args.files.iter().zip(outputs);
    if at_once > 1 {
        let bar = Progress::new(&terminal::counted(args.files.len(), "recording"), 0);
        return parallel::run(outputs, at_once, &cancel, |(file, mut output)| {
            Recording::new(file, &args.raw, new()?, &bar).transcribe(&mut output)
        });
    }
    for (file, mut output) in outputs {
        // Ctrl-C ends a recording from standard input, of which the rest is then transcribed.
        let interrupt = (!file.is_stdin()).then(|| cancel.clone());
        terminal::catch_interrupt(interrupt)?;
        let bar = Progress::new(&file.to_string(), 0);
        Recording::new(file, &args.raw, new()?, &bar).transcribe(&mut output)?;
    }
    Ok(())
}

/// Warns that a model without training in translation is asked to translate.
fn warn_of_translation(options: &TranscribeOptions, facts: &Facts) {
    if options.task == Task::Translate && (facts.layers, facts.vocab) == TURBO {
        terminal::note(
            "warning: large-v3-turbo was not trained to translate: the text may be in the spoken \
             language; use another multilingual model",
        );
    }
}
