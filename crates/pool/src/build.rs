//! A build: check → plan → room → slot and last checks (`slot.rs`, `admission.rs`) → start → ready, and its failures.
//!
//! A failed step undoes exactly the steps before it: a fault of the check holds nothing, a failed last check gives its
//! line back at once, a failed start when its tree is gone and its devices agree (`reclaim.rs`). All joiners get the build's result or its error.
use crate::{
    Action, BuildId, Facts, HostShape, KeepAlive, Launch, Pool, Refusal, StartFault,
    correct::Account,
    entry::{Admission, Admitting, Drain, EntryId, Loading, MadeRoom, Phase, Serving, Waiting},
    health::Health,
    learned::Study,
    session::Slots,
};
use motorpool_broker::{LaunchPlan, Placement, Verdict, draft};
use motorpool_vocab::{Endpoint, EventKind, FailureClass, Gate, Now, Spawn, StopReason};
use std::{collections::BTreeSet, sync::Arc};

/// Whether a draft may take more context than would be enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Where there is room.
    May,
    /// There was none when it came to it.
    Never,
}

impl Pool {
    /// The entry is idle and somebody waits: its program and model file are looked at before anything is touched.
    ///
    /// Not while its breaker is open: then all who wait are told.
    pub(crate) fn begin_check(&mut self, entry: EntryId) {
        let now = self.judged_at();
        if let Some(refusal) = self.tripped(now, entry) {
            self.refuse_all(now, entry, &refusal);
            self.entries[entry].attempts.end();
            return self.settle_debts(entry);
        }
        let (build, avoid) = (self.number_build(), self.quarantine.avoided());
        let target = &mut self.entries[entry];
        target.phase = Phase::Checking { build, since: now, until: now.after(self.config.check_within) };
        let (key, model) = (target.key.clone(), target.model.clone());
        let manifest = self.catalog.manifest(&model.engine).expect("N5: a catalog holds no model without its engine");
        let action = Action::Check { build, key, manifest: Arc::clone(manifest), model, avoid };
        self.act(action);
    }

    pub(crate) fn on_checked(&mut self, now: Now, build: BuildId, result: Result<Facts, StartFault>) {
        let began = |phase: &Phase| match phase {
            Phase::Checking { build: b, since, .. } if *b == build => Some(*since),
            _ => None,
        };
        let Some((entry, since)) = self.entries.iter().find_map(|(id, e)| Some((id, began(&e.phase)?))) else { return };
        self.entries[entry].phase = Phase::Idle;
        if !self.is_kept(entry) {
            return self.settle_debts(entry);
        }
        match result {
            Ok(facts) if !self.is_worth_a_start(now, entry, &facts) => {}
            Ok(facts) => self.wait_for_room(now, entry, (build, since), facts),
            Err(fault) => {
                self.check_broke(entry, &fault);
                self.fail_start(now, entry, fault);
            }
        }
    }

    /// A look whose file system hangs never ends: whoever waits is told, and what it finds after all is nobody's (P4).
    pub(crate) fn on_due_checks(&mut self, now: Now) {
        let late = |phase: &Phase| match phase {
            Phase::Checking { build, until, .. } if *until <= now => Some(*build),
            _ => None,
        };
        for build in self.entries.values().filter_map(|e| late(&e.phase)).collect::<Vec<_>>() {
            let message = format!(
                "its program and its model's files could not be looked at within {} s: their file system does not answer",
                self.config.check_within.as_secs()
            );
            let fault = StartFault { class: FailureClass::LoadStalled, message, tail: vec![] };
            self.on_checked(now, build, Err(fault));
        }
    }

    fn wait_for_room(&mut self, now: Now, entry: EntryId, (build, turn): (BuildId, Now), facts: Facts) {
        let draft = draft(&self.ledger, &self.fixed_spawns(), &self.subject_of(entry, &facts));
        let (drains, evicted, withheld) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (placement, not_before) = (None, Now::ZERO);
        let waiting =
            Waiting { facts, draft, placement, since: now, turn, build, not_before, drains, evicted, withheld };
        self.entries[entry].phase = Phase::WaitsForRoom(Box::new(waiting));
    }

