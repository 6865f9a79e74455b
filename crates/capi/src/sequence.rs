//! Models and sessions, and access to a session for the duration of a call.

use super::answer_piece::PieceBuffer;
use super::exclusive::Exclusive;
use super::handles::{self, HandleType, resolve};
use tabla::error::bail;
use tabla::{Cancel, Generation, Model, Result, Session, StartError, Stats};

/// A sequence of tokens on a model, with its KV cache. Opaque.
pub struct TablaSession {
    state: Exclusive<SessionState>,
    cancel: Cancel,
    /// Whether this is the default session of its model, which is freed with the model.
    is_default: bool,
}

/// State of a session that one call at a time accesses.
pub(super) struct SessionState {
    /// The session; `None` while an answer owns it.
    session: Option<Session>,
    /// The answer in progress that is read piece by piece.
    pub(super) answer: Option<Generation>,
    /// Memory that the last piece points to.
    pub(super) buffer: PieceBuffer,
}

impl TablaSession {
    pub(super) fn new(session: Session) -> Self {
        Self {
            cancel: session.canceller(),
            state: Exclusive::new(SessionState {
                session: Some(session),
                answer: None,
                buffer: PieceBuffer::default(),
            }),
            is_default: false,
        }
    }

    /// Runs a call with exclusive access.
    pub(super) fn enter<T>(&self, call: impl FnOnce(&mut SessionState) -> Result<T>) -> Result<T> {
        self.state.enter(Self::NAME, call)
    }

    /// Fails if the session was freed during the call, because the result would point to freed
    /// memory.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.cancel.is_closed() {
            bail!(Cancelled, "the session was freed during the call");
        }
        Ok(())
    }
}

impl SessionState {
    /// Returns the session. Fails if an answer is in progress.
    pub(super) fn idle(&mut self) -> Result<&mut Session> {
        match &mut self.session {
            Some(session) => Ok(session),
            None => bail!(
                State,
                "an answer is in progress: read it to its end, or end it with tabla_session_end"
            ),
        }
    }

    /// Starts an answer by a call that takes the session.
    pub(super) fn start<T>(
        &mut self,
        start: impl FnOnce(Session) -> Result<(T, Generation), Box<StartError<Session>>>,
    ) -> Result<T> {
        self.idle()?;
        let session = self.session.take().expect("it is idle");
        match start(session) {
            Ok((value, answer)) => {
                self.answer = Some(answer);
                Ok(value)
            }
            Err(failed) => {
                self.session = Some(failed.session);
                Err(failed.error)
            }
        }
    }

    /// Ends the answer and returns its statistics; `None` if no answer is in progress.
    pub(super) fn end(&mut self) -> Option<Stats> {
        let answer = self.answer.take()?;
        let stats = answer.stats();
        self.session = Some(answer.into_session());
        Some(stats)
    }
}

impl HandleType for TablaSession {
    const NAME: &'static str = "session";

    fn close(&self) {
        self.cancel.close();
    }
}

/// Runs a call with exclusive access to a session.
pub(super) fn enter<T>(
    handle: *const TablaSession,
    call: impl FnOnce(&mut SessionState) -> Result<T>,
) -> Result<T> {
    resolve(handle)?.enter(call)
}

/// Like [`enter`]; fails if an answer is in progress.
pub(super) fn enter_idle<T>(
    handle: *const TablaSession,
    call: impl FnOnce(&mut SessionState) -> Result<T>,
) -> Result<T> {
    enter(handle, |inner| {
        // Earlier cancellations were meant for earlier calls.
        inner.idle()?.clear_cancel();
        call(inner)
    })
}

/// Like [`enter_idle`], with the session only.
pub(super) fn with_session<T>(
    handle: *const TablaSession,
    call: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    enter_idle(handle, |inner| call(inner.idle()?))
}

/// Cancels the current call on a session, from any thread.
pub(super) fn cancel(handle: *const TablaSession) -> Result<()> {
    resolve(handle)?.cancel.cancel();
    Ok(())
}

/// Frees a session, unless it is the default session of a model.
pub(super) fn free(handle: *const TablaSession) -> Result<()> {
    if resolve(handle)?.is_default {
        bail!(
            Argument,
            "the default session of a model cannot be freed: free the model with tabla_free_model"
        );
    }
    handles::remove(handle)
}

/// A loaded model, with its default session. Opaque: the pointer is a number that only the library
/// resolves.
pub struct TablaModel {
    model: Model,
    /// Address of the handle of the default session. A pointer could not be shared by threads.
    session: usize,
}

impl TablaModel {
    /// Creates the handle of a model, and that of its default session.
    pub(super) fn insert(model: Model) -> Result<*mut Self> {
        let session = handles::insert(TablaSession {
            is_default: true,
            ..TablaSession::new(Session::new(model.clone()))
        })?;
        let object = Self {
            model,
            session: session.addr(),
        };
        handles::insert(object).inspect_err(|_| {
            // The handle is valid: no other code has it.
            let _ = handles::remove(session);
        })
    }

    /// The model. Accessible during calls on its default session.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Handle of the default session.
    pub(super) fn session(&self) -> *mut TablaSession {
        std::ptr::without_provenance_mut(self.session)
    }
}

impl HandleType for TablaModel {
    const NAME: &'static str = "model";

    /// Frees the default session.
    fn close(&self) {
        // Fails if another thread frees the model at the same time.
        let _ = handles::remove(self.session());
    }
}
