//! The files as they are read, and what they come down to.

use super::parse::{List, MERGES_MAX, Merge, Text, Vocabulary};
use super::pipeline::{Normalizer, Pipeline, PostProcessor, PreTokenizer};
use crate::bpe::{self, Alphabet, KnownWords};
use crate::kind::Kind;
use crate::pieces::{Role, TOKENS_MAX};
use crate::plan::{Method, Order, Plan, Unknown};
use crate::special::{Place, Reach, Space};
use crate::spm;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// The largest file that is read; Gemma 3 has 33 MB.
const JSON_BYTES_MAX: usize = 128 << 20;
/// The most added tokens that are read.
const ADDED_MAX: usize = 100_000;
/// Ids go this much beyond the number of tokens at most: some are left out, not most.
const IDS_PER_TOKEN_MAX: usize = 4;

/// A `tokenizer.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct File<'a> {
    #[serde(default, borrow)]
    added_tokens: List<Added<'a>, ADDED_MAX>,
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    post_processor: Option<PostProcessor>,
    #[serde(borrow)]
    model: Model<'a>,
}

/// A token that is looked for before all else.
#[derive(Debug, Deserialize)]
struct Added<'a> {
    /// In a `tokenizer_config.json` it is the key.
    #[serde(default)]
    id: u32,
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(default)]
    single_word: Option<bool>,
    #[serde(default)]
    lstrip: Option<bool>,
    #[serde(default)]
    rstrip: Option<bool>,
    #[serde(default)]
    special: Option<bool>,
}

/// The fields of all models; which are there depends on the type.
#[derive(Debug, Deserialize)]
struct Model<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    vocab: Vocabulary<'a>,
    #[serde(default, borrow)]
    merges: Option<List<Merge<'a>, MERGES_MAX>>,
    #[serde(default, borrow)]
    unk_token: Option<Text<'a>>,
    unk_id: Option<u32>,
    byte_fallback: Option<bool>,
    fuse_unk: Option<bool>,
    ignore_merges: Option<bool>,
    #[serde(default, borrow)]
    continuing_subword_prefix: Option<Text<'a>>,
    #[serde(default, borrow)]
    end_of_word_suffix: Option<Text<'a>>,
    max_input_chars_per_word: Option<usize>,
}

/// What a `tokenizer_config.json` adds.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config<'a> {
    #[serde(default, borrow)]
    bos_token: Option<Name<'a>>,
    #[serde(default, borrow)]
    eos_token: Option<Name<'a>>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    #[serde(default, borrow)]
    added_tokens_decoder: BTreeMap<u32, Added<'a>>,
}

/// A token by its spelling.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Name<'a> {
    Text(#[serde(borrow)] Text<'a>),
    Token {
        #[serde(borrow)]
        content: Text<'a>,
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
            "{name}: {bytes} bytes are over the limit of {JSON_BYTES_MAX}"
        );
    }
    serde_json::from_str(json).map_err(|e| {
        // A part of the pipeline that is not known reads as a variant that is none.
        let message = e.to_string();
        let kind = if message.starts_with("unknown variant") {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Format
        };
        Error::new(kind, format!("{name}: {message}"))
    })
}

impl<'a> File<'a> {
    /// What the files come down to.
    ///
    /// # Errors
    /// `Format` for ids that do not fit, `Unsupported` for a part that is not known, `TooLarge` for
    /// lists over the limits.
    pub(crate) fn plan(&'a self, config: &'a Config<'a>) -> Result<Plan<'a>> {
        let mut added: Vec<(u32, &Added<'_>)> =
            self.added_tokens.0.iter().map(|a| (a.id, a)).collect();
        let decoder = config.added_tokens_decoder.iter();
        added.extend(decoder.map(|(&id, token)| (id, token)));
        let (mut tokens, roles) = self.tokens(&added).context("tokenizer.json")?;
        let id = |name: &str| {
            let place = tokens.iter().position(|token| token == name)?;
            u32::try_from(place).ok()
        };
        let named = |name: &Option<Name<'_>>| name.as_ref().and_then(|name| id(name.text()));
        let (bos, eos) = (named(&config.bos_token), named(&config.eos_token));
        let unk = self.model.unk_token.as_ref().and_then(|unk| id(&unk.0));
        let unk = unk
            .or(self.model.unk_id)
            .filter(|&id| (id as usize) < tokens.len());

        let pipeline = Pipeline::new(self.normalizer.as_ref(), self.pre_tokenizer.as_ref())
            .context("tokenizer.json")?;
        let (mut before, mut after) = match &self.post_processor {
            Some(post) => post.around()?,
            None => Default::default(),
        };
        let unfit = before
            .iter()
            .chain(&after)
            .find(|&&id| id as usize >= tokens.len());
        if let Some(id) = unfit {
            bail!(
                Format,
                "tokenizer.json: post_processor: id {id} is no token"
            );
        }
        wish(&mut before, bos, config.add_bos_token, 0);
        let end = after.len();
        wish(&mut after, eos, config.add_eos_token, end);

        let (kind, mut method) = self.method(pipeline.alphabet)?;
        if let Method::Unigram { scores, .. } = &mut method {
            // Added tokens have none: nothing looks for them among words.
            scores.resize(tokens.len(), 0.0);
        }
        let prefix = self.model.continuing_subword_prefix.as_ref();
        if kind == Kind::Bert {
            spell_as_gguf(&mut tokens, &roles, prefix.map_or("##", |p| &p.0));
        }
        let reach = added.iter().map(|(id, token)| (*id, token.reach()));
        Ok(Plan {
            kind,
            pre: None,
            tokens,
            roles,
            reach: reach
                .filter(|(_, reach)| *reach != Reach::default())
                .collect(),
            begins_with_space: kind == Kind::Bert || pipeline.begins_with_space(),
            steps: pipeline.steps,
            method,
            unk,
            // A tokenizer without a name for it begins with what it puts in front.
            bos: bos.or(before.first().copied()),
            eos,
            before,
            after,
            stops: Vec::new(),
        })
    }

    /// Tokens and what they are for, in the order of their ids.
    fn tokens(&'a self, added: &[(u32, &'a Added<'a>)]) -> Result<(Vec<Cow<'a, str>>, Vec<Role>)> {
        let model = &self.model;
        let has_bytes = model.byte_fallback == Some(true);
        let listed: Vec<(u32, &Text<'_>)> = match &model.vocab {
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
                "id {last} is too large for {count} tokens, of which there are {TOKENS_MAX} at most"
            );
        }
        let mut tokens = vec![Cow::Borrowed(""); last + 1];
        let mut roles = vec![Role::Unused; last + 1];
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
            roles[at] = match spm::byte_of(&text.0) {
                Some(_) if has_bytes => Role::Byte,
                _ if model.unk_id == Some(id) => Role::Unknown,
                _ if model.unk_token.as_ref().is_some_and(|unk| unk.0 == text.0) => Role::Unknown,
                _ => Role::Normal,
            };
        }
        for (id, token) in added {
            let at = *id as usize;
            if token.content.0.is_empty() {
                bail!(Format, "added token {id} is empty");
            }
            tokens[at] = Cow::Borrowed(&token.content.0);
            roles[at] = match token.special {
                Some(true) if roles[at] == Role::Unknown => Role::Unknown,
                Some(true) => Role::Control,
                _ => Role::UserDefined,
            };
        }
        Ok((tokens, roles))
    }

