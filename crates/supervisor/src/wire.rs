//! Frames on the socket between supervisor and keeper: how bytes become messages.
//!
//! ```text
//! ┌─────────┬──────┬───────────────┬─────────┐
//! │ version │ kind │ length, u32   │ payload │     all numbers little-endian; a text is its length as u32 and
//! └─────────┴──────┴───────────────┴─────────┘     its bytes; a list is its count as u32 and its items
//! ```
//!
//! Both ends are ours, but a decoder still believes nothing: any bytes give messages or a [`WireError`], never a
//! panic, and never more memory than a small multiple of what was received.
use std::{
    ffi::{OsStr, OsString},
    marker::PhantomData,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Raised when a message changes its meaning. Supervisor and keeper are one binary, except across an upgrade.
pub(crate) const VERSION: u8 = 3;
/// More than the arguments and environment that Linux lets any process have.
pub(crate) const MAX_PAYLOAD: usize = 4 << 20;
const HEADER: usize = 6;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// The other end speaks another version.
    #[error("protocol version {0} instead of {VERSION}")]
    Version(u8),
    /// A kind of frame that this end does not take.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// A frame longer than any of ours.
    #[error("frame of {0} bytes")]
    TooLong(u32),
    /// The payload ends before its message does.
    #[error("frame too short for its message")]
    Short,
    /// The payload goes on after its message.
    #[error("{0} bytes left over in a frame")]
    Trailing(usize),
    /// A value outside its range.
    #[error("bad value in a frame")]
    Value,
}

/// Something that travels as one frame.
pub(crate) trait Message: Sized {
    /// Its kind, and its payload appended to `out`.
    fn write(&self, out: &mut Vec<u8>) -> u8;
    /// The message of this kind with this payload.
    fn read(kind: u8, payload: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// Appends `message` as a frame.
pub(crate) fn append_frame(message: &impl Message, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0]);
    let kind = message.write(out);
    let length = u32::try_from(out.len() - start - HEADER).unwrap_or(u32::MAX);
    out[start + 1] = kind;
    out[start + 2..start + HEADER].copy_from_slice(&length.to_le_bytes());
}

/// Takes bytes as they come and gives whole messages. After an error the connection is of no more use.
#[derive(Debug)]
pub(crate) struct Deframer<M> {
    buffer: Vec<u8>,
    /// Where in `buffer` the first unread frame begins.
    start: usize,
    marker: PhantomData<fn() -> M>,
}

impl<M: Message> Deframer<M> {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::new(), start: 0, marker: PhantomData }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, `None` when its end has not come yet.
    pub(crate) fn next_message(&mut self) -> Result<Option<M>, WireError> {
        let unread = &self.buffer[self.start..];
        let Some((header, rest)) = unread.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [version, kind, length @ ..] = *header;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let length = u32::from_le_bytes(length);
        let Some(n) = usize::try_from(length).ok().filter(|n| *n <= MAX_PAYLOAD) else {
            return Err(WireError::TooLong(length));
        };
        let Some(payload) = rest.get(..n) else { return Ok(None) };
        let mut reader = Reader(payload);
        let message = M::read(kind, &mut reader)?;
        if !reader.0.is_empty() {
            return Err(WireError::Trailing(reader.0.len()));
        }
        self.start += HEADER + n;
        Ok(Some(message))
    }
}

/// What is left of a payload.
pub(crate) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[n]| n)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.take().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn os_text(&mut self) -> Result<OsString, WireError> {
        let n = usize::try_from(self.u32()?).map_err(|_| WireError::Short)?;
        let (taken, rest) = self.0.split_at_checked(n).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(OsString::from_vec(taken.to_vec()))
    }

    pub(crate) fn text(&mut self) -> Result<String, WireError> {
        self.os_text()?.into_string().map_err(|_| WireError::Value)
    }

    pub(crate) fn option<T>(&mut self, item: fn(&mut Self) -> Result<T, WireError>) -> Result<Option<T>, WireError> {
        match self.u8()? {
            0 => Ok(None),
            1 => item(self).map(Some),
            _ => Err(WireError::Value),
        }
    }

    /// The count is not believed: nothing is reserved for items that may not be there.
    pub(crate) fn list<T>(&mut self, item: fn(&mut Self) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
        let n = self.u32()?;
        (0..n).map(|_| item(self)).collect()
    }
}

pub(crate) fn put_u32(n: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(crate) fn put_i32(n: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(crate) fn put_u64(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(crate) fn put_text(text: impl AsRef<OsStr>, out: &mut Vec<u8>) {
    let bytes = text.as_ref().as_bytes();
    put_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_option<T>(value: Option<T>, put: impl FnOnce(T, &mut Vec<u8>), out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(value, out);
    }
}

pub(crate) fn put_list<T>(items: &[T], mut put: impl FnMut(&T, &mut Vec<u8>), out: &mut Vec<u8>) {
    put_count(items.len(), out);
    for item in items {
        put(item, out);
    }
}

/// A count past 2^32 makes a frame too long to be taken, which the other end says.
fn put_count(n: usize, out: &mut Vec<u8>) {
    put_u32(u32::try_from(n).unwrap_or(u32::MAX), out);
}
