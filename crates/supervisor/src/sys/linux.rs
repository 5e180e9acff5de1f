//! Linux: pidfds, `close_range`, Landlock.
use super::check;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

/// The highest number of a signal.
pub(super) fn last_signal() -> i32 {
    libc::SIGRTMAX()
}

/// A process that stays the same one however ids are recycled.
#[derive(Debug)]
pub(crate) struct Hold(OwnedFd);

impl Hold {
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

/// The version of Landlock that this kernel has; `None`: it has none, or it is switched off.
pub fn landlock_version() -> Option<u32> {
    const ASK_VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    #[expect(unsafe_code, reason = "no wrapper asks for the version alone")]
    // SAFETY: with this flag the call reads no memory and makes nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, ASK_VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}
