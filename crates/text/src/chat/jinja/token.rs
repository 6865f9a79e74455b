//! Tokens of a template.

use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Text(Arc<str>),
    OutputStart,
    BlockStart,
    /// The end of an output or block tag.
    TagEnd,
    Name(Arc<str>),
    Str(Arc<str>),
    Int(i128),
    Float(f64),
    Operator(&'static str),
}
