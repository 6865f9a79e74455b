//! The functions of a batch: answers to many prompts, taken by one thread as they come.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::{Room, TablaPiece, TablaStats};
use super::generate::{TablaGenerateOptions, options_of};
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, Handled, resolve};
use super::pointers::{out_of, size_of_struct, slice_of, write_sized};
use super::sequence::TablaModel;
use super::turn::Turn;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tabla::error::{Error, ErrorKind, Result, bail};
use tabla::{Batch, BatchEvent, Cancel};

/// Answers to many prompts. Opaque.
pub struct TablaBatch {
    turn: Turn<Inner>,
    /// What stops each answer that is under way.
    cancels: Mutex<HashMap<usize, Cancel>>,
    closed: AtomicBool,
}

struct Inner {
    batch: Batch,
    /// What the last piece points to.
    room: Room,
    /// Tokens of the prompt of each answer that is under way.
    prompts: HashMap<usize, usize>,
    /// What the answer did that ended last.
    last: Option<TablaStats>,
}

impl Handled for TablaBatch {
    const NAME: &'static str = "batch";

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.cancels.lock().values().for_each(Cancel::close);
    }
}

/// An empty batch, or NULL with the reason in `tabla_last_error`. Its answers go on together, as many as
/// the model has sequences; the others wait for their turn. One thread takes all of them with
/// `tabla_batch_next`. A batch keeps its model.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_new(model: *const TablaModel) -> *mut TablaBatch {
    guard_value(|| {
        let batch = Batch::new(resolve(model)?.model().clone());
        handles::insert(TablaBatch {
            turn: Turn::new(Inner {
                batch,
                room: Room::default(),
                prompts: HashMap::new(),
                last: None,
            }),
            cancels: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Adds a prompt, as ids, and begins to answer it; it waits for nothing. `number` counts from 0. NULL
/// options are the defaults. Where 512 answers are under way it is `TABLA_ERROR_BUSY`: take some to their
/// end first.
///
/// # Safety
///
/// `tokens` points to `count` ids; `options` is NULL or points to a struct that begins with its size;
/// `number` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_add(
    batch: *mut TablaBatch,
    tokens: *const u32,
    count: usize,
    options: *const TablaGenerateOptions,
    number: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options.generate() }?;
        // SAFETY: the caller's promise.
        let number = unsafe { out_of(number, "number") }?;
        let handle = resolve(batch)?;
        *number = handle.turn.enter(TablaBatch::NAME, |inner| {
            let (number, cancel) = inner.batch.add(tokens, &options)?;
            inner.prompts.insert(number, tokens.len());
            handle.cancels.lock().insert(number, cancel);
            Ok(number)
        })?;
        Ok(())
    })
}

/// Waits for the next piece of any of the answers, which take turns: `TablaPiece.number` says of which.
/// Behind its last one, an answer has a piece whose `finish` says why it ended. One that failed has
/// `TABLA_FINISH_FAILED`, with the error's code in `status` and its message in `text`; the others go on.
///
/// # Safety
///
/// `piece` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_next(
    batch: *mut TablaBatch,
    piece: *mut TablaPiece,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(piece, "piece") }?;
        let handle = resolve(batch)?;
        let next = handle.turn.enter(TablaBatch::NAME, |inner| {
            let next = next(inner)?;
            if next.has_ended() {
                handle.cancels.lock().remove(&next.number);
            }
            Ok(next)
        })?;
        if handle.closed.load(Ordering::Acquire) {
            bail!(Cancelled, "the batch was freed during the call");
        }
        // SAFETY: the caller's struct holds so many bytes.
        unsafe { write_sized(&next, piece, size) };
        Ok(())
    })
}

fn next(inner: &mut Inner) -> Result<TablaPiece> {
    let Some(next) = inner.batch.next() else {
        bail!(
            State,
            "no answer is under way: add one with tabla_batch_add"
        );
    };
    let number = next.number;
    let piece = match next.event {
        BatchEvent::Piece(piece) => inner.room.piece(&piece),
        BatchEvent::End(stats, _) => {
            let prompt = inner.prompts.remove(&number).unwrap_or(0);
            let stats = TablaStats::of((prompt, Duration::ZERO), &stats);
            inner.last = Some(stats);
            TablaPiece::end(stats.finish)
        }
        BatchEvent::Failed(error) => {
            inner.prompts.remove(&number);
            inner.last = None;
            inner.room.failure(&error)
        }
    };
    Ok(TablaPiece { number, ..piece })
}

/// Writes how many answers are under way.
///
/// # Safety
///
/// `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_pending(
    batch: *const TablaBatch,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let handle = resolve(batch)?;
        *count = handle
            .turn
            .enter(TablaBatch::NAME, |inner| Ok(inner.batch.pending()))?;
        Ok(())
    })
}

/// Writes what the answer did whose end came last; the time of its prompt is part of the others'.
///
/// # Safety
///
/// `stats` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_stats(
    batch: *const TablaBatch,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(stats, "stats") }?;
        let done = resolve(batch)?.turn.enter(TablaBatch::NAME, |inner| {
            let none = || {
                Error::new(
                    ErrorKind::State,
                    "no answer has ended, or the last one that did has failed",
                )
            };
            inner.last.ok_or_else(none)
        })?;
        // SAFETY: the caller's struct holds so many bytes.
        unsafe { write_sized(&done, stats, size) };
        Ok(())
    })
}

/// Stops an answer, from any thread; one that has ended stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_cancel(batch: *const TablaBatch, number: usize) -> TablaStatus {
    guard(|| {
        let handle = resolve(batch)?;
        if let Some(cancel) = handle.cancels.lock().get(&number) {
            cancel.cancel();
        }
        Ok(())
    })
}

/// Frees a batch; its answers are cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_free(batch: *mut TablaBatch) -> TablaStatus {
    guard(|| handles::remove(batch))
}
