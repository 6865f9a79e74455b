//! Runs generations: a thread for each choice, which sends events to the task of the request.
//!
//! The channel is bounded. If the client reads slowly, the thread waits and gives its place to another request,
//! the output queue of the session fills, and the scheduler of the model gives its slot to other sessions.

use super::admission::{Admission, Slot};
use super::blocking::{blocking, panicked};
use super::clock::{Clock, PromptWork};
use super::events::{
    Event, FinishReason, Finished, Output, Progress, PromptOutput, PromptUsage, TokenLogprob, Usage,
};
use super::line_limits::LineLimits;
use super::output::{ChoiceOutput, pairs};
use super::request::{Echo, Extras, Generate, OutputFormat};
use crate::http::deadline::Deadline;
use crate::http::error::{ApiError, ApiResult};
use crate::http::record::Record;
use crate::http::sse::EventSource;
use crate::models::{Lease, Loaded};
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tabla::{Cancel, ErrorKind, GenerateOptions, Generation, Session};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

/// Number of events that wait for the client.
const CHANNEL_EVENTS: usize = 32;

/// Maximum number of times that a choice continues on the next load of its model.
const RECOVERIES_MAX: u32 = 2;

/// A running generation. Dropping it cancels the generation.
pub(crate) struct Run {
    events: mpsc::Receiver<ApiResult<Event>>,
    cancelled: watch::Receiver<bool>,
    _cancel: CancelGroupOnDrop,
}

impl EventSource for Run {
    type Event = Event;

