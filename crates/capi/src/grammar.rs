//! Grammars that constrain answers.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::chat_options::Chat;
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::options::chat::TablaChatOptions;
use super::pointers::text_of;
use super::sequence::TablaModel;
use std::ffi::c_char;
use std::sync::Arc;
use tabla::Result;
use tabla::error::bail;
use tabla::text::{AllowedToolCalls, CompiledGrammar, Grammar};

/// Any JSON object: `tabla_grammar_new`.
pub const TABLA_GRAMMAR_JSON_OBJECT: i32 = 0;
/// JSON that matches a JSON schema.
pub const TABLA_GRAMMAR_JSON_SCHEMA: i32 = 1;
/// Text that matches a regular expression as a whole.
pub const TABLA_GRAMMAR_REGEX: i32 = 2;
/// Text of a grammar in Lark syntax.
pub const TABLA_GRAMMAR_LARK: i32 = 3;
/// Text of a grammar in GBNF, the syntax of llama.cpp.
pub const TABLA_GRAMMAR_GBNF: i32 = 4;

/// A compiled grammar. Opaque.
pub struct TablaGrammar {
    compiled: Arc<CompiledGrammar>,
    part: ConstrainedPart,
}

/// The part of an answer that a grammar constrains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConstrainedPart {
    Content,
    ToolCalls,
}

impl TablaGrammar {
    pub(super) fn compiled(&self) -> Arc<CompiledGrammar> {
        Arc::clone(&self.compiled)
    }

    pub(super) fn part(&self) -> ConstrainedPart {
        self.part
    }
}

impl HandleType for TablaGrammar {
    const NAME: &'static str = "grammar";
}

/// Compiles a grammar for a model's vocabulary. Returns NULL on failure; `tabla_last_error` has the
/// reason. `kind` is one of `TABLA_GRAMMAR_*`; `text` is the grammar, NULL for any JSON object. Any
/// number of answers can use a grammar at the same time: `TablaGenerateOptions.grammar`. Texts over
/// 64 KiB, schemas over 256 KiB, and grammars that take several seconds to compile are
/// `TABLA_ERROR_TOO_LARGE`.
///
/// # Safety
///
/// `text` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_grammar_new(
    model: *const TablaModel,
    kind: i32,
    text: *const c_char,
) -> *mut TablaGrammar {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let grammar = grammar_of(kind, unsafe { text_of(text, "text") }?)?;
        let compiled = resolve(model)?.model().compile_grammar(&grammar)?;
        handles::insert(TablaGrammar {
            compiled,
            part: ConstrainedPart::Content,
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Compiles a grammar that forces a call of one of `TablaChatOptions.tools`, in the tool-call
/// format of the model's chat template. Returns NULL on failure; `tabla_last_error` has the reason.
/// `function` is the name of the tool, which is called once; NULL: any tools, one or several times
/// unless `TablaChatOptions.no_parallel_tool_calls` is set. No tools are `TABLA_ERROR_ARGUMENT`.
///
/// # Safety
///
/// `chat` points to a struct with `struct_size` set, whose pointers are NULL or C strings;
/// `function` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_grammar_new_tool_call(
    model: *const TablaModel,
    chat: *const TablaChatOptions,
    function: *const c_char,
) -> *mut TablaGrammar {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let chat = unsafe { Chat::read(chat) }?;
        // SAFETY: guaranteed by the caller.
        let function = unsafe { text_of(function, "function") }?;
        let names = [function];
        let names = if function.is_empty() { &[][..] } else { &names };
        let calls = AllowedToolCalls::default()
            .names(names)
            .parallel(chat.is_parallel && function.is_empty());
        let model = resolve(model)?;
        let model = model.model();
        let format = chat.format(model)?;
        let Some(grammar) = format.forced_tool_calls(calls, model.tokenizer())? else {
            bail!(Argument, "there are no tools to call");
        };
        handles::insert(TablaGrammar {
            compiled: model.compile_grammar(&grammar)?,
            part: ConstrainedPart::ToolCalls,
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

fn grammar_of(kind: i32, text: &str) -> Result<Grammar> {
    if text.is_empty() && kind != TABLA_GRAMMAR_JSON_OBJECT {
        bail!(Argument, "the text of the grammar is empty");
    }
    let text = text.to_string();
    Ok(match kind {
        TABLA_GRAMMAR_JSON_OBJECT => Grammar::JsonObject,
        TABLA_GRAMMAR_JSON_SCHEMA => Grammar::from_schema_text(&text)?,
        TABLA_GRAMMAR_REGEX => Grammar::Regex(text),
        TABLA_GRAMMAR_LARK => Grammar::Lark(text),
        TABLA_GRAMMAR_GBNF => Grammar::Gbnf(text),
        other => bail!(
            Argument,
            "invalid kind {other}: expected one of 0 (any JSON object), 1 (JSON schema), 2 (regex), 3 (Lark), 4 (GBNF)"
        ),
    })
}

/// Frees a grammar. Answers that use it continue.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_grammar_free(grammar: *mut TablaGrammar) -> TablaStatus {
    guard(|| handles::remove(grammar))
}
