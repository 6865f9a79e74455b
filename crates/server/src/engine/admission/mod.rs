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

/// Threads that requests may keep while they wait for a slot. The runtime has more, for loading and preparations.
pub(crate) const REQUEST_THREADS: usize = 768;

/// Limits of the queues of all models.
#[derive(Clone, Debug)]
pub(crate) struct QueueLimits {
    /// Maximum number of requests that wait for a model.
    pub(crate) waiting: usize,
    /// Threads for the requests of all models.
    pub(crate) threads: Arc<Semaphore>,
}

/// Sequences of a model, and requests that wait for one.
#[derive(Debug)]
pub(crate) struct Admission {
    slots: Arc<Semaphore>,
    slot_count: usize,
    /// Slots that work other than generations may have.
    pass_slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    limits: QueueLimits,
}

/// Place of a request in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Admission>);

/// Slot of a running generation, and the thread that it keeps when others have the slot. Dropping it frees both.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` while others have their turn.
    held: Option<OwnedSemaphorePermit>,
    _thread: OwnedSemaphorePermit,
}

/// Slot of work that consists of passes. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct PassSlot {
    admission: Arc<Admission>,
    /// The slot, and that it is one for passes; `None` while others have their turn.
    held: Option<[OwnedSemaphorePermit; 2]>,
    deadline: Deadline,
    runtime: Handle,
    _thread: OwnedSemaphorePermit,
}

/// Waits for a permit.
async fn permit(of: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(of).acquire_owned().await;
    permit.expect("the semaphore is never closed")
}

impl Admission {
    /// Creates the queue of a model. Of the slots, `pass_slots` are for work other than generations.
    pub(crate) fn new(slot_count: usize, pass_slots: usize, limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(slot_count)),
            pass_slots: Arc::new(Semaphore::new(pass_slots)),
            slot_count,
            waiting: AtomicUsize::new(0),
            limits,
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
        if waiting >= self.limits.waiting + self.slots.available_permits() {
            let message = format!(
                "{} requests are queued, try again later",
                self.limits.waiting
            );
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
            return Err(error.code("queue_full").retry_after(1));
        }
        Ok(ticket)
    }

    /// Waits for a slot without a place in the queue: for further choices of a running request.
    pub(crate) async fn slot(&self) -> Slot {
        // First the thread: a slot without one would wait for threads that wait for slots.
        let thread = permit(&self.limits.threads).await;
        Slot {
            held: Some(permit(&self.slots).await),
            _thread: thread,
        }
    }

    /// Waits for a slot for a pass.
    async fn pass_permits(&self) -> [OwnedSemaphorePermit; 2] {
        let pass = permit(&self.pass_slots).await;
        [pass, permit(&self.slots).await]
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

impl Slot {
    /// Gives the slot to a request that waits.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    /// Waits for the next slot after [`Slot::release`].
    pub(crate) async fn acquire(&mut self, admission: &Admission) {
        self.held = Some(permit(&admission.slots).await);
    }
}

impl Ticket {
    /// Waits for a slot, in the order of arrival.
    pub(crate) async fn slot(self) -> Slot {
        self.0.slot().await
    }

    /// Waits for a slot for work that consists of passes, in the order of arrival.
    pub(crate) async fn pass_slot(self, deadline: Deadline) -> PassSlot {
        let thread = permit(&self.0.limits.threads).await;
        PassSlot {
            held: Some(self.0.pass_permits().await),
            admission: Arc::clone(&self.0),
            deadline,
            runtime: Handle::current(),
            _thread: thread,
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
                held = self.admission.pass_permits() => Some(held),
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

#[cfg(test)]
mod tests;
