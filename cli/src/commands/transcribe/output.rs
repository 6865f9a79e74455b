//! Transcripts on standard output, or in a file per recording.

use super::input::Input;
use crate::output::{Failure, terminal};
use clap::Args;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tabla::Cancel;
use tabla::speech::{Format, Header, LANGUAGES, Language, Segment, Task, WordTimes, Writer};

/// Format and destination of transcripts.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Output format: text, srt, vtt, tsv, lrc, json or `verbose_json`. The JSON formats are those of
    /// OpenAI's API, and are printed at the end
    #[arg(help_heading = "Transcript", long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    format: Format,
    /// Compute the times of words. Subtitles start and end with their words, and `verbose_json` lists
    /// words
    #[arg(help_heading = "Transcript", long)]
    words: bool,
    /// Write a file NAME.EXTENSION per recording into this folder [default: standard output]
    #[arg(help_heading = "Transcript", short, long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
}

fn format(name: &str) -> Result<Format, String> {
    Format::find(name).map_err(|error| error.message().to_string())
}

impl OutputArgs {
    /// Whether the times of words are computed.
    pub(super) fn words(&self) -> WordTimes {
        if self.words {
            WordTimes::On
        } else {
            WordTimes::Off
        }
    }

    /// Returns the output of each recording. `cancel` is closed if standard output cannot be written.
    pub(super) fn outputs(
        &self,
        files: &[Input],
        task: Task,
        cancel: &Cancel,
    ) -> Result<Vec<Output>, Failure> {
        let header = Header {
            task,
            // Replaced by the language of the recording.
            language: &LANGUAGES[0],
            words: self.words(),
        };
        let new = |target| Output {
            format: self.format,
            header,
            writer: None,
            target,
        };
        let Some(folder) = &self.output_dir else {
            let heading = self.heading(files)?;
            let turns = Arc::new(Turns::new(files.len(), cancel));
            let stdout = |(at, _)| {
                let turn = Turn {
                    at,
                    turns: Arc::clone(&turns),
                };
                new(Target::Stdout(heading, turn))
            };
            return Ok(files.iter().enumerate().map(stdout).collect());
        };
        let mut names = HashSet::new();
        let target = |file: &Input| {
            let name = format!("{}.{}", file.stem(), self.format.extension());
            if !names.insert(name.clone()) {
                let folder = folder.display();
                let message = format!("two recordings have the output file {name} in {folder}");
                return Err(Failure::Usage(message));
            }
            Ok(new(Target::File(folder.join(name), None)))
        };
        files.iter().map(target).collect()
    }

    /// Decides how transcripts on standard output are told apart.
    fn heading(&self, files: &[Input]) -> Result<Heading, Failure> {
        match self.format {
            Format::Text if files.len() > 1 => Ok(Heading::Name),
            // One line per recording, in order.
            Format::Text | Format::Json | Format::VerboseJson => Ok(Heading::None),
            _ if files.len() == 1 => Ok(Heading::None),
            _ => Err(Failure::Usage(
                "several recordings in this format need --output-dir".to_string(),
            )),
        }
    }
}

/// What is printed before a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heading {
    None,
    /// A line with the name of the recording.
    Name,
}

enum Target {
    Stdout(Heading, Turn),
    /// Path of the file, and the file after it was created.
    File(PathBuf, Option<File>),
}

/// Destination of a transcript, which is written while segments are found.
pub(super) struct Output {
    format: Format,
    header: Header,
    /// `None` before the first segment, whose language may be part of the format.
    writer: Option<Writer>,
    target: Target,
}

impl Output {
    /// Creates the file, or prints the heading.
    pub(super) fn start(&mut self, input: &Input) -> Result<(), Failure> {
        match &mut self.target {
            Target::Stdout(Heading::None, _) => Ok(()),
            Target::Stdout(Heading::Name, turn) => {
                let name = terminal::one_line(&input.to_string());
                turn.write(&format!("{name}:\n"))
            }
            Target::File(path, file) => {
                *file = Some(create(path)?);
                Ok(())
            }
        }
    }

