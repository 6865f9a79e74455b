//! The tokenizer: checks a vocabulary, encodes text, and tells what each token stands for.

use super::json;
use super::kind::Kind;
use super::model::{Model, Scratch};
use super::pattern::Clock;
use super::pieces::{Blob, Role};
use super::plan::Plan;
use super::special::{Part, Specials as SpecialTokens};
use super::steps::{self, Place, Step};
use super::vocab::Vocab;
use std::borrow::Cow;
use tabla_core::error::{Context, Result, bail};

/// What special tokens spelt out in a text are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Specials {
    /// Text like any other: right for what users write. In decoding: left out.
    #[default]
    Text,
    /// The tokens themselves: right for chat templates. In decoding: spelt out.
    Tokens,
}

/// How to encode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encode {
    /// Add BOS and EOS where the vocabulary asks for them.
    pub add_special: bool,
    /// What `<|im_end|>` and the like in the text are. User-defined tokens always count as tokens.
    pub specials: Specials,
}

impl Encode {
    /// A prompt of a user: what the vocabulary adds, and no special tokens out of the text.
    pub const PROMPT: Self = Self {
        add_special: true,
        specials: Specials::Text,
    };
}

/// How to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decode {
    /// The ids begin a text: takes away the space that encoding put in front.
    pub from_start: bool,
    /// Whether control tokens are left out or spelt out.
    pub specials: Specials,
}

/// Turns text between special tokens into what it stands for.
type Show<'a> = &'a dyn for<'t> Fn(&'t str) -> Cow<'t, str>;

/// The most text that one call encodes; 16 M tokens, beyond any context.
const ENCODE_BYTES_MAX: usize = 64 << 20;

/// Tokens that end an answer, by spelling: files name one end, chats have several.
const STOPS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Text to ids and ids to bytes.
#[derive(Debug)]
pub struct Tokenizer {
    kind: Kind,
    pre: Option<&'static str>,
    pieces: Blob,
    piece_bytes_max: usize,
    roles: Vec<Role>,
    specials: SpecialTokens,
    steps: Vec<Step>,
    model: Model,
    /// What encoding puts in front and behind.
    before: Vec<u32>,
    after: Vec<u32>,
    stops: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    begins_with_space: bool,
}

impl Tokenizer {
    /// The tokenizer of a GGUF file's keys.
    ///
    /// # Errors
    /// `Format` for lists that do not fit each other, `Unsupported` for a kind or a rule that is not
    /// known, `TooLarge` for a vocabulary over the limits, `Tokenizer` for merges that are damaged.
    pub fn new(vocab: &Vocab<'_>) -> Result<Self> {
        Self::build(vocab.plan()?).context("tokenizer.ggml")
    }

    /// The tokenizer of a folder of Hugging Face: its `tokenizer.json`, and its
    /// `tokenizer_config.json` if it has one.
    ///
    /// # Errors
    /// `Format` for a file that is damaged, `Unsupported` for a part that is not known, `TooLarge`
    /// for a vocabulary over the limits, `Tokenizer` for merges that do not fit.
    pub fn from_json(tokenizer: &str, config: Option<&str>) -> Result<Self> {
        let file = json::read(tokenizer)?;
        let config = config
            .map(json::read_config)
            .transpose()?
            .unwrap_or_default();
        Self::build(file.plan(&config)?).context("tokenizer.json")
    }

    fn build(mut plan: Plan<'_>) -> Result<Self> {
        let specials = plan.specials()?;
        let pieces = plan.pieces()?;
        let piece_bytes_max = pieces.iter().map(<[u8]>::len).max();
        let mut stops = stops(&specials);
        stops.extend(plan.eos.iter().chain(&plan.stops));
        stops.sort_unstable();
        stops.dedup();
        Ok(Self {
            kind: plan.kind,
            pre: plan.pre,
            piece_bytes_max: piece_bytes_max.unwrap_or(0),
            pieces,
            roles: plan.roles.clone(),
            steps: std::mem::take(&mut plan.steps),
            before: std::mem::take(&mut plan.before),
            after: std::mem::take(&mut plan.after),
            stops,
            bos: plan.bos,
            eos: plan.eos,
            begins_with_space: plan.begins_with_space,
            model: plan.model(&specials)?,
            specials,
        })
    }

    /// The same tokenizer with more tokens that end a text; ids that the vocabulary does not have
    /// are none.
    #[must_use]
    pub fn with_stops(mut self, ids: &[u32]) -> Self {
        let known = ids.iter().filter(|id| (**id as usize) < self.roles.len());
        self.stops.extend(known);
        self.stops.sort_unstable();
        self.stops.dedup();
        self
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// `TooLarge` for a text over the limits, `Tokenizer` where the vocabulary cannot write it.
    pub fn encode(&self, text: &str, options: Encode) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        if options.add_special {
            ids.extend(&self.before);
        }
        self.encode_into(text, options.specials, None, &mut ids)?;
        if options.add_special {
            ids.extend(&self.after);
        }
        Ok(ids)
    }

    /// Cuts what [`Tokenizer::encode`] yields with `add_special` to `limit` ids: from the end of
    /// the text, before what it puts behind.
    pub fn truncate(&self, ids: &mut Vec<u32>, limit: usize) {
        if ids.len() > limit {
            let behind = self.after.len().min(ids.len());
            let end = ids.len() - behind;
            ids.drain(limit.saturating_sub(behind).min(end)..end);
        }
    }

