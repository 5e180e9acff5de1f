//! [`Kept`]: what slots hold and what of it is being written, held against K1 and K3 of `keeping.rs`.
use crate::{Grant, Writing};
use motorpool_vocab::Spawn;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

type Slot = (Spawn, u32);

/// What is known of slots that the pool named.
#[derive(Debug, Default)]
pub(super) struct Kept {
    holds: BTreeMap<Slot, String>,
    /// Written since the last lease there, or about to be.
    written: BTreeSet<Slot>,
    under_way: Vec<(Spawn, Writing)>,
    /// The first thing that was wrong.
    pub(super) broken: Option<String>,
}

impl Kept {
    /// A lease with a slot was granted to a session.
    pub(super) fn granted(&mut self, grant: &Grant, session: &str) {
        let Some(slot) = grant.slot.map(|slot| (grant.spawn, slot)) else { return };
        let there = self.holds.get(&slot).is_some_and(|held| held == session);
        self.hold(there == grant.returning.is_none(), || {
            format!("K3: slot {} of child {} and session {session}: read back {:?}", slot.1, slot.0, grant.returning)
        });
        self.holds.retain(|(spawn, _), held| *spawn != grant.spawn || held != session);
        self.holds.insert(slot, session.to_owned());
        self.written.remove(&slot);
    }

    /// The pool wants a slot written; `taken` are those with leases in them.
    pub(super) fn asked(
        &mut self,
        (slot, writing): (Slot, Writing),
        session: &Arc<str>,
        mut taken: impl Iterator<Item = Slot>,
    ) {
        let known = self.holds.get(&slot).is_some_and(|held| **held == **session);
        let right = known && !taken.any(|other| other == slot) && self.written.insert(slot);
        self.hold(right, || format!("K1: slot {} of child {} is written for {session}", slot.1, slot.0));
        self.under_way.push((slot.0, writing));
    }

    /// The oldest that is being written, of this child or of any; it is not any more.
    pub(super) fn take(&mut self, of: Option<Spawn>) -> Option<(Spawn, Writing)> {
        let at = self.under_way.iter().position(|(spawn, _)| of.is_none_or(|of| of == *spawn))?;
        Some(self.under_way.remove(at))
    }

    /// Nobody answers for a child that is gone.
    pub(super) fn gone(&mut self, spawn: Spawn) {
        self.under_way.retain(|(of, _)| *of != spawn);
    }

    pub(super) fn children(&self) -> impl Iterator<Item = Spawn> + '_ {
        self.under_way.iter().map(|(spawn, _)| *spawn)
    }

    fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(what());
        }
    }
}
