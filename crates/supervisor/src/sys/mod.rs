//! The system calls that `nix` does not wrap, or wraps with a loss, each in one safe function. What only one system has is
//! in a file of its own, under one name:
//!
//! | | `linux.rs` | `macos.rs` |
//! | --- | --- | --- |
//! | [`Hold`] | a pidfd: a signal meets the held process or nobody | number and start, compared right before each signal |
//! | [`close_inherited`] | `close_range` | each that `/dev/fd` lists |
//! | [`landlock_version`] | what the kernel says | none |
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
use linux as os;
#[cfg(target_os = "macos")]
use macos as os;

pub use os::landlock_version;
pub(crate) use os::{Hold, close_inherited};

use nix::sys::signal::SigSet;
use std::io;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// What a call answered, or why it failed.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A child that has ended and waits to be reaped, and how it ended; it stays as it is. `None` when none has ended.
///
/// Not `nix::sys::wait::waitid`: that one fails for a child killed by a real-time signal.
pub(crate) fn peek_ended_child() -> io::Result<Option<(u32, Ended)>> {
    #[expect(unsafe_code, reason = "see above")]
    // SAFETY: all zeroes is a siginfo_t, and so is what waitid makes of it; si_pid and si_status read the fields that
    // waitid sets, or the zeroes that were there when no child has ended.
    let (result, pid, code, status) = unsafe {
        let mut found = std::mem::zeroed::<libc::siginfo_t>();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut found, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
        (result, found.si_pid(), found.si_code, found.si_status())
    };
    check(result.into())?;
    let ended = if code == libc::CLD_EXITED { Ended::Code(status) } else { Ended::Signal(status) };
    Ok(u32::try_from(pid).ok().filter(|pid| *pid != 0).map(|pid| (pid, ended)))
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

/// What a program expects at its start: no signal blocked, none ignored. Both would be inherited through exec.
pub(crate) fn reset_signals() {
    for which in 1..=os::last_signal() {
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
    use std::{process::Command, time::Duration};

    #[test]
    fn a_hold_is_on_one_process_to_its_end() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let held = Hold::open(child.id()).expect("it lives");
        assert!(!held.has_ended_within(Duration::ZERO));
        held.signal(libc::SIGKILL).expect("ours");
        assert!(held.has_ended_within(Duration::from_secs(10)));
        child.wait().expect("ours");
        held.signal(libc::SIGKILL).expect("a process that is gone is no error");
    }

    #[test]
    fn nobody_can_be_held() {
        assert!(Hold::open(0).is_err() && Hold::open(u32::MAX).is_err());
    }
}
