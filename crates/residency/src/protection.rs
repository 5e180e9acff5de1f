//! [`Protection`]: what keeps a resident from being evicted. The first that matches counts: tag, configuration, worker.
use crate::{book::By, resident::Seen};
use std::fmt;

/// For what the configuration wants a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// People talk with it.
    Chat,
    /// It keeps what agents remember.
    Memory,
    /// It works in the background.
    Worker,
    /// A target's requests go to it when they name none.
    TargetDefault,
}

/// One line of the configuration that names a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The model, by id or alias.
    pub model: String,
    /// For what.
    pub role: Role,
}

/// What our configuration protects on one server, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtectedSet {
    /// These.
    Known(Vec<Claim>),
    /// It cannot be read: everything is as if tagged.
    Unreadable,
}

/// What protects a resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Its owner marked it `pinned:true` or `role:scout`. Never a candidate.
    Tag,
    /// Our configuration names it. The last resort.
    Config(Role),
    /// A helper process of ours loaded it. Never a candidate.
    Worker,
    /// Nothing.
    None,
}

impl Role {
    /// As it stands in the configuration and in notices.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Memory => "memory",
            Self::Worker => "worker",
            Self::TargetDefault => "target-default",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What protects `seen`, by `set` and by who of us loaded it.
pub fn protection(seen: &Seen, set: &ProtectedSet, by: Option<By>) -> Protection {
    let is_tagged = seen.tags.iter().any(|tag| matches!(tag.trim(), "pinned:true" | "role:scout"));
    let claims = match set {
        ProtectedSet::Unreadable => return Protection::Tag,
        ProtectedSet::Known(_) if is_tagged => return Protection::Tag,
        ProtectedSet::Known(claims) => claims,
    };
    let claim = claims.iter().find(|claim| seen.is_called(&claim.model));
    match (claim, by) {
        (Some(claim), _) => Protection::Config(claim.role),
        (None, Some(By::Worker)) => Protection::Worker,
        (None, Some(By::Us) | None) => Protection::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resident::Phase;

    fn set(roles: &[Role]) -> ProtectedSet {
        ProtectedSet::Known(roles.iter().map(|role| Claim { model: "a".into(), role: *role }).collect())
    }

    fn seen(tags: &[&str]) -> Seen {
        Seen { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..Seen::new("a", Phase::Loaded) }
    }

    #[test]
    fn a_tag_goes_before_the_configuration_and_that_before_a_helper() {
        let worker = Some(By::Worker);
        assert_eq!(protection(&seen(&["pinned:true"]), &set(&[Role::Chat]), worker), Protection::Tag);
        assert_eq!(protection(&seen(&["x", "role:scout"]), &set(&[]), None), Protection::Tag);
        assert_eq!(protection(&seen(&["pinned:false"]), &set(&[Role::Chat]), worker), Protection::Config(Role::Chat));
        assert_eq!(protection(&seen(&[]), &set(&[]), worker), Protection::Worker);
        assert_eq!(protection(&seen(&[]), &set(&[]), Some(By::Us)), Protection::None);
    }

    #[test]
    fn the_first_claim_wins_and_an_alias_is_claimed_like_an_id() {
        assert_eq!(protection(&seen(&[]), &set(&[Role::Memory, Role::Chat]), None), Protection::Config(Role::Memory));
        let aliased = Seen { aliases: vec!["a".into()], ..Seen::new("b", Phase::Loaded) };
        assert_eq!(protection(&aliased, &set(&[Role::Worker]), None), Protection::Config(Role::Worker));
        assert_eq!(protection(&Seen::new("A", Phase::Loaded), &set(&[Role::Worker]), None), Protection::None);
    }

    #[test]
    fn a_protected_set_that_cannot_be_read_protects_everything() {
        assert_eq!(protection(&seen(&[]), &ProtectedSet::Unreadable, Some(By::Us)), Protection::Tag);
    }
}
