//! The registry of models by name.

use super::loaded::Loaded;
use crate::config::{Config, EventSink, ModelConfig, ServerEvent};
use crate::engine::admission::{QueueLimits, REQUEST_THREADS};
use crate::engine::blocking::joined;
use crate::engine::samplers::Samplers;
use crate::http::error::{ApiError, ApiResult};
use crate::metrics::ModelMetrics;
use axum::http::StatusCode;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tabla::load::LoadOptions;
use tabla::{Model, tools};
use tokio::sync::{Semaphore, watch};

/// Maximum number of unknown names that are reported, and of the characters of each.
const UNKNOWN_MAX: usize = 64;
const UNKNOWN_CHARS_MAX: usize = 100;

/// End of the message for the client when a model cannot be loaded.
pub(crate) const REASON_IN_LOG: &str = ": the log of the server has the reason";

/// The models of a server.
pub(crate) struct Registry {
    entries: Vec<Arc<Entry>>,
    /// Index of the model of each name and alias.
    names: HashMap<String, usize>,
    /// Unknown names that were reported, if the only model answers requests with such a name.
    unknown: Option<Mutex<HashSet<String>>>,
    load: LoadOptions,
    budget: Option<u64>,
    queue: QueueLimits,
    events: EventSink,
    on_load: fn(&Model),
    started: Instant,
    /// Becomes true when running requests are cancelled.
    cancelled: watch::Sender<bool>,
    /// Serializes loading and unloading.
    loading: tokio::sync::Mutex<()>,
}

/// A model of the configuration.
pub(crate) struct Entry {
    pub(crate) config: ModelConfig,
    pub(crate) metrics: Arc<ModelMetrics>,
    state: Mutex<State>,
    /// Number of requests that use the model.
    active: AtomicUsize,
    /// Milliseconds from the start of the server to the last use.
    last_used: AtomicU64,
}

enum State {
    Unloaded,
    Loading,
    Loaded(Arc<Loaded>),
}

/// Status of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Unloaded,
    Loading,
    Loaded,
}

impl Status {
    /// Word in `/v1/models`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
        }
    }
}

/// A model in use: it is not unloaded before the lease is dropped.
#[derive(Clone)]
pub(crate) struct Lease {
    loaded: Arc<Loaded>,
    in_use: Arc<InUse>,
    registry: Arc<Registry>,
    /// Becomes true when the request is cancelled by the shutdown.
    pub(crate) cancelled: watch::Receiver<bool>,
}

/// Use of a model by a request, which may still wait until it is loaded.
struct InUse {
    entry: Arc<Entry>,
    started: Instant,
}

impl InUse {
    fn begin(entry: &Arc<Entry>, started: Instant) -> Self {
        entry.active.fetch_add(1, Ordering::Relaxed);
        Self {
            entry: Arc::clone(entry),
            started,
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.entry.touch(self.started);
        self.entry.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    /// Returns the model itself.
    pub(crate) fn model(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded)
    }

    /// Returns the model, which is loaded again if its device has failed.
    ///
    /// # Errors
    ///
    /// Status 503 if it cannot be loaded.
    pub(crate) async fn usable(&self) -> ApiResult<Arc<Loaded>> {
        self.registry.usable(&self.in_use.entry).await
    }
}

impl Deref for Lease {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.loaded
    }
}

