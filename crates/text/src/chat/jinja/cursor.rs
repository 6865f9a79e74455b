//! State of the parser: tokens, names, and limits of nesting.

use super::failure::{Failure, Outcome, too_large};
use super::syntax::{Block, Expr, NameId, Node, Program};
use super::token::Token;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use tabla_core::error::ErrorKind;

/// Maximum nesting depth of expressions and statements.
const DEPTH_MAX: usize = 100;
/// Maximum number of operators, attributes or filters in a row: each is one level of the tree.
const CHAIN_MAX: usize = 1000;
/// Variables that exist in a macro only if its body uses them.
const IMPLICIT: [&str; 3] = ["caller", "kwargs", "varargs"];

/// State of the parser.
pub(super) struct Parser {
    /// Tokens in reverse order.
    tokens: Vec<(Token, u32)>,
    line: u32,
    depth: usize,
    /// Number of loops around the current statement, within the current function.
    loops: usize,
    /// For each enclosing macro, which of the implicit variables it uses.
    implicit: Vec<[Option<NameId>; 3]>,
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, NameId>,
    blocks: Vec<Arc<Block>>,
}

impl Parser {
    pub(super) fn new(mut tokens: Vec<(Token, u32)>) -> Self {
        tokens.reverse();
        Self {
            tokens,
            line: 1,
            depth: 0,
            loops: 0,
            implicit: Vec::new(),
            names: Vec::new(),
            ids: HashMap::new(),
            blocks: Vec::new(),
        }
    }

    pub(super) fn finish(self, body: Vec<Node>) -> Program {
        Program {
            body,
            names: self.names,
            blocks: self.blocks,
        }
    }

    pub(super) fn add_block(&mut self, block: &Arc<Block>) -> Outcome<()> {
        if self.blocks.iter().any(|b| b.name == block.name) {
            return self.error(format_args!("block {:.40} is defined twice", block.name));
        }
        self.blocks.push(Arc::clone(block));
        Ok(())
    }

    /// Parses one level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        if self.depth >= DEPTH_MAX {
            return too_large(format_args!("nesting exceeds {DEPTH_MAX} levels"));
        }
        self.depth += 1;
        let result = parse(self)?;
        self.depth -= 1;
        Ok(result)
    }

    /// Parses the body of a loop.
    pub(super) fn looped<T>(&mut self, parse: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.loops += 1;
        let result = parse(self)?;
        self.loops -= 1;
        Ok(result)
    }

    /// Parses the body of a macro or block, which cannot leave a loop outside of it.
    pub(super) fn function<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        let loops = std::mem::take(&mut self.loops);
        let result = parse(self)?;
        self.loops = loops;
        Ok(result)
    }

    /// Parses the body of a macro. Also returns the implicit variables that it uses.
    pub(super) fn with_implicit<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<(T, [Option<NameId>; 3])> {
        self.implicit.push([None; 3]);
        let result = parse(self)?;
        Ok((result, self.implicit.pop().unwrap_or_default()))
    }

    pub(super) fn in_loop(&self) -> bool {
        self.loops > 0
    }

    /// The line of the last token that was read.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn id(&mut self, name: &Arc<str>) -> NameId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = NameId::try_from(self.names.len()).unwrap_or(NameId::MAX);
        self.names.push(Arc::clone(name));
        self.ids.insert(Arc::clone(name), id);
        id
    }

    pub(super) fn name_of(&self, id: NameId) -> Arc<str> {
        Arc::clone(&self.names[id as usize])
    }

    pub(super) fn error<T>(&self, message: impl Display) -> Outcome<T> {
        Err(Failure::new(ErrorKind::Format, message).at(self.line))
    }

    pub(super) fn unexpected<T>(&self) -> Outcome<T> {
        match self.peek() {
            Some(token) => self.error(format_args!("unexpected {}", describe(token))),
            None => self.error("unexpected end of the template"),
        }
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.last().map(|(token, _)| token)
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        let (token, line) = self.tokens.pop()?;
        self.line = line;
        Some(token)
    }

    pub(super) fn at(&self, operator: &str) -> bool {
        matches!(self.peek(), Some(Token::Operator(o)) if *o == operator)
    }

    pub(super) fn skip(&mut self, operator: &str) -> bool {
        let found = self.at(operator);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect(&mut self, operator: &str) -> Outcome<()> {
        if self.skip(operator) {
            return Ok(());
        }
        self.expected(operator)
    }

    pub(super) fn expected<T>(&self, what: &str) -> Outcome<T> {
        let found = self.peek().map_or("the end".to_string(), describe);
        self.error(format_args!("expected {what:?}, got {found}"))
    }

    pub(super) fn at_end(&self) -> bool {
        matches!(self.peek(), Some(Token::TagEnd) | None)
    }

    pub(super) fn expect_end(&mut self) -> Outcome<()> {
        if self.at_end() && self.next().is_some() {
            return Ok(());
        }
        self.expected("end of the tag")
    }

    /// Skips the rest of a tag.
    pub(super) fn skip_to_end(&mut self) {
        while !self.at_end() {
            self.next();
        }
    }

    pub(super) fn at_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(n)) if **n == *name)
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.at_name(name);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect_name(&mut self, name: &str) -> Outcome<()> {
        if self.skip_name(name) {
            return Ok(());
        }
        self.expected(name)
    }

    pub(super) fn skip_any_name(&mut self) -> Option<Arc<str>> {
        let Some(Token::Name(name)) = self.peek() else {
            return None;
        };
        let name = Arc::clone(name);
        self.next();
        Some(name)
    }

    pub(super) fn name(&mut self) -> Outcome<Arc<str>> {
        match self.skip_any_name() {
            Some(name) => Ok(name),
            None => self.expected("a name"),
        }
    }

    /// The token after the next one.
    pub(super) fn peek_second(&self) -> Option<&Token> {
        let at = self.tokens.len().checked_sub(2)?;
        Some(&self.tokens[at].0)
    }

    /// Counts one operator of a chain.
    pub(super) fn chain(length: &mut usize) -> Outcome<()> {
        *length += 1;
        if *length > CHAIN_MAX {
            return too_large(format_args!(
                "an expression has more than {CHAIN_MAX} parts"
            ));
        }
        Ok(())
    }

    /// A variable, which the enclosing macros use.
    pub(super) fn variable(&mut self, name: &Arc<str>) -> Expr {
        let id = self.id(name);
        if let Some(at) = IMPLICIT.iter().position(|implicit| **implicit == **name) {
            for uses in &mut self.implicit {
                uses[at] = Some(id);
            }
        }
        Expr::Name(id)
    }
}

/// Describes a token in an error message.
pub(super) fn describe(token: &Token) -> String {
    match token {
        Token::Text(_) => "text".to_string(),
        Token::OutputStart => "\"{{\"".to_string(),
        Token::BlockStart => "\"{%\"".to_string(),
        Token::TagEnd => "the end of the tag".to_string(),
        Token::Name(name) => format!("name {name:.40}"),
        Token::Str(_) => "a string".to_string(),
        Token::Int(number) => format!("number {number}"),
        Token::Float(number) => format!("number {number}"),
        Token::Operator(operator) => format!("{operator:?}"),
    }
}
