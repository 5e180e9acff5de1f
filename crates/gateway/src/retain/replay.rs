//! A kept body as the body of a request to an engine, edited on the way.
use super::{Kept, Retained};
use crate::splice::{Piece, Splice};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::VecDeque,
    fs::File,
    future::Future,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::task::JoinHandle;

/// A spooled body is read in pieces of this size.
const READ_BYTES: u64 = 256 << 10;

/// The edited body, once through. The [`Retained`] stays as it is: another replay gives the same bytes.
#[derive(Debug)]
pub struct Replay {
    whole: Arc<Retained>,
    pieces: VecDeque<Piece>,
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Replay {
    /// `whole` with the edits of `splice`.
    pub fn new(whole: Arc<Retained>, splice: &Splice) -> Self {
        Self { whole, pieces: splice.pieces().iter().cloned().collect(), left: splice.len(), reading: None }
    }

    /// What comes next: at hand, or being read from the file.
    fn begin_next(&mut self) -> Option<Bytes> {
        loop {
            match self.pieces.pop_front()? {
                Piece::New(bytes) => return Some(bytes),
                Piece::Kept(range) if range.is_empty() => {}
                Piece::Kept(range) => match &self.whole.kept {
                    Kept::Memory(bytes) => return Some(bytes.slice(in_memory(&range))),
                    Kept::File(file) => {
                        let file = Arc::clone(file);
                        let end = range.end.min(range.start + READ_BYTES);
                        self.pieces.push_front(Piece::Kept(end..range.end));
                        self.reading = Some(tokio::task::spawn_blocking(move || read(&file, range.start..end)));
                        return None;
                    }
                },
            }
        }
    }
}

fn in_memory(range: &Range<u64>) -> Range<usize> {
    let place = |n| usize::try_from(n).expect("what is in memory has addresses");
    place(range.start)..place(range.end)
}

pub(super) fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let mut bytes = vec![0; in_memory(&(0..range.end - range.start)).end];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}

impl Body for Replay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.reading.is_none()
            && let Some(bytes) = self.begin_next()
        {
            self.left -= bytes.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = std::task::ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let bytes = read.unwrap_or_else(|e| Err(io::Error::other(e)))?;
        self.left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
