//! Reference results of a checkpoint, and comparisons of a session with them.

use crate::common::{greedy, picks, worst};
use crate::npy::Npy;
use std::cell::Cell;
use std::path::Path;
use tabla::Session;

/// Maximum difference of a logit.
const TOLERANCE: f32 = 1e-4;

/// Tokens of a reference, and the logits after each of the first ones.
pub(crate) struct Reference {
    pub(crate) tokens: Vec<u32>,
    prompt: usize,
    pub(crate) greedy: Vec<u32>,
    logits: Npy,
    /// Largest observed difference.
    pub(crate) worst: Cell<f32>,
}

impl Reference {
    /// Reads the tokens of a JSON file and the logits of an npy file.
    pub(crate) fn read(json: &Path, logits: &Path) -> Self {
        let text = std::fs::read_to_string(json).expect("a golden file");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let ids = |key: &str| -> Vec<u32> {
            let list = json[key].as_array().expect("a list of ids");
            let id = |id: &serde_json::Value| u32::try_from(id.as_u64().expect("an id"));
            list.iter().map(|v| id(v).expect("an id")).collect()
        };
        Self {
            tokens: ids("tokens"),
            prompt: usize::try_from(json["prompt_len"].as_u64().expect("a length")).expect("small"),
            greedy: ids("greedy"),
            logits: Npy::read(logits),
            worst: Cell::new(0.0),
        }
    }

    /// Number of rows of logits.
    pub(crate) fn rows(&self) -> usize {
        self.logits.data.len() / self.logits.cols
    }

    /// Logits after a token.
    pub(crate) fn row(&self, position: usize) -> &[f32] {
        &self.logits.data[position * self.logits.cols..][..self.logits.cols]
    }

    /// Compares a row of logits.
    pub(crate) fn check_row(&self, what: &str, row: &[f32], position: usize) {
        let (at, difference) = worst(row, self.row(position));
        self.worst.set(self.worst.get().max(difference));
        assert!(
            difference <= TOLERANCE,
            "{what}: {difference} at position {position} token {at}"
        );
    }

    /// Compares all rows of logits after a single prefill.
    pub(crate) fn check_rows(&self, what: &str, s: &mut Session) {
        let mut out = vec![0.0; self.logits.data.len()];
        s.prefill(&self.tokens[..self.rows()])
            .expect("the tokens fit");
        s.logits_all(&mut out)
            .expect("the buffer has the right size");
        for (position, row) in out.chunks(self.logits.cols).enumerate() {
            self.check_row(&format!("{what}: score"), row, position);
        }
        let last = self.rows() - 1;
        self.check_row(&format!("{what}: prefill"), &self.logits_of(s), last);
    }

    /// Compares the last row of every chunk of the first `rows` tokens.
    pub(crate) fn check_chunks(&self, what: &str, s: &mut Session, chunk: usize, rows: usize) {
        let what = format!("{what}: chunks of {chunk}");
        s.reset();
        for (at, tokens) in self.tokens[..rows].chunks(chunk).enumerate() {
            s.prefill(tokens).expect("the tokens fit");
            let position = at * chunk + tokens.len() - 1;
            self.check_row(&what, &self.logits_of(s), position);
        }
    }

    /// Compares decoding token by token, from position `first`.
    pub(crate) fn check_decode(&self, what: &str, s: &mut Session, first: usize) {
        s.reset();
        if first > 0 {
            s.prefill(&self.tokens[..first]).expect("the tokens fit");
        }
        for (position, &token) in self.tokens[..self.rows()].iter().enumerate().skip(first) {
            s.force(token).expect("a token of the vocabulary");
            self.check_row(&format!("{what}: decode"), &self.logits_of(s), position);
        }
    }

    /// Compares the first `count` greedy tokens.
    pub(crate) fn check_greedy(&self, what: &str, s: &mut Session, count: usize) {
        let prompt = &self.tokens[..self.prompt];
        let tokens = picks(s, prompt, &greedy(u32::try_from(count).expect("64")));
        assert_eq!(tokens, self.greedy[..count], "{what}: greedy");
    }

    fn logits_of(&self, s: &mut Session) -> Vec<f32> {
        let mut out = vec![0.0; self.logits.cols];
        s.logits(&mut out).expect("the buffer has the right size");
        out
    }
}
