//! The end of a child: told to stop, killed, gone or stuck.
//!
//! A child that ends by itself has no teardown: it crashed. Its line is given back when its whole tree is reaped and its
//! devices agree (`reclaim.rs`). Where others of its tree outlive it, it is as if it was killed: who waited for it to serve
//! is told at once, and its line and its key are free when nothing of the tree is left.
use crate::{
    Action, Answer, Exit, Launch, Pool, RequestId, StartFault,
    entry::{EntryId, EverReady, Next, Phase, Step, Teardown},
};
use motorpool_vocab::{EngineKey, EventKind, ExitRecord, FailureClass, Now, PlanRecord, Spawn, StopReason};

impl Pool {
    /// Out of routing and told to end. A loading child is killed at once, as nobody waits for it; one that still serves as
    /// soon as what it holds of idle sessions is written, as llama-server never ends politely while a client is connected.
    pub(crate) fn tear_down(&mut self, now: Now, entry: EntryId, reason: StopReason) {
        let left = self.write_last(entry, reason);
        let target = &self.entries[entry];
        let polite = Step::Polite { kill_at: now.after(self.config.polite_within) };
        let killed = Step::Killed { stuck_at: now.after(self.config.kill_within) };
        let (spawn, pid, ordered_at, ever_ready, step, askers) = match &target.phase {
            Phase::Starting(l) => (l.spawn, l.pid, l.ordered_at, EverReady::No, killed, vec![]),
            Phase::Proving(p) => (p.spawn, p.pid, p.ordered_at, EverReady::No, killed, vec![]),
            Phase::Ready(s) => {
                s.gate.close();
                let until = now.after(self.config.polite_within);
                let step = match (s.gate.granted(), left.is_empty()) {
                    (0, true) => polite,
                    (1.., true) => killed,
                    (0, false) => Step::Writing { until, left, then: Next::Polite },
                    (1.., false) => Step::Writing { until, left, then: Next::Kill },
                };
                let askers = s.drain.askers.keys().copied().collect();
                (s.spawn, s.pid, s.ordered_at, EverReady::Yes, step, askers)
            }
            Phase::Idle
            | Phase::Checking { .. }
            | Phase::WaitsForRoom(_)
            | Phase::Admission(_)
            | Phase::Stopping { .. } => return,
        };
        let key = target.key.clone();
        if ever_ready == EverReady::Yes {
            self.act(Action::Close { spawn });
        }
        self.forget_drains_of(entry);
        self.by_spawn.remove(&spawn);
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
        self.entries[entry].phase = Phase::Stopping { spawn };
        self.wait_for_turn(entry);
        self.publish(now, EventKind::Stopping { key: key.clone(), spawn, reason });
        match step {
            Step::Polite { .. } => self.act(Action::StopPolitely { spawn }),
            Step::Killed { .. } => self.act(Action::Kill { spawn }),
            Step::Writing { .. } | Step::Stuck => {}
        }
        let free_before = self.free_where(spawn);
        if self.tells_totals_only(&free_before) {
            // What is free while it still lives: that is what it gives back to.
            self.act(Action::Look);
        }
        let teardown = Teardown { entry, key, reason, step, pid, ordered_at, ever_ready, free_before, askers };
        self.teardowns.insert(spawn, teardown);
    }

    /// Builds that drained this engine need not drain it any more.
    fn forget_drains_of(&mut self, victim: EntryId) {
        for entry in self.entries.values_mut() {
            if let Some(waiting) = entry.waiting_mut() {
                waiting.drains.remove(&victim);
            }
        }
    }

    pub(crate) fn on_due_teardowns(&mut self, now: Now) {
        let spawns: Vec<_> = self.teardowns.keys().copied().collect();
        for spawn in spawns {
            let Some(teardown) = self.teardowns.get(&spawn) else { continue };
            match teardown.step {
                Step::Writing { until, .. } if until <= now => self.has_written(now, spawn),
                Step::Polite { kill_at } if kill_at <= now => self.kill(now, spawn),
                Step::Killed { stuck_at } if stuck_at <= now => self.give_up_as_stuck(now, spawn),
                Step::Writing { .. } | Step::Polite { .. } | Step::Killed { .. } | Step::Stuck => {}
            }
        }
    }

    /// One that was asked to end, or was about to be, is killed instead.
    pub(crate) fn kill(&mut self, now: Now, spawn: Spawn) {
        let Some(teardown) = self.teardowns.get_mut(&spawn) else { return };
        if matches!(teardown.step, Step::Writing { .. } | Step::Polite { .. }) {
            teardown.step = Step::Killed { stuck_at: now.after(self.config.kill_within) };
            self.act(Action::Kill { spawn });
        }
    }

