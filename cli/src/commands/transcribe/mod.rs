//! `tabla transcribe`: text and subtitles of recordings.

mod input;
mod options;
mod output;

use crate::args::{DeviceArgs, ModelArg};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use input::{Audio, Input, RawArgs};
use options::DecodingArgs;
use output::{Output, OutputArgs};
use tabla::speech::Task;
use tabla::{Cancel, Facts, Source, TranscribeOptions, Transcription};

/// Recordings up to this duration have one window, which needs no measurement of the whole recording.
const WINDOW_SECONDS: f64 = 30.0;
/// Number of decoder layers and of tokens of large-v3-turbo, which was not trained to translate.
const TURBO: (u32, u32) = (4, 51_866);

#[derive(Args, Debug)]
pub(crate) struct TranscribeArgs {
    /// Audio files: WAV, MP3, FLAC, Ogg, MP4, M4A, Matroska or AAC; "-" reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<Input>,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    decoding: DecodingArgs,
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
    let outputs = args.output.outputs(&args.files, args.decoding.task())?;
    let source = args.model.source(terminal::note)?;
    if matches!(source, Source::BuiltIn) {
        let message = "no model: use -m FILE or -hf ORG/REPO with a Whisper model";
        return Err(Failure::Usage(message.to_string()));
    }
    for file in &args.files {
        file.check(&args.raw)?;
    }
    let cancel = Cancel::new();
    let options = args.decoding.options(args.output.words(), &cancel)?;
    let loaded = open::model(&source, &args.device.options(0)?)?;
    loaded.print_notes(&source);
    warn_of_translation(&options, loaded.model.facts());
    for (file, mut output) in args.files.iter().zip(outputs) {
        // Ctrl-C ends a recording from standard input, of which the rest is then transcribed.
        let interrupt = (!file.is_stdin()).then(|| cancel.clone());
        let transcription = Transcription::new(&loaded.model, &options)?;
        terminal::catch_interrupt(interrupt)?;
        let run = Run {
            file,
            raw: &args.raw,
            transcription,
        };
        run.transcribe(&mut output)?;
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

/// The transcription of one file.
struct Run<'a> {
    file: &'a Input,
    raw: &'a RawArgs,
    transcription: Transcription,
}

impl Run<'_> {
    fn transcribe(mut self, output: &mut Output) -> Result<(), Failure> {
        let mut audio = self.file.open(self.raw)?;
        let duration = audio.duration();
        let bar = Progress::new(&self.file.to_string(), seconds(duration.unwrap_or(0.0)));
        if self.file.can_reopen() && duration.is_none_or(|d| d > WINDOW_SECONDS) {
            self.measure()?;
        }
        output.start(self.file)?;
        let mut samples = Vec::new();
        while audio.read(&mut samples)? > 0 {
            self.transcription.push(&samples)?;
            samples.clear();
            self.write_segments(output, &bar)?;
        }
        self.transcription.finish();
        self.write_segments(output, &bar)?;
        drop(bar);
        let language = self.transcription.language();
        output.finish(language, self.transcription.duration())
    }

    /// Finds the loudest frame of the whole recording.
    fn measure(&mut self) -> Result<(), Failure> {
        match self.file.open(self.raw)? {
            Audio::Container(mut reader) => Ok(self.transcription.measure(&mut reader)?),
            Audio::Raw(_) | Audio::Stream(_) => Ok(()),
        }
    }

    /// Writes the segments that are found in the samples so far.
    fn write_segments(&mut self, output: &mut Output, bar: &Progress) -> Result<(), Failure> {
        loop {
            let segment = self.transcription.next_segment()?;
            bar.set_length(bar.length().max(seconds(self.transcription.duration())));
            bar.set_position(seconds(self.transcription.position()));
            let Some(segment) = segment else {
                return Ok(());
            };
            output.segment(self.transcription.language(), &segment)?;
        }
    }
}

/// Whole seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn seconds(seconds: f64) -> u64 {
    seconds as u64
}
