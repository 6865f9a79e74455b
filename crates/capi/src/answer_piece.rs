//! Pieces and statistics of answers in the C API.

use super::guard::TablaStatus;
use std::ffi::{c_char, c_void};
use std::time::Duration;
use tabla::{Error, Finish, Piece, Stats};

/// No token: a model without a BOS or EOS token, or a piece that is not a token.
pub const TABLA_NO_TOKEN: u32 = u32::MAX;

/// The answer has not ended: `TablaPiece.finish`, `TablaStats.finish`.
pub const TABLA_FINISH_NONE: i32 = -1;
/// Finish reason: a stop token, a stop string, or the end of the grammar. `TablaStats.finish`.
pub const TABLA_FINISH_STOP: i32 = 0;
/// Finish reason: `max_tokens` tokens were generated.
pub const TABLA_FINISH_LENGTH: i32 = 1;
/// Finish reason: the context is full.
pub const TABLA_FINISH_CONTEXT: i32 = 2;
/// Finish reason: the callback returned another value than 0, or `tabla_session_end` was called.
pub const TABLA_FINISH_CALLBACK: i32 = 3;
/// Finish reason: `tabla_session_cancel` or `tabla_batch_cancel` was called.
pub const TABLA_FINISH_CANCELLED: i32 = 4;
/// Finish reason: an error. In a batch, `TablaPiece.status` is its code.
pub const TABLA_FINISH_FAILED: i32 = 5;

/// Receives every token: its id and the text that it completes. The text is empty while a UTF-8
/// character is incomplete or a stop string may have started; text that is still held back at the
/// end comes in a last call with `TABLA_NO_TOKEN`. `text` is NUL-terminated after `text_bytes`
/// bytes, and valid during the call. Return 0 to continue; any other value ends the answer.
pub type TablaTokenCallback = Option<
    unsafe extern "C" fn(
        token: u32,
        text: *const c_char,
        text_bytes: usize,
        user_data: *mut c_void,
    ) -> i32,
>;

/// Log-probability of a token, before logit biases and samplers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLogprob {
    /// Token id.
    pub token: u32,
    /// Natural logarithm of the probability.
    pub logprob: f32,
}

/// A piece of an answer: one token. Set `struct_size` before the call. Pointers are not NULL,
/// except `top_logprobs` if there are no tokens, and are valid until the next call on the session
/// or batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaPiece {
    /// `sizeof(TablaPiece)`.
    pub struct_size: u32,
    /// Token id; `TABLA_NO_TOKEN` for text that was held back to the end, and for the end of the
    /// answer.
    pub token: u32,
    /// Text that the token completes, NUL-terminated. It is empty while a UTF-8 character is
    /// incomplete or a stop string may have started.
    pub text: *const c_char,
    /// Length of the text in bytes.
    pub text_bytes: usize,
    /// `TABLA_FINISH_NONE`, or the reason why the answer ended. The piece has then no token and no
    /// text, except the error message of `TABLA_FINISH_FAILED`.
    pub finish: i32,
    /// Log-probability of the token (natural logarithm); NaN unless `logprobs` requests it.
    pub logprob: f32,
    /// Log-probabilities of the likeliest tokens at this position, in descending order.
    pub top_logprobs: *const TablaLogprob,
    /// Number of elements of `top_logprobs`.
    pub top_logprobs_count: usize,
    /// Number of the request in its batch, from `tabla_batch_add`; otherwise 0.
    pub request: usize,
    /// Error code of an answer in a batch with `TABLA_FINISH_FAILED`; otherwise 0.
    pub status: TablaStatus,
}

