//! Answers, returned by a callback or piece by piece.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::{
    PieceBuffer, Prefill, TABLA_FINISH_NONE, TablaPiece, TablaStats, TablaTokenCallback,
};
use super::chat_options::Chat;
use super::generate::{AnswerOptions, options_of};
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::options::generate::TablaGenerateOptions;
use super::pointers::{size_of_struct, text_of, write_sized};
use super::sequence::{SessionState, TablaModel, TablaSession, enter, enter_idle, with_session};
use serde_json::Value as Json;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::time::Instant;
use tabla::error::bail;
use tabla::text::{EncodeOptions, SpecialTokens};
use tabla::{AsSession, Generation, Piece, Result, Session, StartError};

/// The caller's token callback.
pub(super) struct Caller {
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    /// Memory that a piece points to.
    buffer: PieceBuffer,
}

impl Caller {
    pub(super) fn new(callback: TablaTokenCallback, user_data: *mut c_void) -> Self {
        Self {
            callback,
            user_data,
            buffer: PieceBuffer::default(),
        }
    }

    fn call(&mut self, piece: &Piece<'_>) -> ControlFlow<()> {
        let Some(callback) = self.callback else {
            return ControlFlow::Continue(());
        };
        let TablaPiece {
            token,
            text,
            text_bytes,
            ..
        } = self.buffer.piece(piece);
        // SAFETY: the caller's function; the text is valid during the call.
        let result = unsafe { callback(token, text, text_bytes, self.user_data) };
        if result == 0 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Input that an answer continues.
pub(super) enum Prompt<'a> {
    /// Text to append to the sequence. An empty text does not change it.
    Text(&'a str),
    /// Conversation that replaces the sequence.
    Chat(&'a Chat, &'a [Json]),
}

impl Prompt<'_> {
    /// Returns the options of the conversation.
    fn chat(&self) -> Option<&Chat> {
        match self {
            Self::Text(_) => None,
            Self::Chat(chat, _) => Some(chat),
        }
    }

    /// Encodes the prompt and runs the model on the tokens that the sequence does not have yet.
    fn prefill(&self, session: &mut Session) -> Result<Prefill> {
        let start = Instant::now();
        let (tokens, shared) = match self {
            Self::Text("") => return Ok(Prefill::default()),
            Self::Text(text) => {
                let encode = EncodeOptions::default()
                    .add_special(session.tokens().is_empty())
                    .specials(SpecialTokens::Text);
                (session.tokenizer().encode(text, encode)?, 0)
            }
            Self::Chat(chat, messages) => {
                let tokens = chat.encode(messages, session.model())?;
                let pairs = session.tokens().iter().zip(&tokens);
                let shared = pairs.take_while(|(old, new)| old == new).count();
                session.truncate(shared);
                (tokens, shared)
            }
        };
        session.prefill(&tokens[shared..])?;
        Ok(Prefill {
            tokens: tokens.len(),
            took: start.elapsed(),
        })
    }
}

/// The result of [`Prompt::prefill`] and the answer, or the session.
type Started<S> = Result<(Prefill, Generation<S>), Box<StartError<S>>>;

/// Starts an answer to a prompt. On failure, removes the text of the prompt from the sequence.
fn begin<S: AsSession>(mut session: S, prompt: &Prompt<'_>, options: &AnswerOptions) -> Started<S> {
    let sequence = session.borrow_mut();
    let before = sequence.tokens().len();
    let checked = options.independent().check(sequence.model());
    let prefilled = checked.and_then(|()| {
        let prefilled = prompt.prefill(sequence)?;
        let options = options.after(sequence.tokens(), prompt.chat(), sequence.model())?;
        Ok((prefilled, options))
    });
    let started = match prefilled {
        Ok((prefill, options)) => {
            Generation::new(session, &options).map(|answer| (prefill, answer))
        }
        Err(error) => Err(Box::new(StartError { error, session })),
    };
    started.map_err(|mut failed| {
        failed.session.borrow_mut().truncate(before);
        failed
    })
}

/// Generates an answer and passes its pieces to a callback.
///
/// # Safety
///
/// Arguments as for `tabla_session_generate`.
pub(super) unsafe fn generate(
    session: *const TablaSession,
    prompt: &Prompt<'_>,
    options: *const TablaGenerateOptions,
    mut caller: Caller,
    stats: *mut TablaStats,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options_of(options) }?;
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.answer() }?;
    let size = match stats.is_null() {
        true => 0,
        // SAFETY: guaranteed by the caller.
        false => unsafe { size_of_struct(stats, "stats") }?,
    };
    let c_stats = with_session(session, |session| {
        let (prefill, mut answer) = begin(session, prompt, &options).map_err(|e| e.error)?;
        while let Some(piece) = answer.next_piece()? {
            if caller.call(&piece).is_break() {
                answer.stop()?;
                break;
            }
        }
        Ok(TablaStats::of(prefill, &answer.stats()))
    })?;
    if size > 0 {
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&c_stats, stats, size) };
    }
    Ok(())
}

