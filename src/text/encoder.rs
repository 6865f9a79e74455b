//! From text to ids: Hugging Face's BPE, built from a vocabulary beside the loading of the weights.
//!
//! Building takes a quarter of a second for Llama 3, decoding needs none of it, and the first text comes
//! later than the vocabulary: so a thread builds it, and the first call that encodes waits for the rest.

use super::bytelevel;
use super::pieces::{Blob, Role};
use super::pre::{KnownWords, Pre};
use super::split::{Splitter, windows};
use super::spm;
use super::vocab::Kind;
use crate::error::{Error, ErrorKind, Result, bail};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab as Ids};

/// The longest stretch that is merged as one where no expression runs.
const RUN_BYTES_MAX: usize = 4 << 20;

/// What a model is built from.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) row: Option<&'static Pre>,
    pub(super) texts: Blob,
    pub(super) roles: Arc<[Role]>,
    pub(super) scores: Vec<f32>,
    pub(super) merges: Blob,
    pub(super) unk: Option<u32>,
}

/// A model that is there when it is needed.
#[derive(Debug)]
pub(super) struct Encoder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    spec: Mutex<Option<Spec>>,
    model: OnceLock<Result<Model>>,
}

impl Shared {
    /// The model; whoever comes first builds it, all others wait.
    fn model(&self) -> &Result<Model> {
        self.model.get_or_init(|| {
            let spec = self
                .spec
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let spec = spec.expect("taken here only, and here is reached once");
            guarded("build", || Model::new(&spec))
        })
    }
}

impl Encoder {
    /// Starts to build. Where no thread can be had, the first call that encodes builds.
    pub(super) fn new(spec: Spec) -> Self {
        let shared = Arc::new(Shared {
            spec: Mutex::new(Some(spec)),
            model: OnceLock::new(),
        });
        let worker = Arc::clone(&shared);
        let thread = Builder::new()
            .name("tabla-tokenizer".into())
            .spawn(move || {
                worker.model();
            });
        if let Err(error) = &thread {
            tracing::warn!(%error, "no thread for the tokenizer: it is built when first used");
        }
        Self {
            shared,
            thread: Mutex::new(thread.ok()),
        }
    }

    /// Waits until the model is there.
    ///
    /// # Errors
    /// What is wrong with the vocabulary, each time.
    pub(super) fn model(&self) -> Result<&Model> {
        self.shared
            .model()
            .as_ref()
            .map_err(|e| Error::new(e.kind(), e.message()))
    }
}

impl Drop for Encoder {
    /// Leaves no thread behind: a library may be unloaded after its last handle.
    fn drop(&mut self) {
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic in it was caught and is kept as the result.
            let _ = thread.join();
        }
    }
}

/// Runs foreign code; a panic in it is an error of this text or vocabulary, not of the program.
fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        bail!(
            Tokenizer,
            "the tokenizer library panicked in {what}: {text}"
        )
    })
}

fn foreign(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Tokenizer, error)
}

/// The merges and the rule that cuts text into what they work on.
#[derive(Debug)]
pub(super) struct Model {
    bpe: BPE,
    words: Words,
}

/// How a text is cut and written before merging.
#[derive(Debug)]
enum Words {
    /// By expressions, in the alphabet of bytes.
    Bytes(Splitter),
    /// As it is; tokens may go over spaces or not.
    Spaces { go_over: bool },
    /// By lines: runs of line ends and what is between them.
    Lines,
}

impl Model {
    fn new(spec: &Spec) -> Result<Self> {
        let (ids, markup) = ids(spec);
        let merges = if spec.kind == Kind::Llama {
            spm::merges(&spec.texts, &spec.roles, &spec.scores, |text| {
                ids.contains_key(text)
            })
        } else {
            merges(spec, &ids, &markup)?
        };
        let words = match (spec.kind, spec.row) {
            (Kind::Gpt2, Some(row)) => Words::Bytes(Splitter::new(row)?),
            (Kind::Gemma4, _) => Words::Lines,
            _ => {
                let mut texts = (0..spec.texts.len()).filter(|&n| spec.roles[n].is_text());
                Words::Spaces {
                    go_over: texts.any(|n| spm::goes_over_spaces(spec.texts.text(n))),
                }
            }
        };
        // The library keeps the words that it has seen per thread and frees them only with the thread,
        // so its cache stays off.
        let builder = BPE::builder()
            .vocab_and_merges(ids, merges)
            .cache_capacity(0);
        let builder = builder.ignore_merges(
            spec.row
                .is_some_and(|row| row.known_words == KnownWords::Whole),
        );
        let builder = match spec.unk {
            _ if spec.kind == Kind::Gpt2 => builder,
            Some(unk) => builder
                .unk_token(spec.texts.text(unk as usize).into())
                .fuse_unk(true),
            None => builder,
        };
        let bpe = builder
            .byte_fallback(spec.kind != Kind::Gpt2)
            .build()
            .map_err(foreign)?;
        Ok(Self { bpe, words })
    }

