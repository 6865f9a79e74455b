//! Loading of models, with a progress bar and notes.

use crate::args::{SpeculationArgs, source_name};
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use std::path::Path;
use std::time::{Duration, Instant};
use tabla::device::Profile;
use tabla::load::{DraftingHead, LoadOptions, STAGES};
use tabla::{Facts, Model, Source, SpeculateOptions, Tuned};

/// A loaded model.
pub(crate) struct LoadedModel {
    pub(crate) model: Model,
    pub(crate) profile: Profile,
    pub(crate) took: Duration,
}

/// Loads a model with a progress bar.
pub(crate) fn model(source: &Source, options: &LoadOptions) -> Result<LoadedModel, Failure> {
    let start = Instant::now();
    let bar = Progress::new(&format!("loading {}", source_name(source)), STAGES.into());
    let model = Model::builder(source.clone())
        .options(options.clone())
        .on_progress(|progress| {
            bar.set_position(progress.ended.into());
        })
        .load()?;
    drop(bar);
    let profile = model.profile().clone();
    Ok(LoadedModel {
        model,
        profile,
        took: start.elapsed(),
    })
}

/// Whether a model has a chat template, or special tokens that identify a built-in one.
pub(crate) fn has_chat_template(source: &Source) -> bool {
    let templates = tabla::tools::load_chat_templates(source);
    let tokenizer = tabla::tools::load_tokenizer(source);
    match (templates, tokenizer) {
        (Ok(templates), Ok(tokenizer)) => templates.default_name(&tokenizer).is_some(),
        _ => false,
    }
}

/// Returns the source of draft tokens. A draft model is loaded with the options of the main model.
pub(crate) fn speculate(
    args: &SpeculationArgs,
    options: &LoadOptions,
) -> Result<SpeculateOptions, Failure> {
    if options.drafting_head != DraftingHead::None {
        return Ok(SpeculateOptions::Head);
    }
    match &args.model_draft {
        None if args.lookup => Ok(SpeculateOptions::Lookup),
        None => Ok(SpeculateOptions::Off),
        Some(path) => {
            let source = Source::Path(path.clone());
            Ok(SpeculateOptions::Draft(model(&source, options)?.model))
        }
    }
}

/// Returns the file of the tuning in use.
pub(crate) fn tuning(facts: &Facts) -> Option<&Path> {
    match &facts.tuned {
        Tuned::Applied(path) => Some(path),
        Tuned::None | Tuned::Ignored(_) => None,
    }
}

/// Prints the tuning in use, or why a tuning is ignored.
pub(crate) fn note_tuning(facts: &Facts) {
    match &facts.tuned {
        Tuned::None => {}
        Tuned::Applied(path) => {
            let path = path.to_string_lossy();
            terminal::note(&format!("tuning: {}", terminal::one_line(&path)));
        }
        Tuned::Ignored(reason) => {
            let reason = terminal::one_line(reason);
            terminal::note(&format!("tuning ignored: {reason}; run `tabla tune` again"));
        }
    }
}

impl LoadedModel {
    /// Prints notes about defaults and fallbacks: built-in model, CPU instead of a GPU, ignored tuning.
    pub(crate) fn print_notes(&self, source: &Source) {
        let facts = self.model.facts();
        if matches!(source, Source::BuiltIn) {
            let megabytes = facts.file_bytes as f64 / 1e6;
            terminal::note(&format!(
                "using the built-in story model ({megabytes:.1} MB); use -m FILE for another model"
            ));
        }
        if let Some(reason) = &facts.fallback {
            let reason = terminal::one_line(reason);
            let device = terminal::one_line(&facts.device);
            terminal::note(&format!("{reason}: running on the CPU: {device}"));
        }
        if matches!(facts.tuned, Tuned::Ignored(_)) {
            note_tuning(facts);
        }
    }
}
