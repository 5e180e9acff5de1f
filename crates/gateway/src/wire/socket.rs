//! A client's socket, for two: who reads and writes it, and who looks whether the client is still there.
//!
//! The reader of requests looks no further while bytes lie before it that it does not want yet: the next request, a stray
//! line end, a form of which nothing is needed now. A client that goes then would be noticed by nobody, so whether it has
//! gone is asked of the socket itself, whatever lies in it unread.
use nix::sys::socket::{Shutdown, shutdown};
use std::{
    io,
    os::fd::AsRawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, Ready},
    net::{TcpStream, UnixStream},
};

/// What a closed side is told by. Where there is urgent data, it is never asked for: nothing else wakes who waits for this.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LEFT: Interest = Interest::PRIORITY;
/// Elsewhere any byte wakes, too.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LEFT: Interest = Interest::READABLE;
/// Where bytes wake, it is looked again behind them so often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What a client still sends behind its last answer is taken for so long, and so much of it.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);
const FAREWELL_BYTES: u64 = 16 << 20;

/// One connection of a client's.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self(Arc::new(Kind::Tcp(stream)))
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self(Arc::new(Kind::Unix(stream)))
    }
}

/// The same of either kind.
macro_rules! either {
    ($socket:expr, $stream:ident => $do:expr) => {
        match &*$socket.0 {
            Kind::Tcp($stream) => $do,
            Kind::Unix($stream) => $do,
        }
    };
}

impl Socket {
    /// Returns when the client has gone: it has closed the connection, or its side of it.
    pub(crate) async fn left(&self) {
        while !self.ready().await.is_ok_and(Ready::is_read_closed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Says that nothing more comes, and takes what the client still sends until it closes. What it has not sent yet when the
    /// last of us lets go would be answered by a reset, and that may cost it the answer which lies unread on its side.
    pub(crate) async fn part(mut self) {
        if AsyncWriteExt::shutdown(&mut self).await.is_err() {
            return;
        }
        let mut rest = self.take(FAREWELL_BYTES);
        let mut nowhere = tokio::io::sink();
        let taken = tokio::io::copy(&mut rest, &mut nowhere);
        let _ = tokio::time::timeout(FAREWELL_WITHIN, taken).await;
    }

    async fn ready(&self) -> io::Result<Ready> {
        either!(self, stream => stream.ready(LEFT).await)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(either!(self, stream => stream.poll_read_ready(cx)))?;
            match either!(self, stream => stream.try_read_buf(buf)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl Socket {
    fn poll_writing<T>(&self, cx: &mut Context<'_>, write: impl Fn(&Self) -> io::Result<T>) -> Poll<io::Result<T>> {
        loop {
            ready!(either!(self, stream => stream.poll_write_ready(cx)))?;
            match write(self) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |socket| either!(socket, stream => stream.try_write(buf)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |socket| either!(socket, stream => stream.try_write_vectored(bufs)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let fd = either!(self, stream => stream.as_raw_fd());
        Poll::Ready(shutdown(fd, Shutdown::Write).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_has_gone_is_noticed_behind_bytes_that_nobody_reads_and_who_is_silent_is_there() {
        let (ours, mut client) = UnixStream::pair().expect("sockets");
        let mut socket = Socket::from(ours);
        let watch = socket.clone();
        client.write_all(b"unread").await.expect("it fits");
        let mut first = [0];
        socket.read_exact(&mut first).await.expect("it is there");
        tokio::select! {
            biased;
            () = watch.left() => panic!("it is there"),
            () = tokio::task::yield_now() => {}
        }
        // Half-closed is gone, too.
        client.shutdown().await.expect("open until now");
        watch.left().await;
        let mut rest = String::new();
        socket.read_to_string(&mut rest).await.expect("it is there");
        assert_eq!((first, rest.as_str()), (*b"u", "nread"));
    }

    #[tokio::test]
    async fn what_is_written_arrives_and_its_end_does() {
        let (ours, mut client) = UnixStream::pair().expect("sockets");
        let mut socket = Socket::from(ours);
        let long = vec![7; 1 << 20];
        let (written, read) = tokio::join!(
            async {
                socket.write_all(&long).await?;
                socket.shutdown().await
            },
            async {
                let mut read = Vec::new();
                client.read_to_end(&mut read).await.map(|_| read)
            }
        );
        written.expect("it reads");
        assert_eq!(read.expect("it was sent"), long);
    }
}
