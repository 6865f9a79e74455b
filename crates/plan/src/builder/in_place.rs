//! Operations that change activations in place, with a method for each row of the list of operations that ends
//! with `per element` or `per row`.

use super::base::Builder;
use super::operand::{W, X};
use tabla_core::for_each_op;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::Slot;

/// An operand that is combined with `y`.
trait Operand: Copy {
    /// Returns its slot, after a check that its shape fits `y`.
    fn fitting(self, op: Op, y: X, builder: &mut Builder<'_>) -> Slot;
}

impl Operand for X {
    fn fitting(self, _: Op, y: X, builder: &mut Builder<'_>) -> Slot {
        builder.check_same_shape(self, y);
        self.slot
    }
}

/// A vector of the columns of `y`.
impl Operand for W {
    fn fitting(self, op: Op, y: X, builder: &mut Builder<'_>) -> Slot {
        if [self.rows, self.cols] != [1, y.cols] {
            builder.fail(format!(
                "shape mismatch: {} expects a vector of {}, got [{}, {}]",
                op.name(),
                y.cols,
                self.rows,
                self.cols
            ));
        }
        self.slot
    }
}

/// Type of an operand: `x` are activations, others weights.
macro_rules! operand {
    (x) => {
        X
    };
    ($weight:ident) => {
        W
    };
}

/// Number of work items per token.
macro_rules! work {
    (element, $y:ident) => {
        $y.cols
    };
    (row, $y:ident) => {
        1
    };
}

/// The method of a row. Operands before `y` are collected in brackets.
macro_rules! method {
    ([$($formula:literal)+] $op:ident $stem:ident [$($x:ident)*] y: update, state: read; $unit:ident($($value:ident: $type:ty),*)) => {
        #[doc = "Emits"]
        $(#[doc = $formula])+
        pub fn $stem(&mut self, $($x: operand!($x),)* y: X, $($value: $type),*) {
            let params = params::$stem::Params {
                tokens: y.tokens,
                dim: y.cols,
                $($value,)*
            };
            let slots = [$($x.fitting(Op::$op, y, self),)* y.slot, self.state];
            self.emit(Op::$op, None, &slots, &params, [work!($unit, y), y.tokens]);
        }
    };
    ($formula:tt $op:ident $stem:ident [$($x:ident)*] $next:ident: read, $($rest:tt)*) => {
        method! { $formula $op $stem [$($x)* $next] $($rest)* }
    };
    // Not an operation in place.
    ($formula:tt $op:ident $stem:ident $operands:tt $($operand:ident: $access:ident),+;) => {};
}

macro_rules! methods {
    ($($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+) $(per $unit:ident($($value:ident: $type:ty),*))?;)+) => {
        impl Builder<'_> {
            $(method! {
                [$($formula)+] $op $stem [] $($operand: $access),+; $($unit($($value: $type),*))?
            })+
        }
    };
}
for_each_op!(methods);
