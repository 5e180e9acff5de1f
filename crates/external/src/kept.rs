//! [`Uses`]: how many answers a connection has given, so that one that dies without a word can be told from a server that
//! does: a kept one says nothing about the server, and its request goes once more, on a new one.
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::{
        Error as ClientError,
        connect::{Connected, Connection},
    },
    rt::TokioIo,
};
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};
use tokio::net::TcpStream;
use tower::Service;

/// How many answers a connection has given.
#[derive(Clone, Debug, Default)]
struct Uses(Arc<AtomicU32>);

/// Connects as `C` does, and counts what comes of it.
#[derive(Clone, Debug)]
pub(crate) struct Counting<C>(pub(crate) C);

/// A connection that counts its answers.
#[derive(Debug)]
pub(crate) struct Counted {
    socket: TokioIo<TcpStream>,
    uses: Uses,
}

/// The connection of `answer` has given one more.
pub(crate) fn count<T>(answer: &http::Response<T>) {
    if let Some(Uses(n)) = answer.extensions().get() {
        n.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the connection that failed so had given an answer before.
pub(crate) fn was_used_before(error: &ClientError) -> bool {
    let mut extensions = http::Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut extensions);
    }
    extensions.get().is_some_and(|Uses(n)| n.load(Ordering::Relaxed) > 0)
}

impl<C, T> Service<T> for Counting<C>
where
    C: Service<T, Response = TokioIo<TcpStream>>,
    C::Future: Send + 'static,
{
    type Response = Counted;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Counted, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, to: T) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move { Ok(Counted { socket: connecting.await?, uses: Uses::default() }) })
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        self.socket.connected().extra(self.uses.clone())
    }
}

impl Read for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl Write for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
