//! macOS. Type-checked, never run.
use nix::{
    errno::Errno,
    libc::{self, c_int},
};
use std::{io, os::unix::net::SocketAddr, time::Duration};

/// What doctor says where engines are held to nothing, and what would help.
pub(crate) const WITHOUT_SANDBOX: [&str; 2] = [
    "engines may write wherever their user may: only Linux can hold them to their files",
    "nothing needs it; run motorpool as a user of its own to keep engines from your files",
];

/// There are none here, so nobody can have meant one.
pub(crate) fn hidden_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The soft one and the hard one.
pub(crate) fn limit_of_processes() -> nix::Result<(u64, u64)> {
    limit(libc::RLIMIT_NPROC)
}

/// The soft one and the hard one, in bytes.
pub(crate) fn limit_of_locked_memory() -> nix::Result<(u64, u64)> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// None is told as `RLIM_INFINITY`, which here is the largest positive number; whoever asks knows the largest of all.
fn limit(which: c_int) -> nix::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    #[expect(unsafe_code, reason = "no wrapper has these two here")]
    // SAFETY: it writes one rlimit, which outlives the call.
    Errno::result(unsafe { libc::getrlimit(which, &raw mut limit) })?;
    let plain = |n| if n == libc::RLIM_INFINITY { u64::MAX } else { n };
    Ok((plain(limit.rlim_cur), plain(limit.rlim_max)))
}

/// The processor time that this thread took; macOS tells that of processes only.
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    None
}