    fn method(&'a self, alphabet: Alphabet) -> Result<(Kind, Method<'a>)> {
        let model = &self.model;
        let unknown = match (model.byte_fallback, model.fuse_unk) {
            (Some(true), _) => Unknown::Bytes,
            (_, Some(true)) => Unknown::Fused,
            _ => Unknown::Single,
        };
        // Older files do not say the type.
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
                        "tokenizer.json: BPE with a subword prefix or a word suffix is not known"
                    );
                }
                let merges = model.merges.iter().flat_map(|merges| &merges.0).enumerate();
                let merges = merges.map(|(n, merge)| match merge {
                    Merge::Pair(left, right) => Ok((&*left.0, &*right.0)),
                    Merge::Joined(text) => {
                        bpe::parts(&text.0).context(format_args!("tokenizer.json: merge {n}"))
                    }
                });
                let method = Method::Bpe {
                    alphabet,
                    order: Order::List(merges.collect::<Result<_>>()?),
                    known_words: match model.ignore_merges {
                        Some(true) => KnownWords::Whole,
                        _ => KnownWords::Merged,
                    },
                    unknown,
                };
                let kind = match alphabet {
                    Alphabet::Bytes => Kind::Gpt2,
                    Alphabet::Characters => Kind::Llama,
                };
                (kind, method)
            }
            ("WordPiece", Vocabulary::Ids(_)) if alphabet == Alphabet::Characters => {
                let word_chars_max = model.max_input_chars_per_word;
                (Kind::Bert, Method::WordPiece { word_chars_max })
            }
            ("Unigram", Vocabulary::Scores(scores)) if alphabet == Alphabet::Characters => {
                let scores = scores.0.iter().map(|(_, score)| *score).collect();
                // The library joins unknown neighbours here whatever the file says.
                let unknown = match unknown {
                    Unknown::Single => Unknown::Fused,
                    other => other,
                };
                (Kind::T5, Method::Unigram { scores, unknown })
            }
            _ => bail!(
                Unsupported,
                "tokenizer.json: the model {name:?} with this vocabulary is not known"
            ),
        })
    }
}

/// Puts a token at a place, or takes it away, where the configuration says so.
fn wish(ids: &mut Vec<u32>, id: Option<u32>, wanted: Option<bool>, at: usize) {
    let (Some(id), Some(wanted)) = (id, wanted) else {
        return;
    };
    if !wanted {
        ids.retain(|have| *have != id);
    } else if !ids.contains(&id) {
        ids.insert(at, id);
    }
}

/// Tokens that begin a word get a visible space, and those that go on lose their prefix.
fn spell_as_gguf(tokens: &mut [Cow<'_, str>], roles: &[Role], prefix: &str) {
    for (token, _) in tokens
        .iter_mut()
        .zip(roles)
        .filter(|(_, role)| role.is_text())
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

impl Added<'_> {
    fn reach(&self) -> Reach {
        let space = |goes: Option<bool>| match goes {
            Some(true) => Space::Goes,
            _ => Space::Stays,
        };
        Reach {
            left: space(self.lstrip),
            right: space(self.rstrip),
            place: match self.single_word {
                Some(true) => Place::WholeWord,
                _ => Place::Anywhere,
            },
        }
    }
}

impl Name<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => &text.0,
        }
    }
}