    /// The ids of a text with special tokens, in which `show` yields what lies between them: what
    /// it shows is never a special token, though it may be a user-defined one.
    pub(super) fn encode_veiled(&self, text: &str, show: Show<'_>) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        self.encode_into(text, Specials::Tokens, Some(show), &mut ids)?;
        Ok(ids)
    }

    /// The ids of a text that goes on from another one: nothing is put in front of it.
    pub(super) fn encode_within(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        let (clock, mut scratch) = (Clock::start(text.len()), Scratch::default());
        let user_defined = |id: u32| !self.role(id).is_markup();
        for part in self.specials.split(text, user_defined) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => steps::walk(&self.steps, text, Place::Within, clock, |word| {
                    self.model.encode(word, &mut scratch, &mut ids)
                })?,
            }
        }
        Ok(ids)
    }

    fn encode_into(
        &self,
        text: &str,
        specials: Specials,
        show: Option<Show<'_>>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if text.len() > ENCODE_BYTES_MAX {
            bail!(
                TooLarge,
                "a text of {} bytes is over the limit of {ENCODE_BYTES_MAX}",
                text.len()
            );
        }
        let spelt = specials == Specials::Tokens;
        let wanted = |id: u32| spelt || !self.role(id).is_markup();
        let (clock, mut scratch) = (Clock::start(text.len()), Scratch::default());
        let mut place = Place::Start;
        let mut take = |part: Part<'_>| -> Result<()> {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => steps::walk(&self.steps, text, place, clock, |word| {
                    self.model.encode(word, &mut scratch, ids)
                })?,
            }
            place = Place::Later;
            Ok(())
        };
        for part in self.specials.split(text, wanted) {
            match (part, show) {
                (Part::Text(text), Some(show)) => {
                    let user_defined = |id: u32| !self.role(id).is_markup();
                    let parts = show(text);
                    let mut parts = self.specials.split(&parts, user_defined).into_iter();
                    parts.try_for_each(&mut take)?;
                }
                (part, _) => take(part)?,
            }
        }
        Ok(())
    }

    /// The bytes of ids; they need not be whole characters.
    ///
    /// # Errors
    /// `Argument` for an id that is not in the vocabulary.
    pub fn decode(&self, ids: &[u32], options: Decode) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Most tokens have no more bytes; of a count that nobody has memory for the ids are looked at first.
        let _ = bytes.try_reserve(ids.len().saturating_mul(4));
        let mut strip = options.from_start && self.begins_with_space;
        for &id in ids {
            if id as usize >= self.pieces.len() {
                bail!(
                    Argument,
                    "token {id} is not in the vocabulary of {}",
                    self.pieces.len()
                );
            }
            let markup = self.role(id).is_markup();
            let piece = match options.specials {
                Specials::Text => self.token_bytes(id),
                Specials::Tokens => self.token_spelling(id),
            };
            let first = strip && !markup;
            bytes.extend_from_slice(piece.strip_prefix(b" ").filter(|_| first).unwrap_or(piece));
            strip &= markup;
        }
        Ok(bytes)
    }

    /// The text of ids, with U+FFFD for bytes that are none.
    ///
    /// # Errors
    /// `Argument` for an id that is not in the vocabulary.
    pub fn decode_lossy(&self, ids: &[u32], options: Decode) -> Result<String> {
        let bytes = self.decode(ids, options)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// The bytes that a token adds to a text: none for control tokens and ids out of range.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        if self.role(id).is_markup() {
            &[]
        } else {
            self.token_spelling(id)
        }
    }

    /// The same, with control tokens spelt out.
    pub fn token_spelling(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize)
    }

    /// The id of a special token by its spelling.
    pub fn special_id(&self, spelling: &str) -> Option<u32> {
        self.specials.id(spelling)
    }

    /// Whether a token is markup that [`token_bytes`](Self::token_bytes) leaves out.
    pub fn is_control(&self, id: u32) -> bool {
        self.role(id).is_markup()
    }

    /// Whether a token ends an answer.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.binary_search(&id).is_ok()
    }

    /// The tokens that end an answer, in order.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// The number of entries.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether encoding with `add_special` puts BOS in front: a template that writes it must not.
    pub fn adds_bos(&self) -> bool {
        self.bos.is_some() && self.before.first() == self.bos.as_ref()
    }

    /// The longest piece, for [`Utf8Stream::new`](super::Utf8Stream::new).
    pub fn piece_bytes_max(&self) -> usize {
        self.piece_bytes_max
    }

    /// The family.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name of the rule that cuts words, where there is one.
    pub fn pre(&self) -> Option<&'static str> {
        self.pre
    }

    fn role(&self, id: u32) -> Role {
        self.roles.get(id as usize).copied().unwrap_or(Role::Normal)
    }
}

/// The tokens that end an answer by their spelling.
fn stops(specials: &SpecialTokens) -> Vec<u32> {
    let has = |text: &str| specials.id(text).is_some();
    // In the Harmony format <|end|> ends a message and not the answer; Gemma's </s> is a tag.
    let harmony = has("<|call|>") && (has("<|return|>") || has("<|flush|>"));
    let gemma = has("<start_of_turn>") || has("<|tool_response>");
    let spelt = STOPS.iter().filter(|text| match **text {
        "<|end|>" => !harmony,
        "</s>" => !gemma,
        _ => true,
    });
    spelt.filter_map(|text| specials.id(text)).collect()
}
