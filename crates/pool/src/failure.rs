//! What failures of an engine mean for its next start (supervisor.md §4).
//!
//! ```text
//!            a class that must fail again                       an input changed, or reset
//!   Clear ─┬─────────────────────────────► Held: refused, ────────────────────────────────► Clear
//!          │                                nothing started
//!          ├─ out of memory ─► once more, smaller, when the dead tree's bytes are back ─┐
//!          ├─ illegal instruction ─► that build is quarantined, once more with the next ┤ fails
//!          ├─ its address was taken ─► thrice more at once, with another, uncounted ─────┤
//!          └─ any other ────────────────────────────────────────────────────────────────┴─► told; backoff, breaker
//! ```
//!
//! * **F1** a start that must fail again is not tried again while what it was made of is the same: the model's files, the
//!   engine's build, the catalog's entry. Whoever asks is told after a look at them, and nobody is stopped for it.
//! * **F2** one smaller launch follows one that ran out of memory; what its operator wrote down stays (`broker`'s
//!   `less.rs`). It is judged as soon as anything is, and starts when the ledger holds nothing of the dead one.
//! * **F3** a build that this processor cannot run is used by nobody again, whichever model it was started for; the
//!   next one in its engine's chain is. When none is left, that is the answer.
//! * **F4** no failed state is for ever: time ends backoff and breaker, and a reset ends all of them.
//! * **F5** an engine that could not bind its address is started again at once with another, at most three times in a row:
//!   between the choice of a port and its use anybody may take that. Only what fails after these is a failed start.
//!
//! In service the same classes count: what is to be learned from them is learned before the next build.
use crate::{
    Answer, Build, Facts, Launch, Pool, Refusal, RequestId, StartFault,
    breaker::{Breaker, Tripped},
    entry::{EntryId, Phase},
    subject::subject,
};
use motorpool_broker::{LaunchPlan, Split, Subject, draft};
use motorpool_catalog::Model;
use motorpool_vocab::{
    Bytes, EngineKey, EventKind, FailureClass, FileId, ModelId, Now, Signs, Spawn, TroubleKind, TroubleView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

/// So many more addresses are tried before a start has failed for want of one.
const MORE_ADDRESSES: u8 = 3;

/// What is known of the failures of one key.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) breaker: Breaker,
    held: Option<Held>,
    /// The launch that ran out of memory: the next one is smaller.
    too_large: Option<Large>,
    /// Whose bytes have to come back before the next start.
    awaited: Option<Spawn>,
    /// How many addresses were taken, in a row.
    n_taken: u8,
    /// The last one, until something became ready.
    last: Option<StartFault>,
}

/// A failure that holds as long as these are what they were.
#[derive(Debug)]
struct Held {
    fault: StartFault,
    inputs: Inputs,
}

/// What a start is made of.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    model: Arc<Model>,
    program: PathBuf,
    build: Build,
    files: Vec<(FileId, Bytes)>,
    /// What of files and arguments only the shell knows.
    about: Arc<str>,
}

#[derive(Debug)]
struct Large {
    plan: LaunchPlan,
    split: Option<Split>,
}

/// Builds of engines that this processor cannot run, and whose they are.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    builds: BTreeMap<Build, String>,
    avoided: Arc<BTreeSet<Build>>,
}

/// Whether something else is tried at once after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    Again,
    None,
}

impl Failures {
    /// It serves.
    pub(crate) fn succeeded(&mut self) {
        let mut breaker = std::mem::take(&mut self.breaker);
        breaker.succeeded();
        *self = Self { breaker, ..Self::default() };
    }

    /// Whether another address is tried after one that was taken (F5).
    fn tries_another_address(&mut self) -> bool {
        let tries = self.n_taken < MORE_ADDRESSES;
        self.n_taken = if tries { self.n_taken + 1 } else { 0 };
        tries
    }
}

impl Inputs {
    fn of(model: &Arc<Model>, facts: &Facts) -> Self {
        let Facts { program, build, files, learned, .. } = facts;
        let about = Arc::clone(&learned.about);
        Self { model: Arc::clone(model), program: program.clone(), build: *build, files: files.clone(), about }
    }
}

