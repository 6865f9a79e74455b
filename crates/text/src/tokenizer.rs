//! The tokenizer: encodes text to ids and decodes ids to bytes.

use super::array::Array;
use super::json;
use super::kind::VocabKind;
use super::model::{Model, Scratch};
use super::pair::{EncodedPair, PairFormat};
use super::pattern::Deadline;
use super::pieces::{StringTable, TokenType};
use super::ranks;
use super::spec::TokenizerSpec;
use super::special::{Fragment, SpecialTokenIndex};
use super::steps::{self, Position, Step};
use super::vocab::Vocab;
use std::borrow::Cow;
use tabla_core::error::{Context, Result, bail};
use tabla_core::reserve;

/// How special tokens in a text are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Encodes them as plain text, for untrusted input. Decoding omits control tokens.
    #[default]
    Text,
    /// Parses them as tokens, for rendered chat templates. Decoding includes their text.
    Tokens,
}

tabla_core::options! {
    /// Options of [`Tokenizer::encode`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EncodeOptions {
        /// Whether to add BOS and EOS as the vocabulary specifies. Default false.
        pub add_special: bool,
        /// How control tokens in the text, such as `<|im_end|>`, are encoded. User-defined tokens are
        /// always parsed as tokens.
        pub specials: SpecialTokens,
    }
}

impl EncodeOptions {
    /// Options for an untrusted prompt: adds BOS and EOS, does not parse special tokens.
    pub const PROMPT: Self = Self {
        add_special: true,
        specials: SpecialTokens::Text,
    };
}

tabla_core::options! {
    /// Options of [`Tokenizer::decode`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DecodeOptions {
        /// Whether the ids start a text, so that the space that encoding prepended is removed.
        pub from_start: bool,
        /// Whether control tokens are omitted or included as text.
        pub specials: SpecialTokens,
    }
}

/// Unescapes the text between special tokens.
type Unescape<'a> = &'a dyn for<'t> Fn(&'t str) -> Cow<'t, str>;

/// Maximum input length in bytes: about 16 M tokens, more than any context.
const ENCODE_BYTES_MAX: usize = 64 << 20;

/// Texts of end-of-generation tokens. Files name one EOS token, chat models use several.
const EOG_TOKENS: &[&str] = &[
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

/// Encodes text to token ids and decodes ids to bytes.
#[derive(Debug)]
pub struct Tokenizer {
    pub(super) kind: VocabKind,
    pub(super) pre: Option<&'static str>,
    pub(super) pieces: StringTable,
    pub(super) piece_bytes_max: usize,
    /// Numbers of GGUF.
    pub(super) token_types: Array<u8>,
    pub(super) specials: SpecialTokenIndex,
    /// Special tokens that are matched in normalized text.
    pub(super) normalized_specials: Option<SpecialTokenIndex>,
    pub(super) steps: Vec<Step>,
    /// Number of the first steps that are the normalizer.
    pub(super) normalizer_steps: usize,
    pub(super) model: Model,
    /// Ids that `add_special` adds before and after a text.
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
    pub(super) pair: Option<PairFormat>,
    /// Ascending.
    pub(super) stops: Vec<u32>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) add_space_prefix: bool,
}

impl Tokenizer {
    /// Creates a tokenizer from the keys of a GGUF file.
    ///
    /// # Errors
    /// `Format` for lists of different lengths, `Unsupported` for an unknown model or pre-tokenizer,
    /// `TooLarge` for a vocabulary over the limits, `Tokenizer` for invalid merges.
    pub fn new(vocab: &Vocab<'_>) -> Result<Self> {
        Self::build(vocab.spec()?).context("tokenizer.ggml")
    }

    /// Creates a tokenizer from the text of a Hugging Face `tokenizer.json` and optionally
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// `Format` for an invalid file, `Unsupported` for an unknown component, `TooLarge` for a
    /// vocabulary over the limits, `Tokenizer` for invalid merges.
    pub fn from_json(tokenizer: &str, config: Option<&str>) -> Result<Self> {
        let file = json::read(tokenizer)?;
        let config = config
            .map(json::read_config)
            .transpose()?
            .unwrap_or_default();
        Self::build(file.spec(&config)?).context("tokenizer.json")
    }

