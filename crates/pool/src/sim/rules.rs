//! [`Run`]: a world whose every step is held against the properties of pool.md §8.
//!
//! | | what must hold after every step |
//! | --- | --- |
//! | P1 | one child of a key at most that is not stuck, and every child is one that the pool knows |
//! | P2 | who holds a lease keeps its child, unless somebody used force |
//! | P3 | every ticket ends once and in time; no slot is free while somebody may have it |
//! | P4 | news of an earlier child change nothing |
//! | P7 | a fresh engine serves whoever waited for it before anything else |
//! | P8 | what is denied would not fit with everything gone that can go |
//! | P9, P12 | the ledger is what children were charged, and who has none holds nothing |
//! | P11 | after a retire or a shutdown nothing is begun, and at the end nothing is left |
//! | drain | an engine is drained only for builds that wait for room, that somebody waits for and that know of it |
//! | queue | background work leaves a slot, nobody waits beyond the limits, no slot is given twice |
//! | gates | closed exactly while somebody drains or the pool closes; marked exactly while somebody waits |
//! | health | what fails is not started again and again, what is sick is stopped, and what serves is not |
//! | drained | nobody waits for an engine that an operator has drained, and it is not started (D1, D2) |
//! | reload | no child is open that was launched otherwise than the catalog says, and no other goes for a reload (N2, N3) |
//! | kept | a slot is written once after each lease and never during one, and read back where it is not (K1, K3) |
//! | session | a session that comes back to a replica with a slot to spare is served there |
use super::{
    told,
    trace::{Edit, Setting, Step},
    world::{Child, Outcome, World, key_of},
};
use crate::{Action, Input, RequestId, Want, health::Why};
use motorpool_catalog::MOST_REPLICAS;
use motorpool_vocab::{
    Bytes, EngineKey, EntryView, Event, EventKind, Lane, Now, PhaseView, Snapshot, Spawn, StopReason, TryEnter,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A wait in all, as it is configured without a word.
const QUEUE_WAIT: Duration = Duration::from_mins(10);
/// From then on nothing protects a busy engine.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// An engine that is suspect and still is given up by then: still while suspect, then while condemned.
const VERDICT_WITHIN: Duration = Duration::from_mins(5);
/// A session is remembered so long.
const REMEMBERED: Duration = Duration::from_mins(50);

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property}: {what}")]
pub struct Broken {
    /// Which.
    pub property: &'static str,
    /// How it shows.
    pub what: String,
}

type Held = Result<(), Broken>;

/// A world and what the properties compare it with.
#[derive(Debug)]
pub struct Run {
    world: World,
    seen_events: usize,
    seen_denials: usize,
    /// Where each session had its last lease.
    homes: BTreeMap<(String, String), (EngineKey, Now)>,
}

fn hold(property: &'static str, holds: bool, what: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(Broken { property, what: what() }) }
}

/// The entry of `key` that is no stuck child of it.
fn find<'a>(snapshot: &'a Snapshot, key: &EngineKey) -> Option<&'a EntryView> {
    snapshot.entries.iter().find(|e| e.key == *key && e.phase != PhaseView::Stuck)
}

impl Run {
    /// At the beginning of a trace.
    pub fn new(setting: &Setting) -> Self {
        Self { world: World::new(setting), seen_events: 0, seen_denials: 0, homes: BTreeMap::new() }
    }

    /// The world as it is.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What outsiders see of its pool.
    pub fn snapshot(&self) -> Snapshot {
        self.world.pool.snapshot(self.world.now)
    }

    /// Lets one thing happen. Everything that is asked of the pool in it, or the property that does not hold.
    pub fn step(&mut self, step: &Step) -> Result<Vec<Action>, Broken> {
        let before = self.before(step);
        let was_closing = self.world.closing;
        let mut actions = self.world.step(step);
        // What only a gate knew may be due already: a loop ticks then, once.
        if self.is_due() {
            actions.extend(self.world.feed(Input::Tick));
        }
        self.check_actions(&actions, was_closing)?;
        let after = self.world.pool.snapshot(self.world.now);
        self.check_step(step, &before, &after)?;
        self.check(&after)?;
        self.remember(&actions, &after);
        Ok(actions)
    }

