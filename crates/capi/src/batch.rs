//! Functions of a batch: answers to many prompts, read by one thread.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::{PieceBuffer, Prefill, TablaPiece, TablaStats};
use super::exclusive::Exclusive;
use super::generate::options_of;
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::options::generate::TablaGenerateOptions;
use super::pointers::{out_of, size_of_struct, slice_of, write_sized};
use super::sequence::TablaModel;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tabla::error::bail;
use tabla::{Batch, BatchEvent, Cancel, Error, ErrorKind, Result};

/// Answers to many prompts. Opaque.
pub struct TablaBatch {
    state: Exclusive<BatchState>,
    /// Cancellation handle of each answer in progress, by the number of its request.
    cancels: Mutex<HashMap<usize, Cancel>>,
    closed: AtomicBool,
}

struct BatchState {
    batch: Batch,
    /// Memory that the last piece points to.
    buffer: PieceBuffer,
    /// Number of prompt tokens of each answer in progress, by the number of its request.
    prompts: HashMap<usize, usize>,
    /// Statistics of the answer that ended last.
    last: Option<TablaStats>,
}

impl HandleType for TablaBatch {
    const NAME: &'static str = "batch";

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.cancels.lock().values().for_each(Cancel::close);
    }
}

/// Creates an empty batch. Returns NULL on failure; `tabla_last_error` has the reason. At most
/// `TablaLoadOptions.sequences` answers are computed at the same time; the others wait. One thread
/// reads all of them with `tabla_batch_next`. A batch keeps its model alive.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_new(model: *const TablaModel) -> *mut TablaBatch {
    guard_value(|| {
        let batch = Batch::new(resolve(model)?.model().clone());
        handles::insert(TablaBatch {
            state: Exclusive::new(BatchState {
                batch,
                buffer: PieceBuffer::default(),
                prompts: HashMap::new(),
                last: None,
            }),
            cancels: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Adds a prompt, as token ids, and starts its answer without waiting. `request` is the number of
/// the request, counted from 0. NULL options are the defaults. At most 512 answers can be in
/// progress; a further one is `TABLA_ERROR_BUSY`: read some to their end first.
///
/// # Safety
///
/// `tokens` points to `count` ids; `options` is NULL or points to a struct with `struct_size` set;
/// `request` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_add(
    batch: *mut TablaBatch,
    tokens: *const u32,
    count: usize,
    options: *const TablaGenerateOptions,
    request: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
        // SAFETY: guaranteed by the caller.
        let options = unsafe { options_of(options) }?;
        // SAFETY: guaranteed by the caller.
        let options = unsafe { options.answer() }?;
        // SAFETY: guaranteed by the caller.
        let request = unsafe { out_of(request, "request") }?;
        let handle = resolve(batch)?;
        *request = handle.state.enter(TablaBatch::NAME, |inner| {
            let options = options.after(tokens, None, inner.batch.model())?;
            let (request, cancel) = inner.batch.add(tokens, &options)?;
            inner.prompts.insert(request, tokens.len());
            handle.cancels.lock().insert(request, cancel);
            Ok(request)
        })?;
        Ok(())
    })
}

/// Waits for the next piece of any answer; `TablaPiece.request` is the number of its request.
/// Answers take turns. The last piece of an answer has a `finish` reason. A failed answer has
/// `TABLA_FINISH_FAILED`, the error code in `status` and the message in `text`; the other answers
/// continue.
///
/// # Safety
///
/// `piece` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_next(
    batch: *mut TablaBatch,
    piece: *mut TablaPiece,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(piece, "piece") }?;
        let handle = resolve(batch)?;
        let next = handle.state.enter(TablaBatch::NAME, |inner| {
            let next = next(inner)?;
            if next.has_ended() {
                handle.cancels.lock().remove(&next.request);
            }
            Ok(next)
        })?;
        if handle.closed.load(Ordering::Acquire) {
            bail!(Cancelled, "the batch was freed during the call");
        }
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&next, piece, size) };
        Ok(())
    })
}

fn next(inner: &mut BatchState) -> Result<TablaPiece> {
    let Some(next) = inner.batch.next() else {
        bail!(
            State,
            "no answer is in progress: add one with tabla_batch_add"
        );
    };
    let request = next.request;
    let piece = match next.event {
        BatchEvent::Piece(piece) => inner.buffer.piece(&piece),
        BatchEvent::End(stats, _) => {
            let prefill = Prefill {
                tokens: inner.prompts.remove(&request).unwrap_or(0),
                took: Duration::ZERO,
            };
            let stats = TablaStats::of(prefill, &stats);
            inner.last = Some(stats);
            TablaPiece::end(stats.finish)
        }
        BatchEvent::Failed(error) => {
            inner.prompts.remove(&request);
            inner.last = None;
            inner.buffer.failure(&error)
        }
    };
    Ok(TablaPiece { request, ..piece })
}

/// Writes the number of answers in progress.
///
/// # Safety
///
/// `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_pending(
    batch: *const TablaBatch,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let handle = resolve(batch)?;
        *count = handle
            .state
            .enter(TablaBatch::NAME, |inner| Ok(inner.batch.pending()))?;
        Ok(())
    })
}

/// Writes the statistics of the answer that ended last. `prompt_ms` is 0: prompts of several
/// answers are computed together.
///
/// # Safety
///
/// `stats` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_batch_stats(
    batch: *const TablaBatch,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(stats, "stats") }?;
        let c_stats = resolve(batch)?.state.enter(TablaBatch::NAME, |inner| {
            let none = || {
                Error::new(
                    ErrorKind::State,
                    "no answer has ended, or the last one failed",
                )
            };
            inner.last.ok_or_else(none)
        })?;
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&c_stats, stats, size) };
        Ok(())
    })
}

/// Cancels the answer to a request, from any thread. Does nothing if the answer has ended.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_cancel(batch: *const TablaBatch, request: usize) -> TablaStatus {
    guard(|| {
        let handle = resolve(batch)?;
        if let Some(cancel) = handle.cancels.lock().get(&request) {
            cancel.cancel();
        }
        Ok(())
    })
}

/// Frees a batch and cancels its answers.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_batch_free(batch: *mut TablaBatch) -> TablaStatus {
    guard(|| handles::remove(batch))
}