impl Quarantine {
    /// What no look may find.
    pub(crate) fn avoided(&self) -> Arc<BTreeSet<Build>> {
        Arc::clone(&self.avoided)
    }

    /// Whether it was not there before.
    fn add(&mut self, build: Build, provider: &str) -> bool {
        let is_new = self.builds.insert(build, provider.to_owned()).is_none();
        self.avoided = Arc::new(self.builds.keys().copied().collect());
        is_new
    }

    fn pardon(&mut self, is_it: impl Fn(&str) -> bool) {
        self.builds.retain(|_, provider| !is_it(provider));
        self.avoided = Arc::new(self.builds.keys().copied().collect());
    }
}

/// What a plan has caches for.
fn tokens_of(plan: &LaunchPlan) -> u64 {
    u64::from(plan.context_per_slot) * u64::from(plan.slots)
}

impl Pool {
    /// Why nothing is started for `entry` now, if its breaker is open.
    pub(crate) fn tripped(&self, now: Now, entry: EntryId) -> Option<Refusal> {
        let target = &self.entries[entry];
        let until = target.failures.breaker.open_until(now)?;
        let fault = target.failures.last.clone().unwrap_or_else(|| StartFault {
            class: FailureClass::Unknown,
            message: "it ended before it served anybody".to_owned(),
            tail: vec![],
        });
        Some(Refusal::BreakerOpen { key: target.key.clone(), fault, retry_in: until.since(now) })
    }

    /// Files and program of `entry` were looked at: whether the build goes on. It does not when it failed with the very
    /// same ones before.
    pub(crate) fn is_worth_a_start(&mut self, now: Now, entry: EntryId, facts: &Facts) -> bool {
        let target = &mut self.entries[entry];
        let inputs = Inputs::of(&target.model, facts);
        let failures = &mut target.failures;
        if let Some(held) = failures.held.take_if(|held| held.inputs != inputs) {
            drop(held);
            failures.last = None;
        }
        let Some(held) = &failures.held else {
            // What the look itself found wrong before is right now.
            failures.last.take_if(|fault| fault.class.is_permanent());
            return true;
        };
        let (key, fault) = (target.key.clone(), held.fault.clone());
        let message = format!(
            "{}; nothing of it changed since, so it was not started again: `motorpool reset {}` has it tried",
            fault.message,
            key.model()
        );
        let fault = StartFault { message, ..fault };
        self.refuse_all(now, entry, &Refusal::StartFailed { key, fault });
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
        false
    }

    /// What the next launch of `entry` is planned from.
    pub(crate) fn subject_of(&self, entry: EntryId, facts: &Facts) -> Subject {
        let target = &self.entries[entry];
        let whole = subject(&target.model, facts);
        let Some(large) = &target.failures.too_large else { return whole };
        // What the death taught may be enough, and is more exact.
        let taught = draft(&self.ledger, &self.fixed_spawns(), &whole).plan;
        if tokens_of(&taught) < tokens_of(&large.plan) {
            return whole;
        }
        whole.less_than(&self.ledger, (&large.plan, large.split.as_ref())).unwrap_or(whole)
    }

    /// Whether what its last child held has to come back before the next may start.
    pub(crate) fn awaits_dead(&self, entry: EntryId) -> bool {
        self.entries[entry].failures.awaited.is_some_and(|spawn| self.ledger.line(spawn).is_some())
    }

    /// The start of a child failed. Either something else is tried at once, or all who wait are told.
    pub(crate) fn start_broke(&mut self, now: Now, entry: EntryId, spawn: Spawn, fault: StartFault) {
        let (key, class) = (self.entries[entry].key.clone(), fault.class);
        self.publish(now, EventKind::StartFailed { key: key.clone(), class });
        let goes_on = self.is_kept(entry) && !self.is_closing();
        if class == FailureClass::BindFailed && goes_on && self.entries[entry].failures.tries_another_address() {
            return self.begin_again(entry);
        }
        let tripped = self.count_failure(now, entry, class);
        let cure = self.follow_up(now, entry, spawn, &fault);
        self.entries[entry].failures.last = Some(fault.clone());
        if cure == Cure::Again && tripped == Tripped::No && goes_on {
            let jitter = self.upkeep.draw();
            self.entries[entry].backoff.failed(now, jitter);
            return self.begin_again(entry);
        }
        self.entries[entry].failures.too_large = None;
        self.refuse_all(now, entry, &Refusal::StartFailed { key, fault });
        self.after_failure(now, entry);
    }

