//! An engine's log as a body: what is there, and, when asked, what comes.
use bytes::Bytes;
use http_body::{Body, Frame};
use std::{
    fs::{File, Metadata},
    future::Future,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

/// Read at a time.
const READ_BYTES: usize = 64 << 10;
/// Between two looks at a log that does not grow.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Whether the body goes on at the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// It waits for more, in the next file too when this one is rotated.
    Yes,
    /// It ends.
    No,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    follow: Follow,
}

type Step = Pin<Box<dyn Future<Output = io::Result<Option<(Bytes, Log)>>> + Send>>;

/// The body.
pub(crate) struct LogBody {
    step: Option<Step>,
}

impl LogBody {
    pub(crate) async fn open(path: PathBuf, follow: Follow) -> io::Result<Self> {
        let (path, file) = blocking(move || File::open(&path).map(|file| (path, file))).await?;
        Ok(Self { step: Some(Box::pin(next(Log { path, file, follow }))) })
    }
}

/// The next bytes; `None` at the end of a log that is not followed.
async fn next(mut log: Log) -> io::Result<Option<(Bytes, Log)>> {
    loop {
        let (bytes, back) = blocking(move || log.read()).await?;
        log = back;
        if !bytes.is_empty() {
            return Ok(Some((bytes, log)));
        }
        if log.follow == Follow::No {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Log {
    fn read(mut self) -> io::Result<(Bytes, Self)> {
        let mut bytes = vec![0; READ_BYTES];
        let mut n = self.file.read(&mut bytes)?;
        if n == 0 && self.turn_over()? {
            n = self.file.read(&mut bytes)?;
        }
        bytes.truncate(n);
        Ok((bytes.into(), self))
    }

    /// Whether another file has taken this one's name; it is read from its beginning.
    fn turn_over(&mut self) -> io::Result<bool> {
        if self.follow == Follow::No {
            return Ok(false);
        }
        let identity = |m: Metadata| (m.dev(), m.ino());
        let there = match Path::new(&self.path).metadata() {
            Ok(there) => identity(there),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        if there == identity(self.file.metadata()?) {
            return Ok(false);
        }
        self.file = File::open(&self.path)?;
        Ok(true)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

impl Body for LogBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let stepped = ready!(step.as_mut().poll(cx));
        self.step = None;
        match stepped {
            Ok(Some((bytes, log))) => {
                self.step = Some(Box::pin(next(log)));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::{fs, io::Write};

    #[tokio::test]
    async fn a_log_is_read_to_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let text = "line\n".repeat(50_000);
        fs::write(&path, &text).expect("it can be written");
        let body = LogBody::open(path, Follow::No).await.expect("it is there");
        assert_eq!(body.collect().await.expect("it can be read").to_bytes(), text.as_bytes());
        assert!(LogBody::open(dir.path().join("none"), Follow::No).await.is_err());
    }

    #[tokio::test]
    async fn a_followed_log_goes_on_in_the_next_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        fs::write(&path, "one\n").expect("it can be written");
        let mut body = LogBody::open(path.clone(), Follow::Yes).await.expect("it is there");
        let mut read =
            async || body.frame().await.expect("it goes on").expect("it can be read").into_data().expect("data");
        assert_eq!(read().await, "one\n");
        let mut file = fs::OpenOptions::new().append(true).open(&path).expect("it is there");
        file.write_all(b"two\n").expect("it can be written");
        assert_eq!(read().await, "two\n");
        fs::rename(&path, dir.path().join("log.1")).expect("it can be moved");
        fs::write(&path, "three\n").expect("it can be written");
        assert_eq!(read().await, "three\n");
    }
}
