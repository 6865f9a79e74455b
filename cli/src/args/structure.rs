//! Options for structured output and speculation.

use super::text_file;
use crate::output::Failure;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tabla::load::{DraftingHead, GpuSpeculation, LoadOptions};
use tabla::text::{CompiledGrammar, Grammar};
use tabla::{Model, Source};

/// Constraints on the generated text.
#[derive(Args, Debug)]
#[command(next_help_heading = "Structured output")]
#[group(multiple = false)]
pub(crate) struct StructureArgs {
    /// GBNF grammar that constrains the generated text
    #[arg(long, value_name = "GBNF")]
    grammar: Option<String>,
    /// File with a GBNF grammar
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
    /// JSON schema that constrains the generated text; {} allows any JSON object
    #[arg(short, long, value_name = "JSON")]
    json_schema: Option<String>,
    /// File with a JSON schema
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
}

impl StructureArgs {
    /// Compiles the grammar or schema for a model.
    pub(crate) fn grammar(&self, model: &Model) -> Result<Option<Arc<CompiledGrammar>>, Failure> {
        let grammar = match (self.gbnf()?, self.schema()?) {
            (Some(text), _) => Grammar::Gbnf(text),
            (None, Some(text)) => Grammar::from_schema_text(&text)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(model.compile_grammar(&grammar)?))
    }

    fn gbnf(&self) -> Result<Option<String>, Failure> {
        let file = self
            .grammar_file
            .as_deref()
            .map(text_file::read)
            .transpose()?;
        Ok(self.grammar.clone().or(file))
    }

    fn schema(&self) -> Result<Option<String>, Failure> {
        let file = self
            .json_schema_file
            .as_deref()
            .map(text_file::read)
            .transpose()?;
        Ok(self.json_schema.clone().or(file))
    }
}

/// Speculative decoding. It changes the speed of generation and not the tokens.
#[derive(Args, Debug)]
#[command(next_help_heading = "Speculation")]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(crate) struct SpeculationArgs {
    /// Speculate with prompt lookup: draft tokens that followed earlier occurrences of the last tokens.
    /// Disabled automatically while it is slower
    #[arg(long, conflicts_with_all = ["model_draft", "mtp"])]
    pub(crate) lookup: bool,
    /// Speculate with the drafting head of the model for multi-token prediction (MTP). Disabled automatically
    /// while it is slower
    #[arg(long, conflicts_with = "model_draft")]
    pub(crate) mtp: bool,
    /// Speculate with a smaller draft model that has the same vocabulary, or with an EAGLE-3 drafter of the
    /// model. Disabled automatically while it is slower
    #[arg(long, value_name = "FILE")]
    pub(crate) model_draft: Option<PathBuf>,
}

impl SpeculationArgs {
    /// Adds what speculation needs of the model to its load options.
    pub(crate) fn add_to(&self, options: LoadOptions) -> Result<LoadOptions, Failure> {
        let speculates = self.lookup || self.mtp || self.model_draft.is_some();
        let gpu = match speculates {
            true => GpuSpeculation::On,
            false => GpuSpeculation::Off,
        };
        let head = match &self.model_draft {
            None if self.mtp => DraftingHead::Mtp,
            Some(path) if is_drafter(path)? => DraftingHead::Eagle3(path.clone()),
            _ => DraftingHead::None,
        };
        Ok(options.gpu_speculation(gpu).drafting_head(head))
    }
}

/// Returns whether a file or folder is an EAGLE-3 drafter rather than a model.
fn is_drafter(path: &Path) -> Result<bool, Failure> {
    let files = tabla::tools::open_directory(&Source::Path(path.to_path_buf()))?;
    let architecture = files.metadata.str("general.architecture")?;
    Ok(architecture == Some("eagle3"))
}
