//! The engine: minijinja with what `transformers` adds, and with limits on all that grows.
//!
//! A template is compiled anew for each rendering, which takes less time than a token, and its
//! instructions are rewritten: whatever makes text or lists is charged to a [`Budget`]. That is the
//! one use of the engine's unstable interface, so its version is pinned.

use super::budget::{Budget, Size, refuse};
use super::filters;
use super::python;
use super::source::{ONE, prepare};
use super::time::strftime;
use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::SystemTime;
use tabla_core::error::{self, ErrorKind as Kind, bail};

/// What errors call the template.
const NAME: &str = "chat template";
/// How deep macros and loops call each other.
const RECURSION_MAX: usize = 100;
/// Bytes of what `strftime_now` is asked for.
const FORMAT_BYTES_MAX: usize = 256;

// Functions behind instructions: no name in a template is spelt so.
const CHARGE: &str = "<charge>";
const CLOCK: &str = "<clock>";
const CONCAT: &str = "~";
const MULTIPLY: &str = "*";

/// Room for recursion: parsing goes as deep as a tag is long, dropping as deep as values nest.
const STACK_BYTES: usize = 64 << 20;

/// Compiles a template and forgets it: what is wrong with it is said now.
pub(super) fn check(source: &str) -> error::Result<()> {
    apart(|| compile(&prepare(source, syntax()?)?).map(drop))
}

/// Renders a template on the variables in `root`.
pub(super) fn render(
    source: &str,
    root: Value,
    size: Size,
    now: SystemTime,
) -> error::Result<String> {
    apart(|| {
        let budget = Arc::new(Budget::new(size));
        let env = environment(&budget, now);
        let source = prepare(source, syntax()?)?;
        let code = compile(&source)?;
        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        let blocks = BTreeMap::new();
        machinery::eval(&env, &code, root, &blocks, &mut out, AutoEscape::None)?;
        drop(out);
        Ok(text)
    })
}

/// Does the engine's work on a stack of its own, where a fault of the engine ends nothing else.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> error::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tabla-template".to_string());
        let thread = thread.stack_size(STACK_BYTES);
        let done = match thread.spawn_scoped(scope, || work().map_err(|e| mend(&e))) {
            Ok(running) => running.join(),
            Err(e) => bail!(Memory, "{NAME}: no thread: {e}"),
        };
        done.unwrap_or_else(|_| bail!(Format, "{NAME}: the engine cannot run it"))
    })
}

/// Our error in one of the engine's, or one that says what the engine does.
fn mend(error: &Error) -> error::Error {
    let place = match error.line() {
        Some(line) => format!("{NAME}, line {line}"),
        None => NAME.to_string(),
    };
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(ours) = inner.downcast_ref::<error::Error>() {
            return error::Error::new(ours.kind(), format_args!("{place}: {}", ours.message()));
        }
        cause = inner.source();
    }
    let kind = match error.kind() {
        ErrorKind::OutOfFuel => Kind::TooLarge,
        _ => Kind::Format,
    };
    let what = error.kind().to_string();
    let message = error
        .detail()
        .map_or(what.clone(), |detail| format!("{what}: {detail}"));
    error::Error::new(kind, format_args!("{place}: {message}"))
}

/// Whitespace as `transformers` sets it.
fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
}

fn compile(source: &str) -> Result<Instructions<'_>, Error> {
    let tree = machinery::parse(source, NAME, syntax()?)?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (code, blocks) = generator.finish();
    if let Some(name) = blocks.keys().next() {
        let message = format!("block {name}: no template extends this one");
        return Err(refuse(Kind::Unsupported, &message));
    }
    Ok(charged(&code, source))
}

