//! Conversion of a `tokenizer.json` to the keys of a GGUF file, and the reverse.
//!
//! Neither format can express everything that the other can. So a converted tokenizer is compared
//! with the original on a text that covers all scripts and pre-tokenizers.

use super::file::{File, read, read_config};
use super::probes::{Comparison, EDGES, PROSE, check, compare, have_same_pairs};
use super::settings::{self, AddedTokens};
use crate::bpe::{Alphabet, IgnoreMerges};
use crate::kind::VocabKind;
use crate::merges::MergeList;
use crate::pattern::Deadline;
use crate::pieces::TokenType;
use crate::spec::{MergeOrder, ModelSpec, TokenizerSpec};
use crate::steps::{self, Normalization, Position, Step};
use crate::tokenizer::Tokenizer;
use crate::vocab::Vocab;
use crate::{pre, spm};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use tabla_core::error::{Context, Result, bail};

/// What the keys of a tokenizer say about its model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelInputs {
    /// Number of token types (segments) of the model.
    pub token_type_count: Option<u32>,
    /// Whether the model is an encoder, which may read pairs of texts.
    pub is_encoder: bool,
}

/// Keys that a `tokenizer.json` was converted to.
#[derive(Debug)]
pub struct ConvertedVocab<'a> {
    /// The keys.
    pub vocab: Vocab<'a>,
    /// What programs without [`Vocab::settings`] do differently; `None` if the keys have all settings.
    pub note: Option<String>,
}

