//! The engine's standard streams: output is read, cut into lines, kept and forwarded; input is fed without waiting.
use super::link::{Link, is_temporary};
use crate::{
    lines::{Lines, Ring, lossy},
    protocol::Source,
    redact::redacted,
    rotate::LogFile,
};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags},
};
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
};

/// The newest output that is kept for the exit report.
const RING: usize = 64 << 10;
/// One read. Small enough that orders are heard in the middle of a flood.
const CHUNK: usize = 16 << 10;
/// What is read after the tree is dead: more than a pipe holds, and an end for one that a stranger writes to.
const MAX_DRAIN: usize = 2 << 20;

/// Where lines are kept.
pub(super) struct Record {
    ring: Ring,
    log: Option<LogFile>,
    /// Lines of one read, for one write.
    batch: Vec<u8>,
}

impl Record {
    pub(super) fn new(log: Option<LogFile>) -> Self {
        Self { ring: Ring::new(RING), log, batch: Vec::new() }
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.ring.lines()
    }

    fn keep(&mut self, line: &[u8]) {
        self.ring.push(line);
        if self.log.is_some() {
            self.batch.extend_from_slice(line);
            self.batch.push(b'\n');
        }
    }

    fn write_log(&mut self) {
        if let Some(log) = &mut self.log {
            // A full disk loses lines of the log; the ring and the supervisor still have them.
            let _ = log.append(&self.batch);
            self.batch.clear();
        }
    }
}

/// One stream out of the engine.
pub(super) struct Output {
    source: Source,
    /// `None` after its end.
    pipe: Option<File>,
    lines: Lines,
}

impl Output {
    pub(super) fn new(source: Source, pipe: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&pipe)?;
        Ok(Self { source, pipe: Some(pipe.into()), lines: Lines::default() })
    }

    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
    }

    /// Reads once. How many bytes came.
    pub(super) fn read(&mut self, record: &mut Record, link: &mut Link) -> usize {
        let mut chunk = [0; CHUNK];
        let n = match self.pipe.as_mut().map(|pipe| pipe.read(&mut chunk)) {
            None => return 0,
            Some(Ok(n)) => n,
            Some(Err(error)) if is_temporary(&error) => return 0,
            Some(Err(_)) => 0,
        };
        let source = self.source;
        let mut on_line = |line: &[u8]| pass_on(source, line, record, link);
        if n == 0 {
            self.pipe = None;
            self.lines.finish(&mut on_line);
        } else {
            self.lines.feed(&chunk[..n], &mut on_line);
        }
        record.write_log();
        n
    }

    /// Reads what is left when nobody writes any more.
    pub(super) fn drain(&mut self, record: &mut Record, link: &mut Link) {
        self.read_all(record, link);
        let source = self.source;
        self.lines.finish(&mut |line| pass_on(source, line, record, link));
        record.write_log();
    }

    /// Reads what is there.
    pub(super) fn read_all(&mut self, record: &mut Record, link: &mut Link) {
        let mut n_left = MAX_DRAIN;
        while n_left > 0 {
            let n = self.read(record, link);
            if n == 0 {
                break;
            }
            n_left = n_left.saturating_sub(n);
        }
    }
}

/// A whole line goes to everybody, and no secret with it.
fn pass_on(source: Source, said: &[u8], record: &mut Record, link: &mut Link) {
    let clean = redacted(said);
    record.keep(&clean);
    link.report_line(source, lossy(&clean));
}

/// The stream into the engine. It stays open for as long as the engine lives: some take its end for an order.
pub(super) struct Feed {
    pipe: File,
    pending: Vec<u8>,
}

impl Feed {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&pipe)?;
        Ok(Self { pipe: pipe.into(), pending: Vec::new() })
    }

    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        (!self.pending.is_empty()).then(|| PollFd::new(self.pipe.as_fd(), PollFlags::POLLOUT))
    }

    pub(super) fn push_line(&mut self, line: &str) {
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
    }

    pub(super) fn write(&mut self) {
        while !self.pending.is_empty() {
            match self.pipe.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(error) if is_temporary(&error) => break,
                // Nobody reads: whoever asked for this kills when asking does not help.
                Err(_) => self.pending.clear(),
            }
        }
    }
}

pub(super) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
