//! Answers: by a callback, or piece by piece.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::chat::Chat;
use super::generate::{TablaGenerateOptions, options_of};
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{size_of_struct, text_of, write_sized};
use super::session::{Inner, Sequenced, TablaSession, enter, enter_idle, with};
use serde_json::Value as Json;
use std::ffi::{c_char, c_void};
use std::time::{Duration, Instant};
use tabla::error::{Error, Result, bail};
use tabla::text::{Encode, Specials};
use tabla::{AnswerState, Finish, Flow, Generate, Piece, Session, Stats};

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
    /// Guesses that were made at tokens.
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
    prompt: (usize, Duration),
    /// What the last answer did.
    stats: Option<TablaStats>,
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
            token: match piece.is_rest {
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
            guesses: stats.guesses.made,
            guesses_right: stats.guesses.right,
        }
    }
}

pub(super) fn finish_code(finish: Finish) -> i32 {
    match finish {
        Finish::Stop => TABLA_FINISH_STOP,
        Finish::Length => TABLA_FINISH_LENGTH,
        Finish::Context => TABLA_FINISH_CONTEXT,
        Finish::Callback => TABLA_FINISH_CALLBACK,
        Finish::Cancelled => TABLA_FINISH_CANCELLED,
    }
}

/// The C caller as the receiver of pieces.
pub(super) struct Caller {
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    /// What a piece points to.
    room: Room,
}

impl Caller {
    pub(super) fn new(callback: TablaTokenCallback, user_data: *mut c_void) -> Self {
        Self {
            callback,
            user_data,
            room: Room::default(),
        }
    }

    fn hear(&mut self, piece: &Piece<'_>) -> Flow {
        let Some(callback) = self.callback else {
            return Flow::Continue;
        };
        let TablaPiece {
            token,
            text,
            text_bytes,
            ..
        } = self.room.piece(piece);
        // SAFETY: the caller's function, with text that lives through the call.
        let answer = unsafe { callback(token, text, text_bytes, self.user_data) };
        if answer == 0 {
            Flow::Continue
        } else {
            Flow::Stop
        }
    }
}

/// What an answer answers.
pub(super) enum Prompt<'a> {
    /// A text behind the sequence; an empty one leaves it as it is.
    Text(&'a str),
    /// A conversation, which the sequence becomes.
    Chat(&'a Chat, &'a [Json]),
}

impl Prompt<'_> {
    /// Encodes it and runs it, but for what the sequence has of it. Returns its tokens, and how long they
    /// took.
    fn prefill(&self, session: &mut Session) -> Result<(usize, Duration)> {
        let begun = Instant::now();
        let (tokens, shared) = match self {
            Self::Text("") => return Ok((0, Duration::ZERO)),
            Self::Text(text) => {
                let encode = Encode {
                    add_special: session.tokens().is_empty(),
                    specials: Specials::Text,
                };
                (session.tokenizer().encode(text, encode)?, 0)
            }
            Self::Chat(chat, messages) => {
                let tokens = chat.encode(messages, session.model())?;
                let both = session.tokens().iter().zip(&tokens);
                let shared = both.take_while(|(old, new)| old == new).count();
                session.truncate(shared);
                (tokens, shared)
            }
        };
        session.prefill(&tokens[shared..], &mut |_, _| {})?;
        Ok((tokens.len(), begun.elapsed()))
    }
}

/// Begins an answer to a prompt. Where that fails, nothing of a text stays behind the sequence. Returns
/// what [`Prompt::prefill`] does, too.
fn begin(
    session: &mut Session,
    prompt: &Prompt<'_>,
    options: &Generate,
) -> Result<((usize, Duration), AnswerState)> {
    let before = session.tokens().len();
    let mut answer = AnswerState::prepare(session, options)?;
    let begun = prompt.prefill(session).and_then(|prompt| {
        answer.begin(session)?;
        Ok((prompt, answer))
    });
    if begun.is_err() {
        session.truncate(before);
    }
    begun
}

/// Generates by a callback.
///
/// # Safety
///
/// As of `tabla_generate`.
pub(super) unsafe fn generate<H: Sequenced>(
    handle: *const H,
    prompt: &Prompt<'_>,
    options: *const TablaGenerateOptions,
    mut each: Caller,
    stats: *mut TablaStats,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let options = unsafe { options_of(options) }?;
    // SAFETY: the caller's promise.
    let options = unsafe { options.generate() }?;
    let size = match stats.is_null() {
        true => 0,
        // SAFETY: the caller's promise.
        false => unsafe { size_of_struct(stats, "stats") }?,
    };
    let done = with(handle, |session| {
        let (prompt, mut answer) = begin(session, prompt, &options)?;
        while answer.next(session)? {
            if each.hear(&answer.piece()) == Flow::Stop {
                answer.stop(session)?;
                break;
            }
        }
        Ok(TablaStats::of(prompt, &answer.stats(session)))
    })?;
    if size > 0 {
        // SAFETY: the caller's struct holds so many bytes.
        unsafe { write_sized(&done, stats, size) };
    }
    Ok(())
}