    /// What never goes, or the host, may have changed since the draft was made. Whether it is another one now.
    pub(crate) fn draft_anew(&mut self, entry: EntryId, growth: Growth) -> bool {
        let Some(waiting) = self.entries[entry].waiting() else { return false };
        let subject = self.subject_of(entry, &waiting.facts);
        let subject = if growth == Growth::Never { subject.ungrown() } else { subject };
        let draft = draft(&self.ledger, &self.fixed_spawns(), &subject);
        let is_another = draft != waiting.draft;
        if let Some(waiting) = self.entries[entry].waiting_mut() {
            waiting.draft = draft;
        }
        is_another
    }

    /// There is room: the bytes are reserved. The child is ordered when it is this build's turn to load.
    pub(crate) fn admit(&mut self, now: Now, entry: EntryId, placement: Placement) {
        let Some(waiting) = self.entries[entry].waiting() else { return };
        let sessions = self.sessions_kept(&self.entries[entry].model, &waiting.facts);
        let spawn = self.number_spawn();
        if self.ledger.reserve(spawn, placement.claim.clone()) != Verdict::Admit {
            return;
        }
        let target = &mut self.entries[entry];
        let (key, model) = (target.key.clone(), target.model.clone());
        let Phase::WaitsForRoom(waiting) = std::mem::replace(&mut target.phase, Phase::Idle) else { return };
        let sized_from = waiting.draft.source_of(Some(&placement));
        let Placement { claim, split, .. } = placement;
        let manifest = self.catalog.manifest(&model.engine).expect("N5: a catalog holds no model without its engine");
        let launch = Arc::new(Launch {
            key: key.clone(),
            manifest: Arc::clone(manifest),
            model,
            facts: waiting.facts.clone(),
            plan: waiting.draft.plan,
            // With one memory there is nothing to choose between: what the model says is enough.
            split: (self.ledger.bounds().shape == HostShape::DiscreteGpu).then_some(split),
            claim,
            sized_from,
            sessions,
        });
        let clamped = waiting.draft.clamped_from;
        let bytes = launch.claim.total();
        let LaunchPlan { context_per_slot, slots, .. } = launch.plan;
        let (step, made_room) = (Admitting::WaitsForSlot, MadeRoom::No);
        target.phase = Phase::Admission(Box::new(Admission { spawn, launch, waiting, step, made_room }));
        self.by_spawn.insert(spawn, entry);
        self.wait_for_turn(entry);
        if let Some(wanted) = clamped {
            self.publish(now, EventKind::ContextClamped { key: key.clone(), wanted, context_per_slot, slots });
        }
        self.publish(now, EventKind::Reserved { key, spawn, bytes });
    }

    /// Nothing stands in its way any more: the child is ordered.
    pub(crate) fn launch(&mut self, now: Now, entry: EntryId) {
        let Some(Admission { spawn, launch, waiting, .. }) = self.entries[entry].admission() else { return };
        let (spawn, launch, grown) = (*spawn, launch.clone(), waiting.draft.grown_from);
        let placement = waiting.placement.as_ref().expect("B2: a build has its line by its placement");
        let study = Study::new(&waiting.facts.learned, waiting.draft.plan, placement);
        let split = &placement.split;
        let loading = Loading {
            spawn,
            pid: None,
            ordered_at: now,
            stall_at: now.after(self.config.stall_within),
            cap_at: now.after(self.config.load_within),
            progress: None,
            beside: waiting.draft.load.parts.beside_buffers(split),
            order: split.devices.iter().map(|(id, _)| id.clone()).collect(),
        };
        self.studies.insert(spawn, study);
        self.launches.insert(spawn, launch.clone());
        self.entries[entry].phase = Phase::Starting(loading);
        // Before, it could still be given up.
        if let Some(from) = grown {
            let LaunchPlan { context_per_slot, slots, .. } = launch.plan;
            self.publish(now, EventKind::ContextGrown { key: launch.key.clone(), from, context_per_slot, slots });
        }
        self.act(Action::Start { spawn, launch });
    }

