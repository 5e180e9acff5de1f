//! A client's connection under hyper: what is malformed is refused before it is parsed, and a client that reads nothing
//! is gone.
//!
//! ```text
//! hyper ─ Wire ─┬──────── Stalling ─ Socket
//!               └─ TLS ─ Stalling ─ Socket
//! ```
mod guard;
mod socket;
mod stall;

use guard::Guard;
pub(crate) use socket::Socket;
pub(crate) use stall::Stalling;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};

/// Says that what a client sends is no HTTP any more. Clones say it of the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unguarded(Arc<AtomicBool>);

impl Unguarded {
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// One of the places that connections have.
pub(crate) type Place = OwnedSemaphorePermit;

/// A stream whose requests are guarded. It has its place for as long as it is, also once it is no HTTP any more.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    guard: Guard,
    unguarded: Unguarded,
    _place: Option<Place>,
}

impl<S> Wire<S> {
    pub(crate) fn new(stream: S, place: Option<Place>) -> Self {
        Self { stream, guard: Guard::default(), unguarded: Unguarded::default(), _place: place }
    }

    /// How to say that it has become something else.
    pub(crate) fn unguarded(&self) -> Unguarded {
        self.unguarded.clone()
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
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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

    #[tokio::test]
    async fn what_is_read_is_guarded() {
        let (ours, mut client) = tokio::io::duplex(100);
        let mut wire = Wire::new(ours, None);
        client.write_all(b"GET / HTTP/1.1\nHost: x\r\n\r\n").await.expect("it fits");
        let mut read = [0; 16];
        wire.read_exact(&mut read).await.expect("it is there");
        assert_eq!(&read, b"GET / HTTP/1.1\0H");
    }
}
