//! Deadlines of a connection: for the headers of a request, and for a client that reads nothing.
//!
//! The read timeout of hyper begins when a connection becomes idle, so it must be long enough for pools of
//! connections. The deadline here begins with the connection and with the first byte of later requests.
//! hyper has no timeout for writes.

use crate::config::Limits;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Number of requests of a connection that have begun and ended, together: odd while one is answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving(Arc<AtomicU64>);

impl Serving {
    /// The headers of a request are complete.
    pub(super) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer was written.
    pub(super) fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Deadlines<S> {
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
        Pin::new(&mut self.stream).poll_shutdown(context)
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
