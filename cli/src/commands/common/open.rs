//! Loads a model: a bar for those who wait, and a line for what they should know.

use crate::args::{SpeculationArgs, source_name};
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use std::path::Path;
use std::time::{Duration, Instant};
use tabla::{Facts, LoadOptions, Model, Profile, STAGES, Source, SpeculateOptions, Tuned};

/// A loaded model and what loading found.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) profile: Profile,
    pub(crate) took: Duration,
}

/// Loads a model, with a bar.
pub(crate) fn model(source: &Source, options: &LoadOptions) -> Result<Opened, Failure> {
    let start = Instant::now();
    let bar = Progress::new(&format!("loading {}", source_name(source)), STAGES.into());
    let model = tabla::load(source, options, &mut |progress| {
        bar.at(progress.ended.into());
    })?;
    drop(bar);
    let profile = model.profile().clone();
    Ok(Opened {
        model,
        profile,
        took: start.elapsed(),
    })
}

/// Returns the source of draft tokens. A draft model is loaded with the options of the main model.
pub(crate) fn speculate(
    args: &SpeculationArgs,
    options: &LoadOptions,
) -> Result<SpeculateOptions, Failure> {
    match &args.model_draft {
        None if args.lookup => Ok(SpeculateOptions::Lookup),
        None => Ok(SpeculateOptions::Off),
        Some(path) => {
            let source = Source::Path(path.clone());
            Ok(SpeculateOptions::Draft(model(&source, options)?.model))
        }
    }
}

/// The file of a tuning that is followed.
pub(crate) fn tuning(facts: &Facts) -> Option<&Path> {
    match &facts.tuned {
        Tuned::Applied(path) => Some(path),
        Tuned::None | Tuned::Ignored(_) => None,
    }
}

/// Says which tuning is followed, or why one is not.
pub(crate) fn note_tuning(facts: &Facts) {
    match &facts.tuned {
        Tuned::None => {}
        Tuned::Applied(path) => {
            let path = path.to_string_lossy();
            terminal::note(&format!("tuned by {}", terminal::one_line(&path)));
        }
        Tuned::Ignored(why) => {
            let why = terminal::one_line(why);
            terminal::note(&format!("not tuned: {why}; `tabla tune` measures anew"));
        }
    }
}

impl Opened {
    /// Says what the user did not ask for and got.
    pub(crate) fn notes(&self, source: &Source) {
        let facts = self.model.facts();
        if matches!(source, Source::BuiltIn) {
            let megabytes = facts.file_bytes as f64 / 1e6;
            terminal::note(&format!(
                "built-in story model ({megabytes:.1} MB); -m FILE takes another"
            ));
        }
        if let Some(why) = &facts.fallback {
            let (why, device) = (terminal::one_line(why), terminal::one_line(&facts.device));
            terminal::note(&format!("{why}: running on the CPU: {device}"));
        }
        if matches!(facts.tuned, Tuned::Ignored(_)) {
            note_tuning(facts);
        }
    }
}
