//! [`Wakes`]: the end of a child as something to read.
use crate::keeper::output::set_nonblocking;
use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};
use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd, IntoRawFd as _, OwnedFd},
    sync::atomic::{AtomicI32, Ordering},
};

/// The handler's end of the pipe: open for as long as this process.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// Nothing here may allocate, lock or fail: it runs between any two instructions.
extern "C" fn on_child(_: libc::c_int) {
    let errno = Errno::last_raw();
    #[expect(unsafe_code, reason = "a wrapper would want the descriptor's owner, and a handler has none")]
    // SAFETY: one byte that lives for ever, into a descriptor that nobody closes. A pipe that is full wakes as well.
    unsafe {
        libc::write(PIPE.load(Ordering::Relaxed), b"!".as_ptr().cast(), 1);
    }
    Errno::set_raw(errno);
}

/// The other end.
pub(super) struct Wakes {
    pipe: File,
}

impl Wakes {
    /// Hears the ends of children and none of `others`. Once in a process.
    pub(super) fn listen(mut others: SigSet) -> io::Result<Self> {
        let (reads, writes) = io::pipe()?;
        let (reads, writes) = (OwnedFd::from(reads), OwnedFd::from(writes));
        set_nonblocking(&reads)?;
        set_nonblocking(&writes)?;
        PIPE.store(writes.into_raw_fd(), Ordering::Relaxed);
        let flags = SaFlags::SA_RESTART | SaFlags::SA_NOCLDSTOP;
        let action = SigAction::new(SigHandler::Handler(on_child), flags, SigSet::empty());
        #[expect(unsafe_code, reason = "a handler is what every Unix has")]
        // SAFETY: it does what a handler may, and its pipe is there.
        unsafe {
            sigaction(Signal::SIGCHLD, &action)?;
        }
        others.remove(Signal::SIGCHLD);
        others.thread_block()?;
        Ok(Self { pipe: reads.into() })
    }

    pub(super) fn interest(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    pub(super) fn forget(&self) {
        let mut wakes = [0; 64];
        while (&self.pipe).read(&mut wakes).is_ok_and(|n| n > 0) {}
    }
}