    async fn next(&mut self) -> Option<ApiResult<Event>> {
        tokio::select! {
            event = self.events.recv() => event,
            _ = self.cancelled.wait_for(|cancelled| *cancelled) => Some(Err(ApiError::shutting_down())),
        }
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

/// Cancels all sessions of a request when it is dropped.
struct CancelGroupOnDrop(CancelGroup);

impl Drop for CancelGroupOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Starts a generation.
pub(crate) fn start(request: Generate) -> Run {
    let (sender, events) = mpsc::channel(CHANNEL_EVENTS);
    let cancel = CancelGroup::default();
    let guard = CancelGroupOnDrop(cancel.clone());
    let cancelled = request.lease.cancelled.clone();
    request.deadline.observe();
    tokio::spawn(run(request, sender, cancel));
    Run {
        events,
        cancelled,
        _cancel: guard,
    }
}

async fn run(request: Generate, sender: mpsc::Sender<ApiResult<Event>>, cancel: CancelGroup) {
    let queued = Instant::now();
    let Generate {
        lease,
        ticket,
        prompts,
        mut options,
        choices,
        echo,
        format,
        extras,
        deadline,
        record,
    } = request;
    let model = lease.model();
    options.overflow = model.overflow;
    let slot = tokio::select! {
        slot = ticket.slot() => slot,
        () = sender.closed() => return,
        () = deadline.passed() => {
            let _ = sender.send(Err(deadline.error())).await;
            return;
        }
    };
    model.metrics.queue_time.observe(queued.elapsed());
    let job = Job {
        lease,
        model: Arc::clone(&model),
        sink: Sink {
            sender: sender.clone(),
            runtime: Handle::current(),
            admission: Arc::clone(&model.admission),
            deadline,
        },
        cancel,
        format,
        extras,
        record: Arc::clone(&record),
        without_token: Arc::new(AtomicUsize::new(prompts.len() * choices.max(1) as usize)),
    };
    let template = Prompt {
        tokens: Vec::new(),
        first: 0,
        choices,
        echo,
    };
    let work = run_prompts(&job, template, prompts, slot, options);
    let ended = end_late(&job, work).await;
    match ended {
        Ok(usage) => {
            model.metrics.request_time.observe(record.elapsed());
            let _ = sender.send(Ok(Event::Done(usage))).await;
        }
        Err(Some(error)) if !job.cancel.is_cancelled() => {
            let _ = sender.send(Err(job.model.explain(error))).await;
        }
        Err(_) => {}
    }
}

/// Waits for the end of the work. If a choice has no token at the deadline of the request, reports an error and
/// cancels the work; otherwise all choices end with their next token.
async fn end_late(job: &Job, work: impl Future<Output = Ended<Usage>>) -> Ended<Usage> {
    tokio::pin!(work);
    tokio::select! {
        biased;
        ended = &mut work => return ended,
        () = job.sink.deadline.passed() => {}
    }
    if job.without_token.load(Ordering::Relaxed) > 0 {
        job.cancel.cancel();
        let error = job.sink.deadline.error();
        let _ = job.sink.sender.send(Err(error)).await;
    }
    work.await
}

/// Runs all prompts: the first in this slot, the others when slots are free.
async fn run_prompts(
    job: &Job,
    template: Prompt,
    prompts: Vec<Vec<u32>>,
    slot: Slot,
    options: GenerateOptions,
) -> Ended<Usage> {
    let mut slot = Some(slot);
    let mut tasks = Vec::new();
    for (at, tokens) in (0..).zip(prompts) {
        let slot = match slot.take() {
            Some(slot) => slot,
            None => job.slot().await?,
        };
        if job.cancel.is_cancelled() {
            return Err(None);
        }
        let prompt = Prompt {
            tokens,
            first: at * template.choices.max(1),
            ..template
        };
        tasks.push(tokio::spawn(run_prompt(
            job.clone(),
            prompt,
            slot,
            options.clone(),
        )));
    }
    let mut usage = Usage::default();
    for task in tasks {
        usage += task.await.unwrap_or_else(|_| Err(Some(panicked())))?;
    }
    Ok(usage)
}

/// A prompt and the choices after it.
struct Prompt {
    tokens: Vec<u32>,
    /// Index of the first choice.
    first: u32,
    /// Number of choices.
    choices: u32,
    echo: Option<Echo>,
}

/// Error of a prompt or a choice; `None` if the client is gone.
type Ended<T> = Result<T, Option<ApiError>>;

/// Processes a prompt and runs its choices: the first in this slot, the others when slots are free.
async fn run_prompt(
    job: Job,
    prompt: Prompt,
    slot: Slot,
    options: GenerateOptions,
) -> Ended<Usage> {
    if prompt.echo.is_none() && prompt.choices == 1 && !job.extras.progress {
        let run = move || run_with_prompt(&job, &prompt, slot, &options);
        return tokio::task::spawn_blocking(run)
            .await
            .unwrap_or_else(|_| Err(Some(panicked())));
    }
    let begun = Instant::now();
    let Prompt {
        tokens,
        first,
        choices,
        echo,
    } = prompt;
    let prefill = {
        let job = job.clone();
        blocking(move || prefill(&job, &tokens, first, echo))
    };
    let (loaded, session, prompt) = prefill.await.map_err(Some)?;
    let (job, slot) = match Arc::ptr_eq(&loaded, &job.model) {
        true => (job, slot),
        false => {
            drop(slot);
            let job = job.on(loaded);
            let slot = job.slot().await?;
            (job, slot)
        }
    };
    let usage = Usage {
        prompt,
        prompt_time: begun.elapsed(),
        ..Usage::default()
    };
    job.record_prompt(prompt, usage.prompt_time);
    if choices == 0 {
        return finish_prompt(&job, first, usage).await;
    }
    let choices = Choices {
        options,
        first,
        count: choices,
    };
    run_choices(&job, session, slot, choices, usage).await
}

/// Ends a prompt without choices.
async fn finish_prompt(job: &Job, choice: u32, usage: Usage) -> Ended<Usage> {
    let finished = Finished {
        choice,
        reason: FinishReason::Length,
        stop_string: None,
        tokens: Vec::new(),
        usage,
    };
    let sent = job.sink.sender.send(Ok(Event::Finished(finished))).await;
    sent.map_err(|_| None)?;
    Ok(usage)
}

/// Processes a prompt and runs its only choice as one request to the model, which never releases the slot
/// between them.
fn run_with_prompt(
    job: &Job,
    prompt: &Prompt,
    slot: Slot,
    options: &GenerateOptions,
) -> Ended<Usage> {
    let mut usage = Usage::default();
    usage.prompt.tokens = prompt.tokens.len() as u64;
    let clock = Clock::new(usage, PromptWork::Included);
    let mut session = job.model.session();
    job.cancel.add(&session);
    let appended = session.append(&prompt.tokens);
    appended.map_err(|error| Some(error.into()))?;
    run_choice(job, session, slot, prompt.first, options, clock)
}

/// Processes the prompt.
fn prefill(
    job: &Job,
    tokens: &[u32],
    first: u32,
    echo: Option<Echo>,
) -> ApiResult<(Arc<Loaded>, Session, PromptUsage)> {
    let mut session = job.model.session();
    job.cancel.add(&session);
    let mut cached = 0;
    if let Some(echo) = echo {
        let logprobs = match echo {
            Echo::Logprobs(top) => prompt_logprobs(&mut session, tokens, top)?,
            Echo::Text => Vec::new(),
        };
        let prompt = PromptOutput {
            choice: first,
            tokens: tokens.to_vec(),
            logprobs,
        };
        // The client may be gone; the next event finds out.
        let _ = job.sink.sender.blocking_send(Ok(Event::Prompt(prompt)));
    }
    let count = tokens.len() as u64;
    // Returns the number of tokens that were not cached.
    let run = |session: &mut Session| {
        let before = session.computed_tokens();
        let mut reports = Reports::new(job, first, count);
        session.prefill_with(tokens, |done, _| reports.processed(done as u64))?;
        Ok(session.computed_tokens() - before)
    };
    let mut loaded = Arc::clone(&job.model);
    let computed = match run(&mut session) {
        Ok(computed) => computed,
        Err(error) => {
            loaded = job.next_load(&job.model, error)?;
            session.move_to(&loaded.model)?;
            run(&mut session)?
        }
    };
    if echo.is_none() {
        // The choices compute the last token again.
        let cached_max = count.saturating_sub(1);
        cached = count.saturating_sub(computed).min(cached_max);
    }
    let usage = PromptUsage {
        tokens: count,
        cached,
    };
    Ok((loaded, session, usage))
}

/// Reports the progress of a prompt, if the request wants it.
struct Reports<'a> {
    job: &'a Job,
    choice: u32,
    /// Number of tokens of the prompt.
    count: u64,
    begun: Instant,
    /// Number of tokens from the prefix cache, after the first report.
    cached: Option<u64>,
}

impl<'a> Reports<'a> {
    fn new(job: &'a Job, choice: u32, count: u64) -> Self {
        Self {
            job,
            choice,
            count,
            begun: Instant::now(),
            cached: None,
        }
    }

