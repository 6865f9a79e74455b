//! Parser of expressions, with Jinja's grammar and precedence.

use super::cursor::{Parser, describe};
use super::failure::Outcome;
use super::syntax::{Apply, Arguments, Binary, Call, Comparison, Expr};
use super::token::Token;
use std::sync::Arc;

impl Parser {
    /// Parses an expression, or a tuple without parentheses.
    pub(super) fn tuple(&mut self) -> Outcome<Expr> {
        self.tuple_of(Self::expression)
    }

    /// Parses a tuple of what `item` parses, or one item.
    pub(super) fn tuple_of(&mut self, item: fn(&mut Self) -> Outcome<Expr>) -> Outcome<Expr> {
        let first = item(self)?;
        if !self.at(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip(",") {
            if self.at_end() || self.at(")") {
                break;
            }
            items.push(item(self)?);
        }
        Ok(Expr::Tuple(items))
    }

    pub(super) fn expression(&mut self) -> Outcome<Expr> {
        self.nested(|parser| {
            let mut value = parser.or()?;
            let mut length = 0;
            while parser.skip_name("if") {
                Self::chain(&mut length)?;
                let condition = parser.or()?;
                let otherwise = match parser.skip_name("else") {
                    true => Some(parser.expression()?),
                    false => None,
                };
                value = Expr::Conditional(Box::new((condition, value, otherwise)));
            }
            Ok(value)
        })
    }

    pub(super) fn or(&mut self) -> Outcome<Expr> {
        let mut left = self.and()?;
        let mut length = 0;
        while self.skip_name("or") {
            Self::chain(&mut length)?;
            left = Expr::Or(Box::new([left, self.and()?]));
        }
        Ok(left)
    }

    fn and(&mut self) -> Outcome<Expr> {
        let mut left = self.not()?;
        let mut length = 0;
        while self.skip_name("and") {
            Self::chain(&mut length)?;
            left = Expr::And(Box::new([left, self.not()?]));
        }
        Ok(left)
    }

    fn not(&mut self) -> Outcome<Expr> {
        if self.skip_name("not") {
            return self.nested(|parser| Ok(Expr::Not(Box::new(parser.not()?))));
        }
        self.compare()
    }

    fn compare(&mut self) -> Outcome<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison() {
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr::Compare(Box::new(first), rest))
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let comparison = match self.peek()? {
            Token::Operator("==") => Comparison::Eq,
            Token::Operator("!=") => Comparison::Ne,
            Token::Operator("<") => Comparison::Lt,
            Token::Operator("<=") => Comparison::Le,
            Token::Operator(">") => Comparison::Gt,
            Token::Operator(">=") => Comparison::Ge,
            Token::Name(name) if **name == *"in" => Comparison::In,
            Token::Name(name) if **name == *"not" => {
                let is_in = matches!(self.peek_second(), Some(Token::Name(n)) if **n == *"in");
                if !is_in {
                    return None;
                }
                self.next();
                Comparison::NotIn
            }
            _ => return None,
        };
        self.next();
        Some(comparison)
    }

