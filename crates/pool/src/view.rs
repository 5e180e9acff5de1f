//! [`Pool::snapshot`]: what outsiders may see, without side effects.
use crate::{
    Launch, Pool, RequestId,
    correct::Account,
    entry::{Entry, EntryId, LeaseLine, Phase, Step},
};
use motorpool_broker::{Place, PoolFigures, Sight};
use motorpool_vocab::{
    Bytes, EntryView, Holder, LeaseView, MemoryParts, MemoryView, Now, PartsView, PendingView, PhaseView, PoolView,
    Snapshot, Spawn, WaiterView,
};
use std::sync::Arc;

impl Pool {
    /// The whole pool as it is at `now`: every key that lives or has a history, beside them children that are
    /// stuck, and lines of those that are gone.
    pub fn snapshot(&self, now: Now) -> Snapshot {
        let living = self.by_key.values().map(|id| self.view(now, *id));
        let stuck = self.teardowns.iter().filter(|(_, t)| t.step == Step::Stuck).map(|(spawn, t)| EntryView {
            spawn: Some(*spawn),
            pid: t.pid,
            phase: PhaseView::Stuck,
            ..self.memory_of(Some(*spawn), blank(&self.entries[t.entry]))
        });
        let reclaiming = self.reclaims.all.iter().map(|(spawn, r)| EntryView {
            spawn: Some(*spawn),
            phase: PhaseView::Reclaiming,
            ..self.memory_of(Some(*spawn), blank(&self.entries[r.entry]))
        });
        Snapshot {
            at: now,
            seq: self.seq(),
            entries: living.chain(stuck).chain(reclaiming).collect(),
            waiters: self.waiters(),
            pool: PoolView {
                budget: self.ledger.budget().bound(),
                automatic: self.ledger.bounds().automatic,
                ceiling: self.ledger.bounds().ceiling(),
                accelerated: self.ledger.accelerated(),
                memory: self.ledger.pools().into_iter().map(memory).collect(),
                committed: self.ledger.committed(),
                system_ram: self.ledger.bounds().ram,
            },
            closing: self.is_closing(),
        }
    }

    fn view(&self, now: Now, id: EntryId) -> EntryView {
        let entry = &self.entries[id];
        let (phase, spawn, pid) = match &entry.phase {
            Phase::Idle => (PhaseView::Idle, None, None),
            Phase::Checking { .. } => (PhaseView::Validating, None, None),
            Phase::WaitsForRoom(_) => (PhaseView::WaitsForRoom, None, None),
            Phase::Admission(_) => (PhaseView::WaitsForSlot, None, None),
            Phase::Starting(l) => (PhaseView::Starting { progress: l.progress }, Some(l.spawn), l.pid),
            Phase::Proving(p) => (PhaseView::Starting { progress: Some(1000) }, Some(p.spawn), p.pid),
            Phase::Ready(s) if s.health.is_doubted() => (PhaseView::Suspect, Some(s.spawn), s.pid),
            Phase::Ready(s) => (PhaseView::Ready, Some(s.spawn), s.pid),
            Phase::Stopping { spawn } => {
                (PhaseView::Stopping, Some(*spawn), self.teardowns.get(spawn).and_then(|t| t.pid))
            }
        };
        let serving = entry.serving();
        let drainers = serving
            .map_or(0, |s| s.drain.waiters.len() + s.drain.askers.len() + usize::from(s.drain.for_good.is_some()));
        EntryView {
            spawn,
            pid,
            phase,
            n_drainers: count(drainers),
            drained_for: serving
                .into_iter()
                .flat_map(|s| &s.drain.waiters)
                .map(|e| self.entries[*e].key.clone())
                .collect(),
            goes_for_good: entry.goes_for_good(),
            unload_at: self.unload_at(id),
            leases: self.leases_of(entry),
            n_tickets: count(entry.queue.len()),
            pending: self.pending(now, id),
            n_sessions: self.sessions.n_at(entry.key.model(), entry.key.replica()),
            width: serving.map(|s| s.gate.width()),
            demand: entry.demand(now),
            trouble: self.trouble(now, id),
            ..self.memory_of(spawn.or(entry.spawn()), blank(entry))
        }
    }

