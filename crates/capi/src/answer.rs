//! Answers: by a callback, or piece by piece.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::{
    Room, TABLA_FINISH_FAILED, TABLA_FINISH_NONE, TablaPiece, TablaStats, TablaTokenCallback,
};
use super::chat_options::Chat;
use super::generate::{TablaGenerateOptions, options_of};
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{size_of_struct, text_of, write_sized};
use super::sequence::{Inner, Sequenced, TablaSession, enter, enter_idle, with};
use serde_json::Value as Json;
use std::ffi::{c_char, c_void};
use std::time::{Duration, Instant};
use tabla::error::{Result, bail};
use tabla::text::{EncodeOptions, SpecialTokens};
use tabla::{AnswerState, Flow, GenerateOptions, Piece, Session};

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
                let encode = EncodeOptions {
                    add_special: session.tokens().is_empty(),
                    specials: SpecialTokens::Text,
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
    options: &GenerateOptions,
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