    /// Parses a chain of binary operators of the same precedence.
    fn binary(
        &mut self,
        operators: &[(&str, Binary)],
        operand: fn(&mut Self) -> Outcome<Expr>,
    ) -> Outcome<Expr> {
        let mut left = operand(self)?;
        let mut length = 0;
        while let Some((_, binary)) = operators.iter().find(|(o, _)| self.skip(o)) {
            Self::chain(&mut length)?;
            left = Expr::Binary(*binary, Box::new([left, operand(self)?]));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Outcome<Expr> {
        let operators = [("+", Binary::Add), ("-", Binary::Sub)];
        self.binary(&operators, Self::concat)
    }

    fn concat(&mut self) -> Outcome<Expr> {
        let first = self.product()?;
        if !self.at("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip("~") {
            parts.push(self.product()?);
        }
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Outcome<Expr> {
        let operators = [
            ("*", Binary::Mul),
            ("/", Binary::Div),
            ("//", Binary::FloorDiv),
            ("%", Binary::Rem),
        ];
        self.binary(&operators, Self::power)
    }

    fn power(&mut self) -> Outcome<Expr> {
        self.binary(&[("**", Binary::Pow)], |parser| {
            let operand = parser.unary()?;
            parser.filtered(operand)
        })
    }

    /// A primary expression with its signs and postfixes, without filters.
    fn unary(&mut self) -> Outcome<Expr> {
        let negative = self.at("-");
        let value = if negative || self.at("+") {
            self.next();
            let operand = self.nested(Self::unary)?;
            match negative {
                true => Expr::Negate(Box::new(operand)),
                false => Expr::Plus(Box::new(operand)),
            }
        } else {
            self.primary()?
        };
        self.postfix(value)
    }

    fn primary(&mut self) -> Outcome<Expr> {
        Ok(match self.next() {
            Some(Token::Name(name)) => match &*name {
                "true" | "True" => Expr::Bool(true),
                "false" | "False" => Expr::Bool(false),
                "none" | "None" => Expr::None,
                _ => self.variable(&name),
            },
            Some(Token::Str(text)) => {
                if !matches!(self.peek(), Some(Token::Str(_))) {
                    return Ok(Expr::Str(text));
                }
                let mut text = text.to_string();
                while let Some(Token::Str(more)) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                Expr::Str(text.into())
            }
            Some(Token::Int(number)) => Expr::Int(number),
            Some(Token::Float(number)) => Expr::Float(number),
            Some(Token::Operator("(")) if self.skip(")") => Expr::Tuple(Vec::new()),
            Some(Token::Operator("(")) => {
                let value = self.tuple()?;
                self.expect(")")?;
                value
            }
            Some(Token::Operator("[")) => Expr::List(self.items("]", Self::expression)?),
            Some(Token::Operator("{")) => Expr::Dict(self.items("}", |parser| {
                let key = parser.expression()?;
                parser.expect(":")?;
                Ok((key, parser.expression()?))
            })?),
            Some(token) => return self.error(format_args!("unexpected {}", describe(&token))),
            None => return self.error("unexpected end of the template"),
        })
    }

    /// Parses a list of items until `end`, with an optional comma at its end.
    fn items<T>(&mut self, end: &str, item: fn(&mut Self) -> Outcome<T>) -> Outcome<Vec<T>> {
        let mut items = Vec::new();
        while !self.skip(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Parses attributes, subscripts and calls after a value.
    fn postfix(&mut self, mut value: Expr) -> Outcome<Expr> {
        let mut length = 0;
        loop {
            Self::chain(&mut length)?;
            value = if self.skip(".") {
                match self.next() {
                    Some(Token::Name(name)) => Expr::Attribute(Box::new(value), name),
                    Some(Token::Int(index)) => {
                        Expr::Item(Box::new(value), Box::new(Expr::Int(index)))
                    }
                    _ => return self.error("expected a name or a number after \".\""),
                }
            } else if self.skip("[") {
                self.nested(|parser| parser.subscript(value))?
            } else if self.at("(") {
                self.call(value)?
            } else {
                return Ok(value);
            };
        }
    }

    fn call(&mut self, callee: Expr) -> Outcome<Expr> {
        let arguments = self.arguments()?;
        Ok(Expr::Call(Box::new(Call { callee, arguments })))
    }

    fn subscript(&mut self, value: Expr) -> Outcome<Expr> {
        if self.at("]") {
            return self.error("expected a subscript");
        }
        let first = match self.at(":") {
            true => None,
            false => Some(self.expression()?),
        };
        if !self.at(":") {
            let Some(first) = first else {
                return self.unexpected();
            };
            if self.skip("]") {
                return Ok(Expr::Item(Box::new(value), Box::new(first)));
            }
            let mut items = vec![first];
            while self.skip(",") {
                items.push(self.expression()?);
            }
            self.expect("]")?;
            return Ok(Expr::Item(Box::new(value), Box::new(Expr::Tuple(items))));
        }
        let mut parts = [first, None, None];
        for part in &mut parts[1..] {
            if !self.skip(":") {
                break;
            }
            if !self.at(":") && !self.at("]") {
                *part = Some(self.expression()?);
            }
        }
        self.expect("]")?;
        Ok(Expr::Slice(Box::new(value), Box::new(parts)))
    }

    /// Parses filters, tests and calls after a value.
    fn filtered(&mut self, mut value: Expr) -> Outcome<Expr> {
        let mut length = 0;
        loop {
            Self::chain(&mut length)?;
            value = if self.at("|") {
                self.piped(value)?
            } else if self.at_name("is") {
                self.test(value)?
            } else if self.at("(") {
                self.call(value)?
            } else {
                return Ok(value);
            };
        }
    }

    /// Parses filters that each follow a `|`.
    pub(super) fn piped(&mut self, mut value: Expr) -> Outcome<Expr> {
        let mut length = 0;
        while self.skip("|") {
            Self::chain(&mut length)?;
            value = self.filter(value)?;
        }
        Ok(value)
    }

    /// Parses filters; the first has no `|` before it.
    pub(super) fn filters(&mut self, value: Expr) -> Outcome<Expr> {
        let first = self.filter(value)?;
        self.piped(first)
    }

    fn filter(&mut self, operand: Expr) -> Outcome<Expr> {
        let name = self.dotted_name()?;
        let arguments = match self.at("(") {
            true => self.arguments()?,
            false => Arguments::default(),
        };
        Ok(Expr::Filter(Box::new(Apply {
            name,
            operand,
            arguments,
        })))
    }

    fn dotted_name(&mut self) -> Outcome<Arc<str>> {
        let mut name = self.name()?;
        while self.skip(".") {
            name = format!("{name}.{}", self.name()?).into();
        }
        Ok(name)
    }

    /// Parses `is name`, `is not name`, `is name(arguments)` or `is name argument`.
    fn test(&mut self, operand: Expr) -> Outcome<Expr> {
        self.expect_name("is")?;
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let mut arguments = Arguments::default();
        let has_operand = match self.peek() {
            Some(Token::Name(name)) => !matches!(&**name, "else" | "or" | "and"),
            Some(Token::Str(_) | Token::Int(_) | Token::Float(_)) => true,
            Some(Token::Operator(operator)) => matches!(*operator, "[" | "{"),
            _ => false,
        };
        if self.at("(") {
            arguments = self.arguments()?;
        } else if self.at_name("is") {
            return self.error("tests cannot be chained with is");
        } else if has_operand {
            let argument = self.nested(Self::primary)?;
            arguments.positional.push(self.postfix(argument)?);
        }
        let test = Expr::Test(Box::new(Apply {
            name,
            operand,
            arguments,
        }));
        Ok(match negated {
            true => Expr::Not(Box::new(test)),
            false => test,
        })
    }

    fn arguments(&mut self) -> Outcome<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.skip(")") {
            if !first {
                self.expect(",")?;
                if self.skip(")") {
                    break;
                }
            }
            first = false;
            self.argument(&mut arguments)?;
        }
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> Outcome<()> {
        let only = |free: bool, parser: &Self| match free {
            true => Ok(()),
            false => parser.error("invalid order of arguments"),
        };
        if self.skip("*") {
            only(arguments.list.is_none() && arguments.dict.is_none(), self)?;
            arguments.list = Some(self.expression()?);
            return Ok(());
        }
        if self.skip("**") {
            only(arguments.dict.is_none(), self)?;
            arguments.dict = Some(self.expression()?);
            return Ok(());
        }
        if matches!(self.peek_second(), Some(Token::Operator("=")))
            && let Some(name) = self.skip_any_name()
        {
            self.next();
            only(arguments.dict.is_none(), self)?;
            arguments.keywords.push((name, self.expression()?));
            return Ok(());
        }
        let free = arguments.keywords.is_empty() && arguments.list.is_none();
        only(free && arguments.dict.is_none(), self)?;
        arguments.positional.push(self.expression()?);
        Ok(())
    }
}
