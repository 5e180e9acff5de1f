//! Linux.
use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike as _,
};
use std::{
    io,
    os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr},
    time::Duration,
};

/// What doctor says where engines are held to nothing, and what would help.
pub(crate) const WITHOUT_SANDBOX: [&str; 2] = [
    "this kernel has no Landlock: engines may write wherever their user may",
    "nothing needs it; to have it, boot with `lsm=landlock,…`, or a kernel from 5.13 on that was built with it",
];

/// The address of a socket that is in no directory.
pub(crate) fn hidden_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// The soft one and the hard one.
pub(crate) fn limit_of_processes() -> nix::Result<(u64, u64)> {
    getrlimit(Resource::RLIMIT_NPROC)
}

/// The soft one and the hard one, in bytes.
pub(crate) fn limit_of_locked_memory() -> nix::Result<(u64, u64)> {
    getrlimit(Resource::RLIMIT_MEMLOCK)
}

/// The processor time that this thread took, its own and the kernel's for it.
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}