/// Statistics of an answer. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaStats {
    /// `sizeof(TablaStats)`.
    pub struct_size: u32,
    /// Number of prompt tokens.
    pub prompt_tokens: u32,
    /// Duration of prefill, in milliseconds.
    pub prompt_ms: f64,
    /// Duration of decoding, in milliseconds.
    pub predicted_ms: f64,
    /// Number of generated tokens.
    pub tokens: u32,
    /// Finish reason: `TABLA_FINISH_STOP`, ...; `TABLA_FINISH_NONE` while the answer runs.
    pub finish: i32,
    /// Number of draft tokens of speculative decoding.
    pub drafted_tokens: u32,
    /// Number of accepted draft tokens.
    pub accepted_tokens: u32,
}

/// Processing of a prompt.
#[derive(Clone, Copy, Default)]
pub(super) struct Prefill {
    /// Number of prompt tokens.
    pub(super) tokens: usize,
    pub(super) took: Duration,
}

/// Memory that the last piece points to, and statistics of the answer.
#[derive(Default)]
pub(super) struct PieceBuffer {
    text: Vec<u8>,
    top_logprobs: Vec<TablaLogprob>,
    /// Prefill of the answer in progress.
    pub(super) prefill: Prefill,
    /// Statistics of the last answer.
    pub(super) stats: Option<TablaStats>,
}

impl PieceBuffer {
    /// Converts a piece. Its pointers are valid until the buffer changes.
    pub(super) fn piece(&mut self, piece: &Piece<'_>) -> TablaPiece {
        self.set_text(piece.text);
        self.top_logprobs.clear();
        let likeliest = piece.top_logprobs.iter();
        self.top_logprobs
            .extend(likeliest.map(|likely| TablaLogprob {
                token: likely.token,
                logprob: likely.logprob,
            }));
        TablaPiece {
            token: match piece.is_flush {
                true => TABLA_NO_TOKEN,
                false => piece.token,
            },
            text: self.text.as_ptr().cast(),
            text_bytes: piece.text.len(),
            logprob: piece.logprob.unwrap_or(f32::NAN),
            top_logprobs: match self.top_logprobs.is_empty() {
                true => std::ptr::null(),
                false => self.top_logprobs.as_ptr(),
            },
            top_logprobs_count: self.top_logprobs.len(),
            ..TablaPiece::END
        }
    }

    /// The last piece of a failed answer.
    pub(super) fn failure(&mut self, error: &Error) -> TablaPiece {
        self.set_text(error.message());
        TablaPiece {
            text: self.text.as_ptr().cast(),
            text_bytes: error.message().len(),
            status: error.kind() as TablaStatus,
            ..TablaPiece::end(TABLA_FINISH_FAILED)
        }
    }

    /// Stores a NUL-terminated text.
    fn set_text(&mut self, text: &str) {
        self.text.clear();
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(0);
    }
}

impl TablaPiece {
    /// A piece without a token.
    const END: Self = Self {
        struct_size: 0,
        token: TABLA_NO_TOKEN,
        text: c"".as_ptr(),
        text_bytes: 0,
        finish: TABLA_FINISH_NONE,
        logprob: f32::NAN,
        top_logprobs: std::ptr::null(),
        top_logprobs_count: 0,
        request: 0,
        status: 0,
    };

    /// The last piece of an answer.
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
        predicted_ms: 0.0,
        tokens: 0,
        finish: TABLA_FINISH_NONE,
        drafted_tokens: 0,
        accepted_tokens: 0,
    };

    pub(super) fn of(prefill: Prefill, stats: &Stats) -> Self {
        Self {
            struct_size: 0,
            prompt_tokens: u32::try_from(prefill.tokens).unwrap_or(u32::MAX),
            prompt_ms: prefill.took.as_secs_f64() * 1e3,
            predicted_ms: stats.took.as_secs_f64() * 1e3,
            tokens: stats.tokens,
            finish: stats.finish.map_or(TABLA_FINISH_NONE, finish_code),
            drafted_tokens: stats.draft.drafted,
            accepted_tokens: stats.draft.accepted,
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
        _ => TABLA_FINISH_FAILED,
    }
}
