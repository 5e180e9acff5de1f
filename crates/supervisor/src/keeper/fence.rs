//! What an engine is held to, entered by its first process right before exec and kept by all that descends from it.
//!
//! Everywhere: no core is written, which could be as large as a model, and where memory ends the kernel takes an engine
//! before it takes us. With a [`Fence`], and where the kernel has Landlock: it writes only where it may, listens only on its
//! port, signals nobody outside. Reading is left alone: programs, libraries, drivers and models lie anywhere. So are ioctls:
//! drivers of graphics cards are spoken to by them.
//!
//! A process that is held so gains no rights by exec. NVIDIA's driver makes its device files by a program that needs some;
//! they are there by then, because engines were asked for their devices before, without a fence.
use crate::protocol::Fence;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};
use std::fs;

/// The newest rules that are used; an older kernel holds to those that it knows.
const RULES: ABI = ABI::V6;
/// Added to how soon the kernel takes a process when memory ends; the most is 1000.
const SOONER: i32 = 300;
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// Every engine writes there: null, shared memory, cards; names of its own threads.
const ALWAYS: [&str; 2] = ["/dev", "/proc/self"];

/// What holds for every engine, as far as it is ours to say.
pub(super) fn limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, hard);
    }
    let score = fs::read_to_string(OOM_SCORE).ok().and_then(|score| score.trim().parse::<i32>().ok());
    if let Some(score) = score {
        let _ = fs::write(OOM_SCORE, score.saturating_add(SOONER).min(1000).to_string());
    }
}

/// From here on it is held to `fence`. A kernel without Landlock changes nothing.
pub(super) fn enter(fence: &Fence) -> Result<(), Errno> {
    // The kernel's own number is what its call left last.
    restrict(fence).map_err(|_| match Errno::last() {
        Errno::UnknownErrno => Errno::EPERM,
        known => known,
    })
}

fn restrict(fence: &Fence) -> Result<(), RulesetError> {
    let write: BitFlags<AccessFs> = AccessFs::from_write(RULES) & !BitFlags::from(AccessFs::IoctlDev);
    let mut rules = Ruleset::default().handle_access(write)?.scope(Scope::Signal)?;
    if fence.ports.is_some() {
        rules = rules.handle_access(AccessNet::from_all(RULES))?;
    }
    let mut rules = rules.create()?;
    for place in ALWAYS.iter().map(AsRef::as_ref).chain(fence.write.iter().map(AsRef::as_ref)) {
        let place: &std::path::Path = place;
        // What is not there cannot be written to.
        if let Ok(place) = PathFd::new(place) {
            rules = rules.add_rule(PathBeneath::new(place, write))?;
        }
    }
    for port in fence.ports.iter().flatten() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    rules.restrict_self().map(drop)
}