    /// Appends the ids of an ordinary text behind a prefix, for kinds that write spaces visibly.
    pub(super) fn encode(&self, prefix: &str, text: &str, out: &mut Vec<u32>) -> Result<()> {
        guarded("encode", || match &self.words {
            Words::Bytes(splitter) => {
                let mut word = String::new();
                for part in splitter.words(text)? {
                    bytelevel::encode(part, &mut word);
                    self.merge(&word, out)?;
                }
                Ok(())
            }
            Words::Spaces { go_over } => {
                let text = spm::escape(prefix, text);
                let good = |c, next| !go_over && c != spm::SPACE && next == spm::SPACE;
                windows(&text, RUN_BYTES_MAX, good)?
                    .into_iter()
                    .try_for_each(|w| self.merge(w, out))
            }
            Words::Lines => {
                let text = spm::escape(prefix, text);
                let mut lines = text.as_str();
                while let Some(first) = lines.chars().next() {
                    let end = lines
                        .find(|c| (c == '\n') != (first == '\n'))
                        .unwrap_or(lines.len());
                    let (line, rest) = lines.split_at(end);
                    lines = rest;
                    // Runs of line ends are tokens that no merge makes.
                    match self.bpe.token_to_id(line).filter(|_| first == '\n') {
                        Some(id) => out.push(id),
                        None => self.merge(line, out)?,
                    }
                }
                Ok(())
            }
        })
    }

    /// Merges one word.
    fn merge(&self, word: &str, out: &mut Vec<u32>) -> Result<()> {
        if word.len() > RUN_BYTES_MAX {
            bail!(
                TooLarge,
                "a word of {} bytes is over the limit of {RUN_BYTES_MAX}",
                word.len()
            );
        }
        let tokens = self.bpe.tokenize(word).map_err(foreign)?;
        // The library leaves out what the vocabulary cannot write.
        if tokens.last().map_or(0, |token| token.offsets.1) != word.len() {
            let lost = word
                .chars()
                .find(|c| self.bpe.token_to_id(c.encode_utf8(&mut [0; 4])).is_none());
            bail!(
                Tokenizer,
                "the vocabulary has no token for {:?}",
                lost.unwrap_or_default()
            );
        }
        out.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}

/// The ids of what merges work on, and the spellings that text must not become.
fn ids(spec: &Spec) -> (Ids, HashSet<&str>) {
    let mut ids = Ids::with_capacity(spec.texts.len());
    let mut markup = HashSet::new();
    for n in 0..spec.texts.len() {
        let (text, Ok(id)) = (spec.texts.text(n), u32::try_from(n)) else {
            continue;
        };
        let role = spec.roles[n];
        let key = match (role, spm::byte_of(text)) {
            _ if text.is_empty() => continue,
            _ if role.is_text() || spec.unk == Some(id) => text.to_owned(),
            // The library looks for the digits in upper case.
            (Role::Byte, Some(byte)) => format!("<0x{byte:02X}>"),
            _ => {
                markup.insert(text);
                continue;
            }
        };
        // Of two tokens with one spelling the first counts.
        ids.entry(key).or_insert(id);
    }
    (ids, markup)
}

/// The merges of a list, checked: both parts and the result are tokens.
fn merges(spec: &Spec, ids: &Ids, markup: &HashSet<&str>) -> Result<Vec<(String, String)>> {
    let mut merges = Vec::with_capacity(spec.merges.len());
    let mut whole = String::new();
    for n in 0..spec.merges.len() {
        let merge = spec.merges.text(n);
        // The left part may itself begin with a space.
        let after_first = merge.chars().next().map_or(0, char::len_utf8);
        let space = merge[after_first..].find(' ').map(|at| at + after_first);
        let Some((left, right)) = space.map(|at| (&merge[..at], &merge[at + 1..])) else {
            bail!(
                Tokenizer,
                "merge {n}: {merge:?} has no space between two parts"
            );
        };
        whole.clear();
        whole.extend([left, right]);
        let parts = [left, right, &whole];
        let Some(absent) = parts.iter().find(|part| !ids.contains_key(**part)) else {
            merges.push((left.to_owned(), right.to_owned()));
            continue;
        };
        // Text never becomes markup: such a merge is left out.
        if !parts.iter().any(|part| markup.contains(*part)) {
            bail!(
                Tokenizer,
                "merge {n}: {merge:?}: {absent:?} is not in the vocabulary"
            );
        }
    }
    Ok(merges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_is_left_after_a_drop() {
        let texts = Blob::of(&["a"], 1).unwrap();
        let merges = Blob::of(&[], 1).unwrap();
        let roles = Arc::new([Role::Normal]);
        let spec = Spec {
            kind: Kind::Llama,
            row: None,
            texts,
            roles,
            scores: vec![],
            merges,
            unk: None,
        };
        let encoder = Encoder::new(spec);
        let shared = Arc::downgrade(&encoder.shared);
        drop(encoder);
        assert!(
            shared.upgrade().is_none(),
            "the thread still holds its part"
        );
    }

    #[test]
    fn a_foreign_panic_is_an_error() {
        let work = || -> Result<()> { std::panic::panic_any("nothing there") };
        let error = guarded("test", work).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tokenizer);
        assert_eq!(
            error.message(),
            "the tokenizer library panicked in test: nothing there"
        );
    }
}
