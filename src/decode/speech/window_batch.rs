//! Windows of several recordings that are decoded at the same time: their next tokens are the rows of
//! one step. A row has the same bits in every step table, so that every window has the same text as
//! alone.

use super::window::{WindowDecoder, WindowRequest, WindowText};
use crate::decode::lost;
use crate::decode::rows::write_rows;
use crate::decode::table_set::TableSet;
use crate::error::{Error, Result};
use crate::exec::state::state_bytes;
use crate::model::{LinkedTables, STEP_ROWS_MAX};
use crate::op::table::SamplingStage;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::Sender;

/// The decoder of a transcription, and the text of its window.
pub(super) type WindowResult = (WindowDecoder, Result<WindowText>);

/// A window to decode.
#[derive(Debug)]
pub(super) struct WindowJob {
    pub(super) decoder: WindowDecoder,
    pub(super) request: WindowRequest,
    pub(super) reply: Sender<WindowResult>,
}

/// A window in the KV cache.
#[derive(Debug)]
struct ActiveWindow {
    slot: u32,
    decoder: WindowDecoder,
    reply: Sender<WindowResult>,
}

impl ActiveWindow {
    /// Ends the window and returns its place in the KV cache.
    fn end(self, linked: &mut LinkedTables, text: Result<WindowText>) -> u32 {
        if let Err(e) = &text {
            lost::free_if_lost(linked, e);
        }
        // Ignore that the receiver is gone.
        let _ = self.reply.send((self.decoder, text));
        self.slot
    }
}

/// The windows that are decoded, and those that wait.
#[derive(Debug)]
pub(in crate::decode) struct WindowBatch {
    waiting: VecDeque<WindowJob>,
    active: Vec<ActiveWindow>,
    /// Windows of the KV cache that are not in use.
    slots: Vec<u32>,
    tables: TableSet,
    state: Vec<u8>,
}

impl WindowBatch {
    pub(in crate::decode) fn new(linked: &LinkedTables) -> Self {
        let windows = match linked.speech {
            Some(_) => linked.facts.sequences,
            None => 0,
        };
        Self {
            waiting: VecDeque::new(),
            active: Vec::with_capacity(windows as usize),
            slots: (0..windows).rev().collect(),
            tables: TableSet::of_model(linked),
            state: vec![0; state_bytes(STEP_ROWS_MAX as usize)],
        }
    }

    pub(in crate::decode) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    pub(super) fn add(&mut self, job: WindowJob) {
        self.waiting.push_back(job);
    }

    /// Starts a waiting window, and decodes a token of every hypothesis. Returns whether there was work.
    pub(in crate::decode) fn run(&mut self, linked: &mut LinkedTables) -> bool {
        if self.is_idle() {
            return false;
        }
        self.start(linked);
        self.step(linked);
        true
    }

    /// Ends all windows that are decoded, and starts no others.
    pub(in crate::decode) fn drain(&mut self, linked: &mut LinkedTables) {
        while !self.active.is_empty() {
            self.step(linked);
        }
    }

    /// Starts the first waiting window, if there is a place for it.
    fn start(&mut self, linked: &mut LinkedTables) {
        let Some(slot) = self.slots.pop() else {
            return;
        };
        let Some(job) = self.waiting.pop_front() else {
            self.slots.push(slot);
            return;
        };
        let WindowJob {
            mut decoder,
            request,
            reply,
        } = job;
        let started = decoder.start(linked, slot, request);
        let window = ActiveWindow {
            slot,
            decoder,
            reply,
        };
        match started {
            Ok(()) => {
                self.active.push(window);
                self.advance(linked, self.active.len() - 1);
            }
            Err(e) => self.slots.push(window.end(linked, Err(e))),
        }
    }

    /// Samples the next token of every hypothesis and adds it.
    fn step(&mut self, linked: &mut LinkedTables) {
        let widest = self.tables.max_rows();
        let mut end = self.active.len();
        // From the last window on, because windows that end are removed.
        while end > 0 {
            let mut rows = 0;
            let counts = self.active[..end].iter().rev().map(|window| {
                rows += window.decoder.hypotheses.live().len();
                rows
            });
            let fitting = counts.take_while(|rows| *rows <= widest).count();
            let start = end - fitting.max(1);
            let group = start..end;
            if let Err(e) = self.sample(linked, group.clone()) {
                for window in self.active.drain(group) {
                    let error = Error::new(e.kind(), e.message());
                    self.slots.push(window.end(linked, Err(error)));
                }
            } else {
                for at in group.rev() {
                    self.advance(linked, at);
                }
            }
            end = start;
        }
    }

    /// Runs a step for a group of windows.
    fn sample(&mut self, linked: &mut LinkedTables, group: Range<usize>) -> Result<()> {
        let windows = &mut self.active[group];
        let rows = windows.iter().flat_map(|window| {
            let decoder = &window.decoder;
            let live = decoder.hypotheses.live().iter();
            live.map(|beam| decoder.passes.row(*beam))
        });
        let count = write_rows(linked, &mut self.state, rows)?;
        let stages = windows
            .iter()
            .map(|window| window.decoder.hypotheses.stage());
        // The sampled stage selects the most likely token at temperature 0.
        let stage = stages.max().unwrap_or(SamplingStage::Greedy);
        let table = self.tables.with_rows(count).table;
        let cmds = linked.tables[table].pass(stage);
        linked.executor.run(table, cmds, 1)?;
        for window in windows {
            let decoder = &mut window.decoder;
            let results = decoder.hypotheses.results();
            decoder.passes.read_logprobs(linked, results)?;
        }
        Ok(())
    }

    /// Adds the tokens that were sampled last for a window, and removes it if it has ended.
    fn advance(&mut self, linked: &mut LinkedTables, at: usize) {
        let ended = match self.active[at].decoder.advance(linked) {
            Ok(None) => return,
            Ok(Some(text)) => Ok(text),
            Err(e) => Err(e),
        };
        // The order is that of their start, so that rows stay in the same order.
        let window = self.active.remove(at);
        self.slots.push(window.end(linked, ended));
    }
}
