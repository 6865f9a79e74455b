//! Output formats of transcripts: text, subtitles, tables and JSON.
//!
//! Text, SRT, VTT and TSV are those of `whisper/utils.py` of OpenAI, JSON that of OpenAI's API. All but
//! JSON are written while segments are found.

use crate::json::JsonParts;
use crate::language::Language;
use crate::segment::{Segment, Word};
use crate::special::Task;
use tabla_core::error::{Result, bail};

/// Maximum number of characters of a line of subtitles, after which a line break follows.
const LINE_CHARS: usize = 1000;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A line per segment.
    #[default]
    Text,
    /// `SubRip` subtitles.
    Srt,
    /// `WebVTT` subtitles.
    Vtt,
    /// Start and end in milliseconds and text, separated by tabs.
    Tsv,
    /// Lyrics: `[minutes:seconds.hundredths]text`.
    Lrc,
    /// JSON object of the whole text.
    Json,
    /// JSON object of text, segments and words.
    VerboseJson,
}

impl Format {
    /// All formats with their names, the first of which is that of OpenAI's API.
    const NAMES: [(Self, &[&str]); 7] = [
        (Self::Text, &["text", "txt"]),
        (Self::Srt, &["srt"]),
        (Self::Vtt, &["vtt"]),
        (Self::Tsv, &["tsv"]),
        (Self::Lrc, &["lrc"]),
        (Self::Json, &["json"]),
        (Self::VerboseJson, &["verbose_json", "verbose-json"]),
    ];

    /// Finds a format by name.
    ///
    /// # Errors
    ///
    /// `Argument` with the names if there is no such format.
    pub fn find(name: &str) -> Result<Self> {
        let mut all = Self::NAMES.iter();
        if let Some((format, _)) = all.find(|(_, names)| names.contains(&name)) {
            return Ok(*format);
        }
        let names = Self::NAMES.map(|(_, names)| names[0]).join(", ");
        bail!(
            Argument,
            "unknown output format {name:?}: expected one of {names}"
        );
    }

    /// Extension of file names.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
            Self::Tsv => "tsv",
            Self::Lrc => "lrc",
            Self::Json | Self::VerboseJson => "json",
        }
    }
}

/// Whether segments have words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordTimes {
    /// Segments have no words.
    #[default]
    Off,
    /// Segments have words. Subtitles start and end with their words, and `verbose_json` has a list of
    /// words.
    On,
}

/// Facts about a transcript that are known before its first segment.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Task.
    pub task: Task,
    /// Spoken language.
    pub language: &'static Language,
    /// Whether segments have words.
    pub words: WordTimes,
}

/// A whole transcript.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Task, language and words.
    pub header: Header,
    /// Duration of the audio in seconds.
    pub duration: f64,
    /// Segments in order.
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// Text of all segments, without white space at the ends.
    pub fn text(&self) -> String {
        let texts = self.segments.iter().map(|s| &*s.text);
        texts.collect::<String>().trim().to_string()
    }

    /// Writes the transcript.
    pub fn write(&self, format: Format) -> String {
        let mut writer = Writer::new(format, self.header);
        let mut out = writer.start().to_string();
        for segment in &self.segments {
            out.push_str(&writer.segment(segment));
        }
        out.push_str(&writer.finish(self.duration));
        out
    }
}

/// Writes a transcript in parts: the start, each segment, the end.
#[derive(Debug)]
pub struct Writer {
    format: Format,
    header: Header,
    /// Number of the last subtitle.
    cues: u32,
    json: JsonParts,
}

impl Writer {
    /// Creates a writer.
    pub fn new(format: Format, header: Header) -> Self {
        Self {
            format,
            header,
            cues: 0,
            json: match header.words {
                WordTimes::Off => JsonParts::default(),
                WordTimes::On => JsonParts::with_words(),
            },
        }
    }