    /// Reports the number of processed tokens, which at first are those from the prefix cache.
    fn processed(&mut self, done: u64) {
        if !self.job.extras.progress {
            return;
        }
        match self.cached {
            Some(cached) => self.send(cached, done, self.begun.elapsed()),
            None => self.send(done, done, Duration::ZERO),
        }
        self.cached.get_or_insert(done);
    }

    fn send(&self, cached: u64, processed: u64, prompt_time: Duration) {
        let prompt = PromptUsage {
            tokens: self.count,
            cached,
        };
        let progress = Progress {
            choice: self.choice,
            processed,
            usage: Usage {
                prompt,
                prompt_time,
                ..Usage::default()
            },
        };
        // The client may be gone; the next event finds out.
        let _ = self
            .job
            .sink
            .sender
            .blocking_send(Ok(Event::Progress(progress)));
    }
}

/// Returns the log-probabilities of all tokens after the first.
fn prompt_logprobs(
    session: &mut Session,
    tokens: &[u32],
    top: u32,
) -> ApiResult<Vec<TokenLogprob>> {
    if tokens.len() < 2 {
        return Ok(Vec::new());
    }
    let scores = session.score_with_alternatives(tokens, 1, top, &mut |_, _| {})?;
    let entries = tokens[1..].iter().zip(scores);
    let entries = entries.map(|(token, scored)| TokenLogprob {
        token: *token,
        logprob: scored.logprob,
        top: pairs(&scored.top),
    });
    Ok(entries.collect())
}

/// What the threads of all choices share.
#[derive(Clone)]
struct Job {
    lease: Lease,
    model: Arc<Loaded>,
    sink: Sink,
    cancel: CancelGroup,
    format: OutputFormat,
    extras: Extras,
    record: Arc<Record>,
    /// Number of choices without a token.
    without_token: Arc<AtomicUsize>,
}

impl Job {
    /// Records the time of a token.
    fn observe_token(&self) {
        if let Some(time) = self.record.token() {
            self.model.metrics.first_token_time.observe(time);
        }
    }

