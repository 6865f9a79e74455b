//! Execution of statements.

use super::arguments::CallArguments;
use super::attributes::undefined_error;
use super::failure::{Failure, Outcome, fail};
use super::ops::iterate;
use super::renderer::{LoopState, Renderer};
use super::repr::write_str;
use super::sink::Sink;
use super::syntax::{Block, Expr, For, Macro, Node, Statement, Target, Visibility};
use super::value::{MacroValue, OBJECT_BYTES, Value};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use tabla_core::error::ErrorKind;

/// What follows a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl Renderer<'_> {
    /// Executes statements in a scope, and appends their output to `out`.
    pub(super) fn run(&mut self, body: &[Node], frame: usize, out: &mut String) -> Outcome<Flow> {
        for node in body {
            self.enter()?;
            let flow = match &node.statement {
                Statement::Text(text) => {
                    Sink::new(&self.heap.budget, out).push(text)?;
                    Flow::Next
                }
                Statement::Output(expr) => {
                    self.output(expr, frame, out).map_err(|e| e.at(node.line))?;
                    Flow::Next
                }
                statement => {
                    let flow = self.statement(statement, frame, out);
                    flow.map_err(|e| e.at(node.line))?
                }
            };
            self.leave();
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn output(&mut self, expr: &Expr, frame: usize, out: &mut String) -> Outcome<()> {
        let value = self.eval(expr, frame)?;
        write_str(&self.heap, &value, &mut Sink::new(&self.heap.budget, out))
    }

    fn statement(
        &mut self,
        statement: &Statement,
        frame: usize,
        out: &mut String,
    ) -> Outcome<Flow> {
        match statement {
            Statement::Text(_) | Statement::Output(_) => {}
            Statement::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.eval(condition, frame)?.is_true() {
                        return self.run(body, frame, out);
                    }
                }
                return self.run(otherwise, frame, out);
            }
            Statement::For(definition) => {
                let items = self.eval(&definition.items, frame)?;
                self.run_loop(definition, items, frame, 0, out)?;
            }
            Statement::Set(target, expr) => {
                let value = self.eval(expr, frame)?;
                self.assign(target, value, frame)?;
            }
            Statement::SetBlock(target, filters, body) => {
                let (value, flow) = self.filtered(filters, body, frame)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                self.assign(target, value, frame)?;
            }
            Statement::Filter(filters, body) => {
                let (value, flow) = self.filtered(filters, body, frame)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                write_str(&self.heap, &value, &mut Sink::new(&self.heap.budget, out))?;
            }
            Statement::With(assignments, body) => {
                let inner = self.push_frame(frame);
                for (target, expr) in assignments {
                    let value = self.eval(expr, frame)?;
                    self.assign(target, value, inner)?;
                }
                let flow = self.run(body, inner, out)?;
                self.pop_frame(inner);
                return Ok(flow);
            }
            Statement::Scope(body) => {
                let inner = self.push_frame(frame);
                self.run(body, inner, out)?;
                self.pop_frame(inner);
            }
            Statement::Macro(definition) => {
                let value = self.macro_value(definition, frame)?;
                self.set(frame, definition.id, value);
            }
            Statement::Call(call, caller) => {
                let caller = self.macro_value(caller, frame)?;
                let callee = self.eval(&call.callee, frame)?;
                let mut arguments = self.arguments(&call.arguments, frame)?;
                arguments.keywords.push(("caller".into(), caller));
                let value = self.call_value(&callee, arguments)?;
                write_str(&self.heap, &value, &mut Sink::new(&self.heap.budget, out))?;
            }
            Statement::Block(block) => {
                self.run_block(block, frame, out)?;
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::Unsupported(name) => {
                let message = format!("{name} is not supported");
                return Err(Failure::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(Flow::Next)
    }

    /// Runs a body, and applies filters to its text.
    fn filtered(&mut self, filters: &Expr, body: &[Node], frame: usize) -> Outcome<(Value, Flow)> {
        let mut text = String::new();
        let inner = self.push_frame(frame);
        let flow = self.run(body, inner, &mut text)?;
        self.pop_frame(inner);
        self.captured.push(Value::Str(text.into()));
        let value = self.eval(filters, frame)?;
        self.captured.pop();
        Ok((value, flow))
    }

    fn macro_value(&mut self, definition: &Arc<Macro>, frame: usize) -> Outcome<Value> {
        self.keep_frame(frame)?;
        self.heap.budget.charge(OBJECT_BYTES)?;
        Ok(Value::Macro(Rc::new(MacroValue {
            definition: Arc::clone(definition),
            frame,
        })))
    }

    pub(super) fn assign(&mut self, target: &Target, value: Value, frame: usize) -> Outcome<()> {
        match target {
            Target::Name(id) => self.set(frame, *id, value),
            Target::Attribute(id, name) => match self.lookup(frame, *id) {
                Value::Namespace(namespace) => self.heap.set_attribute(namespace, name, value)?,
                Value::Undefined(name) => return undefined_error(name.as_ref()),
                other => {
                    return fail(format_args!(
                        "cannot assign an attribute of {}, only of a namespace",
                        other.type_name()
                    ));
                }
            },
            Target::Tuple(targets) => {
                let list = iterate(&self.heap, &value)?;
                if list.items.len() != targets.len() {
                    return fail(format_args!(
                        "expected {} values to unpack, got {}",
                        targets.len(),
                        list.items.len()
                    ));
                }
                for (target, value) in targets.iter().zip(&list.items) {
                    self.assign(target, value.clone(), frame)?;
                }
            }
        }
        Ok(())
    }

    /// Runs a loop over `items`, with the frame around it and its depth of recursion.
    fn run_loop(
        &mut self,
        definition: &Arc<For>,
        items: Value,
        frame: usize,
        depth: usize,
        out: &mut String,
    ) -> Outcome<()> {
        let items = iterate(&self.heap, &items)?;
        let number = self.push_loop(LoopState {
            definition: Arc::clone(definition),
            frame,
            items,
            next: 0,
            queue: VecDeque::new(),
            index: 0,
            current: Value::Undefined(None),
            previous: Value::Undefined(None),
            depth,
            changed: None,
            kept: false,
        });
        let mut inner = self.push_frame(frame);
        let mut iterated = false;
        while let Some(item) = self.next_item(number)? {
            inner = self.renew_frame(inner, frame);
            let state = &mut self.loops[number];
            state.index += usize::from(iterated);
            state.previous = std::mem::replace(&mut state.current, item.clone());
            iterated = true;
            if let Some(id) = self.loop_id {
                self.set(inner, id, Value::Loop(number));
            }
            self.assign(&definition.target, item, inner)?;
            if self.run(&definition.body, inner, out)? == Flow::Break {
                break;
            }
        }
        inner = self.renew_frame(inner, frame);
        self.pop_loop(number);
        if !iterated {
            self.run(&definition.otherwise, inner, out)?;
        }
        self.pop_frame(inner);
        Ok(())
    }

    /// Runs the loop `number` again, over other items: `loop(items)`.
    pub(super) fn recur(&mut self, number: usize, arguments: CallArguments) -> Outcome<Value> {
        let [items] = arguments.bind("loop", ["iterable"])?;
        let state = &self.loops[number];
        let definition = Arc::clone(&state.definition);
        let (frame, depth) = (state.frame, state.depth + 1);
        if !definition.recursive {
            return fail("the loop is not recursive: it has no recursive keyword");
        }
        let items = items.unwrap_or(Value::Undefined(None));
        let mut text = String::new();
        self.called(|renderer| renderer.run_loop(&definition, items, frame, depth, &mut text))?;
        Ok(Value::Str(text.into()))
    }

    /// The next item of a loop.
    fn next_item(&mut self, number: usize) -> Outcome<Option<Value>> {
        match self.loops[number].queue.pop_front() {
            Some(item) => Ok(Some(item)),
            None => self.read_item(number),
        }
    }

    /// Reads the next item that satisfies the condition of a loop.
    fn read_item(&mut self, number: usize) -> Outcome<Option<Value>> {
        loop {
            let state = &mut self.loops[number];
            let Some(item) = state.items.items.get(state.next).cloned() else {
                return Ok(None);
            };
            state.next += 1;
            let (definition, frame) = (Arc::clone(&state.definition), state.frame);
            let Some(condition) = &definition.condition else {
                return Ok(Some(item));
            };
            let inner = self.push_frame(frame);
            self.assign(&definition.target, item.clone(), inner)?;
            let accepted = self.eval(condition, inner)?.is_true();
            self.pop_frame(inner);
            if accepted {
                return Ok(Some(item));
            }
        }
    }

    /// The item after the current one of a loop.
    pub(super) fn peek_item(&mut self, number: usize) -> Outcome<Option<Value>> {
        if self.loops[number].queue.is_empty()
            && let Some(item) = self.read_item(number)?
        {
            self.loops[number].queue.push_back(item);
        }
        Ok(self.loops[number].queue.front().cloned())
    }

    /// The number of iterations of a loop.
    pub(super) fn loop_length(&mut self, number: usize) -> Outcome<usize> {
        if self.loops[number].definition.condition.is_none() {
            return Ok(self.loops[number].items.items.len());
        }
        while let Some(item) = self.read_item(number)? {
            self.heap.budget.charge(size_of::<Value>())?;
            self.loops[number].queue.push_back(item);
        }
        let state = &self.loops[number];
        Ok(state.index + 1 + state.queue.len())
    }

    fn run_block(&mut self, block: &Arc<Block>, frame: usize, out: &mut String) -> Outcome<()> {
        if block.required {
            return fail(format_args!(
                "required block {:.40} is not defined",
                block.name
            ));
        }
        let parent = match block.visibility {
            Visibility::Global => Self::GLOBAL,
            Visibility::Scoped => frame,
        };
        self.called(|renderer| {
            let inner = renderer.push_frame(parent);
            renderer.run(&block.body, inner, out)?;
            renderer.pop_frame(inner);
            Ok(())
        })
    }

    /// The text of a block: `self.name()`.
    pub(super) fn block_text(&mut self, number: usize) -> Outcome<Value> {
        let block = Arc::clone(&self.program.blocks[number]);
        let mut text = String::new();
        self.run_block(&block, Self::GLOBAL, &mut text)?;
        Ok(Value::Str(text.into()))
    }

    /// Calls a macro.
    pub(super) fn call_macro(
        &mut self,
        value: &MacroValue,
        mut arguments: CallArguments,
    ) -> Outcome<Value> {
        let definition = &value.definition;
        let mut text = String::new();
        let varargs = match arguments.positional.len() > definition.parameters.len() {
            true => arguments.positional.split_off(definition.parameters.len()),
            false => Vec::new(),
        };
        self.called(|renderer| {
            let frame = renderer.push_frame(value.frame);
            let mut positional = arguments.positional.into_iter();
            let first_default = definition.parameters.len() - definition.defaults.len();
            for (at, id) in definition.parameters.iter().enumerate() {
                let name = &definition.parameter_names[at];
                let keyword = arguments.keywords.iter().position(|(n, _)| n == name);
                let given = match (positional.next(), keyword) {
                    (Some(_), Some(_)) => {
                        return fail(format_args!(
                            "macro {:.40} has two values for {name:.40}",
                            definition.name
                        ));
                    }
                    (Some(value), None) => Some(value),
                    (None, Some(at)) => Some(arguments.keywords.remove(at).1),
                    (None, None) => None,
                };
                let value = match (given, at.checked_sub(first_default)) {
                    (Some(value), _) => value,
                    (None, Some(at)) => renderer.eval(&definition.defaults[at], frame)?,
                    (None, None) => Value::Undefined(Some(Arc::clone(name))),
                };
                renderer.set(frame, *id, value);
            }
            renderer.set_implicit(definition, frame, (arguments.keywords, varargs))?;
            renderer.run(&definition.body, frame, &mut text)?;
            renderer.pop_frame(frame);
            Ok(())
        })?;
        Ok(Value::Str(text.into()))
    }
}
