//! Tests of operations: cases, and the results that a formula in f64 expects.

#![expect(
    clippy::cast_possible_truncation,
    reason = "formulas are rounded to f32"
)]

mod attention;
mod common;
mod elementwise;
mod ends;
mod experts;
mod hooks;
mod products;
mod recurrent;
pub mod samplers;
mod speech;
mod streams;
mod ternary;

use crate::case::Case;
use crate::rig::Outcome;
pub use common::activation;
use tabla_core::op::list::Op;
use tabla_core::with_kind;

/// Expected elements of operands after an operation, by name.
pub type Expected = Vec<(&'static str, Vec<f32>)>;

/// An operation with test cases.
#[diagnostic::on_unimplemented(
    message = "the operation `{Self}` has no test cases",
    note = "implement `Tested` for it in crates/testkit/src/ops/: its cases and its formula in f64"
)]
trait Tested {
    /// Shapes and parameters, at least one.
    const CASES: &'static [Case];

    /// Returns the expected results with `live` active rows; empty for operations with separate tests.
    fn expected(o: &Outcome, live: usize) -> Expected;

    /// Returns the elements of an operand after the operation, 0 where they are undefined.
    fn defined(o: &Outcome, name: &str, _live: usize) -> Vec<f32> {
        o.results(name)
    }
}

/// Returns the number of active rows.
fn live(o: &Outcome) -> usize {
    o.case.live.min(o.case.tokens) as usize
}

/// Returns the cases of an operation, at least one.
pub fn cases(op: Op) -> &'static [Case] {
    with_kind!(op, |K| <K as Tested>::CASES)
}

/// Returns the expected results of an operation; empty for operations with separate tests.
pub fn expected(op: Op, o: &Outcome) -> Expected {
    with_kind!(op, |K| <K as Tested>::expected(o, live(o)))
}

/// Returns the elements of an operand after an operation, 0 where they are undefined.
pub fn defined(op: Op, o: &Outcome, name: &str) -> Vec<f32> {
    with_kind!(op, |K| <K as Tested>::defined(o, name, live(o)))
}
