//! The template language Jinja, as `transformers` configures it: trimmed blocks, loop controls,
//! `generation` blocks, `tojson` of Python, and the sandbox in which values are immutable.
//!
//! Templates are untrusted. Every operation is charged to a [`Budget`](budget::Budget), and the depth
//! of values and of the recursion is limited.

mod apply;
mod arguments;
mod attributes;
mod budget;
mod build;
mod calls;
mod compare;
mod cursor;
mod evaluate;
mod expressions;
mod failure;
mod filters_list;
mod filters_text;
mod format;
mod format_spec;
mod heap;
mod input;
mod json;
mod lexer;
mod literals;
mod method_names;
mod methods;
mod numbers;
mod ops;
mod parser;
mod predicates;
mod renderer;
mod repr;
mod sink;
mod statements;
mod strings;
mod syntax;
mod text_methods;
mod token;
mod value;
mod wrap;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub(super) use input::{Input, TextFunction};
pub(super) use syntax::Program;

use budget::{Budget, ConversationSize};
use failure::Outcome;
use renderer::Renderer;
use std::time::SystemTime;
use tabla_core::error::{Result, bail};
use tabla_core::reserve::{self, HAS_THREADS};
use tabla_core::utf8::without_bom;

/// Stack of the threads that parse and render.
const STACK_BYTES: usize = 64 << 20;

/// Parses a template. Line ends become `\n`, and a byte order mark is ignored.
pub(super) fn parse(source: &str) -> Result<Program> {
    let source = without_bom(source);
    if source.contains('\r') {
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        return run_on_thread(|| parser::parse(&source));
    }
    run_on_thread(|| parser::parse(source))
}

/// Renders a template with variables, after applying `text` to each string of them.
pub(super) fn render(
    program: &Program,
    variables: &[(&str, Input<'_>)],
    text: TextFunction<'_>,
    now: SystemTime,
) -> Result<String> {
    run_on_thread(|| {
        let mut size = ConversationSize::default();
        for (_, input) in variables {
            input.measure(&mut size)?;
        }
        let mut renderer = Renderer::new(program, Budget::new(size), now);
        for (name, input) in variables {
            let value = input.value(&renderer.heap, text)?;
            renderer.set_global(name, value);
        }
        let mut out = String::new();
        renderer.run(&program.body, Renderer::GLOBAL, &mut out)?;
        Ok(out)
    })
}

/// Runs a parser or a rendering on a thread with a large stack. A panic becomes an error. In builds without threads,
/// it runs on the stack of the program.
fn run_on_thread<T: Send>(work: impl FnOnce() -> Outcome<T> + Send) -> Result<T> {
    if !HAS_THREADS {
        return work().map_err(|e| e.into_error());
    }
    std::thread::scope(|scope| {
        let thread = reserve::thread("tabla-template");
        let thread = thread.map(|thread| thread.stack_size(STACK_BYTES));
        let work = || work().map_err(|e| e.into_error());
        let result = match thread.and_then(|thread| thread.spawn_scoped(scope, work)) {
            Ok(running) => running.join(),
            Err(e) => bail!(Memory, "chat template: failed to spawn a thread: {e}"),
        };
        result.unwrap_or_else(|_| bail!(Internal, "chat template: the renderer panicked"))
    })
}
