//! Hooks of a session, and the values that they captured.

use super::captured::Captured;
use super::hooks::Hooks;
use super::output_request::OutputRequest;
use super::rows::{output_width, zeroed};
use super::session::Session;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::op::params::Row;
use crate::op::table::BufferId;

impl Session {
    /// Sets the hooks of the session, or removes them. Tokens that are in the sequence are computed again
    /// when they are needed.
    ///
    /// # Errors
    ///
    /// `Argument` if the hooks belong to another model.
    pub fn set_hooks(&mut self, hooks: Option<&Hooks>) -> Result<()> {
        if let Some(hooks) = hooks {
            self.model.check_hooks(hooks)?;
        }
        let adapters = hooks.map(Hooks::default_scales).transpose()?;
        self.end_leaked();
        self.hooks = hooks.cloned();
        self.adapters = adapters;
        self.start_again();
        Ok(())
    }

    /// Sets the scales of the adapters of the hooks, in the order of
    /// [`Model::hooks_with`](crate::Model::hooks_with); 0 disables an adapter. Tokens that are in the
    /// sequence are computed again when they are needed.
    ///
    /// # Errors
    ///
    /// `State` without hooks; `Argument` for a wrong number of scales or one that is not finite.
    pub fn set_adapter_scales(&mut self, scales: &[f32]) -> Result<()> {
        let Some(hooks) = &self.hooks else {
            bail!(State, "the session has no hooks with adapters");
        };
        let scales = hooks.scales(scales)?;
        self.end_leaked();
        self.adapters = Some(scales);
        self.start_again();
        Ok(())
    }

    /// Forgets everything that was computed.
    fn start_again(&mut self) {
        self.captured = self.hooks.as_ref().and_then(Hooks::captured);
        self.cached = 0;
    }

    /// Computes all tokens and returns the values that the hooks captured. With
    /// [`CapturePositions::Last`](crate::CapturePositions::Last), the row of the last token.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence and without hooks that capture; `Memory`; `Cancelled` after
    /// [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn captured(&mut self) -> Result<&Captured> {
        self.end_leaked();
        if self.captured.is_none() {
            bail!(State, "the session has no hooks that capture values");
        }
        if !self.model.is_encoder() {
            self.check_sequence()?;
            // The token that a full context ends with has no position.
            let context = self.facts().context as usize;
            let missing = |captured: &Captured| captured.missing_from(context) < context;
            if self.sequence.len() <= context || self.captured.as_ref().is_some_and(missing) {
                self.check_not_full()?;
                self.compute(OutputRequest::Nothing, &mut |_, _| {})?;
            }
        } else if self
            .captured
            .as_ref()
            .is_some_and(|c| c.positions().is_empty())
        {
            bail!(State, "no text was captured");
        }
        let captured = self.captured.as_ref();
        captured.ok_or_else(|| Error::new(ErrorKind::Internal, "the captured values are missing"))
    }

    /// Removes the captured rows of tokens after the first `keep`.
    pub(super) fn truncate_captured(&mut self, keep: usize) {
        if let Some(captured) = &mut self.captured {
            captured.truncate(keep);
        }
    }

    /// Computes a text and returns the values that the hooks of the session capture. The text replaces
    /// the sequence of the session. An encoder has no sequence: it computes the text in one pass, and
    /// [`Session::captured`] returns the values of the last text.
    ///
    /// # Errors
    ///
    /// `State` without hooks that capture; `TooLarge` if the text exceeds the context; `Argument` for
    /// an empty text and a token outside the vocabulary; `Memory`; `Cancelled` after
    /// [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn capture(&mut self, tokens: &[u32]) -> Result<&Captured> {
        if tokens.is_empty() {
            bail!(Argument, "the text is empty");
        }
        if self.model.is_encoder() {
            self.capture_encoder(tokens)?;
        } else {
            self.reset();
            self.prefill(tokens)?;
        }
        self.captured()
    }

    fn capture_encoder(&mut self, tokens: &[u32]) -> Result<()> {
        let captured = self.hooks.as_ref().and_then(Hooks::captured);
        let (Some(hooks), Some(mut captured)) = (self.hooks.clone(), captured) else {
            bail!(State, "the session has no hooks that capture values");
        };
        let table = self.model.encoder_table();
        let max = table.map_or(0, |table| table.tokens as usize);
        let width = table.map_or(0, output_width);
        let limit = max.min(self.embedding_max_tokens() as usize);
        if tokens.len() > limit {
            bail!(
                TooLarge,
                "the text has {} tokens, expected at most {limit}",
                tokens.len()
            );
        }
        let facts = self.model.facts();
        if let Some(bad) = tokens.iter().find(|token| **token >= facts.vocab) {
            let vocab = facts.vocab;
            bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
        }
        let rows = (0..).zip(tokens).map(|(position, &token)| Row {
            token,
            position,
            ..Row::default()
        });
        let rows: Vec<Row> = rows.collect();
        let hidden = zeroed(rows.len() * width)?;
        let adapters = self.adapters.clone();
        let captured = self.model.call(move |engine| {
            (engine.linked.check_files)()?;
            engine.embed(Some(&hooks), adapters.as_ref(), &rows, hidden)?;
            let run = 0..rows.len();
            let row_bytes = captured.width() * size_of::<f32>();
            captured.store(&run, run.end - 1, |rows, out| {
                let bytes = bytemuck::cast_slice_mut(out);
                let buffer = BufferId::Captured(hooks.id());
                let executor = &mut engine.linked.executor;
                executor.read(buffer, rows.start * row_bytes, bytes)
            })?;
            Ok(captured)
        })?;
        self.captured = Some(captured);
        Ok(())
    }
}
