//! The keeper's end of the socket: orders in, reports out, never waiting for a supervisor that does not read.
use crate::{
    protocol::{Launch, Order, Report, Source},
    wire::{Deframer, append_frame},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

/// Unsent bytes beyond which lines are dropped and counted. Reports that matter are few and always kept.
const BACKLOG: usize = 64 << 10;

pub(super) struct Link {
    socket: UnixStream,
    incoming: Deframer<Order>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is sent.
    n_sent: usize,
    /// Lines dropped since the last one sent.
    n_dropped: u32,
    closed: bool,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (incoming, outgoing) = (Deframer::new(), Vec::new());
        Ok(Self { socket, incoming, outgoing, n_sent: 0, n_dropped: 0, closed: false })
    }

    /// Whether nobody is there any more, or somebody who does not speak as we do.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.n_unsent() > 0);
        (!self.closed).then(|| PollFd::new(self.socket.as_fd(), flags))
    }

    fn n_unsent(&self) -> usize {
        self.outgoing.len() - self.n_sent
    }

    /// Waits for the first order. `None` when the supervisor left without one, or began with another.
    pub(super) fn wait_for_launch(&mut self) -> io::Result<Option<Box<Launch>>> {
        loop {
            match self.next_order() {
                Some(Order::Launch(launch)) => return Ok(Some(launch)),
                Some(_) => return Ok(None),
                None if self.closed => return Ok(None),
                None => self.wait()?,
            }
        }
    }

    /// The next order that is there, without waiting.
    pub(super) fn next_order(&mut self) -> Option<Order> {
        loop {
            match self.incoming.next_message() {
                Ok(Some(order)) => return Some(order),
                Ok(None) => {}
                Err(_) => self.closed = true,
            }
            if self.closed || !self.receive() {
                return None;
            }
        }
    }

    /// Whether bytes came.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => self.closed = true,
            Ok(n) => {
                self.incoming.push(&bytes[..n]);
                return true;
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.closed = true,
        }
        false
    }

    /// Queues a report that must arrive.
    pub(super) fn report(&mut self, report: &Report) {
        append_frame(report, &mut self.outgoing);
    }

    /// Queues a line if there is room for it.
    pub(super) fn report_line(&mut self, source: Source, text: String) {
        if self.closed {
            return;
        }
        if self.n_unsent() >= BACKLOG {
            self.flush();
        }
        if self.n_unsent() >= BACKLOG {
            self.n_dropped = self.n_dropped.saturating_add(1);
            return;
        }
        let n_dropped = self.take_dropped();
        self.report(&Report::Line { source, text, n_dropped });
    }

    /// How many lines were dropped and not told of yet.
    pub(super) fn take_dropped(&mut self) -> u32 {
        std::mem::take(&mut self.n_dropped)
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) {
        while !self.closed && self.n_unsent() > 0 {
            match self.socket.write(&self.outgoing[self.n_sent..]) {
                Ok(n) => self.n_sent += n,
                Err(error) if is_temporary(&error) => break,
                Err(_) => self.closed = true,
            }
        }
        if self.closed || self.n_unsent() == 0 {
            self.outgoing.clear();
            self.n_sent = 0;
        } else if self.n_sent >= BACKLOG {
            self.outgoing.drain(..self.n_sent);
            self.n_sent = 0;
        }
    }

    /// Sends everything, waiting for a slow supervisor; one that is gone ends the wait.
    pub(super) fn flush_all(&mut self) -> io::Result<()> {
        loop {
            self.flush();
            if self.n_unsent() == 0 {
                return Ok(());
            }
            self.wait()?;
            // Orders come too late now; only the end of file among them matters.
            while self.next_order().is_some() {}
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> = self.interest().into_iter().collect();
        match poll(&mut fds, PollTimeout::NONE) {
            // Whoever waits looks again.
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