/// `tabla_generate` of a session.
///
/// # Safety
///
/// As of `tabla_generate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_generate(
    session: *mut TablaSession,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        let caller = Caller::new(callback, user_data);
        // SAFETY: the caller's promise.
        unsafe { generate(session, &prompt, options, caller, stats) }
    })
}

/// Begins an answer that `tabla_session_next` takes piece by piece: encodes a prompt behind the
/// sequence, if there is one, as `tabla_generate` does, runs it, and has the model go on while pieces are
/// taken. An answer whose pieces are not taken holds nobody up. NULL options are the defaults. Until its
/// end the session takes no other call than `tabla_session_next`, `_end`, `_stats`, `_cancel` and `_free`.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_begin(
    session: *mut TablaSession,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        // SAFETY: the caller's promise.
        unsafe { begin_pieces(session, &prompt, options) }
    })
}

/// Begins an answer that is taken piece by piece.
///
/// # Safety
///
/// As of `tabla_session_begin`.
pub(super) unsafe fn begin_pieces(
    session: *mut TablaSession,
    prompt: &Prompt<'_>,
    options: *const TablaGenerateOptions,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let options = unsafe { options_of(options) }?;
    // SAFETY: the caller's promise.
    let options = unsafe { options.generate() }?;
    enter_idle(session, |inner| {
        let (prompt, answer) = begin(&mut inner.session, prompt, &options)?;
        inner.answer = Some(answer);
        inner.room.prompt = prompt;
        inner.room.stats = None;
        Ok(())
    })
}

/// Waits for the next piece of the answer. Behind the last one `finish` says why the answer ended, and
/// the session is free for other calls; one more call is `TABLA_ERROR_STATE`. An error ends the answer,
/// too.
///
/// # Safety
///
/// `piece` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_next(
    session: *mut TablaSession,
    piece: *mut TablaPiece,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(piece, "piece") }?;
        let handle = resolve(session)?;
        let next = handle.enter(next)?;
        handle.check_open()?;
        // SAFETY: the caller's struct holds so many bytes.
        unsafe { write_sized(&next, piece, size) };
        Ok(())
    })
}

fn next(inner: &mut Inner) -> Result<TablaPiece> {
    let Some(answer) = &mut inner.answer else {
        bail!(
            State,
            "no answer is under way: begin one with tabla_session_begin"
        );
    };
    match answer.next(&mut inner.session) {
        Ok(true) => return Ok(inner.room.piece(&answer.piece())),
        Ok(false) => {}
        Err(e) => {
            close(inner);
            if let Some(stats) = &mut inner.room.stats {
                stats.finish = TABLA_FINISH_FAILED;
            }
            return Err(e);
        }
    }
    Ok(TablaPiece::end(close(inner)))
}

/// Takes the answer away, keeps what it did, and says why it ended.
fn close(inner: &mut Inner) -> i32 {
    let Some(answer) = inner.answer.take() else {
        return TABLA_FINISH_NONE;
    };
    let stats = TablaStats::of(inner.room.prompt, &answer.stats(&inner.session));
    inner.room.stats = Some(stats);
    stats.finish
}

/// Ends the answer here: the tokens that were taken stay in the sequence, and none behind them. There
/// need not be one.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_end(session: *mut TablaSession) -> TablaStatus {
    guard(|| {
        enter(session, |inner| {
            let Some(answer) = &mut inner.answer else {
                return Ok(());
            };
            let ended = answer.stop(&mut inner.session);
            close(inner);
            ended
        })
    })
}

/// Writes, between two other calls, what the answer that is under way has done so far, or what the last one
/// did that was begun with `tabla_session_begin`.
///
/// # Safety
///
/// `stats` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_stats(
    session: *const TablaSession,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(stats, "stats") }?;
        let done = enter(session, |inner| {
            let (prompt, session) = (inner.room.prompt, &inner.session);
            let now = inner.answer.as_ref().map(|answer| TablaStats {
                finish: TABLA_FINISH_NONE,
                ..TablaStats::of(prompt, &answer.stats(session))
            });
            let Some(stats) = now.or(inner.room.stats) else {
                bail!(State, "no answer was begun");
            };
            Ok(stats)
        })?;
        // SAFETY: the caller's struct holds so many bytes.
        unsafe { write_sized(&done, stats, size) };
        Ok(())
    })
}
