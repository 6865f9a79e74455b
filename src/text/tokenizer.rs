//! The tokenizer: checks a vocabulary, encodes text, and tells what each token stands for.

use super::encoder::{Encoder, Spec};
use super::pieces::{Blob, MERGE_BYTES_MAX, Role, TOKEN_BYTES_MAX};
use super::special::{Part, Specials as SpecialTokens};
use super::vocab::{Kind, Vocab};
use super::{bytelevel, pre, spm};
use crate::error::{Context, Result, bail};
use std::borrow::Cow;
use std::sync::Arc;

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
/// The longest spelling of a special token; bounds the search for them.
const SPECIAL_BYTES_MAX: usize = 256;

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
    roles: Arc<[Role]>,
    specials: SpecialTokens,
    stops: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add: Add,
    encoder: Encoder,
}

/// What encoding adds.
#[derive(Clone, Copy, Debug)]
struct Add {
    bos: Option<u32>,
    eos: Option<u32>,
    space: bool,
}

impl Tokenizer {
    /// Checks the vocabulary and makes all that decoding needs; what encoding needs is built by a
    /// thread, and [`ready`](Self::ready) or the first text waits for it.
    ///
    /// # Errors
    /// `Format` for lists that do not fit each other, `Unsupported` for a kind or a rule that is not
    /// known, `TooLarge` for a vocabulary over the limits.
    pub fn new(vocab: &Vocab<'_>) -> Result<Self> {
        let kind = vocab.kind()?;
        vocab.check(kind)?;
        let known = vocab.tokens.len();
        let (pre, row) = match kind {
            Kind::Gpt2 => pre::find(vocab.pre, known).map(|(name, row)| (Some(name), Some(row)))?,
            Kind::Llama | Kind::Gemma4 => (None, None),
        };
        let texts = Blob::of(&vocab.tokens, TOKEN_BYTES_MAX).context("tokenizer.ggml.tokens")?;
        let merges = Blob::of(&vocab.merges, MERGE_BYTES_MAX).context("tokenizer.ggml.merges")?;
        let roles = vocab.roles(kind);
        let pieces = pieces(kind, &vocab.tokens, &roles).context("tokenizer.ggml.tokens")?;
        let specials = specials(&vocab.tokens, &roles)?;

        let id = |id: Option<u32>| id.filter(|&id| (id as usize) < known);
        // What SentencePiece writes first, for files that do not say.
        let usual = |n: u32, role: Role| {
            (kind == Kind::Llama && roles.get(n as usize) == Some(&role)).then_some(n)
        };
        let bos = id(vocab.bos.or_else(|| usual(1, Role::Control)));
        let eos = id(vocab.eos.or_else(|| usual(2, Role::Control)));
        let unk = id(vocab.unk.or_else(|| usual(0, Role::Unknown)));
        let add_bos = match kind {
            // Its files say false by mistake; the model needs it.
            Kind::Gemma4 => true,
            Kind::Llama => vocab.add_bos.unwrap_or(true),
            Kind::Gpt2 => vocab
                .add_bos
                .unwrap_or_else(|| row.is_some_and(|row| row.add_bos)),
        };
        let space = kind == Kind::Llama && vocab.add_space_prefix.unwrap_or(true);
        let add = Add {
            bos: bos.filter(|_| add_bos),
            eos: eos.filter(|_| vocab.add_eos.unwrap_or(false)),
            space,
        };
        let stops = stops(&specials, &[eos, id(vocab.eot), id(vocab.eom)]);
        let piece_bytes_max = (0..pieces.len())
            .map(|n| pieces.get(n).len())
            .max()
            .unwrap_or(0);
        let encoder = Encoder::new(Spec {
            kind,
            row,
            texts,
            roles: Arc::clone(&roles),
            scores: vocab.scores.clone(),
            merges,
            unk,
        });
        Ok(Self {
            kind,
            pre,
            pieces,
            piece_bytes_max,
            roles,
            specials,
            stops,
            bos,
            eos,
            add,
            encoder,
        })
    }

