//! A type per operation. A registry, for example of CPU kernels, implements a trait for each of them, so
//! that an operation that it lacks is an error of the compiler that names it.

use super::params;
use crate::for_each_op;
use bytemuck::Pod;
use std::fmt::Debug;

/// An operation as a type.
pub trait OpKind {
    /// Its parameters.
    type Params: Pod + Default + Debug;
}

macro_rules! kinds {
    ($($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+) $(per $unit:ident($($value:ident: $type:ty),*))?;)+) => { $(
        $(#[doc = $formula])+
        #[derive(Clone, Copy, Debug)]
        pub struct $op;

        impl OpKind for $op {
            type Params = params::$stem::Params;
        }
    )+ };
}
for_each_op!(kinds);

/// Evaluates an expression with the type of an operation: `with_kind!(op, |K| K::CASES)`.
#[macro_export]
macro_rules! with_kind {
    ($op:expr, |$kind:ident| $value:expr) => {
        $crate::for_each_op!($crate::match_kind, $op, $kind, $value;)
    };
}

/// The match of [`with_kind`].
#[macro_export]
#[doc(hidden)]
macro_rules! match_kind {
    (
        $value_of:expr, $kind:ident, $result:expr;
        $($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+) $(per $unit:ident($($value:ident: $type:ty),*))?;)+
    ) => {
        match $value_of {
            $($crate::op::list::Op::$op => {
                type $kind = $crate::op::kind::$op;
                $result
            })+
        }
    };
}
