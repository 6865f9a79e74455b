//! JSON objects of OpenAI's transcription API.

use crate::segment::{Segment, Word};
use serde_json::{Value, json};

/// Parts of a JSON object, collected from segments.
#[derive(Debug, Default)]
pub(crate) struct JsonParts {
    text: String,
    segments: Vec<Value>,
    /// Words of all segments, if segments have words.
    words: Option<Vec<Value>>,
}

impl JsonParts {
    /// Creates an object with a list of words.
    pub(crate) fn with_words() -> Self {
        Self {
            words: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Adds the text of a segment.
    pub(crate) fn push_text(&mut self, segment: &Segment) {
        self.text.push_str(&segment.text);
    }

    /// Adds a segment and its words.
    pub(crate) fn push(&mut self, segment: &Segment) {
        self.push_text(segment);
        self.segments.push(json!({
            "id": segment.id,
            "seek": segment.seek,
            "start": to_milliseconds(segment.start),
            "end": to_milliseconds(segment.end),
            "text": segment.text,
            "tokens": segment.tokens,
            "temperature": segment.temperature,
            "avg_logprob": segment.avg_logprob,
            "compression_ratio": segment.compression_ratio,
            "no_speech_prob": segment.no_speech_prob,
        }));
        if let Some(words) = &mut self.words {
            words.extend(segment.words.iter().map(word));
        }
    }

    /// Object of the format `json`.
    pub(crate) fn finish(self, duration: f64) -> String {
        to_line(&json!({
            "text": self.text.trim(),
            "usage": usage(duration),
        }))
    }

    /// Object of the format `verbose_json`, with the names of task and language.
    pub(crate) fn finish_verbose(self, task: &str, language: &str, duration: f64) -> String {
        let mut object = json!({
            "task": task,
            "language": language,
            "duration": to_milliseconds(duration),
            "text": self.text.trim(),
            "segments": self.segments,
        });
        if let Some(words) = self.words {
            object["words"] = words.into();
        }
        object["usage"] = usage(duration);
        to_line(&object)
    }
}

fn word(word: &Word) -> Value {
    json!({
        "word": word.text.trim(),
        "start": to_milliseconds(word.start),
        "end": to_milliseconds(word.end),
        "probability": word.probability,
    })
}

/// Billed duration: whole seconds.
fn usage(duration: f64) -> Value {
    let seconds = duration.max(0.0).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let seconds = seconds as u64;
    json!({"type": "duration", "seconds": seconds})
}

/// Rounds to milliseconds, which hides errors of binary fractions.
fn to_milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round_ties_even() / 1000.0
}

fn to_line(value: &Value) -> String {
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        Segment {
            seek: 0,
            start: 387.0 * 0.02,
            end: 10.740_000_000_000_002,
            text: " \"So\"".to_string(),
            tokens: vec![50_364, 407, 50_901],
            avg_logprob: -0.25,
            compression_ratio: 1.5,
            words: vec![Word {
                text: " \"So\"".to_string(),
                start: 7.74,
                end: 8.1,
                probability: 0.5,
            }],
            ..Segment::default()
        }
    }

    const SEGMENT: &str = r#"{"id":0,"seek":0,"start":7.74,"end":10.74,"text":" \"So\"","tokens":[50364,407,50901],"temperature":0.0,"avg_logprob":-0.25,"compression_ratio":1.5,"no_speech_prob":0.0}"#;

    #[test]
    fn objects_have_the_fields_of_the_api() {
        let mut parts = JsonParts::default();
        parts.push_text(&segment());
        assert_eq!(
            parts.finish(10.75),
            "{\"text\":\"\\\"So\\\"\",\"usage\":{\"type\":\"duration\",\"seconds\":11}}\n"
        );
        let start = r#"{"task":"transcribe","language":"english","duration":10.75,"text":"\"So\"","segments":["#;
        let end = r#""usage":{"type":"duration","seconds":11}}"#;
        let words = r#""words":[{"word":"\"So\"","start":7.74,"end":8.1,"probability":0.5}],"#;
        for (mut parts, words) in [(JsonParts::default(), ""), (JsonParts::with_words(), words)] {
            parts.push(&segment());
            let found = parts.finish_verbose("transcribe", "english", 10.75);
            assert_eq!(found, format!("{start}{SEGMENT}],{words}{end}\n"));
        }
    }

    #[test]
    fn numbers_that_json_lacks_are_null() {
        let mut parts = JsonParts::default();
        parts.push(&Segment {
            avg_logprob: f64::NAN,
            ..segment()
        });
        let found = parts.finish_verbose("", "", f64::INFINITY);
        let value: Value = serde_json::from_str(&found).unwrap();
        assert!(value["segments"][0]["avg_logprob"].is_null());
        assert!(value["duration"].is_null());
    }
}