    /// Writes a segment, unless the format is written at the end.
    pub(super) fn segment(
        &mut self,
        language: Option<&'static Language>,
        segment: &Segment,
    ) -> Result<(), Failure> {
        let (mut text, writer) = self.writer(language);
        text.push_str(&writer.segment(segment));
        self.write(&text)
    }

    /// Writes the end. `duration` is that of the recording in seconds.
    pub(super) fn finish(
        &mut self,
        language: Option<&'static Language>,
        duration: f64,
    ) -> Result<(), Failure> {
        let (mut text, writer) = self.writer(language);
        text.push_str(&writer.finish(duration));
        self.write(&text)?;
        match &self.target {
            Target::Stdout(_, turn) => turn.end(),
            Target::File(path, _) => {
                terminal::note(&terminal::one_line(&path.display().to_string()));
                Ok(())
            }
        }
    }

    /// Returns the writer, and the text before the first segment if the writer is new.
    fn writer(&mut self, language: Option<&'static Language>) -> (String, &mut Writer) {
        let mut text = String::new();
        let (format, header) = (self.format, &mut self.header);
        let writer = self.writer.get_or_insert_with(|| {
            header.language = language.unwrap_or(header.language);
            let writer = Writer::new(format, *header);
            text.push_str(writer.start());
            writer
        });
        (text, writer)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match &mut self.target {
            _ if text.is_empty() => Ok(()),
            Target::Stdout(_, turn) if terminal::stdout_is_terminal() => {
                turn.write(&terminal::printable(text))
            }
            Target::Stdout(_, turn) => turn.write(text),
            Target::File(path, file) => {
                let file = file.as_mut().expect("start created it");
                let written = file.write_all(text.as_bytes());
                written.map_err(|cause| Failure::file("write", path, cause))
            }
        }
    }
}

/// Creates a file and its folder.
fn create(path: &Path) -> Result<File, Failure> {
    if let Some(folder) = path.parent() {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|cause| Failure::file("create", folder, cause))?;
    }
    File::create(path).map_err(|cause| Failure::file("create", path, cause))
}

/// Transcripts on standard output in the order of their recordings. That of the first recording that has
/// not ended is written while segments are found; later ones wait.
struct Turns {
    waiting: Mutex<Waiting>,
    /// Closed after a failure to write: no recording has a reader then.
    cancel: Cancel,
}

struct Waiting {
    /// The recording that is written.
    current: usize,
    /// Text of each later recording.
    texts: Vec<String>,
    has_ended: Vec<bool>,
}

impl Turns {
    fn new(recordings: usize, cancel: &Cancel) -> Self {
        let waiting = Waiting {
            current: 0,
            texts: vec![String::new(); recordings],
            has_ended: vec![false; recordings],
        };
        Self {
            waiting: Mutex::new(waiting),
            cancel: cancel.clone(),
        }
    }

    fn print(&self, text: &str) -> Result<(), Failure> {
        let printed = terminal::write_above_bar(text);
        if printed.is_err() {
            self.cancel.close();
        }
        printed
    }
}

/// The place of a recording on standard output. Dropping it ends the transcript.
struct Turn {
    at: usize,
    turns: Arc<Turns>,
}

impl Turn {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        let waiting = self.turns.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let mut waiting = self.waiting();
        if self.at == waiting.current {
            return self.turns.print(text);
        }
        waiting.texts[self.at].push_str(text);
        Ok(())
    }

    /// Ends the transcript, and writes the later ones that were waiting for it.
    fn end(&self) -> Result<(), Failure> {
        let mut waiting = self.waiting();
        waiting.has_ended[self.at] = true;
        while waiting.has_ended.get(waiting.current) == Some(&true) {
            waiting.current += 1;
            let current = waiting.current;
            let text = waiting.texts.get_mut(current).map(std::mem::take);
            self.turns.print(&text.unwrap_or_default())?;
        }
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // After a failure, which is reported; otherwise the transcript has ended before.
        let _ = self.end();
    }
}
