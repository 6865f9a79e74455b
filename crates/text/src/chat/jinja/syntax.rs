//! The syntax tree of a template.

use std::sync::Arc;

/// Number of a variable name in [`Program::names`].
pub(super) type NameId = u32;

/// A parsed template.
#[derive(Debug)]
pub(in crate::chat) struct Program {
    pub(super) body: Vec<Node>,
    pub(super) names: Vec<Arc<str>>,
    pub(super) blocks: Vec<Arc<Block>>,
}

/// A statement and its line.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) statement: Statement,
}

#[derive(Debug)]
pub(super) enum Statement {
    Text(Arc<str>),
    Output(Expr),
    /// Conditions with their bodies, and the body of `else`.
    If(Vec<(Expr, Vec<Node>)>, Vec<Node>),
    For(Arc<For>),
    Set(Target, Expr),
    /// `{% set x %}...{% endset %}`; the filters are applied to [`Expr::Captured`].
    SetBlock(Target, Expr, Vec<Node>),
    With(Vec<(Target, Expr)>, Vec<Node>),
    Macro(Arc<Macro>),
    /// A call with the body as the macro `caller`.
    Call(Call, Arc<Macro>),
    /// `{% filter f %}...{% endfilter %}`; the filters are applied to [`Expr::Captured`].
    Filter(Expr, Vec<Node>),
    Block(Arc<Block>),
    /// A body with variables of its own: `{% generation %}`.
    Scope(Vec<Node>),
    Break,
    Continue,
    /// A statement that needs other templates.
    Unsupported(&'static str),
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expr,
    pub(super) condition: Option<Expr>,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
    pub(super) recursive: bool,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) id: NameId,
    pub(super) parameters: Vec<NameId>,
    pub(super) parameter_names: Vec<Arc<str>>,
    /// Default values of the last parameters.
    pub(super) defaults: Vec<Expr>,
    /// Ids of `caller`, `kwargs` and `varargs`, if the body uses them.
    pub(super) implicit: [Option<NameId>; 3],
    pub(super) body: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) name: Arc<str>,
    pub(super) visibility: Visibility,
    pub(super) required: bool,
    pub(super) body: Vec<Node>,
}

/// Which variables the body of a block can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Global,
    Scoped,
}

/// What an assignment assigns to.
#[derive(Debug)]
pub(super) enum Target {
    Name(NameId),
    Attribute(NameId, Arc<str>),
    Tuple(Vec<Self>),
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Name(NameId),
    /// The text of a block that a filter or assignment has captured.
    Captured,
    Attribute(Box<Self>, Arc<str>),
    Item(Box<Self>, Box<Self>),
    /// Object, and start, stop and step.
    Slice(Box<Self>, Box<[Option<Self>; 3]>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Plus(Box<Self>),
    Binary(Binary, Box<[Self; 2]>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Concat(Vec<Self>),
    Compare(Box<Self>, Vec<(Comparison, Self)>),
    /// Condition, value, and value of `else`.
    Conditional(Box<(Self, Self, Option<Self>)>),
    Filter(Box<Apply>),
    Test(Box<Apply>),
    Call(Box<Call>),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Dict(Vec<(Self, Self)>),
}

/// A filter or a test.
#[derive(Debug)]
pub(super) struct Apply {
    pub(super) name: Arc<str>,
    pub(super) operand: Expr,
    pub(super) arguments: Arguments,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) callee: Expr,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expr>,
    pub(super) keywords: Vec<(Arc<str>, Expr)>,
    /// `*list`.
    pub(super) list: Option<Expr>,
    /// `**dict`.
    pub(super) dict: Option<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
