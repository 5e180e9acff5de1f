//! Linux: Landlock.
use crate::protocol::Fence;
use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use nix::errno::Errno;

/// The newest rules that are used; an older kernel holds to those that it knows.
const RULES: ABI = ABI::V6;
/// Every engine writes there: null, shared memory, cards; names of its own threads.
const ALWAYS: [&str; 2] = ["/dev", "/proc/self"];

/// From here on it is held to `fence`. A kernel without Landlock changes nothing.
pub(crate) fn enter(fence: &Fence) -> Result<(), Errno> {
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
