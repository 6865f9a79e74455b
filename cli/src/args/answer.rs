//! The arguments of commands that answer, beside how tokens are picked: the grammar that an answer
//! follows, and guesses at its tokens.

use crate::output::Failure;
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use tabla::text::{CompiledGrammar, Grammar};
use tabla::{Model, StepTables};

/// What an answer may be.
#[derive(Args, Debug)]
#[command(next_help_heading = "Structure")]
#[group(multiple = false)]
pub(crate) struct StructureArgs {
    /// A grammar in GBNF that the answer follows
    #[arg(long, value_name = "GBNF")]
    grammar: Option<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
    /// A JSON schema that the answer follows; {} is any JSON object
    #[arg(short, long, value_name = "JSON")]
    json_schema: Option<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
}

impl StructureArgs {
    /// The grammar that was asked for, for a model.
    pub(crate) fn grammar(&self, model: &Model) -> Result<Option<Arc<CompiledGrammar>>, Failure> {
        let grammar = match (self.gbnf()?, self.schema()?) {
            (Some(text), _) => Grammar::Gbnf(text),
            (None, Some(text)) => {
                let schema = serde_json::from_str(&text);
                let schema = schema.map_err(|e| Failure::new(format!("the schema: {e}")))?;
                match schema {
                    serde_json::Value::Object(keys) if keys.is_empty() => Grammar::JsonObject,
                    schema => Grammar::JsonSchema(schema),
                }
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(model.compile_grammar(&grammar)?))
    }

    fn gbnf(&self) -> Result<Option<String>, Failure> {
        let file = self.grammar_file.as_ref().map(read).transpose()?;
        Ok(self.grammar.clone().or(file))
    }

    fn schema(&self) -> Result<Option<String>, Failure> {
        let file = self.json_schema_file.as_ref().map(read).transpose()?;
        Ok(self.json_schema.clone().or(file))
    }
}

/// The bounds of grammars are far below this.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn read(path: &PathBuf) -> Result<String, Failure> {
    let failed = |e| Failure::new(format!("{}: {e}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let mut file = file.take(FILE_BYTES_MAX + 1);
    let bytes = file.read_to_string(&mut text).map_err(failed)?;
    if bytes as u64 > FILE_BYTES_MAX {
        let message = format!("{}: over {FILE_BYTES_MAX} bytes", path.display());
        return Err(Failure::new(message));
    }
    Ok(text)
}

/// DraftStats at the tokens to come, which change how fast they come and nothing else.
#[derive(Args, Debug)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// DraftStats what stood behind the last tokens before, as long as that pays
    #[arg(long, conflicts_with = "model_draft")]
    pub(crate) lookup: bool,
    /// A smaller model with the same vocabulary that guesses, as long as that pays
    #[arg(long, value_name = "FILE")]
    pub(crate) model_draft: Option<PathBuf>,
}

impl SpeculationArgs {
    /// The tables that check guesses, where there are any.
    pub(crate) fn steps(&self) -> StepTables {
        match self.lookup || self.model_draft.is_some() {
            true => StepTables::MultiRow,
            false => StepTables::SingleRow,
        }
    }
}