    /// Waits until encoding is possible.
    ///
    /// # Errors
    /// `Tokenizer` for merges that are damaged; encoding gives the same error.
    pub fn ready(&self) -> Result<()> {
        self.encoder.model().map(drop)
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// `TooLarge` for a text over the limits, `Tokenizer` where the vocabulary cannot write it.
    pub fn encode(&self, text: &str, options: Encode) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        if options.add_special {
            ids.extend(self.add.bos);
        }
        self.encode_into(text, options.specials, None, &mut ids)?;
        if options.add_special {
            ids.extend(self.add.eos);
        }
        Ok(ids)
    }

    /// The ids of a text with special tokens, in which `show` yields what lies between them: what
    /// it shows is never a special token, though it may be a user-defined one.
    pub(super) fn encode_veiled(&self, text: &str, show: Show<'_>) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        self.encode_into(text, Specials::Tokens, Some(show), &mut ids)?;
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
        let model = self.encoder.model()?;
        let spelt = specials == Specials::Tokens;
        let wanted = |id: u32| spelt || !self.role(id).is_markup();
        // A space goes in front of the text and behind each special token, as llama.cpp does it.
        let mut after_special = true;
        let mut take = |part: Part<'_>| {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => {
                    let space = after_special && self.add.space;
                    model.encode(if space { "▁" } else { "" }, text, ids)?;
                }
            }
            after_special = matches!(part, Part::Token(_));
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
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut strip = options.from_start && self.add.space;
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
        self.add.bos.is_some()
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

/// What each token stands for.
fn pieces(kind: Kind, tokens: &[&str], roles: &[Role]) -> Result<Blob> {
    let mut pieces = Blob::sized_for(tokens, TOKEN_BYTES_MAX);
    for (token, role) in tokens.iter().zip(roles) {
        pieces.push(|out| match (role, kind) {
            (Role::Control | Role::Unknown | Role::UserDefined, _) => {
                out.extend_from_slice(token.as_bytes());
            }
            (_, Kind::Gpt2) => bytelevel::decode(token, out),
            (Role::Byte, _) => match spm::byte_of(token) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(token.as_bytes()),
            },
            _ => spm::decode(token, out),
        })?;
    }
    Ok(pieces)
}

fn specials(tokens: &[&str], roles: &[Role]) -> Result<SpecialTokens> {
    let is_special = |role: Role| role.is_markup() || role == Role::UserDefined;
    let listed = (0..)
        .zip(tokens.iter().zip(roles))
        .filter(|(_, (_, role))| is_special(**role));
    if let Some((id, (token, _))) = listed
        .clone()
        .find(|(_, (t, _))| t.len() > SPECIAL_BYTES_MAX)
    {
        let bytes = token.len();
        bail!(
            TooLarge,
            "special token {id}: {bytes} bytes are over the limit of {SPECIAL_BYTES_MAX}"
        );
    }
    Ok(SpecialTokens::new(
        listed.map(|(id, (token, _))| (id, *token)),
    ))
}

fn stops(specials: &SpecialTokens, named: &[Option<u32>]) -> Vec<u32> {
    let has = |text: &str| specials.id(text).is_some();
    // In the Harmony format <|end|> ends a message and not the answer; Gemma 4 has a plain </s>.
    let harmony = has("<|call|>") && (has("<|return|>") || has("<|flush|>"));
    let gemma4 = has("<|tool_response>");
    let spelt = STOPS.iter().filter(|text| match **text {
        "<|end|>" => !harmony,
        "</s>" => !gemma4,
        _ => true,
    });
    let mut stops: Vec<u32> = spelt.filter_map(|text| specials.id(text)).collect();
    stops.extend(named.iter().flatten());
    stops.sort_unstable();
    stops.dedup();
    stops
}
