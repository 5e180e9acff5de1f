//! What engines hold of sessions and outlives them (supervisor.md §7): when a slot is written down, and when it is read back.
//!
//! Boundary: files, how much disk they may take and what they belong to are the shell's; here is only which slot of which
//! child holds the context of which session, and when.
//!
//! ```text
//! taken ──lease ends──► unwritten ──half the idle TTL, or a stop──► being written ──► written
//!   ▲                       │                                             │              │
//!   └───────────────────────┴──────── a lease takes it ───────────────────┴──────────────┘
//! ```
//!
//! * K1: a slot is written for the session that it was given to last, once after each of its leases, and never while one
//!   is in it.
//! * K2: a stop waits for what of its child is being written, and no longer than for a polite stop; so does one that cuts
//!   leases, for the sessions that have none. An engine that is stopped because it does not serve is asked for nothing, nor
//!   is any when everything is killed.
//! * K3: a session that comes to a slot that does not hold its context has it read back first, inside its lease: what goes
//!   wrong there costs its prompt anew, never the request.
//!
//! Requests without a session may take any slot that their engine chooses, and nobody says which: what is written then is
//! of no use to the session that the slot was given to, and costs it its prompt.
use crate::{
    Action, Facts, KeepAlive, Pool,
    entry::{EntryId, Next, Step},
    session::{Came, Given, Writing},
};
use motorpool_catalog::{Capability, Manifest, Model, SessionState};
use motorpool_vocab::{Now, Spawn, StopReason};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Whether contexts of the sessions of one engine outlive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionsKept {
    /// They do.
    Yes,
    /// They do not.
    No(NotKept),
}

/// Why contexts of sessions do not outlive their engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// Somebody said so.
    SwitchedOff,
    /// Its engine cannot.
    Engine,
    /// It generates no text, so nothing goes on.
    Purpose,
    /// Contexts may hold images, which are not written.
    Projector,
    /// Layers see a window of the context, and what is read back would be computed again.
    Window,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SwitchedOff => "it is switched off",
            Self::Engine => "its engine cannot write them down",
            Self::Purpose => "it generates no text",
            Self::Projector => "they may hold images",
            Self::Window => {
                "layers of the model see a window of the context only; `session_state = \"on\"` in its catalog entry has \
                 them keep all of it, in more memory"
            }
        })
    }
}

/// The argument by which a model's own arguments have windows kept whole.
pub(crate) const WHOLE_WINDOWS: &str = "--swa-full";

/// Whether what this model's engine holds of sessions is kept.
pub fn sessions_kept(model: &Model, facts: &Facts, manifest: Option<&Manifest>) -> SessionsKept {
    let has_windows = || facts.shape.as_deref().is_some_and(motorpool_broker::ModelShape::has_windows);
    SessionsKept::No(if model.session_state == SessionState::Off {
        NotKept::SwitchedOff
    } else if manifest.is_none_or(|manifest| manifest.session_state.is_none()) {
        NotKept::Engine
    } else if !model.capabilities.contains(&Capability::Chat) {
        NotKept::Purpose
    } else if model.projector.is_some() {
        NotKept::Projector
    } else if has_windows() && !keeps_windows_whole(model) {
        NotKept::Window
    } else {
        return SessionsKept::Yes;
    })
}

/// Whether layers that see a window of the context keep all of it.
pub(crate) fn keeps_windows_whole(model: &Model) -> bool {
    model.session_state == SessionState::On || model.extra_args.iter().any(|arg| arg == WHOLE_WINDOWS)
}

impl Pool {
    /// Whether contexts of the sessions of this engine are kept.
    pub(crate) fn sessions_kept(&self, model: &Model, facts: &Facts) -> SessionsKept {
        match self.config.sessions_kept {
            SessionsKept::Yes => sessions_kept(model, facts, self.catalog.manifest(&model.engine).map(AsRef::as_ref)),
            no @ SessionsKept::No(_) => no,
        }
    }

    pub(crate) fn keeps_sessions_of(&self, spawn: Spawn) -> bool {
        self.launches.get(&spawn).is_some_and(|launch| launch.sessions == SessionsKept::Yes)
    }

