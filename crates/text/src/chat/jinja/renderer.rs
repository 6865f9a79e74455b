//! State of a rendering: variables, loops and limits of recursion.

use super::budget::Budget;
use super::failure::{Outcome, too_large};
use super::heap::Heap;
use super::syntax::{For, NameId, Program};
use super::value::{Function, List, OBJECT_BYTES, Value};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;
use tabla_core::reserve::HAS_THREADS;

/// Maximum recursion depth of macros, loops and blocks.
const CALLS_MAX: usize = 100;
/// Maximum depth of the evaluation. The stack has at least 4 KiB for each level: that of the thread 64 MiB, and without
/// threads that of engines of WebAssembly about 1 MiB.
const DEPTH_MAX: usize = if HAS_THREADS { 12_000 } else { 200 };

/// The global functions.
const GLOBALS: [(&str, Value); 8] = [
    ("range", Value::Function(Function::Range)),
    ("dict", Value::Function(Function::Dict)),
    ("namespace", Value::Function(Function::Namespace)),
    ("cycler", Value::Function(Function::Cycler)),
    ("joiner", Value::Function(Function::Joiner)),
    ("raise_exception", Value::Function(Function::RaiseException)),
    ("strftime_now", Value::Function(Function::StrftimeNow)),
    ("self", Value::Blocks),
];

/// Variables of a scope.
#[derive(Debug, Default)]
struct Frame {
    variables: Vec<(NameId, Value)>,
    parent: Option<usize>,
    /// Whether a macro refers to the frame.
    kept: bool,
}

/// State of a loop.
#[derive(Debug)]
pub(super) struct LoopState {
    pub(super) definition: Arc<For>,
    /// The frame around the loop.
    pub(super) frame: usize,
    pub(super) items: Rc<List>,
    /// Index of the next item that was not read.
    pub(super) next: usize,
    /// Items that were read before their iteration.
    pub(super) queue: VecDeque<Value>,
    /// Index of the iteration.
    pub(super) index: usize,
    pub(super) current: Value,
    pub(super) previous: Value,
    /// Depth of the recursion, from 0.
    pub(super) depth: usize,
    /// Last arguments of `loop.changed`.
    pub(super) changed: Option<Vec<Value>>,
    /// Whether a value refers to the loop.
    pub(super) kept: bool,
}

/// A rendering.
#[derive(Debug)]
pub(super) struct Renderer<'p> {
    pub(super) program: &'p Program,
    pub(super) heap: Heap,
    pub(super) now: SystemTime,
    /// Texts of the blocks that filters are applied to.
    pub(super) captured: Vec<Value>,
    pub(super) loops: Vec<LoopState>,
    free_loops: Vec<usize>,
    frames: Vec<Frame>,
    free_frames: Vec<usize>,
    globals: Vec<Option<Value>>,
    /// Id of the name `loop`.
    pub(super) loop_id: Option<NameId>,
    calls: usize,
    depth: usize,
}

impl<'p> Renderer<'p> {
    /// Number of the frame of global variables.
    pub(super) const GLOBAL: usize = 0;

    pub(super) fn new(program: &'p Program, budget: Budget, now: SystemTime) -> Self {
        let global = |name: &Arc<str>| {
            let mut globals = GLOBALS.iter();
            let found = globals.find(|(existing, _)| **existing == **name);
            found.map(|(_, value)| value.clone())
        };
        let loop_id = program.names.iter().position(|name| **name == *"loop");
        Self {
            program,
            heap: Heap::new(budget),
            now,
            captured: Vec::new(),
            loops: Vec::new(),
            free_loops: Vec::new(),
            frames: vec![Frame::default()],
            free_frames: Vec::new(),
            globals: program.names.iter().map(global).collect(),
            loop_id: loop_id.and_then(|id| NameId::try_from(id).ok()),
            calls: 0,
            depth: 0,
        }
    }

    /// Sets a global variable, if the template uses its name.
    pub(super) fn set_global(&mut self, name: &str, value: Value) {
        let id = self.program.names.iter().position(|n| **n == *name);
        if let Some(id) = id.and_then(|id| NameId::try_from(id).ok()) {
            self.set(Self::GLOBAL, id, value);
        }
    }