    /// Waits for a slot for a further prompt or choice. Fails if the client is gone, and at the deadline.
    async fn slot(&self) -> Ended<Slot> {
        let slot = async {
            // While the client does not read, no further thread waits for it.
            drop(self.sink.sender.reserve().await);
            self.model.admission.slot().await
        };
        tokio::select! {
            slot = slot => Ok(slot),
            () = self.sink.sender.closed() => Err(None),
            () = self.sink.deadline.passed() => Err(Some(self.sink.deadline.error())),
        }
    }

    /// Returns the next load of a model whose device was lost. Blocks.
    ///
    /// # Errors
    ///
    /// The error of the library if it has another cause, or the client is gone; status 503 if the model cannot be
    /// loaded; that of the deadline.
    fn next_load(&self, lost: &Loaded, error: tabla::Error) -> ApiResult<Arc<Loaded>> {
        let is_lost = lost.model.check_device().is_err() && error.kind() != ErrorKind::Poisoned;
        if !is_lost || self.cancel.is_cancelled() {
            return Err(error.into());
        }
        self.sink.runtime.block_on(async {
            tokio::select! {
                loaded = self.lease.usable() => loaded,
                () = self.sink.sender.closed() => Err(error.into()),
                () = self.sink.deadline.passed() => Err(self.sink.deadline.error()),
            }
        })
    }

    /// Returns the job with another load of its model.
    fn on(&self, model: Arc<Loaded>) -> Self {
        let mut job = self.clone();
        job.sink.admission = Arc::clone(&model.admission);
        Self { model, ..job }
    }

    /// Records a prompt that was computed with its choice.
    fn record_included(&self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.record_prompt(usage.prompt, usage.prompt_time);
        }
    }

    /// Records a computed prompt in the metrics and in the log.
    fn record_prompt(&self, prompt: PromptUsage, time: Duration) {
        self.model.metrics.prompt(prompt, time);
        self.record.update(|record| {
            record.prompt_tokens += prompt.tokens;
            record.cached_tokens += prompt.cached;
        });
    }
}

/// The choices of a prompt.
struct Choices {
    /// Options of the first choice.
    options: GenerateOptions,
    /// Index of the first choice.
    first: u32,
    count: u32,
}

/// Runs the choices of a processed prompt. Returns the tokens and times of all.
async fn run_choices(
    job: &Job,
    session: Session,
    slot: Slot,
    choices: Choices,
    prompt: Usage,
) -> Ended<Usage> {
    let begun = Instant::now();
    let Choices {
        options,
        first,
        count,
    } = choices;
    let forks = (1..count).map(|_| session.fork());
    let forks: Result<Vec<Session>, tabla::Error> = forks.collect();
    let forks = forks.map_err(|error| Some(error.into()))?;
    let sessions = std::iter::once(session).chain(forks);
    let mut slot = Some(slot);
    let mut tasks = Vec::new();
    for (at, session) in (0..).zip(sessions) {
        let slot = match slot.take() {
            Some(slot) => slot,
            None => job.slot().await?,
        };
        let job = job.clone();
        let sampling = options.sampling;
        let seed = sampling.seed.wrapping_add(u64::from(at));
        let options = options.clone().sampling(sampling.seed(seed));
        tasks.push(tokio::task::spawn_blocking(move || {
            job.cancel.add(&session);
            let clock = Clock::new(prompt, PromptWork::Done);
            run_choice(&job, session, slot, first + at, &options, clock)
        }));
    }
    let mut usage = prompt;
    for task in tasks {
        let of_choice = task.await.unwrap_or_else(|_| Err(Some(panicked())))?;
        usage.generated += of_choice.generated;
        usage.reasoning += of_choice.reasoning;
    }
    usage.generation_time = begun.elapsed();
    Ok(usage)
}

/// Where a choice is computed.
struct Place {
    model: Arc<Loaded>,
    sink: Sink,
    slot: Slot,
    recoveries: u32,
}

impl Place {
    fn new(job: &Job, slot: Slot) -> Self {
        Self {
            model: Arc::clone(&job.model),
            sink: job.sink.clone(),
            slot,
            recoveries: 0,
        }
    }

    fn send(&mut self, event: Event) -> Ended<()> {
        self.sink.send(event, &mut self.slot)
    }