impl Vocab<'_> {
    /// Converts a `tokenizer.json` and an optional `tokenizer_config.json` to keys, and passes them to
    /// `use_keys`.
    ///
    /// The converted tokenizer gives the same tokens. Settings that the keys of llama.cpp cannot express, such as
    /// `rstrip` of an added token, are written as [`Vocab::settings`] if ordinary text has the same tokens without
    /// them.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`]; `Unsupported` for a tokenizer that keys cannot describe.
    pub fn from_json<R>(
        tokenizer: &str,
        config: Option<&str>,
        inputs: ModelInputs,
        use_keys: impl FnOnce(&ConvertedVocab<'_>) -> Result<R>,
    ) -> Result<R> {
        let original = Tokenizer::from_json(tokenizer, config)?;
        let file = read(tokenizer)?;
        let config = config.map(read_config).transpose()?.unwrap_or_default();
        let spec = file.spec(&config)?;
        let merges = joined(&spec);
        let mut candidates = candidates(&file, &spec, &merges)?;
        let [pad, mask, unk] = config.unused_ids(&spec);
        for vocab in &mut candidates {
            (vocab.pad, vocab.mask) = (pad, mask);
            if spec.kind == VocabKind::Gpt2 {
                vocab.unk = vocab.unk.or(unk);
            }
            write_inputs(&spec, inputs, vocab);
        }
        let settings = settings::text_of(tokenizer, &spec)?;
        let (mut vocab, comparison) = nearest(candidates, &original, inputs)?;
        let (example, added) = match comparison {
            Comparison::Same => return use_keys(&ConvertedVocab { vocab, note: None }),
            Comparison::Edges(example, added) => (example, added),
            Comparison::Prose(example) => bail!(
                Unsupported,
                "tokenizer.json: GGUF keys cannot express its settings: {}; other programs would give other tokens \
                 for ordinary text, such as {example:?}; use the folder itself",
                settings::named(tokenizer, &spec, AddedTokens::Also)
            ),
        };
        vocab.settings = Some(&settings);
        let converted = Tokenizer::new(&vocab)?;
        check(&converted, &original).context("converting tokenizer.json to GGUF keys")?;
        let note = format!(
            "only Tabla reads these settings of tokenizer.json from the file: {}; other programs, such as llama.cpp, \
             give other tokens, for example for {example:?}",
            settings::named(tokenizer, &spec, added)
        );
        use_keys(&ConvertedVocab {
            vocab,
            note: Some(note),
        })
    }

    /// Converts these keys to the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Tokenizer::new`]; `Unsupported` for vocabulary types without a conversion.
    pub fn to_json(&self) -> Result<String> {
        let original = Tokenizer::new(self)?;
        let spec = self.spec()?;
        let mut file = match spec.kind {
            VocabKind::Gpt2 => byte_level(&spec, &self.merges)?,
            VocabKind::Llama => self.sentencepiece(&spec),
            other => bail!(
                Unsupported,
                "tokenizer.ggml.model: cannot convert {other:?} to tokenizer.json"
            ),
        };
        if let Some(text) = self.settings {
            settings::replace_pipeline(&mut file, text);
        }
        let text = file.to_string();
        let converted = Tokenizer::from_json(&text, None)?;
        check(&converted, &original).context("converting GGUF keys to tokenizer.json")?;
        Ok(text)
    }

    fn sentencepiece(&self, spec: &TokenizerSpec<'_>) -> Value {
        let space = spm::SPACE.to_string();
        let mut normalizers = Vec::new();
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": space }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if spec.add_space_prefix {
            normalizers.push(json!({ "type": "Prepend", "prepend": space }));
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        normalizers
            .push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": space }));
        let model = json!({
            "type": "BPE", "dropout": null,
            "unk_token": spec.unk.map(|id| &*spec.tokens[id as usize]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary(spec), "merges": self.merges_by_score(spec),
        });
        let normalizer = json!({ "type": "Sequence", "normalizers": normalizers });
        let decoder = json!({ "type": "Sequence", "decoders": decoders });
        file(spec, [normalizer, Value::Null, decoder, model])
    }

    /// Converts scores to merges: all pairs of tokens that form a token, ordered by its score, best
    /// first.
    fn merges_by_score(&self, spec: &TokenizerSpec<'_>) -> Vec<[&str; 2]> {
        let texts = || self.tokens.iter().zip(&spec.token_types).enumerate();
        let texts = || texts().filter(|(_, (_, token_type))| token_type.is_text());
        let ids: HashMap<&str, usize> = texts().map(|(id, (token, _))| (*token, id)).collect();
        let score = |id: usize| self.scores.get(id).copied().unwrap_or(0.0);
        let mut merges = Vec::new();
        for (id, (token, _)) in texts() {
            for (at, _) in token.char_indices().skip(1) {
                let parts: [&str; 2] = token.split_at(at).into();
                if let [Some(left), Some(right)] = parts.map(|part| ids.get(part)) {
                    merges.push((score(id), Reverse((*left, *right)), parts));
                }
            }
        }
        merges.sort_by(|(a, x, _), (b, y, _)| b.total_cmp(a).then(y.cmp(x)));
        merges.into_iter().map(|(_, _, parts)| parts).collect()
    }
}

/// Builds the file of a vocabulary of the byte-level alphabet from its merges, two parts with a space
/// between them.
pub(super) fn byte_level<T: AsRef<str>>(spec: &TokenizerSpec<'_>, merges: &[T]) -> Result<Value> {
    let (_, pre) = pre::find(spec.pre, spec.tokens.len())?;
    let split = |regex: &&str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
    let mut splits: Vec<Value> = pre.regexes.iter().map(split).collect();
    let level = |extra: &str| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, extra: false });
    splits.push(level("use_regex"));
    let merges: Vec<&str> = merges.iter().map(AsRef::as_ref).collect();
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": pre.ignore_merges == IgnoreMerges::Always,
        "vocab": vocabulary(spec), "merges": merges,
    });
    let normalizer = match pre.form {
        Some(form) => json!({ "type": form.name() }),
        None => Value::Null,
    };
    let pre = json!({ "type": "Sequence", "pretokenizers": splits });
    Ok(file(spec, [normalizer, pre, level("use_regex"), model]))
}

/// Returns the merges in the form of GGUF.
fn joined(spec: &TokenizerSpec<'_>) -> Vec<String> {
    match &spec.model {
        ModelSpec::Bpe {
            order: MergeOrder::Merges(MergeList::Pairs(merges)),
            ..
        } => merges.iter().map(|(a, b)| format!("{a} {b}")).collect(),
        _ => Vec::new(),
    }
}

