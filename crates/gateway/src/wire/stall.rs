//! A stream whose writes may not stall: [`Stalling`].
//!
//! It lies on the socket itself, below whatever encrypts: an encrypting layer takes what is written although its client reads
//! nothing, and waits for the client only when it is flushed or closed.
use super::Socket;
use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// Ends a write that waits too long for the client to read.
#[derive(Debug)]
pub(crate) struct Stalling<S = Socket> {
    stream: S,
    write_stall: Duration,
    /// Runs while a write waits for the client to read.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Over `stream`; a write that waits longer than `write_stall` ends the connection.
    pub(crate) fn new(stream: S, write_stall: Duration) -> Self {
        Self { stream, write_stall, stalled: None }
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
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

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
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
        let mut stream = Stalling::new(ours, Duration::from_mins(1));
        stream.write_all(b"0123456789").await.expect("it fits");
        let stalled = stream.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        let mut read = [0; 10];
        client.read_exact(&mut read).await.expect("it is there");
        stream.write_all(b"more").await.expect("there is room again");
    }
}