    /// It keeps its line and blocks nobody: its key may be built anew beside it.
    fn give_up_as_stuck(&mut self, now: Now, spawn: Spawn) {
        let Some(teardown) = self.teardowns.get_mut(&spawn) else { return };
        teardown.step = Step::Stuck;
        let (entry, key) = (teardown.entry, teardown.key.clone());
        let askers = std::mem::take(&mut teardown.askers);
        self.publish(now, EventKind::Stuck { key: key.clone(), spawn });
        for id in askers {
            self.reply(id, Answer::Stuck(key.clone()));
        }
        self.release_went(spawn);
        self.pressed_out(now, spawn);
        self.leave_stopping(now, entry, spawn);
    }

    /// Nobody waits for a child any more that has ended, but for its line and its key.
    pub(crate) fn on_ended(&mut self, now: Now, spawn: Spawn, exit: Exit) {
        // One that was told to end has a teardown already.
        let Some(entry) = self.entry_of(spawn) else { return };
        let (pid, ordered_at, served) = match &self.entries[entry].phase {
            Phase::Starting(loading) => (loading.pid, loading.ordered_at, None),
            Phase::Proving(proving) => (proving.pid, proving.ordered_at, None),
            Phase::Ready(serving) => {
                serving.gate.close();
                let askers: Vec<_> = serving.drain.askers.keys().copied().collect();
                (serving.pid, serving.ordered_at, Some((serving.gate.vital().look(), askers)))
            }
            Phase::Idle
            | Phase::Checking { .. }
            | Phase::WaitsForRoom(_)
            | Phase::Admission(_)
            | Phase::Stopping { .. } => return,
        };
        let (signs, askers) = served.map_or((None, vec![]), |(signs, askers)| (Some(signs), askers));
        let ever_ready = if signs.is_some() { EverReady::Yes } else { EverReady::No };
        let (key, reason) = (self.entries[entry].key.clone(), StopReason::Crash);
        let step = Step::Killed { stuck_at: now.after(self.config.kill_within) };
        let free_before = self.free_where(spawn);
        let of_it = key.clone();
        let teardown = Teardown { entry, key, reason, step, pid, ordered_at, ever_ready, free_before, askers };
        self.learn_of_death(spawn, exit.class.filter(|_| signs.is_none()));
        self.by_spawn.remove(&spawn);
        self.entries[entry].phase = Phase::Stopping { spawn };
        self.teardowns.insert(spawn, teardown);
        self.wait_for_turn(entry);
        self.publish(now, EventKind::Stopping { key: of_it, spawn, reason });
        match signs {
            None => self.start_broke(now, entry, spawn, fault_of(exit, "while loading")),
            Some(signs) => {
                self.act(Action::Close { spawn });
                self.forget_drains_of(entry);
                self.service_broke(now, entry, spawn, (fault_of(exit, "while serving"), signs));
            }
        }
    }

    pub(crate) fn on_gone(&mut self, now: Now, spawn: Spawn, exit: Exit) {
        self.is_gone(now, spawn, exit);
        self.launches.remove(&spawn);
    }

    fn is_gone(&mut self, now: Now, spawn: Spawn, exit: Exit) {
        if let Some(teardown) = self.teardowns.remove(&spawn) {
            return self.on_stopped(now, spawn, teardown, exit);
        }
        let Some(entry) = self.entry_of(spawn) else { return };
        match &self.entries[entry].phase {
            Phase::Starting(_) | Phase::Proving(_) => {
                self.learn_of_death(spawn, exit.class);
                let ends = (self.ordered_at(entry), StopReason::Crash, EverReady::No);
                let record = record_of(now, spawn, ends, exit.clone());
                self.bury(now, entry, record, vec![]);
                self.start_broke(now, entry, spawn, fault_of(exit, "while loading"));
            }
            Phase::Ready(serving) => {
                serving.gate.close();
                let askers: Vec<_> = serving.drain.askers.keys().copied().collect();
                let signs = serving.gate.vital().look();
                let ends = (serving.ordered_at, StopReason::Crash, EverReady::Yes);
                let record = record_of(now, spawn, ends, exit.clone());
                self.act(Action::Close { spawn });
                self.forget_drains_of(entry);
                self.bury(now, entry, record, askers);
                self.wait_for_turn(entry);
                self.service_broke(now, entry, spawn, (fault_of(exit, "while serving"), signs));
                self.rebuild_if_wanted(now, entry);
            }
            Phase::Idle
            | Phase::Checking { .. }
            | Phase::WaitsForRoom(_)
            | Phase::Admission(_)
            | Phase::Stopping { .. } => {}
        }
    }

