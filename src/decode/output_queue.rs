//! What lies between a session and the engine while the engine works for it: tokens and news come out
//! here, and the session waits for them on its own thread.

use super::end::End;
use super::notifier::Notifier;
use super::sync::{Condvar, Mutex};
use crate::exec::state::LogProbs;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tokens that wait for the session at most: who does not take them is left out of further steps.
pub(super) const UNREAD_MAX: usize = 64;

/// A session's box.
#[derive(Debug)]
pub(super) struct OutputQueue {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Rings with whatever comes in, for who waits for several.
    bell: Option<Arc<Notifier>>,
}

#[derive(Debug)]
struct Inside {
    picked: VecDeque<u32>,
    /// What each was picked from, where that was asked for.
    log_probs: VecDeque<LogProbs>,
    /// Tokens that the cache holds.
    fed: usize,
    end: Option<End>,
    /// Whether the session wants no more.
    enough: bool,
}

/// What comes next of the engine's work.
#[derive(Debug)]
pub(super) enum OutputEvent {
    /// A token was picked, from what it was asked to tell.
    SampledTokens(u32, Option<LogProbs>),
    /// The cache holds so many tokens.
    Fed(usize),
    /// The work has ended.
    End(End),
}

impl OutputQueue {
    /// An empty one.
    pub(super) fn new(bell: Option<Arc<Notifier>>) -> Self {
        Self {
            inside: Mutex::new(Inside {
                picked: VecDeque::with_capacity(UNREAD_MAX),
                log_probs: VecDeque::new(),
                fed: 0,
                end: None,
                enough: false,
            }),
            changed: Condvar::new(),
            bell,
        }
    }

    /// Forgets what is in it.
    pub(super) fn clear(&self) {
        let mut inside = self.inside.lock();
        inside.picked.clear();
        inside.log_probs.clear();
        inside.fed = 0;
        inside.end = None;
        inside.enough = false;
    }

    /// Makes room for the probabilities of as many tokens as there is room for.
    pub(super) fn expect_log_probs(&self) {
        self.inside.lock().log_probs.reserve(UNREAD_MAX);
    }

    /// Says that no more is wanted.
    pub(super) fn enough(&self) {
        self.inside.lock().enough = true;
    }

    /// Whether no more is wanted.
    pub(super) fn is_enough(&self) -> bool {
        self.inside.lock().enough
    }

    /// How many tokens it takes.
    pub(super) fn room(&self) -> usize {
        UNREAD_MAX - self.inside.lock().picked.len()
    }

    /// Puts in tokens, for which there is room; of a session that wants them probabilities come with
    /// each, one by one.
    pub(super) fn pick(&self, tokens: &[u32], log_probs: Option<LogProbs>) {
        let mut inside = self.inside.lock();
        inside.picked.extend(tokens);
        inside.log_probs.extend(log_probs);
        drop(inside);
        self.tell();
    }

    /// Says how many tokens the cache holds.
    pub(super) fn fed(&self, count: usize) {
        self.inside.lock().fed = count;
        self.tell();
    }

    /// Ends the work.
    pub(super) fn end(&self, end: End) {
        self.inside.lock().end = Some(end);
        self.tell();
    }

    /// Wakes who waits.
    fn tell(&self) {
        self.changed.notify_one();
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Waits for what comes next: tokens in their order, then how far feeding is where that is wanted
    /// and is not `fed`, then the end.
    pub(super) fn next(&self, fed: Option<usize>) -> OutputEvent {
        let mut inside = self.inside.lock();
        loop {
            if let Some(news) = inside.next(fed) {
                return news;
            }
            self.changed.wait(&mut inside);
        }
    }

    /// What is there of tokens and the end, without a wait.
    pub(super) fn try_next(&self) -> Option<OutputEvent> {
        self.inside.lock().next(None)
    }
}

impl Inside {
    fn next(&mut self, fed: Option<usize>) -> Option<OutputEvent> {
        if let Some(token) = self.picked.pop_front() {
            return Some(OutputEvent::SampledTokens(
                token,
                self.log_probs.pop_front(),
            ));
        }
        if fed.is_some_and(|fed| self.fed != fed) {
            return Some(OutputEvent::Fed(self.fed));
        }
        self.end.take().map(OutputEvent::End)
    }
}