impl Entry {
    /// Unloads this model when its requests end, so that the next one loads it again; `false` if it was unloaded before.
    fn forget(&self, model: &Arc<Loaded>) -> bool {
        let mut state = self.state();
        let is_same = matches!(&*state, State::Loaded(loaded) if Arc::ptr_eq(loaded, model));
        if is_same {
            *state = State::Unloaded;
        }
        is_same
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> Status {
        match *self.state() {
            State::Unloaded => Status::Unloaded,
            State::Loading => Status::Loading,
            State::Loaded(_) => Status::Loaded,
        }
    }

    /// Returns the model if it is loaded.
    pub(crate) fn loaded(&self) -> Option<Arc<Loaded>> {
        match &*self.state() {
            State::Loaded(loaded) => Some(Arc::clone(loaded)),
            _ => None,
        }
    }

    fn touch(&self, started: Instant) {
        let now = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used.store(now, Ordering::Relaxed);
    }

    fn idle_since(&self) -> Duration {
        Duration::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    fn is_idle(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0
    }
}

impl Registry {
    /// Creates the registry of a configuration.
    ///
    /// # Errors
    ///
    /// If two models have the same name.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let mut names = HashMap::new();
        let mut entries = Vec::new();
        for (at, model) in config.models.iter().enumerate() {
            for name in [&model.name].into_iter().chain(&model.aliases) {
                if names
                    .insert(name.clone(), at)
                    .is_some_and(|other| other != at)
                {
                    return Err(format!(
                        "two models have the name {name:?}: give one another name with -m NAME=FILE"
                    ));
                }
            }
            entries.push(Arc::new(Entry {
                config: model.clone(),
                metrics: Arc::default(),
                // The first one is loaded from the start on.
                state: Mutex::new(match at {
                    0 => State::Loading,
                    _ => State::Unloaded,
                }),
                active: AtomicUsize::new(0),
                last_used: AtomicU64::new(0),
            }));
        }
        if entries.is_empty() {
            return Err("no model is configured".to_string());
        }
        let is_lenient = entries.len() == 1 && !config.strict_model;
        Ok(Self {
            unknown: is_lenient.then(Mutex::default),
            entries,
            names,
            load: config.load.clone(),
            budget: config.memory_budget,
            queue: QueueLimits {
                waiting: config.limits.queue,
                threads: Arc::new(Semaphore::new(REQUEST_THREADS)),
            },
            events: Arc::clone(&config.events),
            on_load: config.on_load,
            started: Instant::now(),
            cancelled: watch::Sender::new(false),
            loading: tokio::sync::Mutex::new(()),
        })
    }

    /// Cancels all generations, which end with an error.
    pub(crate) fn cancel_all(&self) {
        self.cancelled.send_replace(true);
    }

    pub(crate) fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// Returns the entry of the name in a request: also the only one for an unknown name.
    ///
    /// # Errors
    ///
    /// Status 404 for an unknown name.
    pub(crate) fn requested(&self, name: Option<&str>) -> ApiResult<&Arc<Entry>> {
        match (self.entry(name), &self.unknown) {
            (Err(_), Some(unknown)) => {
                self.report_unknown(name.unwrap_or_default(), unknown);
                Ok(&self.entries[0])
            }
            (entry, _) => entry,
        }
    }

    /// Reports an unknown name once, while there are few.
    fn report_unknown(&self, name: &str, unknown: &Mutex<HashSet<String>>) {
        let name: String = name.chars().take(UNKNOWN_CHARS_MAX).collect();
        let mut unknown = unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown.len() < UNKNOWN_MAX && unknown.insert(name.clone()) {
            let served = &self.entries[0].config.name;
            (self.events)(ServerEvent::Warning(format!(
                "requests name the model {name:?}; the only model, {served}, answers them"
            )));
        }
    }

    /// Returns the entry of a name; the default model for an empty one.
    ///
    /// # Errors
    ///
    /// Status 404 for an unknown name.
    pub(crate) fn entry(&self, name: Option<&str>) -> ApiResult<&Arc<Entry>> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(&self.entries[0]);
        };
        let at = self.names.get(name).ok_or_else(|| {
            let names = self.entries.iter().flat_map(|entry| {
                let aliases = entry.config.aliases.iter().map(String::as_str);
                std::iter::once(entry.config.name.as_str()).chain(aliases)
            });
            let names: Vec<&str> = names.collect();
            let message = format!(
                "the model {name:?} does not exist; available: {}",
                names.join(", ")
            );
            let error = ApiError::new(StatusCode::NOT_FOUND, message);
            error.code("model_not_found").param("model")
        })?;
        Ok(&self.entries[*at])
    }

    /// Returns a model, loaded if needed.
    ///
    /// # Errors
    ///
    /// Status 404 for an unknown name, 503 if the model cannot be loaded.
    pub(crate) async fn lease(self: &Arc<Self>, name: Option<&str>) -> ApiResult<Lease> {
        let entry = self.requested(name)?;
        // Before it is loaded, so that it is not unloaded in between.
        let in_use = InUse::begin(entry, self.started);
        Ok(Lease {
            loaded: self.usable(entry).await?,
            in_use: Arc::new(in_use),
            registry: Arc::clone(self),
            cancelled: self.cancelled.subscribe(),
        })
    }

    /// Returns the model of an entry, loaded if needed.
    async fn usable(self: &Arc<Self>, entry: &Arc<Entry>) -> ApiResult<Arc<Loaded>> {
        if let Some(loaded) = entry.loaded() {
            if self.is_usable(entry, &loaded) {
                return Ok(loaded);
            }
            // Its memory is free before the model is loaded again, unless requests use it. Dropping it waits for its
            // thread.
            let _ = tokio::task::spawn_blocking(move || drop(loaded)).await;
        }
        // A task of its own: the model is loaded even if the request ends before.
        let (registry, entry) = (Arc::clone(self), Arc::clone(entry));
        let loading = tokio::spawn(async move { registry.load(&entry).await });
        joined(loading.await)
    }

    /// Returns whether the files of a model are those that were loaded, and its device and its thread have not failed.
    /// Otherwise it is unloaded; requests that use it fail, or move to the next load of the model.
    fn is_usable(&self, entry: &Entry, loaded: &Arc<Loaded>) -> bool {
        let model = &loaded.model;
        let Err(error) = model.check_files().and_then(|()| model.check_device()) else {
            return true;
        };
        if entry.forget(loaded) {
            let name = &entry.config.name;
            let message = format!("the model {name} is loaded again: {error}");
            (self.events)(ServerEvent::Warning(message));
        }
        false
    }

    /// Loads a model, or waits until another request has loaded it.
    async fn load(&self, entry: &Arc<Entry>) -> ApiResult<Arc<Loaded>> {
        let _guard = self.loading.lock().await;
        if let Some(loaded) = entry.loaded() {
            return Ok(loaded);
        }
        let bytes = self.make_room(entry).await?;
        *entry.state() = State::Loading;
        let reset = ResetState(entry);
        let begun = Instant::now();
        let loading = {
            let (entry, options, events) = (
                Arc::clone(entry),
                self.load.clone(),
                Arc::clone(&self.events),
            );
            let queue = self.queue.clone();
            tokio::task::spawn_blocking(move || Ok(load(&entry, options, bytes, queue, &events)))
        };
        // Events follow the states that they report.
        let name = entry.config.name.clone();
        let loaded = match joined(loading.await)? {
            Ok(loaded) => loaded,
            Err(error) => {
                drop(reset);
                let message = format!("the model {name} cannot be loaded{REASON_IN_LOG}");
                // The error has paths, which clients need not see.
                (self.events)(ServerEvent::LoadFailed(name, error.to_string()));
                let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
                return Err(error.code(ApiError::LOAD_FAILED));
            }
        };
        (self.on_load)(&loaded.model);
        *entry.state() = State::Loaded(Arc::clone(&loaded));
        entry.touch(self.started);
        std::mem::forget(reset);
        (self.events)(ServerEvent::Loaded(name, begun.elapsed()));
        Ok(loaded)
    }

    /// Unloads idle models until the model fits the memory budget. Returns its bytes.
    async fn make_room(&self, entry: &Arc<Entry>) -> ApiResult<u64> {
        let estimate = {
            let (source, options) = (entry.config.source.clone(), self.load.clone());
            tokio::task::spawn_blocking(move || {
                let estimate = tools::estimate(&source, &options);
                // Errors are reported when the model is loaded.
                Ok(estimate.map_or(0, |estimate| estimate.device_bytes))
            })
        };
        let bytes: u64 = joined(estimate.await)?;
        let Some(budget) = self.budget else {
            return Ok(bytes);
        };
        if bytes > budget {
            let name = &entry.config.name;
            let message = format!(
                "the model {name} needs {} MiB, more than the memory budget of {} MiB",
                bytes >> 20,
                budget >> 20
            );
            (self.events)(ServerEvent::LoadFailed(name.clone(), message.clone()));
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
            return Err(error.code(ApiError::LOAD_FAILED));
        }
        loop {
            let loaded = self.entries.iter().filter_map(|e| e.loaded());
            let used: u64 = loaded.map(|loaded| loaded.bytes).sum();
            if used.saturating_add(bytes) <= budget {
                return Ok(bytes);
            }
            let idle = self
                .entries
                .iter()
                .filter(|e| e.is_idle() && e.loaded().is_some());
            let Some(oldest) = idle.min_by_key(|e| e.idle_since()) else {
                let message = format!(
                    "the model {} needs {} MiB, and the loaded models are in use: the memory budget is {} MiB",
                    entry.config.name,
                    bytes >> 20,
                    budget >> 20
                );
                let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
                return Err(error.retry_after(5));
            };
            self.unload(oldest).await;
        }
    }

    /// Unloads a model. Dropping it waits for its thread.
    async fn unload(&self, entry: &Arc<Entry>) {
        let state = std::mem::replace(&mut *entry.state(), State::Unloaded);
        let _ = tokio::task::spawn_blocking(move || drop(state)).await;
        (self.events)(ServerEvent::Unloaded(entry.config.name.clone()));
    }

    /// Unloads models that were idle for this long. Runs until it is cancelled.
    pub(crate) async fn unload_idle(&self, idle: Duration) {
        let period = (idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(10));
        loop {
            tokio::time::sleep(period).await;
            for entry in &self.entries {
                let _guard = self.loading.lock().await;
                let unused = self.started.elapsed().saturating_sub(entry.idle_since());
                if entry.is_idle() && unused >= idle && entry.loaded().is_some() {
                    self.unload(entry).await;
                }
            }
        }
    }
}

/// Resets the state of a model if loading it fails or is cancelled.
struct ResetState<'a>(&'a Entry);

impl Drop for ResetState<'_> {
    fn drop(&mut self) {
        *self.0.state() = State::Unloaded;
    }
}

fn load(
    entry: &Entry,
    options: LoadOptions,
    bytes: u64,
    queue: QueueLimits,
    events: &EventSink,
) -> tabla::Result<Arc<Loaded>> {
    let name = &entry.config.name;
    let samplers = Samplers::new(options.samplers.as_deref());
    let builder = Model::builder(entry.config.source.clone()).options(options);
    let builder = builder.on_progress(|progress| {
        events(ServerEvent::Loading(name.clone(), progress.stage.name()));
    });
    let model = builder.load()?;
    Ok(Arc::new(Loaded::new(
        &entry.config,
        &entry.metrics,
        model,
        samplers,
        bytes,
        queue,
    )))
}

#[cfg(test)]
mod tests;
