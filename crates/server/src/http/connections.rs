//! Connections: accepts, serves and ends them.
//!
//! `axum::serve` has no deadline for headers (axum issue 2741), so hyper serves each connection here.

use super::deadlines::Deadlines;
use super::path;
use crate::config::Limits;
use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// Maximum number of bytes of the headers of a request.
pub(super) const HEADER_BYTES: usize = 64 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 128;
/// Pause after a failed accept, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `shutdown` completes. Then waits until running requests have ended, at most
/// as long as `drained` takes.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let open = Arc::new(Semaphore::new(limits.connections));
    // Without `half_close`: hyper would not read while a request is answered, and would not notice that a
    // client disconnects.
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_time)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS_MAX);
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        // Beyond the limit, a connection is closed at once.
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            continue;
        };
        // Without it, a token would wait for the acknowledgment of the previous one.
        let _ = stream.set_nodelay(true);
        // Before the router, which selects the endpoint by the path.
        let (stream, serving) = Deadlines::new(stream, &limits);
        let service = router
            .clone()
            .map_request(move |mut request: Request<Incoming>| {
                serving.begin();
                request.extensions_mut().insert(serving.clone());
                path::rewrite(request.uri_mut());
                request.map(Body::new)
            });
        let service = TowerToHyperService::new(service);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // The client closed the connection or violated the protocol.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = drained => {}
    }
}
