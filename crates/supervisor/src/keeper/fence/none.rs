//! A system that has nothing of the kind, as macOS: its `sandbox_init` is no longer meant for others, and a profile of it
//! would have to be written on one.
use crate::protocol::Fence;
use nix::errno::Errno;

/// Changes nothing, as on a Linux without Landlock; `landlock_version` says so to whoever asks.
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
pub(crate) fn enter(_: &Fence) -> Result<(), Errno> {
    Ok(())
}