/// Converts the specification of a `tokenizer.json` to keys: all that may give the same tokens, the most likely ones
/// first.
fn candidates<'a>(
    file: &File<'_>,
    spec: &'a TokenizerSpec<'_>,
    merges: &'a [String],
) -> Result<Vec<Vocab<'a>>> {
    let has = |id: Option<u32>, ids: &[u32]| id.is_some_and(|id| ids.contains(&id));
    // The single token after a text is EOS in GGUF files; another end token ends a turn.
    let end = match *spec.after {
        [end] => Some(end),
        _ => spec.eos,
    };
    let common = Vocab {
        tokens: spec.tokens.iter().map(|token| &**token).collect(),
        types: spec
            .token_types
            .iter()
            .map(|token_type| token_type.to_ggml().into())
            .collect(),
        bos: spec.bos,
        eos: end,
        eot: spec.eos.filter(|eos| Some(*eos) != end),
        unk: spec.unk,
        add_bos: Some(has(spec.bos, &spec.before)),
        add_eos: Some(has(end, &spec.after)),
        ..Vocab::default()
    };
    Ok(match &spec.model {
        ModelSpec::Bpe {
            alphabet: Alphabet::Bytes,
            ignore_merges,
            ..
        } => vec![Vocab {
            model: "gpt2",
            pre: Some(matching_pre_tokenizer(&spec.steps, *ignore_merges)?),
            merges: merges.iter().map(String::as_str).collect(),
            ..common
        }],
        ModelSpec::Bpe {
            order: MergeOrder::Merges(MergeList::Pairs(list)),
            ..
        } => vec![Vocab {
            model: "llama",
            add_space_prefix: Some(spec.add_space_prefix),
            scores: scores(&common.tokens, list),
            ..common
        }],
        ModelSpec::WordPiece { .. } => word_piece(&common),
        ModelSpec::Unigram { scores, .. } => unigram(&common, file.charsmap()?, scores),
        ModelSpec::Bpe { .. } => bail!(
            Unsupported,
            "tokenizer.json: cannot convert {:?} to GGUF keys",
            spec.kind
        ),
    })
}

/// Returns the first keys with the same tokens; otherwise the first with the same tokens of ordinary text, otherwise
/// the first.
fn nearest<'a>(
    candidates: Vec<Vocab<'a>>,
    original: &Tokenizer,
    inputs: ModelInputs,
) -> Result<(Vocab<'a>, Comparison)> {
    let mut best: Option<(Vocab<'a>, Comparison)> = None;
    for vocab in candidates {
        let converted = Tokenizer::new(&vocab)?;
        let mut comparison = compare(&converted, original);
        let pairs = !inputs.is_encoder || have_same_pairs(&converted, original)?;
        if comparison == Comparison::Same && !pairs {
            let example = "a pair of texts".to_string();
            comparison = Comparison::Edges(example, AddedTokens::Also);
        }
        if comparison == Comparison::Same {
            return Ok((vocab, comparison));
        }
        let is_near = |comparison: &Comparison| matches!(comparison, Comparison::Edges(..));
        if best
            .as_ref()
            .is_none_or(|(_, other)| is_near(&comparison) && !is_near(other))
        {
            best = Some((vocab, comparison));
        }
    }
    Ok(best.expect("there are candidates for every model"))
}

/// All settings of two flags, those of most files first.
const FLAGS: [[bool; 2]; 4] = [[true, true], [false, false], [true, false], [false, true]];

/// Returns the keys of `WordPiece`, whose normalizer has two flags.
fn word_piece<'a>(common: &Vocab<'a>) -> Vec<Vocab<'a>> {
    // llama.cpp's converter writes the unknown token as a control token.
    let unknown: u32 = TokenType::Unknown.to_ggml().into();
    let types = common.types.iter().map(|number| match *number {
        number if number == unknown => TokenType::Control.to_ggml().into(),
        number => number,
    });
    let common = Vocab {
        model: "bert",
        types: types.collect(),
        ..common.clone()
    };
    let candidate = |[lowercase, strip_accents]: [bool; 2]| Vocab {
        lowercase: Some(lowercase),
        strip_accents: Some(strip_accents),
        ..common.clone()
    };
    FLAGS.map(candidate).into()
}

/// Returns the keys of Unigram, which treats white space in several ways.
fn unigram<'a>(common: &Vocab<'a>, charsmap: Vec<u8>, scores: &[f64]) -> Vec<Vocab<'a>> {
    #[expect(clippy::cast_possible_truncation, reason = "SentencePiece stores f32")]
    let scores = scores.iter().map(|score| *score as f32).collect();
    let common = Vocab {
        model: "t5",
        pre: Some("default"),
        scores,
        precompiled_charsmap: charsmap,
        ..common.clone()
    };
    let candidate = |[prefix, remove_extra]: [bool; 2]| Vocab {
        add_space_prefix: Some(prefix),
        remove_extra_whitespaces: Some(remove_extra),
        ..common.clone()
    };
    FLAGS.map(candidate).into()
}