    /// Creates a tokenizer with the pre-tokenizer of GPT-2 from the tokens of a tiktoken vocabulary:
    /// bytes by rank, which is the id. Control tokens follow them.
    ///
    /// # Errors
    /// `TooLarge` for a vocabulary over the limits.
    pub fn from_ranks(tokens: &[&[u8]], specials: &[String]) -> Result<Self> {
        Self::build(ranks::spec(tokens, specials)?).context("vocabulary")
    }

    pub(crate) fn build(mut spec: TokenizerSpec<'_>) -> Result<Self> {
        let specials = spec.specials()?;
        let (pieces, model) = pieces_and_model(&spec, &specials);
        let pieces = pieces?;
        let stops = eog_tokens(&spec, &specials);
        let token_types = spec.token_types.iter().map(|token| token.to_ggml());
        let normalizer = &spec.steps[..spec.normalizer_steps];
        let normalized_specials =
            specials.of_normalized(|text| steps::normalize(normalizer, text, Position::Start))?;
        Ok(Self {
            normalized_specials,
            normalizer_steps: spec.normalizer_steps,
            kind: spec.kind,
            pre: spec.pre,
            piece_bytes_max: pieces.longest(),
            pieces,
            token_types: token_types.collect::<Vec<u8>>().into(),
            steps: std::mem::take(&mut spec.steps),
            before: std::mem::take(&mut spec.before),
            after: std::mem::take(&mut spec.after),
            pair: spec.pair.take(),
            stops,
            bos: spec.bos,
            eos: spec.eos,
            add_space_prefix: spec.add_space_prefix,
            model: model?,
            specials,
        })
    }

    /// Adds end-of-generation tokens. Ids out of range are ignored.
    #[must_use]
    pub fn with_stops(mut self, ids: &[u32]) -> Self {
        let known = ids
            .iter()
            .filter(|id| (**id as usize) < self.token_types.len());
        self.stops.extend(known);
        self.stops.sort_unstable();
        self.stops.dedup();
        self
    }

    /// Encodes a text to ids.
    ///
    /// # Errors
    /// `TooLarge` for a text over the limits, `Tokenizer` if the vocabulary cannot represent it.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
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

    /// Encodes two texts as one sequence, in the format of the vocabulary. Special tokens in the texts
    /// are encoded as plain text. If there are more than `limit` ids, removes ids from the end of the
    /// second text; the result is still longer if the rest alone exceeds the limit.
    ///
    /// # Errors
    /// `Unsupported` if the vocabulary defines no format of pairs; otherwise see
    /// [`Tokenizer::encode`].
    pub fn encode_pair(&self, texts: [&str; 2], limit: Option<usize>) -> Result<EncodedPair> {
        let Some(format) = &self.pair else {
            bail!(
                Unsupported,
                "the tokenizer defines no format for pairs of texts"
            );
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        self.encode_into(texts[0], SpecialTokens::Text, None, &mut first)?;
        self.encode_into(texts[1], SpecialTokens::Text, None, &mut second)?;
        let added = format.before.len() + format.between.len() + format.after.len();
        let rest = limit.map(|limit| limit.saturating_sub(added + first.len()));
        second.truncate(rest.unwrap_or(usize::MAX));
        let mut pair = EncodedPair::default();
        for (ids, token_type) in [
            (&format.before, 0),
            (&first, 0),
            (&format.between, 0),
            (&second, format.second_type),
            (&format.after, format.second_type),
        ] {
            pair.ids.extend(ids);
            pair.types.resize(pair.ids.len(), token_type);
        }
        Ok(pair)
    }

    /// Truncates the result of [`Tokenizer::encode`] with `add_special` to `limit` ids. Removes ids
    /// from the end of the text and keeps the ids that `add_special` adds after it.
    pub fn truncate(&self, ids: &mut Vec<u32>, limit: usize) {
        if ids.len() > limit {
            let after = self.after.len().min(ids.len());
            let end = ids.len() - after;
            ids.drain(limit.saturating_sub(after).min(end)..end);
        }
    }

    /// Same as [`truncate`](Self::truncate), but removes ids from the start of the text and keeps the ids
    /// that `add_special` adds before it.
    pub fn truncate_start(&self, ids: &mut Vec<u32>, limit: usize) {
        let removed = ids.len().saturating_sub(limit);
        let start = self.before.len().min(ids.len() - removed);
        ids.drain(start..start + removed);
    }

    /// Encodes an escaped text: parses special tokens, then unescapes the text between them. The
    /// unescaped text never becomes a control token, but may become a user-defined one.
    pub(super) fn encode_escaped(&self, text: &str, unescape: Unescape<'_>) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        self.encode_into(text, SpecialTokens::Tokens, Some(unescape), &mut ids)?;
        Ok(ids)
    }

    /// Encodes a text that continues another one: prepends nothing, and encodes control tokens as
    /// text.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_continuation(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_after(text, |id| !self.token_type(id).is_control())
    }