    /// Continues a generation whose device was lost on the next load of the model. Blocks.
    fn recover(
        &mut self,
        job: &Job,
        generation: &mut Generation<&mut Session>,
        error: tabla::Error,
    ) -> Ended<()> {
        if self.recoveries == RECOVERIES_MAX {
            return Err(Some(error.into()));
        }
        self.recoveries += 1;
        self.model = job.next_load(&self.model, error).map_err(Some)?;
        self.sink.admission = Arc::clone(&self.model.admission);
        self.slot.release();
        let acquired = self.sink.acquire(&mut self.slot);
        job.sink.runtime.block_on(acquired)?;
        let resumed = generation.resume(&self.model.model);
        // Another model, for example.
        let failed =
            |error: tabla::Error| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.message());
        resumed.map_err(|error| Some(failed(error)))
    }
}

/// Runs one choice. Returns its tokens and times.
fn run_choice(
    job: &Job,
    mut session: Session,
    slot: Slot,
    choice: u32,
    options: &GenerateOptions,
    mut clock: Clock,
) -> Ended<Usage> {
    let mut place = Place::new(job, slot);
    let (mut is_first, mut lines) = (true, LineLimits::new(job.extras.lines));
    let tokenizer = job.model.model.tokenizer();
    let mut output = ChoiceOutput::new(choice, &job.format);
    let failed = |error: tabla::Error| Some(ApiError::from(error));
    let mut generation = session.generate(options).map_err(failed)?;
    let mut latency = job.model.metrics.latency();
    loop {
        let mut piece = match generation.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => {
                place.recover(job, &mut generation, error)?;
                continue;
            }
        };
        if !piece.is_flush {
            latency.token();
            job.observe_token();
        }
        // Before the first token, the time is that of the prompt.
        let time = match is_first {
            true => Duration::ZERO,
            false => clock.generation_time(),
        };
        let end = lines.push(piece.text, time);
        piece.text = &piece.text[..end.unwrap_or(piece.text.len())];
        let events = output.push(piece, tokenizer);
        if std::mem::take(&mut is_first) {
            job.without_token.fetch_sub(1, Ordering::Relaxed);
            job.record_included(clock.prompt_ended(generation.stats()));
        }
        let usage = clock.usage(&output);
        for event in events {
            place.send(Event::Output(Output { usage, ..event }))?;
        }
        if output.is_complete() || end.is_some() || job.sink.deadline.has_passed() {
            generation.stop().map_err(failed)?;
            break;
        }
    }
    let stats = generation.stats();
    if is_first {
        job.without_token.fetch_sub(1, Ordering::Relaxed);
        if stats.tokens > 0 || !job.cancel.is_cancelled() {
            job.record_included(clock.prompt_ended(stats));
        }
    }
    if job.cancel.is_cancelled() {
        return Err(None);
    }
    let stop_string = generation.stop_string().map(str::to_string);
    stop_string.iter().for_each(|_| output.drop_held_back());
    let rest = output.finish();
    let usage = clock.usage(&output);
    for event in rest {
        place.send(Event::Output(Output { usage, ..event }))?;
    }
    let reason = output.reason(stats.finish);
    let metrics = &job.model.metrics;
    metrics.finished(reason);
    metrics.sequence(usage.prompt.tokens + usage.generated, stats.draft);
    let finished = Finished {
        choice,
        reason,
        stop_string,
        tokens: output.take_tokens(),
        usage,
    };
    place.send(Event::Finished(finished))?;
    Ok(usage)
}

/// Sends events to the task of the request.
#[derive(Clone)]
struct Sink {
    sender: mpsc::Sender<ApiResult<Event>>,
    runtime: Handle,
    admission: Arc<Admission>,
    deadline: Deadline,
}

impl Sink {
    /// Sends an event. Fails if the client is gone. If it reads slowly, the slot is given to other requests
    /// meanwhile.
    fn send(&self, event: Event, slot: &mut Slot) -> Ended<()> {
        let event = match self.sender.try_send(Ok(event)) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(None),
            Err(mpsc::error::TrySendError::Full(event)) => event,
        };
        slot.release();
        self.runtime.block_on(async {
            self.sender.send(event).await.map_err(|_| None)?;
            self.acquire(slot).await
        })
    }

    /// Waits for the next slot, to go on. At the deadline there is none: the answer ends. Fails if the client is gone.
    async fn acquire(&self, slot: &mut Slot) -> Ended<()> {
        tokio::select! {
            () = slot.acquire(&self.admission) => Ok(()),
            () = self.sender.closed() => Err(None),
            () = self.deadline.passed() => Ok(()),
        }
    }
}
