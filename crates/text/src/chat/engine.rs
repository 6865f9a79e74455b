//! The template engine: minijinja with the additions of `transformers`, and with resource limits.
//!
//! Each rendering compiles the template, which takes less time than decoding a token. The compiled
//! instructions are rewritten so that all that create strings or lists are charged to a [`Budget`].
//! That uses minijinja's unstable API, so its version is pinned.

use super::budget::{Budget, ConversationSize, template_error};
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

/// Name of the template in error messages.
const NAME: &str = "chat template";
/// Maximum recursion depth of macros and loops.
const RECURSION_MAX: usize = 100;
/// Maximum length of a `strftime_now` format in bytes.
const FORMAT_BYTES_MAX: usize = 256;

// Functions called by rewritten instructions. Template code cannot spell these names.
const CHARGE: &str = "<charge>";
const CLOCK: &str = "<clock>";
const CONCAT: &str = "~";
const MULTIPLY: &str = "*";

/// Stack for recursion: parsing recurses with tag length, dropping with value nesting.
const STACK_BYTES: usize = 64 << 20;

/// Compiles a template to report errors.
pub(super) fn check(source: &str) -> error::Result<()> {
    run_on_thread(|| compile(&prepare(source, syntax()?)?).map(drop))
}

/// Renders a template with the variables in `root`.
pub(super) fn render(
    source: &str,
    root: Value,
    size: ConversationSize,
    now: SystemTime,
) -> error::Result<String> {
    run_on_thread(|| {
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

/// Runs the engine on a thread with a large stack. A panic of the engine becomes an error.
fn run_on_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> error::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tabla-template".to_string());
        let thread = thread.stack_size(STACK_BYTES);
        let result = match thread.spawn_scoped(scope, || work().map_err(|e| convert_error(&e))) {
            Ok(running) => running.join(),
            Err(e) => bail!(Memory, "{NAME}: failed to spawn a thread: {e}"),
        };
        result.unwrap_or_else(|_| bail!(Format, "{NAME}: the template engine panicked"))
    })
}

/// Converts an error of the engine. Returns the wrapped error of this crate if there is one.
fn convert_error(error: &Error) -> error::Error {
    let location = match error.line() {
        Some(line) => format!("{NAME}, line {line}"),
        None => NAME.to_string(),
    };
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(ours) = inner.downcast_ref::<error::Error>() {
            return error::Error::new(ours.kind(), format_args!("{location}: {}", ours.message()));
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
    error::Error::new(kind, format_args!("{location}: {message}"))
}

/// Whitespace control as in `transformers`.
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
        let message = format!("block {name}: template inheritance is not supported");
        return Err(template_error(Kind::Unsupported, &message));
    }
    Ok(instrument(&code, source))
}

/// Rewrites a program to charge the values that it creates to the budget.
fn instrument<'s>(code: &Instructions<'s>, source: &'s str) -> Instructions<'s> {
    use Instruction as I;
    let charge = [I::DupTop, I::CallFunction(CHARGE, Some(1)), I::DiscardTop];
    let mut program: Vec<(I<'s>, u16)> = Vec::new();
    // New address of each instruction, for jump targets.
    let mut addresses = Vec::new();
    for (at, instruction) in (0..).map_while(|at| Some((at, code.get(at)?))) {
        addresses.push(u32::try_from(program.len()).unwrap_or(u32::MAX));
        let line = code.get_line(at).and_then(|line| u16::try_from(line).ok());
        let mut add = |new: I<'s>| program.push((new, line.unwrap_or(0)));
        match instruction {
            // The formatter charges the text.
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
            *to = addresses.get(*to as usize).copied().unwrap_or(u32::MAX);
        }
        out.add_with_line(instruction, line);
    }
    out
}

/// Returns an environment whose globals, filters and methods charge the budget.
fn environment(budget: &Arc<Budget>, now: SystemTime) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_recursion_limit(RECURSION_MAX);
    env.set_fuel(Some(budget.fuel()));
    env.remove_global("debug");
    env.add_global(ONE, 1);

    let b = Arc::clone(budget);
    env.set_formatter(move |out, _, value| b.write_to(out, |out| python::write_str(value, out)));
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
        Err::<Value, _>(template_error(Kind::Argument, &message))
    });
    env.add_function("strftime_now", move |format: &str| {
        if format.len() > FORMAT_BYTES_MAX {
            let bytes = format.len();
            let message = format!(
                "strftime_now: a format of {bytes} bytes exceeds the limit of {FORMAT_BYTES_MAX}"
            );
            return Err(template_error(Kind::TooLarge, &message));
        }
        strftime(now, format).map_err(|directive| {
            let message = format!("strftime_now: unknown directive {directive}");
            template_error(Kind::Unsupported, &message)
        })
    });
    filters::add(&mut env, budget);
    env
}

/// `*` of two numbers, or of a string or list and a count.
fn multiply(budget: &Budget, left: &Value, right: &Value) -> Result<Value, Error> {
    let (sequence, count) = if left.is_number() {
        (right, left)
    } else {
        (left, right)
    };
    let is_sequence = matches!(sequence.kind(), ValueKind::String | ValueKind::Seq);
    if is_sequence && let Some(count) = count.as_i64() {
        let count = usize::try_from(count).unwrap_or(0);
        let Some(text) = sequence.as_str() else {
            let items: Vec<Value> = sequence.try_iter()?.collect();
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
    let invalid = || {
        let (a, b) = (left.kind(), right.kind());
        Error::new(
            ErrorKind::InvalidOperation,
            format!("cannot multiply {a} by {b}"),
        )
    };
    if left.is_integer() && right.is_integer() {
        let product = left.as_i64().zip(right.as_i64());
        let product = product.and_then(|(a, b)| a.checked_mul(b));
        return product.map(Value::from).ok_or_else(invalid);
    }
    if !left.is_number() || !right.is_number() {
        return Err(invalid());
    }
    Ok(Value::from(
        f64::try_from(left.clone())? * f64::try_from(right.clone())?,
    ))
}
