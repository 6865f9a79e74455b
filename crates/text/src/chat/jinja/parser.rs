//! Parser of statements, with Jinja's grammar.

use super::cursor::Parser;
use super::failure::Outcome;
use super::lexer::tokenize;
use super::syntax::{
    Block, Expr, For, Macro, NameId, Node, Program, Statement, Target, Visibility,
};
use super::token::Token;
use std::sync::Arc;

/// Parses a template.
pub(in crate::chat) fn parse(source: &str) -> Outcome<Program> {
    let mut parser = Parser::new(tokenize(source)?);
    match parser.body(&[]) {
        Ok(body) => Ok(parser.finish(body)),
        Err(failure) => Err(failure.at(parser.line())),
    }
}

impl Parser {
    /// Parses statements until a block tag whose name is in `ends`, which becomes the next token;
    /// with no `ends`, until the end of the template.
    fn body(&mut self, ends: &[&str]) -> Outcome<Vec<Node>> {
        self.nested(|parser| {
            let mut body = Vec::new();
            while let Some(token) = parser.next() {
                let line = parser.line();
                let statement = match token {
                    Token::Text(text) => Statement::Text(text),
                    Token::OutputStart => {
                        let value = parser.tuple()?;
                        parser.expect_end()?;
                        Statement::Output(value)
                    }
                    Token::BlockStart => {
                        if ends.iter().any(|end| parser.at_name(end)) {
                            return Ok(body);
                        }
                        let statement = parser.statement(line)?;
                        parser.expect_end()?;
                        statement
                    }
                    _ => return parser.unexpected(),
                };
                body.push(Node { line, statement });
            }
            if ends.is_empty() {
                return Ok(body);
            }
            parser.error(format_args!(
                "the template ends before {}",
                ends.join(" or ")
            ))
        })
    }

    /// Parses the end of the current tag, statements until one of `ends`, and skips that name.
    /// Returns the statements and the name.
    fn inner(&mut self, ends: &[&str]) -> Outcome<(Vec<Node>, Arc<str>)> {
        self.skip(":");
        self.expect_end()?;
        let body = self.body(ends)?;
        let name = self.name()?;
        Ok((body, name))
    }

    fn statement(&mut self, line: u32) -> Outcome<Statement> {
        let name = self.name()?;
        Ok(match &*name {
            "if" => self.if_statement()?,
            "for" => self.for_statement()?,
            "set" => self.set_statement()?,
            "with" => self.with_statement()?,
            "macro" => self.macro_statement()?,
            "call" => self.call_statement(line)?,
            "filter" => {
                let filters = self.filters(Expr::Captured)?;
                Statement::Filter(filters, self.inner(&["endfilter"])?.0)
            }
            "block" => self.block_statement()?,
            "generation" => {
                Statement::Scope(self.function(|parser| parser.inner(&["endgeneration"]))?.0)
            }
            "print" => Statement::Output(self.print_statement()?),
            "break" | "continue" if !self.in_loop() => {
                return self.error(format_args!("{name} outside of a loop"));
            }
            "break" => Statement::Break,
            "continue" => Statement::Continue,
            "autoescape" => {
                let enabled = self.expression()?;
                let (body, _) = self.inner(&["endautoescape"])?;
                match enabled {
                    Expr::Bool(false) => Statement::Scope(body),
                    _ => Statement::Unsupported("autoescape"),
                }
            }
            "include" | "extends" | "import" | "from" => {
                self.skip_to_end();
                Statement::Unsupported("loading of other templates")
            }
            _ => return self.error(format_args!("unknown statement {name:.40}")),
        })
    }

    /// The texts of several values.
    fn print_statement(&mut self) -> Outcome<Expr> {
        let mut values = vec![self.expression()?];
        while self.skip(",") {
            values.push(self.expression()?);
        }
        Ok(Expr::Concat(values))
    }