    /// With another child, when nothing of this one is left.
    fn begin_again(&mut self, entry: EntryId) {
        if !matches!(self.entries[entry].phase, Phase::Stopping { .. }) {
            self.begin_check(entry);
        } else if !self.is_wanted(entry) {
            self.entries[entry].attempts.end();
            self.settle_debts(entry);
        }
    }

    /// The look at program and files found something wrong: no start failed, and the next look may find it right.
    pub(crate) fn check_broke(&mut self, entry: EntryId, fault: &StartFault) {
        self.entries[entry].failures.last = Some(fault.clone());
    }

    /// A child ended that served. One that never answered anybody failed to start, whatever it said of itself. One that did
    /// has disproved whatever would hold for good: what its log says then may be a client's words.
    pub(crate) fn service_broke(
        &mut self,
        now: Now,
        entry: EntryId,
        spawn: Spawn,
        (fault, signs): (StartFault, Signs),
    ) {
        if signs.answers == 0 && fault.class != FailureClass::Killed {
            let _ = self.count_failure(now, entry, fault.class);
        }
        let disproved = fault.class.is_permanent() || fault.class == FailureClass::DeviceLost;
        if signs.answers == 0 || !disproved {
            let _ = self.follow_up(now, entry, spawn, &fault);
        }
        self.entries[entry].failures.last = Some(fault);
    }

    /// One more failed start, if it is of a kind that may pass.
    fn count_failure(&mut self, now: Now, entry: EntryId, class: FailureClass) -> Tripped {
        if class.is_permanent() {
            return Tripped::No;
        }
        let terms = self.config.breaker;
        let tripped = self.entries[entry].failures.breaker.failed(now, &terms);
        if tripped == Tripped::Yes {
            let key = self.entries[entry].key.clone();
            self.publish(now, EventKind::BreakerOpened { key, class, within: terms.pause });
        }
        tripped
    }

    /// What follows from the class of a failure.
    fn follow_up(&mut self, now: Now, entry: EntryId, spawn: Spawn, fault: &StartFault) -> Cure {
        let Some(launch) = self.launches.get(&spawn).cloned() else { return Cure::None };
        match fault.class {
            FailureClass::OutOfDeviceMemory | FailureClass::OutOfHostMemory => self.plan_less(entry, spawn, &launch),
            FailureClass::IllegalInstruction => self.quarantine(now, entry, &launch),
            FailureClass::DeviceLost => {
                let lost: Vec<_> = launch.claim.device.keys().cloned().collect();
                self.condemn(now, &lost);
                Cure::None
            }
            class if class.is_permanent() => {
                let inputs = Inputs::of(&launch.model, &launch.facts);
                self.entries[entry].failures.held = Some(Held { fault: fault.clone(), inputs });
                Cure::None
            }
            _ => Cure::None,
        }
    }

    /// F2.
    fn plan_less(&mut self, entry: EntryId, spawn: Spawn, launch: &Launch) -> Cure {
        let whole = subject(&launch.model, &launch.facts);
        let can = whole.less_than(&self.ledger, (&launch.plan, launch.split.as_ref())).is_some();
        let failures = &mut self.entries[entry].failures;
        if !can || failures.too_large.is_some() {
            return Cure::None;
        }
        failures.too_large = Some(Large { plan: launch.plan, split: launch.split.clone() });
        failures.awaited = Some(spawn);
        Cure::Again
    }