    /// When the child of `entry` was ordered that has not served.
    fn ordered_at(&self, entry: EntryId) -> Now {
        match &self.entries[entry].phase {
            Phase::Starting(loading) => loading.ordered_at,
            Phase::Proving(proving) => proving.ordered_at,
            _ => self.judged_at(),
        }
    }

    fn on_stopped(&mut self, now: Now, spawn: Spawn, teardown: Teardown, exit: Exit) {
        let Teardown { entry, key, reason, pid, ordered_at, ever_ready, free_before, askers, .. } = teardown;
        let mut record = record_of(now, spawn, (ordered_at, reason, ever_ready), exit);
        record.pid = record.pid.or(pid);
        self.remember(now, entry, &key, record);
        self.reclaim(now, spawn, (entry, key), (free_before, askers));
        self.leave_stopping(now, entry, spawn);
    }

    /// The child of `entry` is gone without having been told to.
    fn bury(&mut self, now: Now, entry: EntryId, record: ExitRecord, askers: Vec<RequestId>) {
        let (spawn, key) = (record.spawn, self.entries[entry].key.clone());
        self.by_spawn.remove(&spawn);
        self.entries[entry].phase = Phase::Idle;
        self.remember(now, entry, &key, record);
        let free_before = self.free_where(spawn);
        self.reclaim(now, spawn, (entry, key), (free_before, askers));
    }

    fn remember(&mut self, now: Now, entry: EntryId, key: &EngineKey, mut record: ExitRecord) {
        record.plan = self.launches.get(&record.spawn).map(|launch| plan_of(launch));
        // P4: a stuck child may end after later ones of its key.
        let last_exit = &mut self.entries[entry].last_exit;
        if last_exit.as_ref().is_none_or(|last| last.spawn < record.spawn) {
            *last_exit = Some(record.clone());
        }
        self.note_failed_allocation(&record);
        self.publish(now, EventKind::Exited { key: key.clone(), record });
    }

    fn leave_stopping(&mut self, now: Now, entry: EntryId, spawn: Spawn) {
        if matches!(self.entries[entry].phase, Phase::Stopping { spawn: s } if s == spawn) {
            self.entries[entry].phase = Phase::Idle;
            self.take_over(entry);
            self.rebuild_if_wanted(now, entry);
        }
    }

    /// Tickets of a child that is gone get a new one, unless nothing new is begun any more.
    fn rebuild_if_wanted(&mut self, now: Now, entry: EntryId) {
        if let Some(refusal) = self.closed() {
            self.refuse_all(now, entry, &refusal);
        } else if self.is_wanted(entry) {
            self.begin_check(entry);
        }
    }
}

fn record_of(now: Now, spawn: Spawn, ends: (Now, StopReason, EverReady), exit: Exit) -> ExitRecord {
    let (started_at, reason, ever_ready) = ends;
    ExitRecord {
        spawn,
        pid: exit.pid,
        started_at,
        ended_at: now,
        code: exit.code,
        signal: exit.signal,
        reason,
        class: exit.class.or(match reason {
            StopReason::Crash => Some(FailureClass::Unknown),
            StopReason::CpuFallback => Some(FailureClass::CpuFallback),
            StopReason::Health => Some(FailureClass::Unresponsive),
            StopReason::LoadTimeout => Some(FailureClass::LoadStalled),
            _ => None,
        }),
        ever_ready: ever_ready == EverReady::Yes,
        tail: exit.tail,
        plan: None,
    }
}

fn plan_of(Launch { plan, claim, .. }: &Launch) -> PlanRecord {
    PlanRecord {
        context_per_slot: plan.context_per_slot,
        slots: plan.slots,
        kv: plan.kv.as_str(),
        devices: claim.device.keys().cloned().collect(),
        reserved: claim.total(),
    }
}

fn fault_of(exit: Exit, when: &str) -> StartFault {
    let ended = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exited with code {code} {when}"),
        (None, Some(signal)) => format!("was killed by signal {signal} {when}"),
        (None, None) => "did not run".to_owned(),
    };
    let message = match exit.tail.last() {
        Some(line) => format!("{ended}: {line}"),
        None => ended,
    };
    StartFault { class: exit.class.unwrap_or(FailureClass::Unknown), message, tail: exit.tail }
}
