//! Deadlines of a connection: for the headers of a request, for a client that reads nothing, and for the rest of
//! a body that is not wanted.
//!
//! The read timeout of hyper begins when a connection becomes idle, so it must be long enough for pools of
//! connections. The deadline here begins with the connection and with the first byte of later requests.
//! hyper has no timeout for writes.
//!
//! If a connection is closed while the client sends, the system discards the answer that the client has not read.
//! So after an early answer, the rest of the body is read first.

use crate::config::Limits;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Maximum duration of reading the rest of a body that is not wanted.
const LINGER_TIME: Duration = Duration::from_secs(10);
/// Maximum number of bytes of the rest of a body that is not wanted.
const LINGER_BYTES: usize = 256 << 20;

/// State of a connection that its requests share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving(Arc<ServingState>);

#[derive(Debug, Default)]
struct ServingState {
    /// Number of requests that have begun and ended, together: odd while one is answered.
    count: AtomicU64,
    /// Whether a request was answered before its body was read.
    has_unread: AtomicBool,
}

impl Serving {
    /// The headers of a request are complete.
    pub(super) fn begin(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer was written.
    pub(super) fn end(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// The request is answered before its body was read.
    pub(super) fn leave_unread(&self) {
        self.0.has_unread.store(true, Ordering::Relaxed);
    }

    fn has_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }
}

/// A connection with deadlines.
pub(super) struct Deadlines<S> {
    stream: S,
    serving: Serving,
    /// The count when the timer began.
    count: u64,
    header_time: Duration,
    /// Timer of headers.
    timer: Option<Pin<Box<Sleep>>>,
    stall_time: Duration,
    /// Timer of a write that waits for the client.
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// The rest of a body, once the answer is complete.
    rest: Option<Rest>,
}

/// The rest of a body that is not wanted.
struct Rest {
    timer: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> Deadlines<S> {
    pub(super) fn new(stream: S, limits: &Limits) -> (Self, Serving) {
        let serving = Serving::default();
        let deadlines = Self {
            stream,
            serving: serving.clone(),
            count: 0,
            header_time: limits.header_time,
            timer: Some(Box::pin(sleep(limits.header_time))),
            stall_time: limits.stall_time,
            stall_timer: None,
            rest: None,
        };
        (deadlines, serving)
    }

    /// Returns whether the deadline for headers has passed.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let count = self.serving.count();
        if count != self.count {
            self.count = count;
            self.timer = None;
        }
        let timer = self.timer.as_mut();
        timer.is_some_and(|timer| timer.as_mut().poll(context).is_ready())
    }
}

impl<S> Deadlines<S> {
    /// Returns the result of a write, or an error if the client has read nothing for too long.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.stall_timer = None;
            return result;
        }
        let stall_time = self.stall_time;
        let timer = self
            .stall_timer
            .get_or_insert_with(|| Box::pin(sleep(stall_time)));
        let late = timer.as_mut().poll(context);
        late.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> Deadlines<S> {
    /// Reads the rest of a body until its end, its deadline or its limit.
    fn discard_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let rest = self.rest.get_or_insert_with(|| Rest {
            timer: Box::pin(sleep(LINGER_TIME)),
            bytes: 0,
        });
        let mut buffer = [0; 16 << 10];
        while rest.bytes < LINGER_BYTES && rest.timer.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            rest.bytes += count;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Deadlines<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_late(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let is_begin = buffer.filled().len() > before && self.count.is_multiple_of(2);
        if is_begin && self.timer.is_none() {
            self.timer = Some(Box::pin(sleep(self.header_time)));
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Deadlines<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Repeated calls have no effect.
        let ended = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
        if ended.is_ok() && self.serving.has_unread() {
            ready!(self.discard_rest(context));
        }
        Poll::Ready(ended)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
