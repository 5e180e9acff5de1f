//! macOS: it has no pidfd, no `close_range` and no Landlock. Type-checked, never run.
use motorpool_devices::observe_process;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use std::{
    cell::Cell,
    fs, io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    time::Duration,
};

/// The highest number of a signal.
pub(super) fn last_signal() -> i32 {
    libc::SIGUSR2
}

/// One process, known by its number and when it was forked. The kernel tells of its end once.
///
/// Both are compared right before each signal. Between that and the signal the process may end, be reaped, and its number
/// be given anew: some microseconds, in which numbers would have to be drawn once around. Nothing here closes that gap.
#[derive(Debug)]
pub(crate) struct Hold {
    pid: libc::pid_t,
    start_time: u64,
    ends: Kqueue,
    has_ended: Cell<bool>,
}

impl Hold {
    /// The process that has this id now. Check *afterwards* that it is the one that was meant.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let nobody = || io::Error::from_raw_os_error(libc::ESRCH);
        let number = libc::pid_t::try_from(pid).map_err(|_| nobody())?;
        let ends = Kqueue::new()?;
        let flags = (EvFlags::EV_ADD, FilterFlag::NOTE_EXIT);
        let end = KEvent::new(ident(number)?, EventFilter::EVFILT_PROC, flags.0, flags.1, 0, 0);
        ends.kevent(&[end], &mut [], None)?;
        // Registered first: an end between the two lines is told.
        let facts = observe_process(pid).filter(|facts| !facts.is_zombie()).ok_or_else(nobody)?;
        Ok(Self { pid: number, start_time: facts.start_time, ends, has_ended: Cell::new(false) })
    }

    /// Sends a signal to this process. One that is gone already is no error.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "an odd number must be an error of the system's, not of a wrapper's")]
        // SAFETY: kill takes two integers and touches no memory of ours.
        match super::check(unsafe { libc::kill(self.pid, signal) }.into()) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Waits until it has ended (it may still be a zombie). Whether it has.
    pub(crate) fn has_ended_within(&self, within: Duration) -> bool {
        if !self.is_running() {
            return true;
        }
        let never = KEvent::new(0, EventFilter::EVFILT_PROC, EvFlags::empty(), FilterFlag::empty(), 0, 0);
        let seconds = libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX);
        let timeout = libc::timespec { tv_sec: seconds, tv_nsec: within.subsec_nanos().into() };
        if self.ends.kevent(&[], &mut [never], Some(timeout)).is_ok_and(|n| n > 0) {
            self.has_ended.set(true);
        }
        self.has_ended.get()
    }

    fn is_running(&self) -> bool {
        let is_it = |pid| observe_process(pid).is_some_and(|now| now.start_time == self.start_time && !now.is_zombie());
        !self.has_ended.get() && u32::try_from(self.pid).is_ok_and(is_it)
    }
}

fn ident(pid: libc::pid_t) -> io::Result<libc::uintptr_t> {
    libc::uintptr_t::try_from(pid).map_err(io::Error::other)
}

/// Closes every descriptor from 3 up but `keep`.
///
/// For a process that has just begun: nobody in it may own one of them.
pub(crate) fn close_inherited(keep: &OwnedFd) {
    let listed = fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    // All of them before the first is closed: one is that of the list itself, and closed already by then.
    let open: Vec<RawFd> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && *fd != keep.as_raw_fd()) {
        #[expect(unsafe_code, reason = "descriptors that this process never opened have no owner to close them")]
        // SAFETY: the contract above; close takes an integer only.
        unsafe {
            libc::close(fd);
        }
    }
}

/// The version of Landlock that this kernel has: none.
pub fn landlock_version() -> Option<u32> {
    None
}
