//! The JSON files, and their conversion to a tokenizer specification.

use super::parse::{BoundedVec, JsonStr, MERGES_MAX, Merge, Vocabulary};
use super::pipeline::{Normalizer, Pipeline, PostProcessor, PreTokenizer};
use crate::bpe::{Alphabet, IgnoreMerges};
use crate::fallback::Unknown;
use crate::kind::VocabKind;
use crate::merges::{MergeList, split_merge};
use crate::pair::PairFormat;
use crate::pieces::{TOKENS_MAX, TokenType};
use crate::spec::{MergeOrder, ModelSpec, TokenizerSpec};
use crate::special::AddedTokenOptions;
use crate::spm;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Maximum file size in bytes. Gemma 3 has 33 MB.
const JSON_BYTES_MAX: usize = 128 << 20;
/// Maximum number of added tokens.
const ADDED_MAX: usize = 100_000;
/// Maximum ratio of the largest id to the number of tokens: ids may have gaps.
const IDS_PER_TOKEN_MAX: usize = 4;

/// Content of a `tokenizer.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct File<'a> {
    #[serde(default, borrow)]
    added_tokens: BoundedVec<AddedToken<'a>, ADDED_MAX>,
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    post_processor: Option<PostProcessor>,
    #[serde(borrow)]
    model: Model<'a>,
}

/// An added token.
#[derive(Debug, Deserialize)]
struct AddedToken<'a> {
    /// Absent in `tokenizer_config.json`, where the id is the key.
    #[serde(default)]
    id: u32,
    #[serde(borrow)]
    content: JsonStr<'a>,
    #[serde(default)]
    single_word: Option<bool>,
    #[serde(default)]
    lstrip: Option<bool>,
    #[serde(default)]
    rstrip: Option<bool>,
    #[serde(default)]
    normalized: Option<bool>,
    #[serde(default)]
    special: Option<bool>,
}

/// The fields of all model types.
#[derive(Debug, Deserialize)]
struct Model<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Option<JsonStr<'a>>,
    #[serde(borrow)]
    vocab: Vocabulary<'a>,
    #[serde(default, borrow)]
    merges: Option<BoundedVec<Merge<'a>, MERGES_MAX>>,
    #[serde(default, borrow)]
    unk_token: Option<JsonStr<'a>>,
    unk_id: Option<u32>,
    byte_fallback: Option<bool>,
    fuse_unk: Option<bool>,
    ignore_merges: Option<bool>,
    #[serde(default, borrow)]
    continuing_subword_prefix: Option<JsonStr<'a>>,
    #[serde(default, borrow)]
    end_of_word_suffix: Option<JsonStr<'a>>,
    max_input_chars_per_word: Option<usize>,
}

/// Content of a `tokenizer_config.json`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config<'a> {
    #[serde(default, borrow)]
    bos_token: Option<TokenRef<'a>>,
    #[serde(default, borrow)]
    eos_token: Option<TokenRef<'a>>,
    pad_token: Option<Value>,
    mask_token: Option<Value>,
    unk_token: Option<Value>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    #[serde(default, borrow)]
    added_tokens_decoder: BTreeMap<u32, AddedToken<'a>>,
}

/// A token given as a string or an added token.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenRef<'a> {
    Text(#[serde(borrow)] JsonStr<'a>),
    Token {
        #[serde(borrow)]
        content: JsonStr<'a>,
    },
}

/// Reads a `tokenizer.json`.
pub(crate) fn read(json: &str) -> Result<File<'_>> {
    parse("tokenizer.json", json)
}

/// Reads a `tokenizer_config.json`.
pub(crate) fn read_config(json: &str) -> Result<Config<'_>> {
    parse("tokenizer_config.json", json)
}

fn parse<'a, T: Deserialize<'a>>(name: &str, json: &'a str) -> Result<T> {
    if json.len() > JSON_BYTES_MAX {
        let bytes = json.len();
        bail!(
            TooLarge,
            "{name}: {bytes} bytes exceed the limit of {JSON_BYTES_MAX}"
        );
    }
    serde_json::from_str(json).map_err(|e| {
        // An unknown pipeline component is an unknown enum variant for serde.
        let message = e.to_string();
        let kind = if message.starts_with("unknown variant") {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Format
        };
        Error::new(kind, format!("{name}: {message}"))
    })
}