    /// F3. Builds that were looked at and have no child yet are looked at once more.
    fn quarantine(&mut self, now: Now, entry: EntryId, launch: &Launch) -> Cure {
        let (key, program, build) = (launch.key.clone(), launch.facts.program.clone(), launch.facts.build);
        if !self.quarantine.add(build, key.provider()) {
            // Another load of it ended so first: the next look finds the next one.
            return Cure::Again;
        }
        self.publish(now, EventKind::Quarantined { key, program });
        let planned = |phase: &Phase| match phase {
            Phase::WaitsForRoom(waiting) => waiting.facts.build == build,
            Phase::Admission(admission) => admission.launch.facts.build == build,
            _ => false,
        };
        let others = self.entries.iter().filter(|(id, e)| *id != entry && planned(&e.phase)).map(|(id, _)| id);
        for other in others.collect::<Vec<_>>() {
            self.look_again(now, other);
        }
        Cure::Again
    }

    /// A build that has no child begins anew.
    pub(crate) fn look_again(&mut self, now: Now, entry: EntryId) {
        match &self.entries[entry].phase {
            Phase::Checking { .. } => {}
            Phase::WaitsForRoom(_) => self.drain_for(now, entry, &BTreeSet::new()),
            Phase::Admission(_) => self.give_up_line(now, entry),
            _ => return,
        }
        self.entries[entry].phase = Phase::Idle;
        self.begin_check(entry);
    }

    /// The machine is another: what its devices were to blame for may be right now.
    pub(crate) fn forget_fallbacks(&mut self) {
        for target in self.entries.values_mut() {
            let failures = &mut target.failures;
            if failures.held.take_if(|held| held.fault.class == FailureClass::CpuFallback).is_some() {
                failures.last = None;
            }
        }
    }

    /// F4. Everything that failures of `model`, or of all, led to is forgotten.
    pub(crate) fn on_reset(&mut self, now: Now, id: RequestId, model: Option<ModelId>) {
        let is_it = |of: &ModelId| model.as_ref().is_none_or(|model| model == of);
        let chosen = self.entries.iter().filter(|(_, e)| is_it(e.key.model())).map(|(id, _)| id);
        let mut keys = Vec::new();
        for entry in chosen.collect::<Vec<_>>() {
            let was_drained = self.open_again(now, entry);
            if was_drained || self.trouble(now, entry).is_some() {
                keys.push(self.entries[entry].key.clone());
            }
            let target = &mut self.entries[entry];
            target.failures = Failures::default();
            target.backoff.succeeded();
            target.attempts.hurry();
            if let Some(waiting) = target.planned_mut() {
                waiting.not_before = Now::ZERO;
            }
        }
        let providers: BTreeSet<String> = match &model {
            None => self.catalog.manifests().map(|manifest| manifest.name.clone()).collect(),
            Some(model) => self.catalog.model(model).map(|model| model.engine.clone()).into_iter().collect(),
        };
        self.quarantine.pardon(|provider| providers.contains(provider));
        self.pardon_cards(now, |_, _| true);
        keys.sort();
        self.publish(now, EventKind::Reset { model });
        self.reply(id, Answer::Reset(keys));
    }

    /// What the failures of `entry` mean for its next start.
    pub(crate) fn trouble(&self, now: Now, entry: EntryId) -> Option<TroubleView> {
        let target = &self.entries[entry];
        let fault = target.failures.last.as_ref()?;
        let open = target.failures.breaker.open_until(now);
        let (kind, until) = match fault.class {
            FailureClass::IllegalInstruction => (TroubleKind::Quarantined, None),
            class if class.is_permanent() => (TroubleKind::Failed, None),
            _ if open.is_some() => (TroubleKind::BreakerOpen, open),
            _ if target.backoff.holds(now) => (TroubleKind::Backoff, Some(target.backoff.until())),
            _ => return None,
        };
        Some(TroubleView { kind, class: fault.class, until, message: fault.message.clone() })
    }

    /// Why a launch of `key` with these facts would be refused without a start, for whoever only wants to know.
    pub(crate) fn would_be_held(&self, key: &EngineKey, facts: &Facts) -> Option<StartFault> {
        let target = &self.entries[*self.by_key.get(key)?];
        let held = target.failures.held.as_ref()?;
        (held.inputs == Inputs::of(&target.model, facts)).then(|| held.fault.clone())
    }
}