    /// Same as [`encode_continuation`](Self::encode_continuation), but parses control tokens: for the
    /// markers of a chat template.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_markers(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_after(text, |_| true)
    }

    /// Encodes a text that continues another one, with the special tokens that are accepted.
    fn encode_after(&self, text: &str, accepts: impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        let (deadline, mut scratch) = (Deadline::start(text.len()), Scratch::default());
        for fragment in self.specials.split(text, accepts) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.encode_fragment(
                    text,
                    Position::Continuation,
                    deadline,
                    &mut scratch,
                    &mut ids,
                )?,
            }
        }
        Ok(ids)
    }

    fn encode_into(
        &self,
        text: &str,
        specials: SpecialTokens,
        unescape: Option<Unescape<'_>>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if text.len() > ENCODE_BYTES_MAX {
            bail!(
                TooLarge,
                "a text of {} bytes exceeds the limit of {ENCODE_BYTES_MAX}",
                text.len()
            );
        }
        let parses_special = specials == SpecialTokens::Tokens;
        let accepts = |id: u32| parses_special || !self.token_type(id).is_control();
        let (deadline, mut scratch) = (Deadline::start(text.len()), Scratch::default());
        let mut position = Position::Start;
        let mut encode_fragment = |fragment: Fragment<'_>| -> Result<()> {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => {
                    self.encode_fragment(text, position, deadline, &mut scratch, ids)?;
                }
            }
            position = Position::Later;
            Ok(())
        };
        for fragment in self.specials.split(text, accepts) {
            match (fragment, unescape) {
                (Fragment::Text(text), Some(unescape)) => {
                    let user_defined = |id: u32| !self.token_type(id).is_control();
                    let text = unescape(text);
                    let mut fragments = self.specials.split(&text, user_defined).into_iter();
                    fragments.try_for_each(&mut encode_fragment)?;
                }
                (fragment, _) => encode_fragment(fragment)?,
            }
        }
        Ok(())
    }

    /// Encodes a text between special tokens, which may have those that are matched in normalized text.
    fn encode_fragment(
        &self,
        text: &str,
        mut position: Position,
        deadline: Deadline,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Some(specials) = &self.normalized_specials else {
            return steps::pre_tokenize(&self.steps, text, position, deadline, |word| {
                self.model.encode(word, scratch, ids)
            });
        };
        let (normalizer, splits) = self.steps.split_at(self.normalizer_steps);
        let text = steps::normalize(normalizer, text, position)?;
        for fragment in specials.split(&text, |_| true) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => {
                    steps::pre_tokenize(splits, text, position, deadline, |word| {
                        self.model.encode(word, scratch, ids)
                    })?;
                }
            }
            if position == Position::Start {
                position = Position::Later;
            }
        }
        Ok(())
    }

    /// Decodes ids to bytes, which may end within a character.
    ///
    /// # Errors
    /// `Argument` for an id that is not in the vocabulary.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Most tokens have at most four bytes. If the reservation fails, invalid ids are still reported.
        let _ = bytes.try_reserve(ids.len().saturating_mul(4));
        let mut strip = options.from_start && self.add_space_prefix;
        for &id in ids {
            if id as usize >= self.pieces.len() {
                bail!(
                    Argument,
                    "token {id} is out of range for a vocabulary of {}",
                    self.pieces.len()
                );
            }
            let markup = self.token_type(id).is_control();
            let piece = match options.specials {
                SpecialTokens::Text => self.token_bytes(id),
                SpecialTokens::Tokens => self.token_bytes_with_special(id),
            };
            let first = strip && !markup;
            bytes.extend_from_slice(piece.strip_prefix(b" ").filter(|_| first).unwrap_or(piece));
            strip &= markup;
        }
        Ok(bytes)
    }

    /// Decodes ids to text, with U+FFFD for invalid UTF-8.
    ///
    /// # Errors
    /// `Argument` for an id that is not in the vocabulary.
    pub fn decode_lossy(&self, ids: &[u32], options: DecodeOptions) -> Result<String> {
        let bytes = self.decode(ids, options)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// Returns the bytes of a token; empty for control tokens and ids out of range.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        if self.token_type(id).is_control() {
            &[]
        } else {
            self.token_bytes_with_special(id)
        }
    }

    /// Returns the bytes of a token, including control tokens; empty for ids out of range.
    pub fn token_bytes_with_special(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize)
    }

    /// Returns the texts of the special tokens, in the order of ids.
    pub(super) fn added_tokens(&self) -> Vec<&str> {
        self.specials.texts()
    }

    /// Returns the id of a special token by its text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.specials.id(text)
    }

    /// Whether a token is a control token, which [`token_bytes`](Self::token_bytes) omits.
    pub fn is_control(&self, id: u32) -> bool {
        self.token_type(id).is_control()
    }

    /// Whether a token ends generation.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.binary_search(&id).is_ok()
    }

    /// The end-of-generation tokens, in ascending order.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Number of tokens in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of memory of the tables that have an entry for each token or merge.
    pub fn memory_bytes(&self) -> usize {
        let types = self.token_types.memory_bytes();
        self.pieces.memory_bytes() + types + self.model.memory_bytes()
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether encoding with `add_special` adds BOS. Do not use it for a template that writes BOS.
    pub fn adds_bos(&self) -> bool {
        self.bos.is_some() && self.before.first() == self.bos.as_ref()
    }

    /// Length of the longest token in bytes, for [`Utf8Stream::new`](super::Utf8Stream::new).
    pub fn piece_bytes_max(&self) -> usize {
        self.piece_bytes_max
    }

    /// Type of the vocabulary.
    pub fn kind(&self) -> VocabKind {
        self.kind
    }

    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`).
    pub fn pre(&self) -> Option<&'static str> {
        self.pre
    }

    fn token_type(&self, id: u32) -> TokenType {
        let number = self.token_types.get(id as usize);
        number.map_or(TokenType::Normal, |number| {
            TokenType::from_ggml((*number).into())
        })
    }
}

/// Decodes the tokens and builds the model on two threads.
fn pieces_and_model(
    spec: &TokenizerSpec<'_>,
    specials: &SpecialTokenIndex,
) -> (Result<StringTable>, Result<Model>) {
    std::thread::scope(|scope| {
        let thread = reserve::thread("tabla-pieces");
        let pieces = thread.and_then(|thread| thread.spawn_scoped(scope, || spec.pieces()));
        let model = spec.model(specials);
        // If the thread could not be started, decode the tokens here.
        let pieces = pieces.ok().and_then(|pieces| pieces.join().ok());
        (pieces.unwrap_or_else(|| spec.pieces()), model)
    })
}

/// Returns the end-of-generation tokens, sorted: those of the file, and those that are detected by text.
fn eog_tokens(spec: &TokenizerSpec<'_>, specials: &SpecialTokenIndex) -> Vec<u32> {
    let has = |text: &str| specials.id(text).is_some();
    // Gemma's </s> is an HTML tag.
    let gemma = has("<start_of_turn>") || has("<|tool_response>");
    let texts = EOG_TOKENS.iter().filter(|text| **text != "</s>" || !gemma);
    let mut stops: Vec<u32> = texts.filter_map(|text| specials.id(text)).collect();
    stops.extend(spec.eos.iter().chain(&spec.stops));
    // In Harmony <|end|> ends a message, not the generation, also if a file has it as its end of turn.
    let harmony = has("<|call|>") && (has("<|return|>") || has("<|flush|>"));
    if let Some(end) = specials.id("<|end|>").filter(|_| harmony) {
        stops.retain(|id| *id != end);
    }
    stops.sort_unstable();
    stops.dedup();
    stops
}
