//! Builders for this crate's tests.
use crate::{By, Capacity, Catalogue, Facts, Keep, Kind, Lifecycle, Owner, Phase, Protection, Resident, Seen, Used};
use motorpool_vocab::{Now, ServerUrl, TargetKey};

pub(crate) fn key(url: &str) -> TargetKey {
    url.parse::<ServerUrl>().expect("an address").key()
}

/// An idle, loaded resident of ours without protection.
pub(crate) fn ours(id: &str) -> Resident {
    Resident {
        seen: Seen::new(id, Phase::Loaded),
        owner: Owner::Ours(By::Us),
        protection: Protection::None,
        used: Used::Idle(Some(Now::ZERO)),
    }
}

pub(crate) fn foreign(id: &str) -> Resident {
    Resident { owner: Owner::Foreign, used: Used::Idle(None), ..ours(id) }
}

pub(crate) fn protected(id: &str, protection: Protection) -> Resident {
    Resident { protection, ..ours(id) }
}

pub(crate) fn in_use(resident: Resident) -> Resident {
    Resident { used: Used::InUse, ..resident }
}

/// A managed router whose catalogue has the wanted model `k`.
pub(crate) fn router(capacity: Capacity, residents: Vec<Resident>) -> Facts {
    Facts {
        kind: Kind::Router,
        lifecycle: Lifecycle::Managed,
        keep: Keep { model: "k".into(), protection: Protection::None, context: None, max_context: None },
        residents,
        capacity,
        catalogue: Catalogue::Has,
        now: Now::ZERO,
    }
}

/// A managed server of another kind.
pub(crate) fn of_kind(kind: Kind, residents: Vec<Resident>) -> Facts {
    Facts { kind, ..router(Capacity::Unknown, residents) }
}
