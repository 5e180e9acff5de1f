//! A client's connection under hyper: what is malformed is refused before it is parsed, and a client that reads nothing
//! is gone.
mod guard;
mod socket;

use guard::Guard;
pub(crate) use socket::Socket;
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// Says that what a client sends is no HTTP any more. Clones say it of the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unguarded(Arc<AtomicBool>);

impl Unguarded {
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A stream whose requests are guarded and whose writes may not stall.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    guard: Guard,
    unguarded: Unguarded,
    write_stall: Duration,
    /// Runs while a write waits for the client to read.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Wire<S> {
    /// Over `stream`; a write that waits longer than `write_stall` ends the connection.
    pub(crate) fn new(stream: S, write_stall: Duration) -> Self {
        Self { stream, guard: Guard::default(), unguarded: Unguarded::default(), write_stall, stalled: None }
    }

    /// How to say that it has become something else.
    pub(crate) fn unguarded(&self) -> Unguarded {
        self.unguarded.clone()
    }

    /// Lets a write wait for so long and no longer.
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let within = self.write_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if !self.unguarded.is_told() {
            self.guard.inspect(&mut buf.filled_mut()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_gone_and_one_that_reads_is_not() {
        let (ours, mut client) = tokio::io::duplex(10);
        let mut wire = Wire::new(ours, Duration::from_mins(1));
        wire.write_all(b"0123456789").await.expect("it fits");
        let stalled = wire.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        let mut read = [0; 10];
        client.read_exact(&mut read).await.expect("it is there");
        wire.write_all(b"more").await.expect("there is room again");
    }

    #[tokio::test]
    async fn what_is_read_is_guarded() {
        let (ours, mut client) = tokio::io::duplex(100);
        let mut wire = Wire::new(ours, Duration::from_mins(1));
        client.write_all(b"GET / HTTP/1.1\nHost: x\r\n\r\n").await.expect("it fits");
        let mut read = [0; 16];
        wire.read_exact(&mut read).await.expect("it is there");
        assert_eq!(&read, b"GET / HTTP/1.1\0H");
    }
}
