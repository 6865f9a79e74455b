//! Evaluation of expressions.

use super::attributes::{item, undefined_error};
use super::build::Entries;
use super::compare::compare;
use super::failure::Outcome;
use super::ops::{Sign, binary, contains, signed, slice};
use super::renderer::Renderer;
use super::repr::write_str;
use super::sink::Sink;
use super::syntax::{Comparison, Expr};
use super::value::{ListKind, Value, equal};
use std::cmp::Ordering;
use std::sync::Arc;

impl Renderer<'_> {
    /// Evaluates an expression in a scope.
    pub(super) fn eval(&mut self, expr: &Expr, frame: usize) -> Outcome<Value> {
        self.enter()?;
        let value = match expr {
            Expr::None => Value::None,
            Expr::Bool(value) => Value::Bool(*value),
            Expr::Int(number) => Value::Int(*number),
            Expr::Float(number) => Value::Float(*number),
            Expr::Str(text) => Value::Str(Arc::clone(text)),
            Expr::Name(id) => self.lookup(frame, *id),
            Expr::Captured => self.captured.last().cloned().unwrap_or(Value::None),
            Expr::Not(operand) => Value::Bool(!self.eval(operand, frame)?.is_true()),
            Expr::And(operands) => match self.eval(&operands[0], frame)? {
                left if left.is_true() => self.eval(&operands[1], frame)?,
                left => left,
            },
            Expr::Or(operands) => match self.eval(&operands[0], frame)? {
                left if left.is_true() => left,
                _ => self.eval(&operands[1], frame)?,
            },
            Expr::Attribute(object, name) => {
                let object = self.eval_unkept(object, frame)?;
                self.attribute(&object, name)?
            }
            Expr::Call(call) => self.call(call, frame)?,
            Expr::Filter(apply) => {
                let operand = self.eval(&apply.operand, frame)?;
                let arguments = self.arguments(&apply.arguments, frame)?;
                self.filter(&apply.name, &operand, arguments)?
            }
            Expr::Test(apply) => {
                let operand = self.eval(&apply.operand, frame)?;
                let arguments = self.arguments(&apply.arguments, frame)?;
                Value::Bool(self.test(&apply.name, &operand, arguments)?)
            }
            other => self.eval_rare(other, frame)?,
        };
        self.keep(&value)?;
        self.leave();
        Ok(value)
    }

    /// Marks a loop that is now a value as kept.
    fn keep(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::Loop(number) => self.keep_loop(*number),
            Value::Method(method) => match method.receiver {
                Value::Loop(number) => self.keep_loop(number),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Evaluates an expression whose value is used at once. A loop need not be kept for it.
    pub(super) fn eval_unkept(&mut self, expr: &Expr, frame: usize) -> Outcome<Value> {
        match expr {
            Expr::Name(id) => Ok(self.lookup(frame, *id)),
            other => self.eval(other, frame),
        }
    }

    /// Evaluates the less frequent expressions, in a function of their own: a small stack frame of
    /// [`eval`](Self::eval) allows deep recursion.
    fn eval_rare(&mut self, expr: &Expr, frame: usize) -> Outcome<Value> {
        match expr {
            Expr::Item(object, key) => {
                let object = self.eval_unkept(object, frame)?;
                let key = self.eval(key, frame)?;
                self.item(&object, &key)
            }
            Expr::Slice(object, parts) => {
                let object = self.eval(object, frame)?;
                let mut values = [Value::None, Value::None, Value::None];
                for (value, part) in values.iter_mut().zip(&**parts) {
                    if let Some(part) = part {
                        *value = self.eval(part, frame)?;
                    }
                }
                slice(&self.heap, &object, values)
            }
            Expr::Negate(operand) => signed(Sign::Minus, &self.eval(operand, frame)?),
            Expr::Plus(operand) => signed(Sign::Plus, &self.eval(operand, frame)?),
            Expr::Binary(op, operands) => {
                let left = self.eval(&operands[0], frame)?;
                let right = self.eval(&operands[1], frame)?;
                binary(&self.heap, *op, &left, &right)
            }
            Expr::Concat(parts) => {
                let mut text = String::new();
                for part in parts {
                    let value = self.eval(part, frame)?;
                    write_str(
                        &self.heap,
                        &value,
                        &mut Sink::new(&self.heap.budget, &mut text),
                    )?;
                }
                Ok(Value::Str(text.into()))
            }
            Expr::Compare(first, rest) => self.comparisons(first, rest, frame),
            Expr::Conditional(parts) => {
                let (condition, value, otherwise) = &**parts;
                match (self.eval(condition, frame)?.is_true(), otherwise) {
                    (true, _) => self.eval(value, frame),
                    (false, Some(otherwise)) => self.eval(otherwise, frame),
                    (false, None) => Ok(Value::Undefined(None)),
                }
            }
            Expr::List(exprs) => self.list(exprs, ListKind::List, frame),
            Expr::Tuple(exprs) => self.list(exprs, ListKind::Tuple, frame),
            Expr::Dict(pairs) => {
                let mut values = Vec::new();
                for (key, value) in pairs {
                    values.push((self.eval(key, frame)?, self.eval(value, frame)?));
                }
                let mut entries = Entries::new(&self.heap.budget);
                for (key, value) in values {
                    entries.insert(key, value)?;
                }
                entries.dict()
            }
            _ => Ok(Value::None),
        }
    }

    fn list(&mut self, exprs: &[Expr], kind: ListKind, frame: usize) -> Outcome<Value> {
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            values.push(self.eval(expr, frame)?);
        }
        let mut items = self.heap.items();
        for value in values {
            items.push(value)?;
        }
        items.finish(kind)
    }

    /// `object[key]`.
    fn item(&mut self, object: &Value, key: &Value) -> Outcome<Value> {
        match (object, key) {
            (Value::Loop(_) | Value::Blocks, Value::Str(name)) => self.attribute(object, name),
            _ => item(&self.heap, object, key),
        }
    }

    fn comparisons(
        &mut self,
        first: &Expr,
        rest: &[(Comparison, Expr)],
        frame: usize,
    ) -> Outcome<Value> {
        let mut left = self.eval(first, frame)?;
        for (comparison, expr) in rest {
            let right = self.eval(expr, frame)?;
            if !self.compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn compare(
        &self,
        comparison: Comparison,
        left: &Value,
        right: &Value,
    ) -> Outcome<bool> {
        let heap = &self.heap;
        let ordering = match comparison {
            Comparison::Eq => return equal(left, right, &heap.budget),
            Comparison::Ne => return Ok(!equal(left, right, &heap.budget)?),
            Comparison::In => return contains(heap, right, left),
            Comparison::NotIn => return Ok(!contains(heap, right, left)?),
            _ => {
                for operand in [left, right] {
                    if let Value::Undefined(name) = operand {
                        return undefined_error(name.as_ref());
                    }
                }
                compare(heap, left, right)?
            }
        };
        Ok(match comparison {
            Comparison::Lt => ordering == Some(Ordering::Less),
            Comparison::Gt => ordering == Some(Ordering::Greater),
            Comparison::Le => ordering.is_some_and(Ordering::is_le),
            _ => ordering.is_some_and(Ordering::is_ge),
        })
    }
}
