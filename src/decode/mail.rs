//! What lies between a session and the engine while the engine works for it: tokens and news come out
//! here, and the session waits for them on its own thread.

use super::request::End;
use super::sync::{Condvar, Mutex};
use crate::exec::state::LogProbs;
use std::collections::VecDeque;

/// Tokens that wait for the session at most: who does not take them is left out of further steps.
pub(super) const UNREAD_MAX: usize = 64;

/// A session's box.
#[derive(Debug)]
pub(super) struct Mail {
    inside: Mutex<Inside>,
    changed: Condvar,
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
pub(super) enum News {
    /// A token was picked, from what it was asked to tell.
    Picked(u32, Option<LogProbs>),
    /// The cache holds so many tokens.
    Fed(usize),
    /// The work has ended.
    End(End),
}

impl Mail {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self {
            inside: Mutex::new(Inside {
                picked: VecDeque::with_capacity(UNREAD_MAX),
                log_probs: VecDeque::new(),
                fed: 0,
                end: None,
                enough: false,
            }),
            changed: Condvar::new(),
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
        self.changed.notify_one();
    }

    /// Says how many tokens the cache holds.
    pub(super) fn fed(&self, count: usize) {
        self.inside.lock().fed = count;
        self.changed.notify_one();
    }

    /// Ends the work.
    pub(super) fn end(&self, end: End) {
        self.inside.lock().end = Some(end);
        self.changed.notify_one();
    }

    /// Waits for what comes next: tokens in their order, then how far feeding is where that is wanted
    /// and is not `fed`, then the end.
    pub(super) fn next(&self, fed: Option<usize>) -> News {
        let mut inside = self.inside.lock();
        loop {
            if let Some(token) = inside.picked.pop_front() {
                return News::Picked(token, inside.log_probs.pop_front());
            }
            if fed.is_some_and(|fed| inside.fed != fed) {
                return News::Fed(inside.fed);
            }
            if let Some(end) = inside.end.take() {
                return News::End(end);
            }
            self.changed.wait(&mut inside);
        }
    }
}
