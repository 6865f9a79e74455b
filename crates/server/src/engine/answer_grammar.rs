//! The grammar of an answer: of forced tool calls, of tool calls that the model begins, and of the
//! response format. Reasoning is free.

use super::conversation::{Chat, ResponseFormat};
use super::tools::ToolChoice;
use crate::http::error::{ApiError, ApiResult};
use crate::models::Loaded;
use serde_json::Value;
use std::sync::Arc;
use tabla::text::{AllowedToolCalls, ChatFormat, CompiledGrammar, Grammar, prepare_schema};
use tabla::{GenerateOptions, GrammarStart};

/// A grammar and where it begins to apply.
type Started = (Arc<CompiledGrammar>, GrammarStart);

/// Selects the grammar of an answer.
pub(super) struct AnswerGrammar<'a> {
    pub(super) model: &'a Loaded,
    pub(super) chat: &'a Chat,
    pub(super) format: &'a ChatFormat,
    /// Receives what is not enforced.
    pub(super) warnings: &'a mut Vec<String>,
}

impl AnswerGrammar<'_> {
    /// Sets the grammar and where it begins to apply.
    pub(super) fn apply(mut self, mut options: GenerateOptions) -> ApiResult<GenerateOptions> {
        if let Some((grammar, start)) = self.select()? {
            options.grammar = Some(grammar);
            options.grammar_start = start;
        }
        Ok(options)
    }

    /// Returns the grammar and where it begins to apply.
    fn select(&mut self) -> ApiResult<Option<Started>> {
        let names = match &self.chat.tool_choice {
            ToolChoice::Named(name) => vec![name.as_str()],
            _ => Vec::new(),
        };
        let allowed = AllowedToolCalls::default()
            .names(&names)
            .parallel(self.chat.permits_several_calls());
        let has_tools = !self.chat.tools.is_empty();
        if has_tools && self.chat.tool_choice != ToolChoice::None {
            self.check_combination()?;
        }
        match &self.chat.tool_choice {
            ToolChoice::Required | ToolChoice::Named(_) => {
                let forced = self.forced(allowed)?;
                let compiled = self.model.model.compile_grammar(&forced);
                Ok(Some((
                    compiled.map_err(|error| ApiError::in_field("tools", error))?,
                    GrammarStart::default(),
                )))
            }
            ToolChoice::Auto if has_tools => match &self.chat.response {
                ResponseFormat::Text => self.lazy(allowed),
                ResponseFormat::Grammar(..) | ResponseFormat::RelaxedSchema(..) => {
                    self.either(allowed)
                }
            },
            ToolChoice::Auto | ToolChoice::None => self.response(),
        }
    }

    /// Checks that the format of the answer can be combined with tool calls.
    fn check_combination(&self) -> ApiResult<()> {
        match &self.chat.response {
            ResponseFormat::Grammar(
                field,
                Grammar::Gbnf(_) | Grammar::Regex(_) | Grammar::Lark(_),
            ) => {
                let message =
                    "cannot be combined with tools: send one of them, or tool_choice none";
                Err(ApiError::field(*field, message))
            }
            _ => Ok(()),
        }
    }

    fn forced(&self, allowed: AllowedToolCalls<'_>) -> ApiResult<Grammar> {
        let tokenizer = self.model.model.tokenizer();
        let forced = self.format.forced_tool_calls(allowed, tokenizer);
        let forced = forced.map_err(|error| ApiError::in_field("tools", error))?;
        forced.ok_or_else(|| {
            ApiError::field("tool_choice", "a tool call of this model cannot be forced")
        })
    }

    /// Returns the grammar of tool calls that the model begins. If there is none, they are not enforced, which
    /// is an error for strict tools.
    fn lazy(&mut self, allowed: AllowedToolCalls<'_>) -> ApiResult<Option<Started>> {
        let tokenizer = self.model.model.tokenizer();
        let grammar = self.format.tool_call_grammar(allowed, tokenizer);
        let compiled = grammar.and_then(|grammar| {
            let Some((triggers, grammar)) = grammar else {
                return Ok(None);
            };
            let compiled = self.model.model.compile_grammar(&grammar)?;
            Ok(Some((compiled, GrammarStart::default().triggers(triggers))))
        });
        let is_strict = self.chat.tools.iter().any(|tool| tool.is_strict);
        match compiled {
            Ok(compiled) => Ok(compiled),
            Err(error) if is_strict => Err(ApiError::in_field("tools", error)),
            Err(error) => {
                let message = format!("tools: the schemas are not enforced: {error}");
                self.warnings.push(message);
                Ok(None)
            }
        }
    }

    /// Returns the grammar of a tool call or an answer in the response format.
    fn either(&mut self, allowed: AllowedToolCalls<'_>) -> ApiResult<Option<Started>> {
        let (field, schema) = match &self.chat.response {
            ResponseFormat::Grammar(field, Grammar::JsonSchema(schema)) => (field, schema.clone()),
            ResponseFormat::RelaxedSchema(field, schema) => {
                (field, relaxed(self.model, field, schema, self.warnings)?)
            }
            ResponseFormat::Grammar(field, Grammar::JsonObject) => {
                (field, serde_json::json!({ "type": "object" }))
            }
            ResponseFormat::Grammar(..) | ResponseFormat::Text => return self.response(),
        };
        let schema = prepare_schema(&schema).map_err(|error| ApiError::in_field(field, error))?;
        let Grammar::Lark(calls) = self.forced(allowed)? else {
            return self.response();
        };
        // Both grammars have a rule of this name.
        let calls = calls.lines().map(|line| match line.strip_prefix("start:") {
            Some(rule) => format!("tool_calls:{rule}\n"),
            None => format!("{line}\n"),
        });
        let calls: String = calls.collect();
        let start = self.format.content_start(self.model.model.tokenizer());
        let text = format!("start: tool_calls | answer\nanswer: {start} %json {schema}\n{calls}");
        let compiled = self.model.model.compile_grammar(&Grammar::Lark(text));
        let compiled = compiled.map_err(|error| ApiError::in_field(field, error))?;
        Ok(Some((compiled, GrammarStart::default())))
    }

    /// Returns the grammar of the response format.
    fn response(&mut self) -> ApiResult<Option<Started>> {
        let compiled = compile(self.model, &self.chat.response, self.warnings)?;
        let start = match self.chat.continues_answer() {
            true => GrammarStart::default(),
            false => GrammarStart::of_content(self.format),
        };
        Ok(compiled.map(|grammar| (grammar, start)))
    }
}

/// Returns the grammar of a response format. `warnings` receives what is not enforced.
pub(crate) fn compile(
    model: &Loaded,
    format: &ResponseFormat,
    warnings: &mut Vec<String>,
) -> ApiResult<Option<Arc<CompiledGrammar>>> {
    let (field, grammar) = match format {
        ResponseFormat::Text => return Ok(None),
        ResponseFormat::Grammar(field, grammar) => (field, grammar.clone()),
        ResponseFormat::RelaxedSchema(field, schema) => {
            let schema = relaxed(model, field, schema, warnings)?;
            (field, Grammar::JsonSchema(schema))
        }
    };
    let compiled = model.model.compile_grammar(&grammar);
    Ok(Some(
        compiled.map_err(|error| ApiError::in_field(field, error))?,
    ))
}

/// Returns the parts of a schema that a grammar can express.
fn relaxed(
    model: &Loaded,
    field: &'static str,
    schema: &Value,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let relaxed = model.model.grammar_engine()?.relax(schema);
    let relaxed = relaxed.map_err(|error| ApiError::in_field(field, error))?;
    let named = relaxed.warnings.iter();
    warnings.extend(named.map(|warning| format!("{field}: {warning}")));
    Ok(relaxed.schema)
}
