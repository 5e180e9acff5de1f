//! The system calls that `nix` does not wrap, or wraps with a loss, each in one safe function.
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::SigSet,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// A process that stays the same one however ids are recycled.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// The process that has this id now. Check *afterwards* that it is the one that was meant.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        #[expect(unsafe_code, reason = "no wrapper has pidfd_open")]
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        #[expect(unsafe_code, reason = "the call answers a raw descriptor")]
        // SAFETY: the kernel has just made `fd` for this call; nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal to exactly this process. One that is gone already is no error.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        let no_details = std::ptr::null::<libc::siginfo_t>();
        #[expect(unsafe_code, reason = "no wrapper has pidfd_send_signal")]
        // SAFETY: the descriptor is open for as long as `self`; a null siginfo means that of kill(2).
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, no_details, 0) };
        match check(sent) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Waits until it has ended (it may still be a zombie). Whether it has.
    pub(crate) fn has_ended_within(&self, within: Duration) -> bool {
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).is_ok_and(|n| n > 0)
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A child that has ended and waits to be reaped; it stays as it is. `None` when none has ended.
///
/// Not `nix::sys::wait::waitid`: that one fails for a child killed by a real-time signal.
pub(crate) fn peek_ended_child() -> io::Result<Option<u32>> {
    #[expect(unsafe_code, reason = "see above")]
    // SAFETY: all zeroes is a siginfo_t, and so is what waitid makes of it; si_pid reads the field that waitid
    // sets, or the zero that was there when no child has ended.
    let (result, pid) = unsafe {
        let mut found = std::mem::zeroed::<libc::siginfo_t>();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut found, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
        (result, found.si_pid())
    };
    check(result.into())?;
    Ok(u32::try_from(pid).ok().filter(|pid| *pid != 0))
}

/// Reaps the child `pid` if it has ended. `None` when it has not.
pub(crate) fn reap(pid: u32) -> io::Result<Option<Ended>> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    #[expect(unsafe_code, reason = "the wrapper reaps and then fails for real-time signals")]
    // SAFETY: `status` outlives the call.
    let reaped = check(unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) }.into())?;
    if reaped == 0 {
        return Ok(None);
    }
    let exited = libc::WIFEXITED(status);
    Ok(Some(if exited { Ended::Code(libc::WEXITSTATUS(status)) } else { Ended::Signal(libc::WTERMSIG(status)) }))
}

/// Closes every descriptor from 3 up but `keep`. Kernels without the call (before 5.9) keep what was inherited.
///
/// For a process that has just begun: nobody in it may own one of them.
pub(crate) fn close_inherited(keep: &OwnedFd) {
    let keep = u32::try_from(keep.as_raw_fd()).unwrap_or(0);
    for (first, last) in [(3, keep.saturating_sub(1)), (keep.saturating_add(1).max(3), u32::MAX)] {
        if first <= last {
            #[expect(unsafe_code, reason = "descriptors that this process never opened have no owner to close them")]
            // SAFETY: the contract above; close_range takes integers only.
            unsafe {
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
    }
}

/// What a program expects at its start: no signal blocked, none ignored. Both would be inherited through exec.
pub(crate) fn reset_signals() {
    for which in 1..=libc::SIGRTMAX() {
        #[expect(unsafe_code, reason = "dispositions belong to the whole process")]
        // SAFETY: the default disposition runs no code of ours. Those that cannot be set are refused.
        unsafe {
            libc::signal(which, libc::SIG_DFL);
        }
    }
    // An empty set is always valid.
    let _ = SigSet::empty().thread_set_mask();
}

/// Gives back the pages of program files that starting up has touched; what is needed again is read again.
///
/// A keeper is a large program that runs a small part of itself for days: this is most of its memory.
pub(crate) fn drop_clean_file_pages() {
    for (start, end) in motorpool_devices::clean_file_ranges() {
        let start = std::ptr::with_exposed_provenance_mut(start);
        #[expect(unsafe_code, reason = "no safe call gives pages back")]
        // SAFETY: the range is mapped from a file and unchanged, and this thread is the only one, so the next access
        // finds the same bytes again.
        unsafe {
            libc::madvise(start, end - start.addr(), libc::MADV_DONTNEED);
        }
    }
}

/// The version of Landlock that this kernel has; `None`: it has none, or it is switched off.
pub fn landlock_version() -> Option<u32> {
    const ASK_VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    #[expect(unsafe_code, reason = "no wrapper asks for the version alone")]
    // SAFETY: with this flag the call reads no memory and makes nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, ASK_VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Ends a forked child that did not come to exec, without running anything that the parent registered.
pub(crate) fn exit_now(code: i32) -> ! {
    #[expect(unsafe_code, reason = "std::process::exit would run the parent's exit handlers")]
    // SAFETY: _exit only ends the process.
    unsafe {
        libc::_exit(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_pidfd_names_one_process_to_its_end() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pidfd = PidFd::open(child.id()).expect("it lives");
        assert!(!pidfd.has_ended_within(Duration::ZERO));
        pidfd.signal(libc::SIGKILL).expect("ours");
        assert!(pidfd.has_ended_within(Duration::from_secs(10)));
        child.wait().expect("ours");
        pidfd.signal(libc::SIGKILL).expect("a process that is gone is no error");
    }

    #[test]
    fn nobody_has_no_pidfd() {
        assert!(PidFd::open(0).is_err() && PidFd::open(u32::MAX).is_err());
    }
}
