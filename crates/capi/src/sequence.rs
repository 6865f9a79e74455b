//! Sessions and models: what has a sequence, and how a call enters it.

use super::answer_piece::Room;
use super::handles::{Handled, resolve};
use super::turn::Turn;
use tabla::error::{Result, bail};
use tabla::{AnswerState, Cancel, Model, Session};

/// A sequence on a model, with what was said and what comes next. Opaque.
pub struct TablaSession {
    turn: Turn<Inner>,
    cancel: Cancel,
}

/// What a call has to itself.
pub(super) struct Inner {
    pub(super) session: Session,
    /// The answer that is under way, piece by piece.
    pub(super) answer: Option<AnswerState>,
    /// What the last piece points to.
    pub(super) room: Room,
}

impl TablaSession {
    pub(super) fn new(session: Session) -> Self {
        Self {
            cancel: session.canceller(),
            turn: Turn::new(Inner {
                session,
                answer: None,
                room: Room::default(),
            }),
        }
    }

    /// Runs a call that has it to itself.
    pub(super) fn enter<T>(&self, call: impl FnOnce(&mut Inner) -> Result<T>) -> Result<T> {
        self.turn.enter(Self::NAME, call)
    }

    /// Refuses to hand out what is about to go.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.cancel.is_closed() {
            bail!(Cancelled, "the session was freed during the call");
        }
        Ok(())
    }
}

impl Handled for TablaSession {
    const NAME: &'static str = "session";

    fn close(&self) {
        self.cancel.close();
    }
}

/// What has a sequence: a session, and a model, whose own one the short functions take.
pub(super) trait Sequenced: Handled {
    fn sequence(&self) -> &TablaSession;
}

impl Sequenced for TablaSession {
    fn sequence(&self) -> &TablaSession {
        self
    }
}

/// Runs a call on what a handle's sequence has.
pub(super) fn enter<H: Sequenced, T>(
    handle: *const H,
    call: impl FnOnce(&mut Inner) -> Result<T>,
) -> Result<T> {
    resolve(handle)?.sequence().turn.enter(H::NAME, call)
}

/// As [`enter`], where no answer is under way.
pub(super) fn enter_idle<H: Sequenced, T>(
    handle: *const H,
    call: impl FnOnce(&mut Inner) -> Result<T>,
) -> Result<T> {
    enter(handle, |inner| {
        if inner.answer.is_some() {
            bail!(
                State,
                "an answer is under way: take it to its end, or end it with tabla_session_end"
            );
        }
        // What came before this call was meant for another.
        inner.session.clear_cancel();
        call(inner)
    })
}

/// As [`enter_idle`], on the session alone.
pub(super) fn with<H: Sequenced, T>(
    handle: *const H,
    call: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    enter_idle(handle, |inner| call(&mut inner.session))
}

/// Stops what is done with a sequence, from any thread.
pub(super) fn cancel<H: Sequenced>(handle: *const H) -> Result<()> {
    resolve(handle)?.sequence().cancel.cancel();
    Ok(())
}

/// A loaded model, with a session of its own. Opaque: its address is a number that only the library
/// understands.
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

    /// What can be asked whatever its session does.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }
}

impl Handled for TablaModel {
    const NAME: &'static str = "model";

    fn close(&self) {
        self.own.close();
    }
}

impl Sequenced for TablaModel {
    fn sequence(&self) -> &TablaSession {
        &self.own
    }
}