    fn if_statement(&mut self) -> Outcome<Statement> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple_of(Self::or)?;
            let (body, end) = self.inner(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            match &*end {
                "elif" => {}
                "else" => {
                    let (otherwise, _) = self.inner(&["endif"])?;
                    return Ok(Statement::If(branches, otherwise));
                }
                _ => return Ok(Statement::If(branches, Vec::new())),
            }
        }
    }

    fn for_statement(&mut self) -> Outcome<Statement> {
        let target = self.target()?;
        self.expect_name("in")?;
        let items = self.tuple_of(Self::or)?;
        let condition = match self.skip_name("if") {
            true => Some(self.expression()?),
            false => None,
        };
        let recursive = self.skip_name("recursive");
        let (body, end) = self.looped(|parser| parser.inner(&["endfor", "else"]))?;
        let otherwise = match &*end {
            "else" => self.inner(&["endfor"])?.0,
            _ => Vec::new(),
        };
        Ok(Statement::For(Arc::new(For {
            target,
            items,
            condition,
            body,
            otherwise,
            recursive,
        })))
    }

    fn set_statement(&mut self) -> Outcome<Statement> {
        let target = self.target()?;
        if self.skip("=") {
            return Ok(Statement::Set(target, self.tuple()?));
        }
        let filters = self.piped(Expr::Captured)?;
        Ok(Statement::SetBlock(
            target,
            filters,
            self.inner(&["endset"])?.0,
        ))
    }

    fn with_statement(&mut self) -> Outcome<Statement> {
        let mut assignments = Vec::new();
        while !self.at_end() {
            if !assignments.is_empty() {
                self.expect(",")?;
            }
            let target = self.target()?;
            self.expect("=")?;
            assignments.push((target, self.expression()?));
        }
        Ok(Statement::With(assignments, self.inner(&["endwith"])?.0))
    }

    fn macro_statement(&mut self) -> Outcome<Statement> {
        let name = self.name()?;
        let id = self.id(&name);
        let definition = self.macro_body(name, "endmacro", Self::parameters)?;
        Ok(Statement::Macro(Arc::new(Macro { id, ..definition })))
    }

    fn call_statement(&mut self, line: u32) -> Outcome<Statement> {
        let parameters = match self.at("(") {
            true => self.parameters()?,
            false => (Vec::new(), Vec::new()),
        };
        let Expr::Call(call) = self.expression()? else {
            return self.error(format_args!("line {line}: expected a call"));
        };
        let caller = self.macro_body("caller".into(), "endcall", |_| Ok(parameters))?;
        Ok(Statement::Call(*call, Arc::new(caller)))
    }

    /// Parses the parameters and the body of a macro.
    fn macro_body(
        &mut self,
        name: Arc<str>,
        end: &str,
        parameters: impl FnOnce(&mut Self) -> Outcome<(Vec<NameId>, Vec<Expr>)>,
    ) -> Outcome<Macro> {
        let (parameters, defaults) = parameters(self)?;
        let id = self.id(&name);
        let (body, implicit) =
            self.with_implicit(|parser| parser.function(|parser| parser.inner(&[end])))?;
        let required = parameters.len() - defaults.len();
        if implicit[0].is_some_and(|caller| parameters[..required].contains(&caller)) {
            return self.error("a parameter that is named caller requires a default");
        }
        let implicit = implicit.map(|id| id.filter(|id| !parameters.contains(id)));
        let names = parameters.iter().map(|id| self.name_of(*id));
        Ok(Macro {
            name,
            id,
            parameter_names: names.collect(),
            parameters,
            defaults,
            implicit,
            body: body.0,
        })
    }

    /// `(a, b=1)`: the names and the default values.
    fn parameters(&mut self) -> Outcome<(Vec<NameId>, Vec<Expr>)> {
        let (mut names, mut defaults) = (Vec::new(), Vec::new());
        self.expect("(")?;
        while !self.skip(")") {
            if !names.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            names.push(self.id(&name));
            if self.skip("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.error("a parameter without a default follows one with a default");
            }
        }
        Ok((names, defaults))
    }

    fn block_statement(&mut self) -> Outcome<Statement> {
        let name = self.name()?;
        let visibility = match self.skip_name("scoped") {
            true => Visibility::Scoped,
            false => Visibility::Global,
        };
        let required = self.skip_name("required");
        let (body, _) = self.function(|parser| parser.inner(&["endblock"]))?;
        if let Some(end) = self.skip_any_name()
            && end != name
        {
            return self.error(format_args!("expected the end of block {name:.40}"));
        }
        let block = Arc::new(Block {
            name,
            visibility,
            required,
            body,
        });
        self.add_block(&block)?;
        Ok(Statement::Block(block))
    }

    /// Parses the target of an assignment: a name, an attribute of a name, or a tuple of them.
    fn target(&mut self) -> Outcome<Target> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            let at_end = self.at_end() || self.at("=") || self.at(")");
            if at_end && !targets.is_empty() {
                break;
            }
            targets.push(self.single_target()?);
            if !self.skip(",") {
                break;
            }
            is_tuple = true;
        }
        match targets.pop() {
            Some(target) if !is_tuple => Ok(target),
            last => {
                targets.extend(last);
                Ok(Target::Tuple(targets))
            }
        }
    }

    fn single_target(&mut self) -> Outcome<Target> {
        if self.skip("(") {
            let target = self.nested(|parser| parser.target())?;
            self.expect(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if matches!(
            &*name,
            "true" | "false" | "none" | "True" | "False" | "None"
        ) {
            return self.error(format_args!("cannot assign to {name}"));
        }
        let id = self.id(&name);
        if self.skip(".") {
            return Ok(Target::Attribute(id, self.name()?));
        }
        Ok(Target::Name(id))
    }
}
