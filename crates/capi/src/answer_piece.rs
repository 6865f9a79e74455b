//! Pieces and statistics of answers, as C reads them.

use super::guard::TablaStatus;
use std::ffi::{c_char, c_void};
use std::time::Duration;
use tabla::error::Error;
use tabla::{Finish, Piece, Stats};

/// Text comes without a token of its own: it was held back to the end of an answer.
pub const TABLA_NO_TOKEN: u32 = u32::MAX;

/// The answer goes on: `TablaPiece.finish`.
pub const TABLA_FINISH_NONE: i32 = -1;
/// Why an answer ended, a stop token, a stop string, the end of the grammar: `TablaStats.finish`.
pub const TABLA_FINISH_STOP: i32 = 0;
/// `max_tokens` were picked.
pub const TABLA_FINISH_LENGTH: i32 = 1;
/// The context is full.
pub const TABLA_FINISH_CONTEXT: i32 = 2;
/// The callback said so, or `tabla_session_end`.
pub const TABLA_FINISH_CALLBACK: i32 = 3;
/// Someone called `tabla_cancel` or `tabla_session_cancel`.
pub const TABLA_FINISH_CANCELLED: i32 = 4;
/// It failed. Of a batch, `TablaPiece.status` says why.
pub const TABLA_FINISH_FAILED: i32 = 5;

/// Hears of every token: its id and the text that it completes, which is empty while a character is
/// incomplete or a stop string may have begun. Where some of that is left at the end, it comes once more,
/// with `TABLA_NO_TOKEN`. `text` ends with a NUL beyond `text_bytes` and is valid during the call. Return 0
/// to go on; anything else ends the generation.
pub type TablaTokenCallback = Option<
    unsafe extern "C" fn(
        token: u32,
        text: *const c_char,
        text_bytes: usize,
        user_data: *mut c_void,
    ) -> i32,
>;

/// How likely the model held a token, before biases and samplers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLogProb {
    /// The token.
    pub token: u32,
    /// The natural logarithm.
    pub log_prob: f32,
}

/// A piece of an answer: one token. Set `struct_size` before the call. What it points to is never NULL,
/// but for `likeliest` where there are none, and valid until the next call on the session or batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaPiece {
    /// `sizeof(TablaPiece)`.
    pub struct_size: u32,
    /// The token; `TABLA_NO_TOKEN` where text was held back to the end, and behind it.
    pub token: u32,
    /// The text that it completes, which is empty while a character is incomplete or a stop string may
    /// have begun; a NUL is behind it.
    pub text: *const c_char,
    /// Bytes of the text.
    pub text_bytes: usize,
    /// `TABLA_FINISH_NONE` while the answer goes on. Else it has ended, and there is no token here and no
    /// text, but for the message of `TABLA_FINISH_FAILED`.
    pub finish: i32,
    /// How likely the token was, as a natural logarithm; NaN where `log_probs` did not ask for it.
    pub log_prob: f32,
    /// The likeliest tokens in its place, the likeliest first.
    pub likeliest: *const TablaLogProb,
    /// How many there are.
    pub likeliest_count: usize,
    /// Of a batch: whose piece it is.
    pub number: usize,
    /// Of a batch: the code of the error with `TABLA_FINISH_FAILED`, else 0.
    pub status: TablaStatus,
}

/// What a generation did. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaStats {
    /// `sizeof(TablaStats)`.
    pub struct_size: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Milliseconds of the prompt.
    pub prompt_ms: f64,
    /// Milliseconds of the tokens behind it.
    pub tokens_ms: f64,
    /// Tokens that were picked.
    pub tokens: u32,
    /// `TABLA_FINISH_STOP`, ...
    pub finish: i32,
    /// DraftStats that were made at tokens.
    pub guesses: u32,
    /// Those of them that were right.
    pub guesses_right: u32,
}

/// What the last piece points to.
#[derive(Default)]
pub(super) struct Room {
    text: Vec<u8>,
    likeliest: Vec<TablaLogProb>,
    /// The prompt of the answer that is under way: its tokens, and how long they took.
    pub(super) prompt: (usize, Duration),
    /// What the last answer did.
    pub(super) stats: Option<TablaStats>,
}

impl Room {
    /// A piece that C can read while this room stays as it is.
    pub(super) fn piece(&mut self, piece: &Piece<'_>) -> TablaPiece {
        self.put(piece.text);
        self.likeliest.clear();
        let likeliest = piece.likeliest.iter();
        self.likeliest.extend(likeliest.map(|likely| TablaLogProb {
            token: likely.token,
            log_prob: likely.log_prob,
        }));
        TablaPiece {
            token: match piece.is_flush {
                true => TABLA_NO_TOKEN,
                false => piece.token,
            },
            text: self.text.as_ptr().cast(),
            text_bytes: piece.text.len(),
            log_prob: piece.log_prob.unwrap_or(f32::NAN),
            likeliest: match self.likeliest.is_empty() {
                true => std::ptr::null(),
                false => self.likeliest.as_ptr(),
            },
            likeliest_count: self.likeliest.len(),
            ..TablaPiece::END
        }
    }

    /// The piece of an answer that failed.
    pub(super) fn failure(&mut self, error: &Error) -> TablaPiece {
        self.put(error.message());
        TablaPiece {
            text: self.text.as_ptr().cast(),
            text_bytes: error.message().len(),
            status: error.kind() as TablaStatus,
            ..TablaPiece::end(TABLA_FINISH_FAILED)
        }
    }

    /// Keeps a text with a NUL behind it.
    fn put(&mut self, text: &str) {
        self.text.clear();
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(0);
    }
}

impl TablaPiece {
    /// No token.
    const END: Self = Self {
        struct_size: 0,
        token: TABLA_NO_TOKEN,
        text: c"".as_ptr(),
        text_bytes: 0,
        finish: TABLA_FINISH_NONE,
        log_prob: f32::NAN,
        likeliest: std::ptr::null(),
        likeliest_count: 0,
        number: 0,
        status: 0,
    };

    /// The end of an answer.
    pub(super) fn end(finish: i32) -> Self {
        Self {
            finish,
            ..Self::END
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.finish != TABLA_FINISH_NONE
    }
}

impl TablaStats {
    #[cfg(all(test, feature = "gpu"))]
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    pub(super) const EMPTY: Self = Self {
        struct_size: size_of::<Self>() as u32,
        prompt_tokens: 0,
        prompt_ms: 0.0,
        tokens_ms: 0.0,
        tokens: 0,
        finish: TABLA_FINISH_NONE,
        guesses: 0,
        guesses_right: 0,
    };

    pub(super) fn of(prompt: (usize, Duration), stats: &Stats) -> Self {
        Self {
            struct_size: 0,
            prompt_tokens: u32::try_from(prompt.0).unwrap_or(u32::MAX),
            prompt_ms: prompt.1.as_secs_f64() * 1e3,
            tokens_ms: stats.took.as_secs_f64() * 1e3,
            tokens: stats.tokens,
            finish: finish_code(stats.finish),
            guesses: stats.draft.drafted,
            guesses_right: stats.draft.accepted,
        }
    }
}

fn finish_code(finish: Finish) -> i32 {
    match finish {
        Finish::Stop => TABLA_FINISH_STOP,
        Finish::Length => TABLA_FINISH_LENGTH,
        Finish::Context => TABLA_FINISH_CONTEXT,
        Finish::Callback => TABLA_FINISH_CALLBACK,
        Finish::Cancelled => TABLA_FINISH_CANCELLED,
    }
}
