//! The server: its shared state, start and shutdown.

use crate::api;
use crate::app::App;
use crate::config::{Config, ServerEvent};
use crate::heap;
use crate::http::connections;
use crate::models::REASON_IN_LOG;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tabla::reserve;
use tokio::sync::{Notify, oneshot};

/// Number of threads that serve connections. The computation has threads of its own.
const SERVING_THREADS: usize = 2;

/// Time in which the events of cancelled requests are written.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// Period in which the memory of large bodies is returned to the system.
const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of threads for generations and preparations.
const BLOCKING_THREADS: usize = 1024;

/// A server whose port is open.
#[derive(Debug)]
pub struct Server {
    config: Config,
    listener: TcpListener,
    shutdown: ShutdownHandle,
}

/// Handle that ends a server from any thread.
#[derive(Clone, Debug, Default)]
pub struct ShutdownHandle(Arc<ShutdownState>);

#[derive(Debug, Default)]
struct ShutdownState {
    requested: Notify,
    forced: Notify,
    is_requested: AtomicBool,
}

impl ShutdownHandle {
    /// Begins the shutdown: accepts no more connections, and waits for running requests. The second call
    /// cancels them.
    pub fn shut_down(&self) {
        match self.0.is_requested.swap(true, Ordering::Relaxed) {
            false => self.0.requested.notify_one(),
            true => self.0.forced.notify_one(),
        }
    }
}

impl Server {
    /// Opens the port.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, with the reason.
    pub fn bind(config: Config) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            config,
            listener,
            shutdown: ShutdownHandle::default(),
        })
    }

    /// Returns the address, with the port that the system has chosen for port 0.
    ///
    /// # Errors
    ///
    /// If the system does not know it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle that ends [`Server::run`].
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Serves until the shutdown. With glibc, it limits the heaps of the process.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid configuration; `Other` if the first model cannot be loaded; errors of the
    /// system.
    pub fn run(self) -> std::io::Result<()> {
        heap::limit();
        check_threads(SERVING_THREADS).map_err(|e| {
            let message = format!("cannot start the threads that accept requests: {e}");
            std::io::Error::new(e.kind(), message)
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(SERVING_THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("tabla-server")
            .enable_all()
            .build()?;
        let result = runtime.block_on(self.serve());
        // Threads of cancelled requests end at the next token.
        runtime.shutdown_timeout(Duration::from_secs(5));
        result
    }

    async fn serve(self) -> std::io::Result<()> {
        let Self {
            config,
            listener,
            shutdown,
        } = self;
        let invalid = |message| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
        let app = Arc::new(App::new(&config).map_err(invalid)?);
        let listener = tokio::net::TcpListener::from_std(listener)?;
        (app.events)(ServerEvent::Listening(listener.local_addr()?));
        let mut tasks = tokio::task::JoinSet::new();
        let preloading = Arc::clone(&app);
        let preload = match config.preload {
            true => config.models.len(),
            false => 1,
        };
        let (first_loaded, failed) = oneshot::channel();
        tasks.spawn(load_models(preloading, preload, first_loaded));
        if let Some(idle) = config.idle_time {
            let app = Arc::clone(&app);
            tasks.spawn(async move { app.registry.unload_idle(idle).await });
        }
        let bodies = Arc::clone(&app.bodies);
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(TRIM_PERIOD).await;
                if bodies.take_freed() {
                    let _ = tokio::task::spawn_blocking(heap::trim).await;
                }
            }
        });
        let router = api::router(&app);
        let begin = async {
            shutdown.0.requested.notified().await;
            app.is_draining.store(true, Ordering::Relaxed);
            let entries = app.registry.entries().iter();
            let running = entries.filter_map(|entry| entry.loaded());
            let running =
                running.map(|loaded| loaded.admission.running() + loaded.admission.waiting());
            let running = running.sum();
            (app.events)(ServerEvent::Draining(running));
        };
        let drained = async {
            tokio::select! {
                () = tokio::time::sleep(config.limits.drain_time) => {}
                () = shutdown.0.forced.notified() => {}
            }
            app.registry.cancel_all();
            // For the last events of the cancelled requests.
            tokio::time::sleep(CANCEL_TIME).await;
        };
        let result = tokio::select! {
            () = connections::serve(listener, router, config.limits, begin, drained) => Ok(()),
            Ok(message) = failed => Err(std::io::Error::other(message)),
        };
        tasks.shutdown().await;
        result
    }
}

/// Loads the first models, and checks the defaults of requests for them. Sends the error of the first one: only that
/// model is needed.
async fn load_models(app: Arc<App>, count: usize, first_loaded: oneshot::Sender<String>) {
    let mut first_loaded = Some(first_loaded);
    for entry in &app.registry.entries()[..count] {
        let result = match app.registry.lease(Some(&entry.config.name)).await {
            // The event has the reason.
            Err(_) if first_loaded.is_none() => Ok(()),
            Err(error) => {
                let message = error.message.strip_suffix(REASON_IN_LOG);
                Err(message.unwrap_or(&error.message).to_string())
            }
            Ok(loaded) => app.defaults.check(&loaded.model()),
        };
        match (result, first_loaded.take()) {
            (Err(message), Some(sender)) => drop(sender.send(message)),
            (Err(message), None) => app.warn(message),
            (Ok(()), _) => {}
        }
    }
}

/// Checks that `count` threads can be started: the runtime waits forever for those of its threads that cannot.
fn check_threads(count: usize) -> std::io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        let started = (0..count).try_for_each(|_| {
            let thread = reserve::thread("tabla-server")?;
            thread.spawn_scoped(scope, || drop(gate.lock())).map(drop)
        });
        drop(closed);
        started
    })
}
