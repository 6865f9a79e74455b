//! Runs generations: a thread for each choice, which sends events to the task of the request.
//!
//! The channel is bounded. If the client reads slowly, the thread waits, the output queue of the session
//! fills, and the scheduler of the model gives the slot of this session to others.

use super::admission::Slot;
use super::events::{Event, Finished, Output, PromptUsage, Usage};
use super::output::ChoiceOutput;
use super::request::Generate;
use crate::http::error::{ApiError, ApiResult};
use crate::http::sse::EventSource;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tabla::{Cancel, ErrorKind, GenerateOptions, Session};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Number of events that wait for the client.
const CHANNEL_EVENTS: usize = 32;

/// A running generation. Dropping it cancels the generation.
pub(crate) struct Run {
    events: mpsc::Receiver<ApiResult<Event>>,
    _cancel: CancelOnDrop,
}

impl EventSource for Run {
    type Event = Event;

    async fn next(&mut self) -> Option<ApiResult<Event>> {
        self.events.recv().await
    }

    fn try_next(&mut self) -> Option<ApiResult<Event>> {
        self.events.try_recv().ok()
    }
}

/// The sessions of a request, so that all can be cancelled.
#[derive(Clone, Default)]
struct CancelGroup(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    sessions: Mutex<Vec<Cancel>>,
}

impl CancelGroup {
    fn add(&self, session: &Session) {
        let cancel = session.canceller();
        let mut sessions = self.sessions();
        if self.is_cancelled() {
            cancel.cancel();
        }
        sessions.push(cancel);
    }

