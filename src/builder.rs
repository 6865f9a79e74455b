//! Loading a model: `Model::load` and its builder.

use crate::cancel::Cancel;
use crate::decode::Model;
use crate::error::Result;
use crate::load::{LoadOptions, Progress};
use std::fmt;
use tabla_load::load_options;
use tabla_load::source::Source;

impl Model {
    /// Loads a model with the default options, and starts the thread that owns its device. `source`
    /// is a path, [`Source::bytes`], or [`Source::BuiltIn`].
    ///
    /// # Errors
    ///
    /// See [`ModelBuilder::load`].
    pub fn load(source: impl Into<Source>) -> Result<Self> {
        Self::builder(source).load()
    }

    /// Returns a builder that loads a model with options.
    pub fn builder<'a>(source: impl Into<Source>) -> ModelBuilder<'a> {
        ModelBuilder {
            source: source.into(),
            options: LoadOptions::default(),
            on_progress: Box::new(|_| {}),
        }
    }
}

/// Builder that loads a model with options, returned by [`Model::builder`]. It has a setter for
/// each field of [`LoadOptions`].
///
/// Cancel loading from another thread:
///
/// ```
/// use tabla::{Cancel, Model, Source};
///
/// let cancel = Cancel::new();
/// let handle = cancel.clone(); // for another thread, which calls handle.cancel()
/// # drop(handle);
/// let model = Model::builder(Source::BuiltIn).threads(2).cancel(cancel).load()?;
/// # Ok::<(), tabla::Error>(())
/// ```
pub struct ModelBuilder<'a> {
    source: Source,
    options: LoadOptions,
    on_progress: Box<dyn FnMut(&Progress) + 'a>,
}

impl<'a> ModelBuilder<'a> {
    load_options! { tabla_core::setters, [options] }

    /// Replaces all options, including those that were set before.
    #[must_use]
    pub fn options(mut self, options: LoadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets a callback that is called after each loading stage.
    #[must_use]
    pub fn on_progress(mut self, report: impl FnMut(&Progress) + 'a) -> Self {
        self.on_progress = Box::new(report);
        self
    }

    /// Loads the model and starts the thread that owns its device.
    ///
    /// # Errors
    ///
    /// The message names the stage that failed, as in `stage 3 format: ...`. `Cancelled` after
    /// [`Cancel::cancel`]. All resources are released on failure.
    pub fn load(mut self) -> Result<Model> {
        Model::new(tabla_load::load_model(
            &self.source,
            &self.options,
            &mut *self.on_progress,
        )?)
    }
}

impl fmt::Debug for ModelBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelBuilder")
            .field("source", &self.source)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