    pub(crate) fn on_launched(&mut self, spawn: Spawn, pid: u32) {
        if let Some(teardown) = self.teardowns.get_mut(&spawn) {
            teardown.pid = Some(pid);
        }
        let Some(entry) = self.entry_of(spawn) else { return };
        if let Phase::Starting(loading) = &mut self.entries[entry].phase {
            loading.pid = Some(pid);
        }
    }

    pub(crate) fn on_progress(&mut self, now: Now, spawn: Spawn, per_mille: Option<u16>) {
        let stall_at = now.after(self.config.stall_within);
        let Some(entry) = self.entry_of(spawn) else { return };
        if let Phase::Starting(loading) = &mut self.entries[entry].phase {
            loading.stall_at = stall_at;
            // Two who look at the same load may differ; a bar does not go back.
            loading.progress = per_mille.map(|p| p.min(1000)).max(loading.progress);
        }
    }

    /// From now on what it holds is known; it serves as soon as it is seen where it was planned (`fallback.rs`).
    pub(crate) fn on_ready(&mut self, now: Now, spawn: Spawn, endpoint: Endpoint, width: u32) {
        let Some(entry) = self.entry_of(spawn) else { return };
        let Phase::Starting(loading) = &self.entries[entry].phase else { return };
        let (beside, order) = (loading.beside, loading.order.clone());
        if let Some(planned) = self.ledger.line(spawn) {
            self.accounts.insert(spawn, Account::new(now, planned.clone(), beside).on(order));
        }
        self.prove(now, entry, endpoint, width);
    }

    /// It serves: a child, its process and when it was ordered; where it answers, and how many at a time.
    pub(crate) fn serve_from_now(
        &mut self,
        now: Now,
        entry: EntryId,
        (spawn, pid, ordered_at): (Spawn, Option<u32>, Now),
        (endpoint, width): (Endpoint, u32),
    ) {
        let closing = self.is_closing();
        let gate = Arc::new(Gate::new(width.max(1)));
        if closing {
            gate.close();
        }
        let key = self.entries[entry].key.clone();
        let serving = Serving {
            spawn,
            pid,
            ordered_at,
            ready_at: now,
            gate: gate.clone(),
            endpoint: endpoint.clone(),
            drain: Drain::default(),
            n_leases: 0,
            n_background: 0,
            slots: Slots::default(),
            keep: KeepAlive::of_model(self.entries[entry].model.idle_ttl),
            health: Health::new(now),
        };
        self.after_success(entry);
        self.entries[entry].phase = Phase::Ready(Box::new(serving));
        self.entries[entry].last_use = Some(now);
        self.publish(now, EventKind::Ready { key: key.clone(), spawn, within: now.since(ordered_at) });
        self.serve(now, entry);
        if !closing {
            self.act(Action::Open { spawn, key, gate, endpoint });
        }
    }

    /// All who wait for this build are told why it failed; the entry is idle again.
    pub(crate) fn fail_start(&mut self, now: Now, entry: EntryId, fault: StartFault) {
        let key = self.entries[entry].key.clone();
        self.publish(now, EventKind::StartFailed { key: key.clone(), class: fault.class });
        self.refuse_all(now, entry, &Refusal::StartFailed { key, fault });
        self.after_failure(now, entry);
    }

    pub(crate) fn on_due_loads(&mut self, now: Now) {
        let late = |phase: &Phase| matches!(phase, Phase::Starting(l) if l.stall_at.min(l.cap_at) <= now);
        let stalled: Vec<_> = self.entries.iter().filter(|(_, e)| late(&e.phase)).map(|(id, _)| id).collect();
        for entry in stalled {
            let Phase::Starting(loading) = &self.entries[entry].phase else { continue };
            let message = if loading.cap_at <= now {
                format!("not ready within {} s", self.config.load_within.as_secs())
            } else {
                format!("no progress for {} s while loading", self.config.stall_within.as_secs())
            };
            let spawn = loading.spawn;
            self.tear_down(now, entry, StopReason::LoadTimeout);
            let fault = StartFault { class: FailureClass::LoadStalled, message, tail: vec![] };
            self.start_broke(now, entry, spawn, fault);
        }
    }
}