    fn cancel(&self) {
        let sessions = self.sessions();
        self.0.is_cancelled.store(true, Ordering::Relaxed);
        sessions.iter().for_each(Cancel::cancel);
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Cancel>> {
        self.0
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct CancelOnDrop(CancelGroup);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Starts a generation.
pub(crate) fn start(request: Generate) -> Run {
    let (sender, events) = mpsc::channel(CHANNEL_EVENTS);
    let cancel = CancelGroup::default();
    let guard = CancelOnDrop(cancel.clone());
    tokio::spawn(run(request, sender, cancel));
    Run {
        events,
        _cancel: guard,
    }
}

async fn run(request: Generate, sender: mpsc::Sender<ApiResult<Event>>, cancel: CancelGroup) {
    let deadline = request.time;
    let Generate {
        lease,
        ticket,
        prompt,
        options,
        choices,
        format,
        stall_time,
        record,
        ..
    } = request;
    let queued = Instant::now();
    let model = lease.model();
    let slot = tokio::select! {
        slot = ticket.slot() => slot,
        () = sender.closed() => return,
        () = tokio::time::sleep(deadline) => {
            let message = "the request waited too long in the queue";
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(1);
            let _ = sender.send(Err(error)).await;
            return;
        }
    };
    let metrics = &model.metrics;
    metrics.queue_time.observe(queued.elapsed());
    let sink = Sink {
        sender: sender.clone(),
        runtime: Handle::current(),
        stall_time,
        deadline: queued + deadline,
    };
    let begun = Instant::now();
    let prefill = {
        let (model, cancel) = (Arc::clone(&model), cancel.clone());
        tokio::task::spawn_blocking(move || prefill(&model, &prompt, &cancel))
    };
    let (session, prompt) = match joined(prefill.await) {
        Ok(ready) => ready,
        Err(error) => {
            if !cancel.is_cancelled() {
                let _ = sender.send(Err(error)).await;
            }
            return;
        }
    };
    let prompt_time = begun.elapsed();
    metrics.prompt(prompt, prompt_time);
    record.update(|record| {
        record.prompt_tokens = prompt.tokens;
        record.cached_tokens = prompt.cached;
    });
    if sender.send(Ok(Event::Started(prompt))).await.is_err() {
        return;
    }
    let job = Job {
        model: Arc::clone(&model),
        sink,
        cancel,
        format,
        record: Arc::clone(&record),
    };
    let begun = Instant::now();
    let results = run_choices(job, session, slot, (options, choices)).await;
    let mut usage = Usage {
        prompt,
        prompt_time,
        generation_time: begun.elapsed(),
        ..Usage::default()
    };
    for result in results {
        match result {
            Ok(counts) => {
                usage.generated += counts.tokens;
                usage.reasoning += counts.reasoning;
            }
            Err(Some(error)) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
            Err(None) => return,
        }
    }
    record.update(|record| record.generated_tokens = usage.generated);
    metrics.request_time.observe(record.elapsed());
    let _ = sender.send(Ok(Event::Done(usage))).await;
}

/// Processes the prompt.
fn prefill(
    model: &crate::models::Loaded,
    prompt: &[u32],
    cancel: &CancelGroup,
) -> ApiResult<(Session, PromptUsage)> {
    let mut session = model.session();
    cancel.add(&session);
    session.prefill(prompt)?;
    let tokens = prompt.len() as u64;
    let cached = tokens.saturating_sub(session.computed_tokens());
    Ok((session, PromptUsage { tokens, cached }))
}

/// What the threads of all choices share.
#[derive(Clone)]
struct Job {
    model: Arc<crate::models::Loaded>,
    sink: Sink,
    cancel: CancelGroup,
    format: super::request::OutputFormat,
    record: Arc<crate::http::record::Record>,
}

/// Tokens of a choice.
struct Counts {
    tokens: u64,
    reasoning: u64,
}

/// Error of a choice; `None` if the client is gone.
type ChoiceResult = Result<Counts, Option<ApiError>>;

/// Runs all choices: the first in the slot of the request, the others when slots are free.
async fn run_choices(
    job: Job,
    session: Session,
    slot: Slot,
    (options, choices): (GenerateOptions, u32),
) -> Vec<ChoiceResult> {
    let mut tasks = Vec::new();
    let forks = (1..choices).map(|choice| Ok((choice, session.fork()?)));
    let forks: Result<Vec<_>, tabla::Error> = forks.collect();
    let forks = match forks {
        Ok(forks) => forks,
        Err(error) => return vec![Err(Some(error.into()))],
    };
    let first = (job.clone(), options.clone());
    tasks.push(tokio::task::spawn_blocking(move || {
        let result = run_choice(&first.0, session, 0, &first.1);
        drop(slot);
        result
    }));
    for (choice, session) in forks {
        let slot = job.model.admission.slot().await;
        let job = job.clone();
        let sampling = options.sampling;
        let seed = sampling.seed.wrapping_add(choice.into());
        let options = options.clone().sampling(sampling.seed(seed));
        tasks.push(tokio::task::spawn_blocking(move || {
            job.cancel.add(&session);
            let result = run_choice(&job, session, choice, &options);
            drop(slot);
            result
        }));
    }
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap_or_else(|_| Err(Some(panicked()))));
    }
    results
}

/// Runs one choice.
fn run_choice(
    job: &Job,
    mut session: Session,
    choice: u32,
    options: &GenerateOptions,
) -> ChoiceResult {
    let tokenizer = job.model.model.tokenizer();
    let mut output = ChoiceOutput::new(choice, &job.format);
    let failed = |error: tabla::Error| Some(ApiError::from(error));
    let mut generation = session.generate(options).map_err(failed)?;
    let mut latency = job.model.metrics.latency();
    while let Some(piece) = generation.next_piece().map_err(failed)? {
        if !piece.is_flush {
            latency.token();
            if let Some(time) = job.record.first_token() {
                job.model.metrics.first_token_time.observe(time);
            }
        }
        for event in output.push(piece, tokenizer) {
            job.sink.send(event)?;
        }
        if output.is_complete() || job.sink.is_late() {
            generation.stop().map_err(failed)?;
            break;
        }
    }
    if job.cancel.is_cancelled() {
        return Err(None);
    }
    let finish = generation.stats().finish;
    for event in output.finish() {
        job.sink.send(event)?;
    }
    let reason = output.reason(finish);
    job.model.metrics.finished(reason);
    job.sink.finished(Finished {
        choice,
        reason,
        stop_string: None,
    })?;
    Ok(Counts {
        tokens: output.tokens,
        reasoning: output.reasoning,
    })
}

/// Sends events to the task of the request.
#[derive(Clone)]
struct Sink {
    sender: mpsc::Sender<ApiResult<Event>>,
    runtime: Handle,
    stall_time: Duration,
    deadline: Instant,
}

impl Sink {
    fn send(&self, output: Output) -> Result<(), Option<ApiError>> {
        self.send_event(Event::Output(output))
    }

    fn finished(&self, finished: Finished) -> Result<(), Option<ApiError>> {
        self.send_event(Event::Finished(finished))
    }

    /// Sends an event. Fails if the client is gone or reads nothing for too long.
    fn send_event(&self, event: Event) -> Result<(), Option<ApiError>> {
        let event = match self.sender.try_send(Ok(event)) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(None),
            Err(mpsc::error::TrySendError::Full(event)) => event,
        };
        let send = self.sender.send_timeout(event, self.stall_time);
        self.runtime.block_on(send).map_err(|_| None)
    }

    /// Whether the request exceeds its maximum duration.
    fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }
}

/// Returns the result of a thread.
pub(crate) fn joined<T>(result: Result<ApiResult<T>, tokio::task::JoinError>) -> ApiResult<T> {
    result.unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
}

/// Runs `work` on a thread for blocking calls.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    joined(tokio::task::spawn_blocking(work).await)
}

/// Whether the error only says that the request was cancelled.
pub(crate) fn is_cancelled(error: &tabla::Error) -> bool {
    error.kind() == ErrorKind::Cancelled
}