    fn leases_of(&self, entry: &Entry) -> Vec<LeaseView> {
        let of_it = |(_, line): &(&RequestId, &LeaseLine)| Some(line.spawn) == entry.spawn();
        let view =
            |(id, line): (&RequestId, &LeaseLine)| LeaseView { id: id.0, slot: line.slot, holder: line.holder.clone() };
        self.leases.iter().filter(of_it).map(view).collect()
    }

    fn pending(&self, now: Now, id: EntryId) -> Vec<PendingView> {
        let view = |id: RequestId| {
            let ticket = &self.tickets[&id];
            PendingView { id: id.0, holder: Holder { since: ticket.since, ..ticket.ask.holder.clone() } }
        };
        self.pending_in_order(now, id).into_iter().map(|queued| view(queued.id)).collect()
    }

    /// `view` with what is reserved for `spawn`, what was planned and what was measured.
    fn memory_of(&self, spawn: Option<Spawn>, view: EntryView) -> EntryView {
        let Some((spawn, line)) = spawn.and_then(|spawn| Some((spawn, self.ledger.line(spawn)?))) else { return view };
        let reserved = line.total();
        let account = self.accounts.get(&spawn);
        EntryView {
            reserved,
            planned: account.map_or(reserved, Account::planned),
            measured: account.and_then(Account::measured),
            memory: self.launch_of(spawn).map(|launch| MemoryParts {
                from: launch.sized_from.as_str(),
                weights: Bytes::sum(launch.facts.files.iter().map(|(_, bytes)| *bytes)),
                planned: PartsView::of(&launch.claim),
                reserved: PartsView::of(line),
                measured: account.map(Account::parts).unwrap_or_default(),
            }),
            ..view
        }
    }

    /// What was ordered, or is about to be, for `spawn`.
    fn launch_of(&self, spawn: Spawn) -> Option<&Arc<Launch>> {
        let admitted = || self.entries[self.entry_of(spawn)?].admission().map(|admission| &admission.launch);
        self.launches.get(&spawn).or_else(admitted)
    }

    fn waiters(&self) -> Vec<WaiterView> {
        let mut waiters: Vec<_> = self
            .entries
            .values()
            .filter_map(|entry| {
                let waiting = entry.waiting()?;
                let drained = waiting.drains.iter().map(|victim| self.entries[*victim].key.clone());
                let leaving = self.leaving().map(|(_, key)| key.clone());
                Some(WaiterView {
                    key: entry.key.clone(),
                    since: waiting.since,
                    needs: waiting.placement.as_ref().map_or(Bytes::ZERO, |placement| placement.claim.total()),
                    waits_for: drained.chain(leaving).collect(),
                })
            })
            .collect();
        waiters.sort_by(|a, b| a.since.cmp(&b.since).then_with(|| a.key.cmp(&b.key)));
        waiters
    }
}

fn memory(pool: PoolFigures) -> MemoryView {
    MemoryView {
        device: match pool.place {
            Place::Card(id) => Some(id),
            Place::SystemMemory => None,
        },
        total: pool.total,
        share: pool.share,
        share_now: pool.share_now,
        committed: pool.committed,
        foreign: match pool.sight {
            Sight::Known { foreign } => Some(foreign),
            Sight::Trusted | Sight::Unknown => None,
        },
    }
}

/// What a view tells of the key alone.
fn blank(entry: &Entry) -> EntryView {
    let view = EntryView::idle(entry.key.clone(), entry.created);
    let drained = entry.admits != crate::shut::Admits::All;
    EntryView { drained, last_use: entry.last_use, last_exit: entry.last_exit.clone(), ..view }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
