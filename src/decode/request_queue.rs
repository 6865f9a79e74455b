//! What sessions send to the scheduler: a queue that keeps its room.

use super::engine::Engine;
use super::request::Request;
use super::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// What comes to the scheduler.
#[expect(
    clippy::large_enum_variant,
    reason = "a step of a session allocates nothing, no box either"
)]
pub(super) enum Message {
    /// A sequence wants to be fed or to go on.
    Start(Request),
    /// Work on the engine itself, between two rounds.
    Call(Box<dyn FnOnce(&mut Engine) + Send>),
}

/// How long the scheduler waits for a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitPolicy {
    /// There is work to do.
    None,
    /// So long: sessions have to take tokens first.
    Some(Duration),
    /// There is nothing to do.
    Endless,
}

/// What was found in the inbox.
#[expect(clippy::large_enum_variant, reason = "as of messages")]
pub(super) enum Found {
    Message(Message),
    Nothing,
    /// Nobody sends any more.
    Closed,
}

/// Messages in their order.
pub(super) struct RequestQueue {
    inside: Mutex<Inside>,
    came: Condvar,
}

struct Inside {
    messages: VecDeque<Message>,
    is_closed: bool,
}

/// Messages that there is room for from the start.
const ROOM: usize = 64;

impl RequestQueue {
    pub(super) fn new() -> Self {
        Self {
            inside: Mutex::new(Inside {
                messages: VecDeque::with_capacity(ROOM),
                is_closed: false,
            }),
            came: Condvar::new(),
        }
    }

    /// Puts a message in. A closed inbox drops it, which ends what it asks for.
    pub(super) fn send(&self, message: Message) {
        let mut inside = self.inside.lock();
        if inside.is_closed {
            drop(inside);
            drop(message);
            return;
        }
        inside.messages.push_back(message);
        self.came.notify_one();
    }

    /// Says that nothing comes or goes any more. What is in it is dropped.
    pub(super) fn close(&self) {
        let mut inside = self.inside.lock();
        inside.is_closed = true;
        let left = std::mem::take(&mut inside.messages);
        self.came.notify_one();
        drop(inside);
        drop(left);
    }

    /// Takes the next message.
    pub(super) fn take(&self, patience: WaitPolicy) -> Found {
        let mut inside = self.inside.lock();
        loop {
            if let Some(message) = inside.messages.pop_front() {
                return Found::Message(message);
            }
            if inside.is_closed {
                return Found::Closed;
            }
            match patience {
                WaitPolicy::None => return Found::Nothing,
                WaitPolicy::Endless => self.came.wait(&mut inside),
                WaitPolicy::Some(time) => {
                    if self.came.wait_for(&mut inside, time).timed_out() {
                        return Found::Nothing;
                    }
                }
            }
        }
    }
}
