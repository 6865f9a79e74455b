//! A tokenizer as sections of a compiled file: arrays, which are used in place, and JSON.
//!
//! Arrays are little-endian. The JSON has what everything else is made from, such as the text of a regular expression.

use super::array::{Array, Section};
use super::bpe::{Alphabet, Bpe, IgnoreMerges, Ranking};
use super::fallback::{Fallback, Unknown};
use super::hash::{NumberTable, Seed};
use super::index::Index;
use super::json::{BoundedVec, STEPS_MAX};
use super::kind::VocabKind;
use super::merges::MergeTable;
use super::model::Model;
use super::pair::PairFormat;
use super::pieces::{StringTable, TOKENS_MAX, TokenType};
use super::pre;
use super::spec;
use super::special::AddedTokenOptions;
use super::steps::{self, Position, Step};
use super::tokenizer::Tokenizer;
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};
use tabla_core::reserve;

/// The section `settings`.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    kind: VocabKind,
    pre: Option<String>,
    /// By id.
    added_token_options: BTreeMap<u32, AddedTokenOptions>,
    normalizer_steps: usize,
    model: ModelSettings,
    ids_seed: Seed,
    before: Vec<u32>,
    after: Vec<u32>,
    pair: Option<PairFormat>,
    stops: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_space_prefix: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModelSettings {
    Bpe {
        alphabet: Alphabet,
        ignore_merges: IgnoreMerges,
        /// The seed of the table of ranks; `None` for merges by score.
        ranks_seed: Option<Seed>,
        fallback: FallbackSettings,
    },
    WordPiece {
        unk: Option<u32>,
        word_chars_max: usize,
    },
    Unigram {
        /// The bits of a 64-bit float.
        unk_score: u64,
        fallback: FallbackSettings,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct FallbackSettings {
    unknown: Unknown,
    unk: Option<u32>,
}

impl Tokenizer {
    /// Returns the name and the bytes of each section from which [`from_sections`](Self::from_sections) opens this
    /// tokenizer.
    pub fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        let (model, mut arrays) = match &self.model {
            Model::Bpe(model) => bpe_sections(model),
            Model::WordPiece(model) => {
                let settings = ModelSettings::WordPiece {
                    unk: model.unk,
                    word_chars_max: model.word_chars_max,
                };
                (settings, Vec::new())
            }
            Model::Unigram(model) => {
                let settings = ModelSettings::Unigram {
                    unk_score: model.unk_score.to_bits(),
                    fallback: FallbackSettings::of(&model.fallback),
                };
                let arrays = vec![
                    ("sorted", model.sorted.to_bytes()),
                    ("scores", model.scores.to_bytes()),
                ];
                (settings, arrays)
            }
        };
        let index = self.model.index();
        let options = self.specials.options.iter();
        let settings = Settings {
            kind: self.kind,
            pre: self.pre.map(str::to_owned),
            added_token_options: options.map(|(id, options)| (*id, *options)).collect(),
            normalizer_steps: self.normalizer_steps,
            model,
            ids_seed: index.ids.seed,
            before: self.before.clone(),
            after: self.after.clone(),
            pair: self.pair.clone(),
            stops: self.stops.clone(),
            bos: self.bos,
            eos: self.eos,
            add_space_prefix: self.add_space_prefix,
        };
        arrays.extend([
            ("settings", to_json(&settings)),
            ("steps", to_json(&self.steps)),
            ("texts", index.texts.bytes.to_bytes()),
            ("text_ends", index.texts.ends.to_bytes()),
            ("ids", index.ids.slots.to_bytes()),
            ("pieces", self.pieces.bytes.to_bytes()),
            ("piece_ends", self.pieces.ends.to_bytes()),
            ("token_types", self.token_types.to_bytes()),
        ]);
        arrays
    }

    /// Opens a tokenizer from its sections, by name. Arrays are used in place. A section starts at an address that is
    /// a multiple of 8.
    ///
    /// Sections may have any bytes: an opened tokenizer has only ids of its vocabulary, and a lookup has a bounded
    /// number of steps. Tables that contradict each other give other tokens.
    ///
    /// # Errors
    /// `Format` for missing or invalid sections, `TooLarge` for special tokens over the limits.
    pub fn from_sections(section: impl Fn(&str) -> Option<Section>) -> Result<Self> {
        let get = |name: &str| match section(name) {
            Some(section) => Ok(section),
            None => bail!(Format, "the section {name} is missing"),
        };
        let steps = get("steps")?;
        std::thread::scope(|scope| {
            // Regular expressions take longer to compile than the arrays take to check.
            let read = || from_json::<BoundedVec<Step, STEPS_MAX>>(&steps).context("steps");
            let thread = reserve::thread("tabla-steps");
            let steps = thread.and_then(|thread| thread.spawn_scoped(scope, read));
            let tokenizer = open(&get);
            let steps = steps.ok().and_then(|steps| steps.join().ok());
            with_steps(tokenizer?, steps.unwrap_or_else(read)?.0)
        })
    }
}

/// Opens a tokenizer without its steps.
fn open(get: &dyn Fn(&str) -> Result<Section>) -> Result<Tokenizer> {
    let settings: Settings = from_json(&get("settings")?).context("settings")?;
    let texts = StringTable::stored(get("texts")?, get("text_ends")?)?;
    let pieces = StringTable::stored(get("pieces")?, get("piece_ends")?)?;
    let token_types = Array::<u8>::shared(get("token_types")?)?;
    let tokens = texts.len();
    if tokens > TOKENS_MAX || pieces.len() != tokens || token_types.len() != tokens {
        bail!(
            Format,
            "the tables of tokens have different or invalid lengths"
        );
    }
    settings.check(tokens)?;
    let ids = NumberTable::stored(settings.ids_seed, get("ids")?, tokens).context("ids")?;
    let types = token_types
        .iter()
        .map(|number| TokenType::from_ggml((*number).into()));
    let options = settings.added_token_options.into_iter().collect();
    let specials = spec::specials(types, |id| texts.text(id as usize), options)?;
    let mut stops = settings.stops;
    stops.sort_unstable();
    let pre = settings.pre.map(|name| pre::find(Some(&name), tokens));
    Ok(Tokenizer {
        kind: settings.kind,
        pre: pre.transpose()?.map(|(name, _)| name),
        piece_bytes_max: pieces.longest(),
        pieces,
        normalized_specials: None,
        steps: Vec::new(),
        normalizer_steps: settings.normalizer_steps,
        model: model(settings.model, Index { texts, ids }, &token_types, get)?,
        token_types,
        specials,
        before: settings.before,
        after: settings.after,
        pair: settings.pair,
        stops,
        bos: settings.bos,
        eos: settings.eos,
        add_space_prefix: settings.add_space_prefix,
    })
}

/// Adds the steps to an opened tokenizer.
fn with_steps(mut tokenizer: Tokenizer, steps: Vec<Step>) -> Result<Tokenizer> {
    let Some(normalizer) = steps.get(..tokenizer.normalizer_steps) else {
        let expected = tokenizer.normalizer_steps;
        bail!(Format, "expected {expected} steps, got {}", steps.len());
    };
    let normalize = |text: &str| steps::normalize(normalizer, text, Position::Start);
    tokenizer.normalized_specials = tokenizer.specials.of_normalized(normalize)?;
    tokenizer.steps = steps;
    Ok(tokenizer)
}

/// Opens the model of an index.
fn model(
    settings: ModelSettings,
    index: Index,
    token_types: &[u8],
    get: &dyn Fn(&str) -> Result<Section>,
) -> Result<Model> {
    let fallback = |FallbackSettings { unknown, unk }| {
        let types = token_types
            .iter()
            .map(|number| TokenType::from_ggml((*number).into()));
        Fallback::new(unknown, unk, &index, types)
    };
    Ok(match settings {
        ModelSettings::Bpe {
            alphabet,
            ignore_merges,
            ranks_seed,
            fallback: settings,
        } => {
            let fallback = fallback(settings);
            let ranking = match ranks_seed {
                Some(seed) => {
                    let ranks = (seed, get("ranks")?);
                    Ranking::Merges(MergeTable::stored(get("merges")?, ranks, index.len())?)
                }
                None => {
                    let scores = Array::<f64>::shared(get("scores")?)?;
                    if scores.len() != index.len() {
                        bail!(
                            Format,
                            "scores: expected {} entries, got {}",
                            index.len(),
                            scores.len()
                        );
                    }
                    Ranking::Scores(scores)
                }
            };
            Model::Bpe(Bpe::new(index, alphabet, ranking, ignore_merges, fallback))
        }
        ModelSettings::WordPiece {
            unk,
            word_chars_max,
        } => Model::WordPiece(WordPiece::new(index, unk, Some(word_chars_max))),
        ModelSettings::Unigram {
            unk_score,
            fallback: settings,
        } => {
            let (fallback, unk_score) = (fallback(settings), f64::from_bits(unk_score));
            let arrays = [get("sorted")?, get("scores")?];
            Model::Unigram(Unigram::stored(index, arrays, unk_score, fallback)?)
        }
    })
}

/// Returns the settings and the arrays of a BPE model.
fn bpe_sections(model: &Bpe) -> (ModelSettings, Vec<(&'static str, Vec<u8>)>) {
    let (ranks_seed, arrays) = match &model.ranking {
        Ranking::Merges(table) => {
            let merges = ("merges", table.merges.to_bytes());
            let ranks = ("ranks", table.ranks.slots.to_bytes());
            (Some(table.ranks.seed), vec![merges, ranks])
        }
        Ranking::Scores(scores) => (None, vec![("scores", scores.to_bytes())]),
    };
    let settings = ModelSettings::Bpe {
        alphabet: match model.bytes {
            Some(_) => Alphabet::Bytes,
            None => Alphabet::Characters,
        },
        ignore_merges: model.ignore_merges,
        ranks_seed,
        fallback: FallbackSettings::of(&model.fallback),
    };
    (settings, arrays)
}

impl FallbackSettings {
    fn of(fallback: &Fallback) -> Self {
        Self {
            unknown: match (&fallback.bytes, fallback.fuse) {
                (Some(_), _) => Unknown::Bytes,
                (None, true) => Unknown::Fused,
                (None, false) => Unknown::Single,
            },
            unk: fallback.unk,
        }
    }
}

impl Settings {
    /// Checks that all ids are in a vocabulary of `tokens` tokens.
    fn check(&self, tokens: usize) -> Result<()> {
        let unk = match &self.model {
            ModelSettings::Bpe { fallback, .. } | ModelSettings::Unigram { fallback, .. } => {
                &fallback.unk
            }
            ModelSettings::WordPiece { unk, .. } => unk,
        };
        let lists = [&self.before, &self.after, &self.stops]
            .into_iter()
            .flatten();
        let pair = self.pair.iter().flat_map(PairFormat::ids);
        let single = [&self.bos, &self.eos, unk].into_iter().flatten();
        let mut all = lists
            .chain(pair)
            .chain(single)
            .chain(self.added_token_options.keys());
        if let Some(id) = all.find(|id| **id as usize >= tokens) {
            bail!(Format, "settings: id {id} is not in the vocabulary");
        }
        Ok(())
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value)
        .expect("maps have numbers as keys, and writing to memory does not fail")
}

fn from_json<T: for<'a> Deserialize<'a>>(section: &Section) -> Result<T> {
    let value = serde_json::from_slice(section.bytes());
    value.map_err(|e| Error::new(ErrorKind::Format, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, EncodeOptions, Vocab};
    use std::collections::HashMap;
    use std::sync::Arc;

    type Sections = HashMap<&'static str, Vec<u8>>;

    fn open(sections: &Sections) -> Result<Tokenizer> {
        Tokenizer::from_sections(|name| Some(Section::aligned_copy(sections.get(name)?)))
    }

    /// Small tokenizers with each kind of table.
    fn small() -> Vec<Tokenizer> {
        let tokens = [
            "<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<0x0A>", "▁b", "",
        ];
        let common = Vocab {
            tokens: tokens.to_vec(),
            types: vec![2, 3, 3, 1, 1, 1, 1, 1, 6, 4, 5],
            scores: vec![-9., 0., 0., -1., -2., -2., -3., -4., 0., -5., 0.],
            merges: vec!["a b", "▁ ab", "<s> a"],
            unk: Some(0),
            bos: Some(1),
            eos: Some(2),
            add_bos: Some(true),
            ..Vocab::default()
        };
        let of = |model| {
            let vocab = Vocab {
                model,
                ..common.clone()
            };
            Tokenizer::new(&vocab).unwrap()
        };
        let json = r#"{
            "normalizer": { "type": "Lowercase" },
            "added_tokens": [{ "id": 4, "content": "X", "normalized": true, "rstrip": true }],
            "model": { "type": "WordPiece", "unk_token": "u", "vocab": { "u": 0, "a": 1, "ab": 2, "\u0023\u0023b": 3 } }
        }"#;
        let word_piece = Tokenizer::from_json(json, None).unwrap();
        vec![of("gemma4"), of("llama"), of("t5"), word_piece]
    }

    const TEXTS: [&str; 3] = ["ab abab\n b ba", "xX <s>é\u{301}", ""];

    /// Encodes and decodes texts, also if the tokenizer was damaged.
    fn run(tokenizer: &Tokenizer) -> Vec<Option<Vec<u32>>> {
        let encode = |text: &&str| {
            let ids = tokenizer.encode(text, EncodeOptions::PROMPT).ok()?;
            assert!(
                tokenizer.decode(&ids, DecodeOptions::default()).is_ok(),
                "{ids:?}"
            );
            Some(ids)
        };
        TEXTS.iter().map(encode).collect()
    }

    #[test]
    fn sections_of_an_opened_tokenizer_are_the_same() {
        for tokenizer in small() {
            let sections = tokenizer.sections();
            let opened = open(&sections.iter().cloned().collect()).unwrap();
            assert_eq!(run(&opened), run(&tokenizer));
            assert!(opened.sections() == sections, "{:?}", tokenizer.kind());
            assert_eq!(opened.memory_bytes(), 0);
        }
    }

    #[test]
    fn damaged_sections_are_errors_or_other_tokens() {
        for whole in small().iter().map(Tokenizer::sections) {
            let whole: Sections = whole.into_iter().collect();
            let check = |name: &'static str, bytes: Vec<u8>| {
                let mut damaged = whole.clone();
                damaged.insert(name, bytes);
                open(&damaged).map(|tokenizer| run(&tokenizer))
            };
            for (name, bytes) in &whole {
                for at in 0..bytes.len() {
                    for flipped in [1, 0x80, 0xff] {
                        let mut bytes = bytes.clone();
                        bytes[at] ^= flipped;
                        let _ = check(name, bytes);
                    }
                    let cut = check(name, bytes[..at].to_vec());
                    // A part of a list of merges, or of a hash table, is another one.
                    let is_whole = !matches!(*name, "ids" | "ranks" | "merges" | "sorted");
                    assert!(cut.is_err() || !is_whole, "{name} at {at}");
                }
                for other in whole.values().filter(|other| *other != bytes) {
                    let _ = check(name, other.clone());
                }
                let mut missing = whole.clone();
                missing.remove(name);
                assert_eq!(open(&missing).unwrap_err().kind(), ErrorKind::Format);
            }
        }
    }

    #[test]
    fn arrays_need_an_aligned_part_of_the_file() {
        let file: Arc<Vec<u64>> = Arc::new(vec![0; 2]);
        struct File(Arc<Vec<u64>>);
        impl AsRef<[u8]> for File {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        let part = |range| Section::new(Arc::new(File(file.clone())), range);
        assert_eq!(Array::<u32>::shared(part(4..12).unwrap()).unwrap().len(), 2);
        for range in [2..6, 4..9] {
            let error = Array::<u32>::shared(part(range).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Format);
        }
        assert!(part(8..17).is_err());
    }
}