/// The same program, which charges what it makes.
fn charged<'s>(code: &Instructions<'s>, source: &'s str) -> Instructions<'s> {
    use Instruction as I;
    let charge = [I::DupTop, I::CallFunction(CHARGE, Some(1)), I::DiscardTop];
    let mut program: Vec<(I<'s>, u16)> = Vec::new();
    // Where each instruction went: jumps go there, to what stands in front of it.
    let mut places = Vec::new();
    for (at, instruction) in (0..).map_while(|at| Some((at, code.get(at)?))) {
        places.push(u32::try_from(program.len()).unwrap_or(u32::MAX));
        let line = code.get_line(at).and_then(|line| u16::try_from(line).ok());
        let mut add = |new: I<'s>| program.push((new, line.unwrap_or(0)));
        match instruction {
            // Through the formatter, which charges.
            I::EmitRaw(text) => {
                add(I::LoadConst(Value::from(*text)));
                add(I::Emit);
            }
            I::StringConcat => add(I::CallFunction(CONCAT, Some(2))),
            I::Mul => add(I::CallFunction(MULTIPLY, Some(2))),
            I::Add
            | I::ApplyFilter(..)
            | I::BuildList(_)
            | I::BuildMap(_)
            | I::BuildTuple(_)
            | I::CallFunction(..)
            | I::CallMethod(..)
            | I::CallObject(_)
            | I::Slice => {
                add(instruction.clone());
                charge.iter().cloned().for_each(add);
            }
            I::Iterate(_) => {
                add(I::CallFunction(CLOCK, Some(0)));
                add(I::DiscardTop);
                add(instruction.clone());
            }
            other => add(other.clone()),
        }
    }
    let mut out = Instructions::new(NAME, source);
    for (mut instruction, line) in program {
        if let I::Iterate(to)
        | I::Jump(to)
        | I::JumpIfFalse(to)
        | I::JumpIfFalseOrPop(to)
        | I::JumpIfTrueOrPop(to)
        | I::BuildMacro(_, to, _) = &mut instruction
        {
            *to = places.get(*to as usize).copied().unwrap_or(u32::MAX);
        }
        out.add_with_line(instruction, line);
    }
    out
}

/// Globals, filters and methods, each charged to the budget where it makes something.
fn environment(budget: &Arc<Budget>, now: SystemTime) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_recursion_limit(RECURSION_MAX);
    env.set_fuel(Some(budget.fuel()));
    env.remove_global("debug");
    env.add_global(ONE, 1);

    let b = Arc::clone(budget);
    env.set_formatter(move |out, _, value| b.through(out, |out| python::write_str(value, out)));
    let b = Arc::clone(budget);
    env.add_function(CHARGE, move |value: &Value| b.charge_value(value));
    let b = Arc::clone(budget);
    env.add_function(CLOCK, move || b.check_time());
    let b = Arc::clone(budget);
    env.add_function(CONCAT, move |left: &Value, right: &Value| {
        b.text(|out| {
            python::write_str(left, out)?;
            python::write_str(right, out)
        })
    });
    let b = Arc::clone(budget);
    env.add_function(MULTIPLY, move |left: &Value, right: &Value| {
        multiply(&b, left, right)
    });
    env.add_function("raise_exception", |message: String| {
        Err::<Value, _>(refuse(Kind::Argument, &message))
    });
    env.add_function("strftime_now", move |format: &str| {
        if format.len() > FORMAT_BYTES_MAX {
            let bytes = format.len();
            let message = format!("a format of {bytes} bytes is over {FORMAT_BYTES_MAX}");
            return Err(refuse(Kind::TooLarge, &message));
        }
        strftime(now, format).map_err(|directive| {
            let message = format!("strftime_now: {directive} is not known");
            refuse(Kind::Unsupported, &message)
        })
    });
    filters::add(&mut env, budget);
    env
}

/// `*` of numbers, and of a text or a list and a count.
fn multiply(budget: &Budget, left: &Value, right: &Value) -> Result<Value, Error> {
    let (many, count) = if left.is_number() {
        (right, left)
    } else {
        (left, right)
    };
    let sequence = matches!(many.kind(), ValueKind::String | ValueKind::Seq);
    if sequence && let Some(count) = count.as_i64() {
        let count = usize::try_from(count).unwrap_or(0);
        let Some(text) = many.as_str() else {
            let items: Vec<Value> = many.try_iter()?.collect();
            budget.charge(
                size_of::<Value>()
                    .saturating_mul(items.len())
                    .saturating_mul(count),
            )?;
            let repeated = std::iter::repeat_n(items, count).flatten();
            return Ok(Value::from(repeated.collect::<Vec<_>>()));
        };
        budget.charge(text.len().saturating_mul(count))?;
        return Ok(Value::from(text.repeat(count)));
    }
    let refused = || {
        let (a, b) = (left.kind(), right.kind());
        Error::new(
            ErrorKind::InvalidOperation,
            format!("{a} * {b} has no value"),
        )
    };
    if left.is_integer() && right.is_integer() {
        let product = left.as_i64().zip(right.as_i64());
        let product = product.and_then(|(a, b)| a.checked_mul(b));
        return product.map(Value::from).ok_or_else(refused);
    }
    if !left.is_number() || !right.is_number() {
        return Err(refused());
    }
    Ok(Value::from(
        f64::try_from(left.clone())? * f64::try_from(right.clone())?,
    ))
}