/// Writes the keys of pairs of texts.
fn write_inputs(spec: &TokenizerSpec<'_>, inputs: ModelInputs, vocab: &mut Vocab<'_>) {
    vocab.token_type_count = inputs.token_type_count;
    if let (Some(pair), true) = (&spec.pair, inputs.is_encoder) {
        vocab.sep = pair.between.first().copied();
        vocab.add_sep = Some(pair.between.len() > 1);
    }
}

/// Returns the name of the byte-level pre-tokenizer that splits all texts as `steps` do, or else ordinary text,
/// preferably one with the same normalization.
fn matching_pre_tokenizer(steps: &[Step], ignore_merges: IgnoreMerges) -> Result<&'static str> {
    let form = steps.iter().find_map(|step| match step {
        Step::Normalize(Normalization::Form(form)) => Some(*form),
        _ => None,
    });
    let (prose, edges) = (words(steps, &[PROSE])?, words(steps, &EDGES)?);
    let mut best = None;
    for (name, pre) in pre::all() {
        let other = pre.steps()?;
        if pre.ignore_merges != ignore_merges || words(&other, &[PROSE])? != prose {
            continue;
        }
        let likeness = (words(&other, &EDGES)? == edges, pre.form == form);
        if best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, name));
        }
    }
    match best {
        Some((_, name)) => Ok(name),
        None => bail!(
            Unsupported,
            "tokenizer.json: no tokenizer.ggml.pre value matches its pre_tokenizer"
        ),
    }
}

/// Returns the words of texts.
fn words(steps: &[Step], texts: &[&str]) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for text in texts {
        let deadline = Deadline::start(text.len());
        steps::pre_tokenize(steps, text, Position::Start, deadline, |word| {
            words.push(word.to_string());
            Ok(())
        })?;
    }
    Ok(words)
}

/// Converts merges to scores: earlier merges have higher scores, tokens without a merge the lowest.
fn scores(tokens: &[&str], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let rank = |token: &&str| ranks.get(*token).copied().unwrap_or(merges.len());
    tokens.iter().map(|token| -(rank(token) as f32)).collect()
}

/// Tokens and their ids; the first of duplicates wins.
fn vocabulary(spec: &TokenizerSpec<'_>) -> Map<String, Value> {
    let mut vocabulary = Map::new();
    for (id, token) in spec.tokens.iter().enumerate() {
        vocabulary
            .entry(token.to_string())
            .or_insert_with(|| id.into());
    }
    vocabulary
}

/// Builds the file from its parts.
fn file(
    spec: &TokenizerSpec<'_>,
    [normalizer, pre_tokenizer, decoder, model]: [Value; 4],
) -> Value {
    let listed = spec.tokens.iter().zip(&spec.token_types).enumerate();
    let added = listed.filter(|(_, (_, token_type))| {
        token_type.is_control() || **token_type == TokenType::UserDefined
    });
    let added = added.map(|(id, (token, token_type))| {
        let options = u32::try_from(id).ok().and_then(|id| spec.added_token_options.get(&id));
        let options = options.copied().unwrap_or_default();
        json!({
            "id": id, "content": token, "single_word": options.single_word, "lstrip": options.lstrip,
            "rstrip": options.rstrip,
            "normalized": options.normalized, "special": token_type.is_control(),
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor(spec), "decoder": decoder, "model": model,
    })
}

/// Builds the post-processor, which adds special tokens.
fn post_processor(spec: &TokenizerSpec<'_>) -> Value {
    if spec.before.is_empty() && spec.after.is_empty() {
        return Value::Null;
    }
    let special = |id: &u32, type_id: u32| {
        let token = &spec.tokens[*id as usize];
        json!({ "SpecialToken": { "id": token, "type_id": type_id } })
    };
    let sequence = |name: &str, type_id: u32| {
        let before = spec.before.iter().map(|id| special(id, type_id));
        let text = json!({ "Sequence": { "id": name, "type_id": type_id } });
        let after = spec.after.iter().map(|id| special(id, type_id));
        before
            .chain(std::iter::once(text))
            .chain(after)
            .collect::<Vec<_>>()
    };
    let ids = spec.before.iter().chain(&spec.after).map(|id| {
        let token = &spec.tokens[*id as usize];
        let ids = json!({ "id": token, "ids": [id], "tokens": [token] });
        (token.to_string(), ids)
    });
    let pair = [sequence("A", 0), sequence("B", 1)].concat();
    json!({
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": pair,
        "special_tokens": ids.collect::<Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests;