    /// What of the world before a step its effect is compared with.
    fn before(&mut self, step: &Step) -> Snapshot {
        if let Step::Reload(_, model, Edit::Gone | Edit::Narrow) = step {
            // Its sessions go anywhere.
            self.homes.retain(|(of, _), _| of != model);
        }
        if let Step::OldNews(_) = step {
            // What a gate alone knows so far is found by any input, so by this one and not by the old news; and whoever is
            // asked then answers.
            drop(self.world.feed(Input::Tick));
            drop(self.world.answer());
        }
        match step {
            Step::OldNews(_) | Step::Ready(..) | Step::Acquire(..) => self.world.pool.snapshot(self.world.now),
            _ => Snapshot::default(),
        }
    }

    fn check_actions(&self, actions: &[Action], was_closing: bool) -> Held {
        let kept = &self.world.kept.broken;
        hold("kept", kept.is_none(), || kept.clone().unwrap_or_default())?;
        for action in actions {
            let begins = matches!(action, Action::Check { .. } | Action::Start { .. });
            hold("P11", !(was_closing && begins), || told(action))?;
            if let Action::Grant { id, grant } = action {
                let same = |(other, _): &(crate::Grant, _)| other.spawn == grant.spawn && other.slot == grant.slot;
                let twice = self.world.leases.iter().filter(|(other, _)| *other != id).any(|(_, lease)| same(lease));
                let real = grant.slot.is_none_or(|slot| slot < grant.gate.width() && !twice);
                hold("queue", real, || format!("{}: that slot is not there to give", told(action)))?;
                let is_of_now = was_closing || self.world.editions.is_of_now(grant.spawn, &grant.key);
                hold("reload", is_of_now, || format!("{}: it was launched for another entry", told(action)))?;
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step, before: &Snapshot, after: &Snapshot) -> Held {
        match step {
            Step::OldNews(spawn) if !self.world.children.contains_key(&Spawn(*spawn)) => {
                hold("P4", before == after, || format!("news of child {spawn} changed something"))
            }
            Step::Ready(at, _) => {
                let Some(key) = key_of(at) else { return Ok(()) };
                let loading = find(before, &key).filter(|e| matches!(e.phase, PhaseView::Starting { .. }));
                let Some(loading) = loading else { return Ok(()) };
                let waited = loading.pending.iter().any(|p| p.holder.lane == Lane::Interactive);
                let serves = find(after, &key).is_some_and(|e| !e.leases.is_empty() || !waited);
                hold("P7", serves, || format!("somebody waited for {key} and was not served by it"))
            }
            Step::Acquire(id, model, wish) => {
                let Some(session) = &wish.session else { return Ok(()) };
                let Some((home, at)) = self.homes.get(&(model.clone(), session.clone())) else { return Ok(()) };
                let Some(Outcome::Granted(granted)) = self.outcome(*id)? else { return Ok(()) };
                let fresh = self.world.now.since(*at) < REMEMBERED && wish.replica.is_none();
                let open = |e: &EntryView| {
                    let room = e.width.is_some_and(|width| e.leases.len() < width as usize);
                    e.phase == PhaseView::Ready && e.n_drainers == 0 && room
                };
                let calm = before.entries.iter().all(|e| e.pending.is_empty()) && self.world.untold.is_empty();
                let was_open = find(before, home).is_some_and(open) && calm;
                hold("session", !(fresh && was_open) || granted.key == *home, || {
                    format!("{session} was served by {} and not by its own {home}", granted.key)
                })
            }
            _ => Ok(()),
        }
    }

    fn remember(&mut self, actions: &[Action], after: &Snapshot) {
        for action in actions {
            let Action::Grant { id, grant } = action else { continue };
            let Some(Some(ask)) = self.world.asked.get(id) else { continue };
            if let Some(session) = &ask.holder.session {
                let name = (ask.model.to_string(), session.clone());
                self.homes.insert(name, (grant.key.clone(), self.world.now));
            }
        }
        for event in &self.world.events[self.seen_events..] {
            // Its sessions go anywhere.
            if let EventKind::Stopping { key, reason: StopReason::ScaleDown, .. } = &event.kind {
                self.homes.retain(|_, (home, _)| home != key);
            }
        }
        self.seen_events = self.world.events.len();
        debug_assert!(after.at <= self.world.now);
    }

    fn is_due(&self) -> bool {
        self.world.pool.deadline().is_some_and(|at| at <= self.world.now)
    }

    fn check(&mut self, snapshot: &Snapshot) -> Held {
        hold("P3", !self.is_due(), || "a deadline stays due".to_owned())?;
        self.check_children(snapshot)?;
        self.check_ledger(snapshot)?;
        self.check_leases()?;
        self.check_tickets(snapshot)?;
        Self::check_queues(snapshot)?;
        self.check_gates(snapshot)?;
        self.check_drains()?;
        self.check_reloads(snapshot)?;
        Self::check_drained(snapshot)?;
        self.check_waiters(snapshot)?;
        self.check_health(snapshot)?;
        self.check_denials(snapshot)
    }

    fn check_children(&self, snapshot: &Snapshot) -> Held {
        let is_stuck = |e: &&EntryView| e.phase == PhaseView::Stuck;
        let stuck: BTreeSet<_> = snapshot.entries.iter().filter(is_stuck).filter_map(|e| e.spawn).collect();
        let mut keys = BTreeSet::new();
        for (spawn, (key, _)) in &self.world.children {
            let alone = stuck.contains(spawn) || keys.insert(key);
            hold("P1", alone, || format!("two children of {key}"))?;
            hold("P1", key.replica() < MOST_REPLICAS, || format!("{key} is one too many"))?;
        }
        let known: BTreeSet<_> = snapshot.entries.iter().filter_map(|e| e.spawn).collect();
        let real: BTreeSet<_> = self.world.children.keys().copied().collect();
        hold("P1", known == real, || format!("the pool knows {known:?}, and there are {real:?}"))
    }

    fn check_ledger(&self, snapshot: &Snapshot) -> Held {
        // A build that waits for its turn to load has its bytes and no child.
        let slots = snapshot.entries.iter().filter(|e| e.phase == PhaseView::WaitsForSlot).map(|e| &e.key);
        let charged = self.world.children.values().map(|(key, _)| key).chain(slots);
        let real = Bytes::sum(charged.map(|key| self.world.size_of(key)));
        let committed = snapshot.pool.committed;
        hold("P9", committed == real, || format!("{committed} committed, children were charged {real}"))?;
        hold("B1", snapshot.pool.budget.is_none_or(|budget| committed <= budget), || format!("{committed} committed"))?;
        let without = |e: &&EntryView| e.spawn.is_none() && e.phase != PhaseView::WaitsForSlot;
        let holds = snapshot.entries.iter().filter(without).find(|e| e.reserved != Bytes::ZERO);
        hold("P12", holds.is_none(), || format!("{holds:?}"))
    }

    fn check_leases(&self) -> Held {
        for (grant, _) in self.world.leases.values() {
            let Some((key, state)) = self.world.children.get(&grant.spawn) else { continue };
            let forced = self.world.forced.contains(&grant.spawn);
            let forced = forced || self.world.sick.contains_key(&grant.spawn);
            hold("P2", *state == Child::Serving || forced, || format!("{key} is {state:?} under a lease"))?;
        }
        for event in &self.world.events[self.seen_events..] {
            if let EventKind::Stopping { spawn, reason, key } = &event.kind {
                let held = self.world.leases.values().any(|(grant, _)| grant.spawn == *spawn);
                // P2 and H1: only what is sick is cut for its health.
                let unwell = *reason == StopReason::Health && self.world.sick.contains_key(spawn);
                let allowed = self.world.forced.contains(spawn) || *reason == StopReason::LoadTimeout || unwell;
                hold("P2", !held || allowed, || format!("{key} is stopped under a lease"))?;
            }
        }
        Ok(())
    }

    /// The only end of a request so far, if any.
    fn outcome(&self, id: RequestId) -> Result<Option<&Outcome>, Broken> {
        let all = self.world.outcomes.get(&id).map_or(&[][..], Vec::as_slice);
        hold("P3", all.len() <= 1, || format!("r{} ended {all:?}", id.0))?;
        let late = self.world.cancelled.contains(&id) && !all.is_empty();
        hold("P3", !late, || format!("r{} was cancelled and ended {all:?}", id.0))?;
        Ok(all.first())
    }

    fn check_tickets(&self, snapshot: &Snapshot) -> Held {
        let mut n_waiting = 0;
        for (id, ask) in &self.world.asked {
            let ended = self.outcome(*id)?.is_some() || self.world.cancelled.contains(id);
            let Some(ask) = ask.as_ref().filter(|_| !ended) else { continue };
            n_waiting += 1;
            let configured = (ask.holder.lane == Lane::Interactive).then_some(QUEUE_WAIT);
            let since = self.world.asked_at.get(id).copied().unwrap_or_default();
            let until = ask.queue_wait.or(configured).map(|within| since.after(within));
            hold("P3", until.is_none_or(|until| until > self.world.now), || format!("r{} waits past its time", id.0))?;
        }
        let n_tickets: u32 = snapshot.entries.iter().map(|e| e.n_tickets).sum();
        hold("P3", n_tickets == n_waiting, || format!("{n_waiting} wait, and {n_tickets} are in queues"))
    }

    fn check_queues(snapshot: &Snapshot) -> Held {
        let mut waiting: BTreeMap<(Lane, &str), usize> = BTreeMap::new();
        for entry in &snapshot.entries {
            for pending in &entry.pending {
                *waiting.entry((pending.holder.lane, entry.key.model().as_str())).or_default() += 1;
            }
            let Some(width) = entry.width else { continue };
            let background = entry.leases.iter().filter(|l| l.holder.lane != Lane::Interactive);
            let (children, alone): (Vec<_>, Vec<_>) = background.partition(|l| l.holder.parent.is_some());
            let most = width.saturating_sub(1).max(1) as usize;
            hold("queue", alone.len() <= most && alone.len() + children.len() <= width as usize, || {
                format!("{} and {} in the background of {width} slots of {}", alone.len(), children.len(), entry.key)
            })?;
        }
        let most = waiting.values().copied().max().unwrap_or(0);
        hold("queue", most <= 64, || format!("{most} wait in one lane for one model"))
    }

    /// A gate is closed exactly while somebody drains its engine or the pool closes; at an open one nobody waits who
    /// may have the slot that is free; and nobody waiting for the model means that one may enter by oneself.
    fn check_gates(&self, snapshot: &Snapshot) -> Held {
        for entry in snapshot.entries.iter().filter(|e| e.phase == PhaseView::Ready) {
            let Some(grant) = self.world.open.get(&entry.key) else { continue };
            let shut = entry.n_drainers > 0 || snapshot.closing;
            hold("gates", grant.gate.is_closed() == shut, || format!("{}: {entry:?}", grant.gate.is_closed()))?;
            let held = self.world.leases.values().filter(|(lease, _)| lease.spawn == grant.spawn).count();
            let counted = grant.gate.granted() as usize == held;
            hold("gates", counted, || {
                format!("{} are in {}, its gate counts {}", held, entry.key, grant.gate.granted())
            })?;
            if shut || grant.gate.granted() >= grant.gate.width() {
                continue;
            }
            let family = || snapshot.entries.iter().filter(|e| e.key.model() == entry.key.model());
            let own = entry.pending.iter().any(|p| p.holder.lane == Lane::Interactive);
            let waits = own || family().any(|e| e.pending.iter().any(|p| self.is_free_to_go(p.id)));
            hold("P3", !waits || !self.world.untold.is_empty(), || {
                format!("{} has a slot and somebody waits: {snapshot:?}", entry.key)
            })?;
            let wanted = family().any(Self::is_wanted);
            let entered = grant.gate.try_enter() == TryEnter::Entered;
            if entered {
                grant.gate.leave();
            }
            hold("gates", entered != wanted, || {
                format!("somebody waits: {wanted}, one may enter {}: {entered}", entry.key)
            })?;
        }
        Ok(())
    }

    fn check_drains(&self) -> Held {
        let pool = &self.world.pool;
        for (victim, entry) in &pool.entries {
            let waiters = entry.serving().into_iter().flat_map(|serving| serving.drain.waiters.iter());
            for waiter in waiters {
                let knows = pool.entries[*waiter].waiting().is_some_and(|waiting| waiting.drains.contains(&victim));
                hold("drain", knows && !pool.is_background(*waiter), || {
                    format!("{} is drained for {}, which does not wait for it", entry.key, pool.entries[*waiter].key)
                })?;
            }
        }
        Ok(())
    }

    fn check_reloads(&self, snapshot: &Snapshot) -> Held {
        for entry in snapshot.entries.iter().filter(|e| e.phase == PhaseView::Ready && e.n_drainers == 0) {
            let is_of_now = entry.spawn.is_some_and(|spawn| self.world.editions.is_of_now(spawn, &entry.key));
            hold("reload", is_of_now || snapshot.closing, || format!("{} was launched for another entry", entry.key))?;
        }
        for event in &self.world.events[self.seen_events..] {
            let EventKind::Stopping { spawn, key, reason: StopReason::Reload } = &event.kind else { continue };
            let changed = !self.world.editions.is_of_now(*spawn, key);
            hold("reload", changed, || format!("{key} goes for a reload that did not change it"))?;
        }
        Ok(())
    }

    /// D1 and D2: nobody waits for what an operator has drained, and it is not started.
    fn check_drained(snapshot: &Snapshot) -> Held {
        for entry in snapshot.entries.iter().filter(|e| e.drained) {
            let starts =
                |p| matches!(p, PhaseView::WaitsForRoom | PhaseView::WaitsForSlot | PhaseView::Starting { .. });
            let rests = !starts(entry.phase) && entry.n_tickets == 0;
            hold("drained", rests || snapshot.closing, || format!("{} is drained: {entry:?}", entry.key))?;
        }
        Ok(())
    }

    /// Whether somebody waits for the engine but for ambient work, a lease wanted or not.
    fn is_wanted(entry: &EntryView) -> bool {
        let others = entry.n_tickets as usize > entry.pending.len();
        others || entry.pending.iter().any(|p| p.holder.lane != Lane::Ambient)
    }

    /// Whether a ticket may be served by any replica at any moment.
    fn is_free_to_go(&self, id: u64) -> bool {
        let Some(Some(ask)) = self.world.asked.get(&RequestId(id)) else { return false };
        let anywhere = ask.replica.is_none() && ask.holder.session.is_none();
        ask.want == Want::Lease && ask.holder.lane == Lane::Interactive && anywhere
    }

    /// Whoever waits for room has something that will end or wake it: what leaves, drains, loads, or a time.
    fn check_waiters(&self, snapshot: &Snapshot) -> Held {
        let on_its_way =
            |p: PhaseView| matches!(p, PhaseView::Starting { .. } | PhaseView::WaitsForSlot | PhaseView::Stopping);
        let moves = snapshot.entries.iter().any(|e| on_its_way(e.phase) || e.n_drainers > 0);
        let Some(first) = snapshot.waiters.first() else { return Ok(()) };
        let young = self.world.now.since(first.since) < MAX_WAIT;
        let timed = self.world.pool.deadline().is_some_and(|at| at.since(self.world.now) <= MAX_WAIT);
        hold("P3", young || moves || timed || !self.world.untold.is_empty(), || {
            format!("what does {first:?} wait for? {snapshot:?}")
        })
    }

    /// A gate is shut while its engine is suspect for more than failed requests, and one that is sick is not suspected for ever.
    fn check_health(&self, snapshot: &Snapshot) -> Held {
        for entry in snapshot.entries.iter().filter(|e| e.phase == PhaseView::Suspect) {
            let open = self.world.open.get(&entry.key).is_some_and(|grant| !grant.gate.is_closed());
            let suspected = |event: &Event| match event.kind {
                EventKind::Suspected { spawn, why, .. } if Some(spawn) == entry.spawn => Some((event.at, why)),
                _ => None,
            };
            let suspicion = self.world.events.iter().rev().find_map(suspected);
            let fails = suspicion.is_some_and(|(_, why)| why == Why::Fails.as_str());
            hold("health", !open || fails, || format!("{} is suspect and open", entry.key))?;
            let sick = entry.spawn.and_then(|spawn| self.world.sick.get(&spawn)).map(|(_, since)| *since);
            let both = sick.zip(suspicion).map(|(sick, (suspected, _))| sick.max(suspected));
            let long = both.is_some_and(|since| self.world.now.since(since) > VERDICT_WITHIN);
            hold("health", !long || snapshot.closing, || format!("no verdict on {entry:?}"))?;
        }
        Ok(())
    }

    fn check_denials(&mut self, snapshot: &Snapshot) -> Held {
        for (denial, stays) in &self.world.denials[self.seen_denials..] {
            let needed = stays.saturating_add(self.world.size_of(&denial.key));
            hold("P8", snapshot.pool.budget.is_some_and(|budget| needed > budget), || {
                format!("{} is denied, and with all gone that can go it would fit: {needed}", denial.key)
            })?;
        }
        self.seen_denials = self.world.denials.len();
        Ok(())
    }

    /// Everything obeys and every lease ends: then everybody was told, and after a retire or shutdown nothing is left.
    pub fn finish(&mut self) -> Held {
        let last = self.world.asked.keys().next_back().map_or(1, |id| id.0 + 1_000_000);
        self.step(&Step::Retire(RequestId(last)))?;
        let at_work = |world: &World| {
            let ends = world.children.values().any(|(_, child)| *child != Child::Serving);
            ends || !world.checks.is_empty() || world.kept.children().next().is_some()
        };
        for _ in 0..10_000 {
            let step = if let Some(id) = self.world.untold.keys().next() {
                Step::Tell(*id)
            } else if let Some(id) = self.world.leases.keys().next() {
                Step::Leave(*id, super::Telling::Now)
            } else if at_work(&self.world) {
                Step::Obey
            } else {
                break;
            };
            self.step(&step)?;
        }
        for id in self.world.asked.keys() {
            let told = self.world.cancelled.contains(id) || self.outcome(*id)?.is_some();
            hold("P3", told, || format!("r{} was never told", id.0))?;
        }
        hold("P11", self.world.children.is_empty(), || format!("{:?}", self.world.children))?;
        let left = self.world.pool.snapshot(self.world.now).pool.committed;
        hold("P9", left == Bytes::ZERO, || format!("{left} are left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Dice, Trace};

    /// A longer run of the same is a step of continuous integration: `examples/traces.rs`.
    #[test]
    fn a_few_thousand_random_steps_keep_every_property() {
        for seed in 0..40 {
            let mut dice = Dice::new(seed);
            let setting = dice.setting();
            let mut run = Run::new(&setting);
            let mut trace = Trace { setting, steps: vec![] };
            for _ in 0..150 {
                let step = dice.step(run.world());
                trace.steps.push(step.clone());
                run.step(&step).unwrap_or_else(|broken| panic!("seed {seed}: {broken}\n{trace}"));
            }
            run.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken} at the end of\n{trace}"));
        }
    }

    /// Traces that once broke a property.
    const BROKE: [&str; 2] = [
        // What was drained for a build is not drained any more as there is room elsewhere, and serves all who waited for it.
        "budget 1300
         model a 600 replicas=1..3
         model b 500 priority=1
         acquire r1 b session=s drain=1
         acquire r2 a session=s
         acquire r3 a queue=90 replica=2
         obey
         pass 10000
         acquire r4 a drain=1
         withdraw r5 r3
         fail b:0 device-lost",
        // Whoever protects an engine from a build is served by a slot of which only the gate knows.
        "budget 1100
         model a 600 replicas=1..3
         model b 500 priority=1
         model g 400 replicas=2..2
         acquire r84 a priority=2
         obey
         enter r89 a
         acquire r90 a session=s2
         load r91 b
         pass 5000
         check b:0 ok
         acquire r93 g lane=background drain=0 queue=90
         pass 2000
         check g:0 ok
         pass 3000
         leave r84 untold
         old-news 18",
    ];

    #[test]
    fn what_once_broke_a_property_keeps_them_all() {
        for text in BROKE {
            let trace: Trace = text.parse().expect("a trace");
            let mut run = Run::new(&trace.setting);
            for step in &trace.steps {
                run.step(step).unwrap_or_else(|broken| panic!("{broken} after {step}"));
            }
        }
    }

    #[test]
    fn a_broken_property_is_found_and_named() {
        let trace: Trace = "budget 700\nmodel a 600\nacquire r1 a\ncheck a:0 ok\nready a:0 1".parse().expect("a trace");
        let mut run = Run::new(&trace.setting);
        for step in &trace.steps {
            run.step(step).expect("all is well");
        }
        run.world.children.clear();
        let broken = run.step(&Step::Pass(1)).expect_err("a child that nobody has");
        assert_eq!(broken.property, "P1");
    }
}