impl Config<'_> {
    /// Returns the ids of the padding, the mask and the unknown token. Byte-level vocabularies do not use the last.
    pub(super) fn unused_ids(&self, spec: &TokenizerSpec<'_>) -> [Option<u32>; 3] {
        [&self.pad_token, &self.mask_token, &self.unk_token].map(|token| {
            // A string or an added token; the tokenizer does not need them.
            let token = token.as_ref()?;
            let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
            let at = spec.tokens.iter().position(|token| token == text)?;
            u32::try_from(at).ok()
        })
    }
}

impl<'a> File<'a> {
    /// Converts the files to a tokenizer specification.
    ///
    /// # Errors
    /// `Format` for invalid ids, `Unsupported` for an unknown component, `TooLarge` for lists over
    /// the limits.
    pub(crate) fn spec(&'a self, config: &'a Config<'a>) -> Result<TokenizerSpec<'a>> {
        let mut added: Vec<(u32, &AddedToken<'_>)> =
            self.added_tokens.0.iter().map(|a| (a.id, a)).collect();
        let decoder = config.added_tokens_decoder.iter();
        added.extend(decoder.map(|(&id, token)| (id, token)));
        let (mut tokens, token_types) = self.tokens(&added).context("tokenizer.json")?;
        let id = |text: &str| {
            let index = tokens.iter().position(|token| token == text)?;
            u32::try_from(index).ok()
        };
        let named = |name: &Option<TokenRef<'_>>| name.as_ref().and_then(|name| id(name.text()));
        let (bos, eos) = (named(&config.bos_token), named(&config.eos_token));
        let unk = self.model.unk_token.as_ref().and_then(|unk| id(&unk.0));
        let unk = unk
            .or(self.model.unk_id)
            .filter(|&id| (id as usize) < tokens.len());

        let pipeline = self.pipeline()?;
        let (mut before, mut after, pair) = self.added_ids(tokens.len())?;
        apply_setting(&mut before, bos, config.add_bos_token, 0);
        let end = after.len();
        apply_setting(&mut after, eos, config.add_eos_token, end);

        let (kind, mut model) = self.model_spec(pipeline.alphabet)?;
        if let ModelSpec::Unigram { scores, .. } = &mut model {
            // Added tokens have no score, the model does not produce them.
            scores.resize(tokens.len(), 0.0);
        }
        let prefix = self.model.continuing_subword_prefix.as_ref();
        if kind == VocabKind::Bert {
            to_gguf_form(&mut tokens, &token_types, prefix.map_or("##", |p| &p.0));
        }
        Ok(TokenizerSpec {
            kind,
            pre: None,
            tokens,
            token_types,
            added_token_options: non_default(added.into_iter()),
            add_space_prefix: kind == VocabKind::Bert || pipeline.adds_space_prefix(),
            normalizer_steps: pipeline.normalizer_steps,
            steps: pipeline.steps,
            model,
            unk,
            // Without bos_token, the first added id is BOS.
            bos: bos.or(before.first().copied()),
            eos,
            before,
            after,
            pair,
            stops: Vec::new(),
        })
    }

    /// Returns the steps of the normalizer and the pre-tokenizer.
    pub(super) fn pipeline(&self) -> Result<Pipeline> {
        Pipeline::new(self.normalizer.as_ref(), self.pre_tokenizer.as_ref())
            .context("tokenizer.json")
    }

    /// Returns the ids that the post-processor adds before and after a text, and how it joins two texts, for a
    /// vocabulary of `tokens` tokens.
    pub(super) fn added_ids(&self, tokens: usize) -> Result<AddedIds> {
        let Some(post) = &self.post_processor else {
            return Ok(AddedIds::default());
        };
        let ((before, after), pair) = (post.added_ids()?, post.pair()?);
        let pair_ids = pair.iter().flat_map(PairFormat::ids);
        let all = before.iter().chain(&after).chain(pair_ids);
        if let Some(id) = all.into_iter().find(|&&id| id as usize >= tokens) {
            bail!(
                Format,
                "tokenizer.json: post_processor: id {id} is not in the vocabulary"
            );
        }
        Ok((before, after, pair))
    }

    /// Returns the options of added tokens that differ from the default.
    pub(super) fn added_token_options(&self) -> HashMap<u32, AddedTokenOptions> {
        non_default(self.added_tokens.0.iter().map(|a| (a.id, a)))
    }

    /// Returns the maximum length of a word of `WordPiece`.
    pub(super) fn word_chars_max(&self) -> Option<usize> {
        self.model.max_input_chars_per_word
    }

    /// Returns the bytes of the normalizer's character map; empty without one.
    pub(super) fn charsmap(&self) -> Result<Vec<u8>> {
        let map = self.normalizer.as_ref().map(Normalizer::charsmap);
        Ok(map.transpose()?.flatten().unwrap_or_default())
    }

    /// Returns the token texts and types in the order of ids.
    fn tokens(
        &'a self,
        added: &[(u32, &'a AddedToken<'a>)],
    ) -> Result<(Vec<Cow<'a, str>>, Vec<TokenType>)> {
        let model = &self.model;
        let has_bytes = model.byte_fallback == Some(true);
        let listed: Vec<(u32, &JsonStr<'_>)> = match &model.vocab {
            Vocabulary::Ids(ids) => ids.iter().map(|(text, id)| (*id, text)).collect(),
            Vocabulary::Scores(scores) => {
                (0..).zip(scores.0.iter().map(|(text, _)| text)).collect()
            }
        };
        let ids = listed
            .iter()
            .map(|(id, _)| *id)
            .chain(added.iter().map(|(id, _)| *id));
        let Some(last) = ids.max().map(|id| id as usize) else {
            bail!(Format, "the vocabulary is empty");
        };
        let count = listed.len() + added.len();
        if last >= TOKENS_MAX || last / IDS_PER_TOKEN_MAX > count {
            bail!(
                TooLarge,
                "id {last} is too large for {count} tokens (limit {TOKENS_MAX})"
            );
        }
        let mut tokens = vec![Cow::Borrowed(""); last + 1];
        let mut token_types = vec![TokenType::Unused; last + 1];
        for (id, text) in listed {
            let at = id as usize;
            if !tokens[at].is_empty() {
                bail!(
                    Format,
                    "{:?} and {:?} have the same id {id}",
                    tokens[at],
                    text.0
                );
            }
            tokens[at] = Cow::Borrowed(&text.0);
            token_types[at] = match spm::byte_of(&text.0) {
                Some(_) if has_bytes => TokenType::Byte,
                _ if model.unk_id == Some(id) => TokenType::Unknown,
                _ if model.unk_token.as_ref().is_some_and(|unk| unk.0 == text.0) => {
                    TokenType::Unknown
                }
                _ => TokenType::Normal,
            };
        }
        for (id, token) in added {
            let at = *id as usize;
            if token.content.0.is_empty() {
                bail!(Format, "added token {id} is empty");
            }
            tokens[at] = Cow::Borrowed(&token.content.0);
            token_types[at] = match token.special {
                Some(true) if token_types[at] == TokenType::Unknown => TokenType::Unknown,
                Some(true) => TokenType::Control,
                _ => TokenType::UserDefined,
            };
        }
        Ok((tokens, token_types))
    }

    fn model_spec(&'a self, alphabet: Alphabet) -> Result<(VocabKind, ModelSpec<'a>)> {
        let model = &self.model;
        let unknown = match (model.byte_fallback, model.fuse_unk) {
            (Some(true), _) => Unknown::Bytes,
            (_, Some(true)) => Unknown::Fused,
            _ => Unknown::Single,
        };
        // Older files have no type.
        let name = match (&model.kind, &model.vocab, &model.merges) {
            (Some(name), ..) => &*name.0,
            (None, Vocabulary::Scores(_), _) => "Unigram",
            (None, _, Some(_)) => "BPE",
            (None, _, None) => "WordPiece",
        };
        Ok(match (name, &model.vocab) {
            ("BPE", Vocabulary::Ids(_)) => {
                let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
                if affixes
                    .into_iter()
                    .flatten()
                    .any(|affix| !affix.0.is_empty())
                {
                    bail!(
                        Unsupported,
                        "tokenizer.json: BPE with continuing_subword_prefix or end_of_word_suffix is not supported"
                    );
                }
                let merges = model.merges.iter().flat_map(|merges| &merges.0).enumerate();
                let merges = merges.map(|(n, merge)| match merge {
                    Merge::Pair(left, right) => Ok((&*left.0, &*right.0)),
                    Merge::Joined(text) => {
                        split_merge(&text.0).context(format_args!("tokenizer.json: merge {n}"))
                    }
                });
                let model = ModelSpec::Bpe {
                    alphabet,
                    order: MergeOrder::Merges(MergeList::Pairs(merges.collect::<Result<_>>()?)),
                    ignore_merges: match model.ignore_merges {
                        Some(true) => IgnoreMerges::Always,
                        _ => IgnoreMerges::Never,
                    },
                    unknown,
                };
                let kind = match alphabet {
                    Alphabet::Bytes => VocabKind::Gpt2,
                    Alphabet::Characters => VocabKind::Llama,
                };
                (kind, model)
            }
            ("WordPiece", Vocabulary::Ids(_)) if alphabet == Alphabet::Characters => {
                let word_chars_max = model.max_input_chars_per_word;
                (VocabKind::Bert, ModelSpec::WordPiece { word_chars_max })
            }
            ("Unigram", Vocabulary::Scores(scores)) if alphabet == Alphabet::Characters => {
                let scores = scores.0.iter().map(|(_, score)| *score).collect();
                // The `tokenizers` library always fuses unknown characters of Unigram models.
                let unknown = match unknown {
                    Unknown::Single => Unknown::Fused,
                    other => other,
                };
                (VocabKind::T5, ModelSpec::Unigram { scores, unknown })
            }
            _ => bail!(
                Unsupported,
                "tokenizer.json: unsupported model {name:?} with this vocabulary"
            ),
        })
    }
}

/// Ids that are added before and after a text, and the format of a pair of texts.
pub(super) type AddedIds = (Vec<u32>, Vec<u32>, Option<PairFormat>);

/// Returns the options that differ from the default.
fn non_default<'a>(
    tokens: impl Iterator<Item = (u32, &'a AddedToken<'a>)>,
) -> HashMap<u32, AddedTokenOptions> {
    let options = tokens.map(|(id, token)| (id, token.options()));
    options
        .filter(|(_, options)| *options != AddedTokenOptions::default())
        .collect()
}

/// Inserts or removes a token as the configuration specifies.
fn apply_setting(ids: &mut Vec<u32>, id: Option<u32>, add: Option<bool>, at: usize) {
    let (Some(id), Some(add)) = (id, add) else {
        return;
    };
    if !add {
        ids.retain(|other| *other != id);
    } else if !ids.contains(&id) {
        ids.insert(at, id);
    }
}

/// Converts `WordPiece` tokens to the form of GGUF: `▁` before tokens that start a word, no prefix
/// for those that continue one. Added tokens are matched in texts, which have neither.
fn to_gguf_form(tokens: &mut [Cow<'_, str>], token_types: &[TokenType], prefix: &str) {
    for (token, _) in tokens
        .iter_mut()
        .zip(token_types)
        .filter(|(_, token_type)| token_type.is_text() && **token_type != TokenType::UserDefined)
    {
        if token.is_empty() {
            continue;
        }
        *token = match token.strip_prefix(prefix) {
            Some(rest) if !rest.is_empty() => Cow::Owned(rest.to_owned()),
            _ => Cow::Owned(format!("{}{token}", spm::SPACE)),
        };
    }
}

impl AddedToken<'_> {
    fn options(&self) -> AddedTokenOptions {
        AddedTokenOptions {
            lstrip: self.lstrip.unwrap_or(false),
            rstrip: self.rstrip.unwrap_or(false),
            single_word: self.single_word.unwrap_or(false),
            // Special tokens of chats are matched in the text itself, whatever the file says: a normalizer that
            // prepends a space would hide them after a word.
            normalized: self.normalized == Some(true) && self.special != Some(true),
        }
    }
}

impl TokenRef<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => &text.0,
        }
    }
}