/// Appends a prompt to the sequence, runs the model on it, and generates an answer. An empty or
/// NULL prompt continues from the sequence as it is. NULL options are the defaults. `callback` and
/// `stats` may be NULL.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct with `struct_size`
/// set; `stats` likewise.
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
        // SAFETY: guaranteed by the caller.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        let caller = Caller::new(callback, user_data);
        // SAFETY: guaranteed by the caller.
        unsafe { generate(session, &prompt, options, caller, stats) }
    })
}

/// Generates an answer with the default session of a model: the short form of
/// `tabla_session_generate`.
///
/// # Safety
///
/// Arguments as for `tabla_session_generate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_generate(
    model: *mut TablaModel,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        let caller = Caller::new(callback, user_data);
        let session = resolve(model)?.session();
        // SAFETY: guaranteed by the caller.
        unsafe { generate(session, &prompt, options, caller, stats) }
    })
}

/// Starts an answer that `tabla_session_next` returns piece by piece. Appends the prompt to the
/// sequence, if there is one, and runs the model on it, as `tabla_session_generate` does. The model
/// generates while pieces are read; an answer that is not read does not block others. NULL options
/// are the defaults. Until the answer ends, the session only accepts `tabla_session_next`,
/// `tabla_session_end`, `tabla_session_stats`, `tabla_session_cancel` and `tabla_session_free`.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_begin(
    session: *mut TablaSession,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        // SAFETY: guaranteed by the caller.
        unsafe { begin_pieces(session, &prompt, options) }
    })
}

/// Starts an answer that is read piece by piece.
///
/// # Safety
///
/// Arguments as for `tabla_session_begin`.
pub(super) unsafe fn begin_pieces(
    session: *mut TablaSession,
    prompt: &Prompt<'_>,
    options: *const TablaGenerateOptions,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options_of(options) }?;
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.answer() }?;
    enter_idle(session, |inner| {
        inner.buffer.prefill = inner.start(|session| begin(session, prompt, &options))?;
        inner.buffer.stats = None;
        Ok(())
    })
}

/// Waits for the next piece of the answer. After the last piece, `finish` is the reason why the
/// answer ended, and the session accepts other calls; another `tabla_session_next` is
/// `TABLA_ERROR_STATE`. An error also ends the answer.
///
/// # Safety
///
/// `piece` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_next(
    session: *mut TablaSession,
    piece: *mut TablaPiece,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(piece, "piece") }?;
        let handle = resolve(session)?;
        let next = handle.enter(next)?;
        handle.check_open()?;
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&next, piece, size) };
        Ok(())
    })
}

fn next(inner: &mut SessionState) -> Result<TablaPiece> {
    let Some(answer) = &mut inner.answer else {
        bail!(
            State,
            "no answer is in progress: start one with tabla_session_begin"
        );
    };
    match answer.next_piece() {
        Ok(Some(piece)) => return Ok(inner.buffer.piece(&piece)),
        Ok(None) => {}
        Err(e) => {
            close(inner);
            return Err(e);
        }
    }
    Ok(TablaPiece::end(close(inner)))
}

/// Removes the answer, stores its statistics, and returns the finish reason.
fn close(inner: &mut SessionState) -> i32 {
    let Some(stats) = inner.end() else {
        return TABLA_FINISH_NONE;
    };
    let stats = TablaStats::of(inner.buffer.prefill, &stats);
    inner.buffer.stats = Some(stats);
    stats.finish
}

/// Ends the answer early. Pieces that were read stay in the sequence, later tokens are removed.
/// Does nothing if no answer is in progress.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_end(session: *mut TablaSession) -> TablaStatus {
    guard(|| {
        enter(session, |inner| {
            let Some(answer) = &mut inner.answer else {
                return Ok(());
            };
            let result = answer.stop();
            close(inner);
            result
        })
    })
}

/// Writes the statistics so far of the answer in progress, or those of the last answer that was
/// started with `tabla_session_begin`. Call it between other calls on the session.
///
/// # Safety
///
/// `stats` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_stats(
    session: *const TablaSession,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(stats, "stats") }?;
        let c_stats = enter(session, |inner| {
            let prefill = inner.buffer.prefill;
            let current = inner.answer.as_ref().map(|answer| TablaStats {
                finish: TABLA_FINISH_NONE,
                ..TablaStats::of(prefill, &answer.stats())
            });
            let Some(stats) = current.or(inner.buffer.stats) else {
                bail!(
                    State,
                    "no answer was started: start one with tabla_session_begin"
                );
            };
            Ok(stats)
        })?;
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&c_stats, stats, size) };
        Ok(())
    })
}