    /// Adds a scope in the scope `parent`.
    pub(super) fn push_frame(&mut self, parent: usize) -> usize {
        let frame = self.free_frames.pop().unwrap_or_else(|| {
            self.frames.push(Frame::default());
            self.frames.len() - 1
        });
        self.frames[frame].parent = Some(parent);
        frame
    }

    /// Removes a scope, unless a macro refers to it.
    pub(super) fn pop_frame(&mut self, frame: usize) {
        if !self.frames[frame].kept {
            self.frames[frame].variables.clear();
            self.free_frames.push(frame);
        }
    }

    /// Removes the variables of a scope, unless a macro refers to it. Returns the scope, or a new
    /// one.
    pub(super) fn renew_frame(&mut self, frame: usize, parent: usize) -> usize {
        self.pop_frame(frame);
        self.push_frame(parent)
    }

    /// Keeps a scope and those around it.
    pub(super) fn keep_frame(&mut self, frame: usize) -> Outcome<()> {
        let mut next = Some(frame);
        while let Some(frame) = next.map(|frame| &mut self.frames[frame]) {
            if frame.kept {
                break;
            }
            self.heap.budget.charge(OBJECT_BYTES)?;
            frame.kept = true;
            next = frame.parent;
        }
        Ok(())
    }

    pub(super) fn set(&mut self, frame: usize, id: NameId, value: Value) {
        let variables = &mut self.frames[frame].variables;
        match variables.iter_mut().find(|(existing, _)| *existing == id) {
            Some((_, existing)) => *existing = value,
            None => variables.push((id, value)),
        }
    }

    /// The value of a variable.
    pub(super) fn lookup(&self, frame: usize, id: NameId) -> Value {
        let mut next = Some(frame);
        while let Some(frame) = next.map(|frame| &self.frames[frame]) {
            let mut variables = frame.variables.iter();
            if let Some((_, value)) = variables.find(|(existing, _)| *existing == id) {
                return value.clone();
            }
            next = frame.parent;
        }
        match &self.globals[id as usize] {
            Some(value) => value.clone(),
            None => Value::Undefined(Some(Arc::clone(&self.program.names[id as usize]))),
        }
    }

    pub(super) fn push_loop(&mut self, state: LoopState) -> usize {
        match self.free_loops.pop() {
            Some(number) => {
                self.loops[number] = state;
                number
            }
            None => {
                self.loops.push(state);
                self.loops.len() - 1
            }
        }
    }

    /// Removes a loop, unless a value refers to it.
    pub(super) fn pop_loop(&mut self, number: usize) {
        let state = &mut self.loops[number];
        if !state.kept {
            state.current = Value::None;
            state.previous = Value::None;
            state.queue.clear();
            state.changed = None;
            self.free_loops.push(number);
        }
    }

    /// Marks a loop as one that a value refers to.
    pub(super) fn keep_loop(&mut self, number: usize) -> Outcome<()> {
        let state = &mut self.loops[number];
        if !state.kept {
            state.kept = true;
            self.heap
                .budget
                .charge(size_of::<LoopState>() + OBJECT_BYTES)?;
            self.heap.keep_loop(number, &state.items);
        }
        Ok(())
    }

    /// Runs a macro, a recursive loop or a block.
    pub(super) fn called<T>(&mut self, run: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        if self.calls >= CALLS_MAX {
            return too_large(format_args!("recursion exceeds {CALLS_MAX} calls"));
        }
        self.calls += 1;
        let result = run(self)?;
        self.calls -= 1;
        Ok(result)
    }

    /// Begins a level of the evaluation, and charges a step.
    pub(super) fn enter(&mut self) -> Outcome<()> {
        if self.depth >= DEPTH_MAX {
            return too_large(format_args!("evaluation exceeds {DEPTH_MAX} levels"));
        }
        self.depth += 1;
        self.heap.budget.work(1)
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}