    /// Slots whose sessions have been away for half the time that their engine is kept are written.
    pub(crate) fn write_unused(&mut self, now: Now) {
        let is_due = |entry: &EntryId| self.next_write(*entry).is_some_and(|(at, _)| at <= now);
        for entry in self.by_spawn.values().copied().filter(is_due).collect::<Vec<_>>() {
            while let Some((_, slot)) = self.next_write(entry).filter(|(at, _)| *at <= now) {
                self.write(entry, slot);
            }
        }
    }

    /// When something is to be written next.
    pub(crate) fn write_ends(&self) -> impl Iterator<Item = Now> + '_ {
        self.by_spawn.values().filter_map(|entry| Some(self.next_write(*entry)?.0))
    }

    /// The slot that is to be written next, and when. One that may not serve is asked for nothing.
    fn next_write(&self, entry: EntryId) -> Option<(Now, u32)> {
        let target = &self.entries[entry];
        let serving = target.serving()?;
        // Most engines have no sessions, and this is asked of all of them at every input.
        let (since, slot) = serving.slots.unwritten().map(|(slot, since)| (since, slot)).min()?;
        if serving.health.is_barred() || !self.keeps_sessions_of(serving.spawn) {
            return None;
        }
        let kept_for = match (serving.keep, KeepAlive::of_model(target.model.idle_ttl)) {
            (KeepAlive::For(within), _) | (KeepAlive::Always, KeepAlive::For(within)) => within,
            (KeepAlive::Always, KeepAlive::Always) => return None,
        };
        Some((since.after(kept_for / 2), slot))
    }

    fn write(&mut self, entry: EntryId, slot: u32) {
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        let (spawn, begun) = (serving.spawn, serving.slots.begin_writing(slot));
        if let Some((session, writing)) = begun {
            self.act(Action::WriteSlot { spawn, slot, session, writing });
        }
    }

    /// What is written, or being written, before a child is told to end: slots of sessions that have no lease.
    pub(crate) fn write_last(&mut self, entry: EntryId, reason: StopReason) -> BTreeSet<Writing> {
        let Some(serving) = self.entries[entry].serving() else { return BTreeSet::new() };
        let answers = !matches!(reason, StopReason::Health | StopReason::CpuFallback) && !serving.health.is_barred();
        if !answers || !self.keeps_sessions_of(serving.spawn) {
            return BTreeSet::new();
        }
        let unwritten: Vec<u32> = serving.slots.unwritten().map(|(slot, _)| slot).collect();
        for slot in unwritten {
            self.write(entry, slot);
        }
        self.entries[entry].serving().map(|serving| serving.slots.being_written().collect()).unwrap_or_default()
    }

    /// A slot was written, or could not be; the same is not tried again. News of a writing that nobody waits for any more
    /// ends no other one.
    pub(crate) fn on_slot_written(&mut self, now: Now, spawn: Spawn, writing: Writing) {
        if let Some(serving) = self.entry_of(spawn).and_then(|entry| self.entries[entry].serving_mut()) {
            serving.slots.end_writing(writing);
        }
        let Some(teardown) = self.teardowns.get_mut(&spawn) else { return };
        if let Step::Writing { left, .. } = &mut teardown.step
            && left.remove(&writing)
            && left.is_empty()
        {
            self.has_written(now, spawn);
        }
    }

    /// Nothing is waited for any more before this child is told to end.
    pub(crate) fn has_written(&mut self, now: Now, spawn: Spawn) {
        let kill_at = now.after(self.config.polite_within);
        let Some(teardown) = self.teardowns.get_mut(&spawn) else { return };
        match teardown.step {
            Step::Writing { then: Next::Polite, .. } => {
                teardown.step = Step::Polite { kill_at };
                self.act(Action::StopPolitely { spawn });
            }
            Step::Writing { then: Next::Kill, .. } => self.kill(now, spawn),
            Step::Polite { .. } | Step::Killed { .. } | Step::Stuck => {}
        }
    }

    /// Whose context is to be read back into a slot that was just taken; `None`: it is there, or is not kept.
    pub(crate) fn returning(&self, spawn: Spawn, given: Option<&Given>) -> Option<Arc<str>> {
        let given = given.filter(|given| given.came == Came::Anew && self.keeps_sessions_of(spawn))?;
        Some(given.session.clone())
    }
}
