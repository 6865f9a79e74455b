//! Bounded queue of requests for the sequences of a model.
//!
//! A generation has a slot until it ends. Other work, such as embeddings, consists of passes over texts; it has a
//! slot for one pass at a time, and cannot take all slots of a model that generates text. So neither kind of work
//! keeps the other waiting for long.

use crate::http::deadline::Deadline;
use crate::http::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sequences of a model, and requests that wait for one.
#[derive(Debug)]
pub(crate) struct Admission {
    slots: Arc<Semaphore>,
    slot_count: usize,
    /// Slots that work other than generations may have.
    pass_slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Place of a request in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Admission>);

/// Slot of a running generation. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// Slot of work that consists of passes. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct PassSlot {
    admission: Arc<Admission>,
    /// `None` while others have their turn.
    held: Option<(OwnedSemaphorePermit, Slot)>,
    deadline: Deadline,
    runtime: Handle,
}

impl Admission {
    /// Creates the queue of a model. Of the slots, `pass_slots` are for work other than generations.
    pub(crate) fn new(slot_count: usize, pass_slots: usize, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(slot_count)),
            pass_slots: Arc::new(Semaphore::new(pass_slots)),
            slot_count,
            waiting: AtomicUsize::new(0),
            waiting_max,
        })
    }

    /// Enters the queue.
    ///
    /// # Errors
    ///
    /// Status 429 if the queue is full.
    pub(crate) fn enter(self: &Arc<Self>) -> ApiResult<Ticket> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(Arc::clone(self));
        // Requests that find a free slot do not wait.
        if waiting >= self.waiting_max + self.slots.available_permits() {
            let message = format!("{} requests are queued, try again later", self.waiting_max);
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
            return Err(error.code("queue_full").retry_after(1));
        }
        Ok(ticket)
    }

    /// Waits for a slot without a place in the queue: for further choices of a running request.
    pub(crate) async fn slot(&self) -> Slot {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        Slot {
            _permit: permit.expect("the semaphore is never closed"),
        }
    }

    /// Waits for a slot for a pass.
    async fn pass_slot(&self) -> (OwnedSemaphorePermit, Slot) {
        let permit = Arc::clone(&self.pass_slots).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        (permit, self.slot().await)
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slot_count
    }

    /// Number of running generations.
    pub(crate) fn running(&self) -> usize {
        self.slot_count - self.slots.available_permits()
    }

    /// Number of queued requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Ticket {
    /// Waits for a slot, in the order of arrival.
    pub(crate) async fn slot(self) -> Slot {
        self.0.slot().await
    }

    /// Waits for a slot for work that consists of passes, in the order of arrival.
    pub(crate) async fn pass_slot(self, deadline: Deadline) -> PassSlot {
        PassSlot {
            held: Some(self.0.pass_slot().await),
            admission: Arc::clone(&self.0),
            deadline,
            runtime: Handle::current(),
        }
    }
}

impl PassSlot {
    /// Gives the slot to a request that waits, and waits for the next one. Blocks. After the deadline, at which
    /// the work is cancelled, there is no further slot.
    pub(crate) fn next(&mut self) {
        drop(self.held.take());
        self.held = self.runtime.block_on(async {
            tokio::select! {
                biased;
                held = self.admission.pass_slot() => Some(held),
                () = self.deadline.passed() => None,
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