    /// Returns the text before all segments.
    pub fn start(&self) -> &'static str {
        match self.format {
            Format::Vtt => "WEBVTT\n\n",
            Format::Tsv => "start\tend\ttext\n",
            Format::Lrc => "[by:tabla]\n",
            Format::Text | Format::Srt | Format::Json | Format::VerboseJson => "",
        }
    }

    /// Returns the text of a segment: empty for JSON, which is written at the end.
    pub fn segment(&mut self, segment: &Segment) -> String {
        let text = segment.text.trim();
        match self.format {
            Format::Text => format!("{text}\n"),
            Format::Srt | Format::Vtt => self.cue(segment),
            Format::Tsv => {
                let (start, end) = (milliseconds(segment.start), milliseconds(segment.end));
                format!("{start}\t{end}\t{}\n", text.replace('\t', " "))
            }
            Format::Lrc => {
                let hundredths = milliseconds(segment.start) / 10;
                let (minutes, rest) = (hundredths / 6000, hundredths % 6000);
                format!("[{minutes:02}:{:02}.{:02}]{text}\n", rest / 100, rest % 100)
            }
            Format::Json => {
                self.json.push_text(segment);
                String::new()
            }
            Format::VerboseJson => {
                self.json.push(segment);
                String::new()
            }
        }
    }

    /// Returns the text after all segments. `duration` is that of the audio in seconds.
    pub fn finish(&mut self, duration: f64) -> String {
        let json = std::mem::take(&mut self.json);
        match self.format {
            Format::Json => json.finish(duration),
            Format::VerboseJson => {
                let Header { task, language, .. } = &self.header;
                json.finish_verbose(task.name(), language.name, duration)
            }
            Format::Text | Format::Srt | Format::Vtt | Format::Tsv | Format::Lrc => String::new(),
        }
    }

    /// A subtitle. A segment whose words are missing has none.
    fn cue(&mut self, segment: &Segment) -> String {
        let (start, end, text) = match (self.header.words, &segment.words[..]) {
            (WordTimes::On, []) => return String::new(),
            (WordTimes::On, words @ [first, ..]) => {
                let end = words.last().map_or(first.end, |last| last.end);
                (first.start, end, line(words))
            }
            (WordTimes::Off, _) => {
                let text = segment.text.trim().to_string();
                (segment.start, segment.end, text)
            }
        };
        // The arrow separates times, so a text must not contain it.
        let text = text.replace("-->", "->");
        self.cues += 1;
        if self.format == Format::Srt {
            let (start, end) = (srt_time(start), srt_time(end));
            return format!("{}\n{start} --> {end}\n{text}\n\n", self.cues);
        }
        format!("{} --> {}\n{text}\n\n", vtt_time(start), vtt_time(end))
    }
}

/// Joins words, without white space before the first. A line longer than 1000 characters is broken.
fn line(words: &[Word]) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in words {
        let count = word.text.chars().count();
        if chars > 0 && chars + count <= LINE_CHARS {
            line.push_str(&word.text);
            chars += count;
            continue;
        }
        if chars > 0 {
            line.push('\n');
        }
        let text = word.text.trim();
        line.push_str(text);
        chars = text.chars().count();
    }
    line
}

/// `hours:minutes:seconds,milliseconds`.
fn srt_time(seconds: f64) -> String {
    let [hours, minutes, seconds, milliseconds] = split_time(seconds);
    format!("{hours:02}:{minutes:02}:{seconds:02},{milliseconds:03}")
}

/// `hours:minutes:seconds.milliseconds`, without hours in the first hour.
fn vtt_time(seconds: f64) -> String {
    let [hours, minutes, seconds, milliseconds] = split_time(seconds);
    let hours = match hours {
        0 => String::new(),
        hours => format!("{hours:02}:"),
    };
    format!("{hours}{minutes:02}:{seconds:02}.{milliseconds:03}")
}

/// Hours, minutes, seconds and milliseconds.
fn split_time(seconds: f64) -> [u64; 4] {
    let all = milliseconds(seconds);
    let seconds = all / 1000;
    [seconds / 3600, seconds / 60 % 60, seconds % 60, all % 1000]
}

/// Rounded milliseconds; 0 for negative numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round_ties_even() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::LANGUAGES;

    #[test]
    fn times_have_milliseconds() {
        for (seconds, srt, vtt) in [
            (0.0, "00:00:00,000", "00:00.000"),
            (7.74, "00:00:07,740", "00:07.740"),
            (59.9996, "00:01:00,000", "01:00.000"),
            (3600.5, "01:00:00,500", "01:00:00.500"),
            (360_000.0, "100:00:00,000", "100:00:00.000"),
            (-1.0, "00:00:00,000", "00:00.000"),
            (f64::NAN, "00:00:00,000", "00:00.000"),
        ] {
            assert_eq!(srt_time(seconds), srt);
            assert_eq!(vtt_time(seconds), vtt);
        }
    }

    #[test]
    fn formats_have_names() {
        for (format, names) in Format::NAMES {
            for name in names {
                assert_eq!(Format::find(name).unwrap(), format);
            }
            assert!(!format.extension().is_empty());
        }
        let message = Format::find("xml").unwrap_err().to_string();
        assert!(message.ends_with("text, srt, vtt, tsv, lrc, json, verbose_json"));
    }

    #[test]
    fn lyrics_have_hundredths() {
        let header = Header {
            task: Task::Transcribe,
            language: &LANGUAGES[0],
            words: WordTimes::Off,
        };
        let mut writer = Writer::new(Format::Lrc, header);
        assert_eq!(writer.start(), "[by:tabla]\n");
        let segment = Segment {
            start: 3661.25,
            text: " So".to_string(),
            ..Segment::default()
        };
        assert_eq!(writer.segment(&segment), "[61:01.25]So\n");
        assert_eq!(writer.finish(3700.0), "");
    }
}
