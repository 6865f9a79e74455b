//! A running generation, which borrows or owns its session.

use super::generate::GenerateOptions;
use super::generation_state::GenerationState;
use super::model::Model;
use super::outputs::{OwnedPiece, Piece, Stats};
use super::session::Session;
use crate::error::{Error, Result};
use std::borrow::BorrowMut;
use std::fmt;
use std::ops::ControlFlow;
use std::task::Poll;

impl Session {
    /// Starts a generation, which appends tokens to the sequence. The model continues while the
    /// caller processes the pieces, so several sessions generate at the same time, on one thread or
    /// on many.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, and if one model is used both as a draft model and as a target
    /// model; `Argument` for options out of range; `Device` and `DeviceLost`.
    pub fn generate(&mut self, options: &GenerateOptions) -> Result<Generation<&mut Self>> {
        Generation::new(self, options).map_err(|e| e.error)
    }

    /// Generates text after the sequence and passes every piece to `each`, until it breaks.
    ///
    /// # Errors
    ///
    /// See [`Session::generate`].
    pub fn generate_with(
        &mut self,
        options: &GenerateOptions,
        mut each: impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Stats> {
        let mut generation = self.generate(options)?;
        while let Some(piece) = generation.next_piece()? {
            if each(piece).is_break() {
                generation.stop()?;
                break;
            }
        }
        Ok(generation.stats())
    }

    /// Discards the older half of the tokens after the first `n_keep`.
    pub(super) fn shift_context(&mut self, n_keep: u32) {
        let context = self.facts().context as usize;
        let begins = self.tokens().first().copied() == self.tokenizer().bos();
        let keep = (n_keep as usize).max(usize::from(begins)).min(context / 2);
        self.shift(keep, (context - keep).div_ceil(2));
    }
}

/// A running generation of a [`Session`], from [`Session::generate`] (borrows the session) or
/// [`Generation::new`] (owns the session).
///
/// It is an iterator of [`OwnedPiece`]; iterate over `&mut generation` to call
/// [`stats`](Self::stats) afterwards. [`next_piece`](Self::next_piece) returns the same pieces
/// without allocating memory. An error ends the generation: no piece follows it.
///
/// [`Session::canceller`] cancels a generation from another thread. It then returns no more tokens,
/// and its finish reason is [`Finish::Cancelled`](crate::Finish::Cancelled), not an error.
///
/// Dropping a generation ends it. A borrowed session keeps the tokens returned so far;
/// [`into_session`](Self::into_session) returns an owned one, which is dropped otherwise.
#[derive(Debug)]
pub struct Generation<S: AsSession = Session> {
    /// `None` after `into_session`.
    session: Option<S>,
    state: GenerationState,
}

/// A session or a mutable reference to one: the types that a [`Generation`] can contain.
pub trait AsSession: BorrowMut<Session> + sealed::Sealed {}

impl AsSession for Session {}
impl AsSession for &mut Session {}

mod sealed {
    use super::Session;

    /// Prevents implementations of [`AsSession`](super::AsSession) in other crates.
    pub trait Sealed {
        const IS_BORROWED: bool;
    }

    impl Sealed for Session {
        const IS_BORROWED: bool = false;
    }

    impl Sealed for &mut Session {
        const IS_BORROWED: bool = true;
    }
}

/// The error of a generation that did not start, and its session.
#[derive(Debug)]
pub struct StartError<S> {
    /// The error.
    pub error: Error,
    /// The session, unchanged.
    pub session: S,
}

impl<S> fmt::Display for StartError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S: fmt::Debug> std::error::Error for StartError<S> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<S: AsSession> Generation<S> {
    /// Starts a generation after the sequence of `session`, as [`Session::generate`] does.
    ///
    /// # Errors
    ///
    /// See [`Session::generate`]. [`StartError`] returns the session; `map_err(|e| e.error)` converts
    /// it to an [`Error`].
    pub fn new(mut session: S, options: &GenerateOptions) -> Result<Self, Box<StartError<S>>> {
        match GenerationState::start(session.borrow_mut(), options) {
            Ok(state) => Ok(Self {
                session: Some(session),
                state,
            }),
            Err(error) => Err(Box::new(StartError { error, session })),
        }
    }

    /// Waits for the next piece. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// `Device` and `DeviceLost`. The generation has ended then.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>> {
        let (state, session) = self.parts();
        let has_piece = state.next(session)?;
        Ok(has_piece.then(|| self.piece()))
    }

    /// Polls for the next piece, which [`piece`](Self::piece) then returns. Returns whether there is
    /// one.
    ///
    /// # Errors
    ///
    /// See [`Generation::next_piece`].
    pub(super) fn poll(&mut self) -> Poll<Result<bool>> {
        let (state, session) = self.parts();
        state.poll(session)
    }

    /// Returns the current piece.
    pub(super) fn piece(&self) -> Piece<'_> {
        self.state.piece()
    }

    /// Ends the generation if it runs. The sequence keeps the tokens of the pieces returned so far,
    /// and no others. [`next_piece`](Self::next_piece) then returns only text that was held back.
    ///
    /// # Errors
    ///
    /// None: the next call that uses the device returns a failure of it.
    pub fn stop(&mut self) -> Result<()> {
        let (state, session) = self.parts();
        state.stop(session);
        Ok(())
    }

    /// Continues a generation that ended with an error of the device, on another load of the model. The next piece
    /// follows the last one: grammar, stop strings and limits continue, and the text is the same as without the error,
    /// except with Mirostat, whose state starts again. A [draft model](crate::SpeculateOptions::Draft) is not replaced:
    /// if it was lost as well, the generation goes on without it.
    ///
    /// # Errors
    ///
    /// `State` if the generation has not failed, and those of [`Session::move_to`]. It can be called again then.
    pub fn resume(&mut self, model: &Model) -> Result<()> {
        let (state, session) = self.parts();
        state.resume_on(session, model)
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> Stats {
        let session = self.session.as_ref().expect(HAS_SESSION);
        self.state.stats(session.borrow())
    }

    /// Returns the stop string of [`GenerateOptions::stop`] that ended the output. `None` before the
    /// end, and if anything else ended it. If several begin at the same position, the first one in
    /// the list counts.
    pub fn stop_string(&self) -> Option<&str> {
        self.state.stop_string()
    }

    /// Ends the generation and returns its session.
    pub fn into_session(mut self) -> S {
        self.end();
        self.session.take().expect(HAS_SESSION)
    }

    /// Returns the model that computes the generation.
    pub(super) fn model(&self) -> &Model {
        let session = self.session.as_ref().expect(HAS_SESSION);
        session.borrow().model()
    }

    fn parts(&mut self) -> (&mut GenerationState, &mut Session) {
        let session = self.session.as_mut().expect(HAS_SESSION);
        (&mut self.state, session.borrow_mut())
    }

    /// Ends the generation if it runs. Ignores an error, which the next call on the session returns
    /// again.
    fn end(&mut self) {
        let _ = self.stop();
    }
}

/// Why a generation has a session.
const HAS_SESSION: &str = "only `into_session` takes the session, and it consumes the generation";

impl<S: AsSession> Iterator for Generation<S> {
    type Item = Result<OwnedPiece>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.next_piece().transpose()?;
        Some(piece.map(Piece::into_owned))
    }
}

impl<S: AsSession> Drop for Generation<S> {
    fn drop(&mut self) {
        // An owned session requests the end when it is dropped. Its sequence is not needed again.
        if S::IS_BORROWED && self.session.is_some() {
            self.end();
        }
    }
}
