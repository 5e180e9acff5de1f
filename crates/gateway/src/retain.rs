//! Request bodies kept whole until the first byte of the reply, so that a retry is exact: [`BodyStore`].
//!
//! A body lies in memory up to `limits.body_memory`, all bodies together up to `limits.bodies_memory`; past either it goes
//! to an unlinked file that only we can open, all of those together up to `limits.spool`; past that the request is refused.
//! Nothing is reserved ahead: a meter counts what is there, and its share comes back by `Drop`.
mod replay;

use crate::errors::Failure;
use bytes::{Bytes, BytesMut};
pub use replay::Replay;
use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A spooled body is written in pieces of at least this size.
const WRITE_BYTES: usize = 1 << 20;

/// The bounds, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The longest body.
    pub body: u64,
    /// What one body may take of memory.
    pub body_memory: u64,
    /// What all may take of memory.
    pub bodies_memory: u64,
    /// What all may take of the file system.
    pub spool: u64,
    /// Where their files lie: a directory of ours.
    pub spool_dir: PathBuf,
}

/// Where bodies are kept.
#[derive(Debug)]
pub struct BodyStore {
    limits: BodyLimits,
    memory: Arc<Meter>,
    spool: Arc<Meter>,
}

/// Counts bytes against a bound.
#[derive(Debug)]
struct Meter {
    taken: AtomicU64,
    limit: u64,
}

/// A share of a meter; its drop gives it back.
#[derive(Debug)]
struct Share {
    meter: Arc<Meter>,
    n: u64,
}

/// Memory that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _share: Share,
}

/// A body that is arriving.
#[derive(Debug)]
pub struct Intake {
    store: Arc<BodyStore>,
    len: u64,
    memory: BytesMut,
    memory_share: Share,
    file: Option<Arc<File>>,
    spool_share: Share,
}

/// A body that has arrived.
#[derive(Debug)]
pub struct Retained {
    kept: Kept,
    len: u64,
    _shares: [Share; 2],
}

#[derive(Clone, Debug)]
enum Kept {
    Memory(Bytes),
    File(Arc<File>),
}

impl BodyStore {
    /// An empty store.
    pub fn new(limits: BodyLimits) -> Arc<Self> {
        let meter = |limit| Arc::new(Meter { taken: AtomicU64::new(0), limit });
        Arc::new(Self { memory: meter(limits.bodies_memory), spool: meter(limits.spool), limits })
    }

    /// Begins with a body whose length may have been declared: one that is too long is refused before it is read.
    pub fn intake(self: &Arc<Self>, declared: Option<u64>) -> Result<Intake, Failure> {
        let limit = self.limits.body;
        if declared.is_some_and(|n| n > limit) {
            return Err(Failure::BodyTooLarge { limit });
        }
        let share = |meter: &Arc<Meter>| Share { meter: Arc::clone(meter), n: 0 };
        Ok(Intake {
            len: 0,
            memory: BytesMut::new(),
            memory_share: share(&self.memory),
            file: None,
            spool_share: share(&self.spool),
            store: Arc::clone(self),
        })
    }

    /// All bytes of a body, for who must read them at once, and the room that they and what is made of them take. What
    /// does not fit into `limits.bodies_memory` is refused.
    pub(crate) async fn whole(&self, body: &Retained) -> Result<(Bytes, Room), Failure> {
        let mut share = Share { meter: Arc::clone(&self.memory), n: 0 };
        if !share.grow(body.len.saturating_mul(2)) {
            return Err(Failure::Overloaded("`limits.bodies_memory` is full of request bodies"));
        }
        let bytes = match &body.kept {
            Kept::Memory(bytes) => bytes.clone(),
            Kept::File(file) => {
                let (file, len) = (Arc::clone(file), body.len);
                let read = tokio::task::spawn_blocking(move || replay::read(&file, 0..len)).await;
                read.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(|e| no_spool(&e))?
            }
        };
        Ok((bytes, Room { _share: share }))
    }

    /// Bytes held now: in memory, and in files.
    pub fn taken(&self) -> (u64, u64) {
        (self.memory.taken.load(Ordering::Relaxed), self.spool.taken.load(Ordering::Relaxed))
    }
}

impl Share {
    /// Whether so many more fit; then they are taken.
    fn grow(&mut self, n: u64) -> bool {
        let more = |taken: u64| taken.checked_add(n).filter(|sum| *sum <= self.meter.limit);
        let fits = self.meter.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if fits {
            self.n += n;
        }
        fits
    }

    fn release(&mut self) {
        self.meter.taken.fetch_sub(self.n, Ordering::Relaxed);
        self.n = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

impl Intake {
    /// Takes the next bytes.
    pub async fn push(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let limits = &self.store.limits;
        let n = frame.len() as u64;
        self.len += n;
        if self.len > limits.body {
            return Err(Failure::BodyTooLarge { limit: limits.body });
        }
        let fits = self.file.is_none() && self.len <= limits.body_memory && self.memory_share.grow(n);
        if !fits {
            self.spill(n)?;
        }
        self.memory.extend_from_slice(frame);
        if self.file.is_some() && self.memory.len() >= WRITE_BYTES {
            self.write_out().await?;
        }
        Ok(())
    }

    /// The body has ended.
    pub async fn finish(mut self) -> Result<Retained, Failure> {
        if self.file.is_some() {
            self.write_out().await?;
        }
        let kept = match self.file {
            Some(file) => Kept::File(file),
            None => Kept::Memory(self.memory.freeze()),
        };
        Ok(Retained { kept, len: self.len, _shares: [self.memory_share, self.spool_share] })
    }

    /// From here on it goes to a file, what has arrived before included.
    fn spill(&mut self, n: u64) -> Result<(), Failure> {
        let all = if self.file.is_none() { self.len } else { n };
        if !self.spool_share.grow(all) {
            return Err(Failure::Overloaded("`limits.spool` is full of request bodies"));
        }
        if self.file.is_none() {
            // Made without a name, or unlinked at once, with mode 0600.
            let file = tempfile::tempfile_in(&self.store.limits.spool_dir).map_err(|e| no_spool(&e))?;
            self.file = Some(Arc::new(file));
            self.memory_share.release();
        }
        Ok(())
    }

    async fn write_out(&mut self) -> Result<(), Failure> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let bytes = self.memory.split().freeze();
        let written = tokio::task::spawn_blocking(move || (&*file).write_all(&bytes)).await;
        written.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(|e| no_spool(&e))
    }
}

fn no_spool(e: &io::Error) -> Failure {
    tracing::error!(error = %e, "a request's body cannot be spooled");
    Failure::Overloaded("a long request body cannot be written to the spool directory")
}

impl Retained {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
