//! The state that all requests share.

use crate::config::{Config, EventSink, Limits, MetricsCompat, ServerEvent};
use crate::http::defaults::RequestDefaults;
use crate::http::memory::BodyBudget;
use crate::http::origin::OriginRules;
use crate::models::Registry;
use crate::response_store::ResponseStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tabla::embed::Pooling;

/// State that all requests share.
pub(crate) struct App {
    pub(crate) registry: Arc<Registry>,
    pub(crate) origins: OriginRules,
    pub(crate) api_keys: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) defaults: RequestDefaults,
    /// Memory of the bodies of all requests.
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) events: EventSink,
    pub(crate) metrics_compat: Option<MetricsCompat>,
    /// Pooling of embeddings; `None`: that of the model files.
    pub(crate) pooling: Option<Pooling>,
    /// Stored responses of `/v1/responses`.
    pub(crate) responses: Arc<ResponseStore>,
    /// Seconds since 1970 at the start.
    pub(crate) started: u64,
    pub(crate) is_draining: AtomicBool,
}

impl App {
    /// Creates the state of a configuration.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let hosts = config.allowed_hosts.iter();
        let bodies = BodyBudget::new(config.limits.bodies_bytes);
        let responses = Arc::new(ResponseStore::new(config.limits.stored_responses, &bodies));
        let store = Arc::downgrade(&responses);
        bodies.set_reclaim(move |bytes| store.upgrade().is_some_and(|store| store.reclaim(bytes)));
        Ok(Self {
            registry: Arc::new(Registry::new(config)?),
            origins: OriginRules {
                hosts: hosts.map(|host| host.to_ascii_lowercase()).collect(),
                origins: config.cors_origins.clone(),
                has_keys: !config.api_keys.is_empty(),
            },
            api_keys: config.api_keys.clone(),
            limits: config.limits,
            defaults: RequestDefaults::new(&config.request_defaults)?,
            bodies,
            events: Arc::clone(&config.events),
            metrics_compat: config.metrics_compat,
            pooling: config.pooling,
            responses,
            started: unix_seconds(),
            is_draining: AtomicBool::new(false),
        })
    }

    /// Whether a path needs no key: the page, which has no data, and the health check.
    pub(crate) fn is_public(&self, path: &str) -> bool {
        matches!(path, "/" | "/reference" | "/health" | "/v1/health") || path.starts_with("/page/")
    }

    /// Whether the shutdown has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Reports something that deserves attention.
    pub(crate) fn warn(&self, message: impl Into<String>) {
        (self.events)(ServerEvent::Warning(message.into()));
    }
}

/// Returns the number of seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
