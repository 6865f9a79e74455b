//! Sessions and models, and access to their sequences.

use super::answer_piece::PieceBuffer;
use super::exclusive::Exclusive;
use super::handles::{HandleType, resolve};
use tabla::error::{Result, bail};
use tabla::{AnswerState, Cancel, Model, Session};

/// A sequence of tokens on a model, with its KV cache. Opaque.
pub struct TablaSession {
    state: Exclusive<SessionState>,
    cancel: Cancel,
}

/// State of a session that one call at a time accesses.
pub(super) struct SessionState {
    pub(super) session: Session,
    /// The answer in progress that is read piece by piece.
    pub(super) answer: Option<AnswerState>,
    /// Memory that the last piece points to.
    pub(super) buffer: PieceBuffer,
}

impl TablaSession {
    pub(super) fn new(session: Session) -> Self {
        Self {
            cancel: session.canceller(),
            state: Exclusive::new(SessionState {
                session,
                answer: None,
                buffer: PieceBuffer::default(),
            }),
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

impl HandleType for TablaSession {
    const NAME: &'static str = "session";

    fn close(&self) {
        self.cancel.close();
    }
}

/// An object with a sequence: a session, or a model with its own session.
pub(super) trait HasSequence: HandleType {
    fn sequence(&self) -> &TablaSession;
}

impl HasSequence for TablaSession {
    fn sequence(&self) -> &TablaSession {
        self
    }
}

/// Runs a call with exclusive access to the session of a handle.
pub(super) fn enter<H: HasSequence, T>(
    handle: *const H,
    call: impl FnOnce(&mut SessionState) -> Result<T>,
) -> Result<T> {
    resolve(handle)?.sequence().state.enter(H::NAME, call)
}

/// Like [`enter`]; fails if an answer is in progress.
pub(super) fn enter_idle<H: HasSequence, T>(
    handle: *const H,
    call: impl FnOnce(&mut SessionState) -> Result<T>,
) -> Result<T> {
    enter(handle, |inner| {
        if inner.answer.is_some() {
            bail!(
                State,
                "an answer is in progress: read it to its end, or end it with tabla_session_end"
            );
        }
        // Earlier cancellations were meant for earlier calls.
        inner.session.clear_cancel();
        call(inner)
    })
}

/// Like [`enter_idle`], with the session only.
pub(super) fn with_session<H: HasSequence, T>(
    handle: *const H,
    call: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    enter_idle(handle, |inner| call(&mut inner.session))
}

/// Cancels the current call on a sequence, from any thread.
pub(super) fn cancel<H: HasSequence>(handle: *const H) -> Result<()> {
    resolve(handle)?.sequence().cancel.cancel();
    Ok(())
}

/// A loaded model, with its own sequence. Opaque: the pointer is a number that only the library
/// resolves.
pub struct TablaModel {
    model: Model,
    own: TablaSession,
}

impl TablaModel {
    pub(super) fn new(model: Model) -> Self {
        Self {
            own: TablaSession::new(Session::new(model.clone())),
            model,
        }
    }

    /// The model. Accessible during calls on its own session.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }
}

impl HandleType for TablaModel {
    const NAME: &'static str = "model";

    fn close(&self) {
        self.own.close();
    }
}

impl HasSequence for TablaModel {
    fn sequence(&self) -> &TablaSession {
        &self.own
    }
}
