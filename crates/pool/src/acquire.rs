//! Tickets and leases: acquire, cancel, enter, leave, and what happens when a ticket's time is up.
//!
//! A ticket ends in exactly one place: [`Pool::end_ticket`] (P3).
use crate::{
    Action, Ask, Grant, Held, Pool, Refusal, RequestId, Want,
    entry::{Entry, EntryId, LeaseLine, Phase, Ticket, Wait},
    pool::Mode,
};
use motorpool_vocab::{EngineKey, Holder, Now, Spawn, TryEnter};
use std::time::Duration;

/// How often a waiting caller is told who holds what it waits for.
const NOTICE_EVERY: Duration = Duration::from_secs(5);

impl Pool {
    pub(crate) fn on_acquire(&mut self, now: Now, id: RequestId, ask: Ask) {
        if let Some(refusal) = self.closed() {
            return self.act(Action::Refuse { id, refusal });
        }
        let Some(entry) = self.entry_for(now, &ask) else {
            return self.act(Action::Refuse { id, refusal: Refusal::UnknownModel(ask.model) });
        };
        let queue_until = now.after(ask.queue_wait.unwrap_or(self.config.queue_wait));
        self.tickets.insert(id, Ticket { entry, ask, since: now, queue_until, wait: Wait::Turn });
        self.entries[entry].queue.insert(id);
        match &self.entries[entry].phase {
            Phase::Idle => self.begin_check(entry),
            Phase::Ready(serving) if serving.drain.is_active() => self.wait_on_drain(now, id),
            Phase::Ready(_) => self.serve(now, entry),
            Phase::WaitsForRoom(waiting) if !waiting.drains.is_empty() => self.wait_on_drain(now, id),
            Phase::WaitsForRoom(_)
            | Phase::Checking { .. }
            | Phase::Admission(_)
            | Phase::Starting(_)
            | Phase::Proving(_)
            | Phase::Stopping { .. } => {}
        }
    }

    /// Why nothing new is taken, if that is so.
    pub(crate) fn closed(&self) -> Option<Refusal> {
        match self.mode {
            Mode::Open => None,
            Mode::Retiring(_) => Some(Refusal::Retired),
            Mode::ShuttingDown(_) => Some(Refusal::ShuttingDown),
        }
    }

    fn entry_for(&mut self, now: Now, ask: &Ask) -> Option<EntryId> {
        let model = self.catalog.model(&ask.model)?.clone();
        let key = EngineKey::new(&model.engine, ask.model.clone(), 0).ok()?;
        if let Some(entry) = self.by_key.get(&key) {
            return Some(*entry);
        }
        let entry = self.entries.insert(Entry::new(now, key.clone(), model));
        self.by_key.insert(key, entry);
        Some(entry)
    }

    pub(crate) fn on_cancel(&mut self, now: Now, id: RequestId) {
        if self.tickets.contains_key(&id) {
            self.end_ticket(now, id);
        } else {
            self.forget_operator(now, id);
        }
    }

    pub(crate) fn on_entered(&mut self, now: Now, id: RequestId, spawn: Spawn, holder: Holder) {
        self.leases.insert(id, LeaseLine { spawn, holder });
        if let Some(entry) = self.entry_of(spawn) {
            self.entries[entry].hit(now);
        }
    }

    pub(crate) fn on_left(&mut self, now: Now, id: RequestId, spawn: Spawn) {
        self.leases.remove(&id);
        let Some(entry) = self.entry_of(spawn) else { return };
        self.entries[entry].last_use = Some(now);
        self.serve(now, entry);
    }

    /// Lets tickets into a ready engine, oldest first, as far as slots go. A draining one takes only those whose
    /// drain deadline passed while the drain is for somebody young.
    pub(crate) fn serve(&mut self, now: Now, entry: EntryId) {
        let Some(serving) = self.entries[entry].serving() else { return };
        let gate = serving.gate.clone();
        let (draining, young) = (serving.drain.is_active(), self.is_drained_for_young(now, entry));
        let mut has_slot = true;
        for id in self.entries[entry].queue.clone() {
            let Ticket { ask, wait, .. } = &self.tickets[&id];
            let may_enter = !draining || young && *wait == Wait::Entitled;
            match ask.want {
                Want::Resident => self.tell_loaded(now, id),
                Want::Lease if has_slot && may_enter => {
                    has_slot = gate.grant() == TryEnter::Entered;
                    if has_slot {
                        self.grant(now, id);
                    }
                }
                // Nobody behind the first for whom there was no slot overtakes it.
                Want::Lease => {}
            }
        }
        if self.entries[entry].queue.is_empty() { gate.clear_queued() } else { gate.mark_queued() }
    }

    fn grant(&mut self, now: Now, id: RequestId) {
        let ticket = self.end_ticket(now, id);
        let entry = &mut self.entries[ticket.entry];
        entry.hit(now);
        let key = entry.key.clone();
        let serving = entry.serving().expect("P3: a lease is granted by a ready engine");
        let grant = Grant { key, spawn: serving.spawn, endpoint: serving.endpoint.clone(), gate: serving.gate.clone() };
        self.leases.insert(id, LeaseLine { spawn: grant.spawn, holder: Holder { since: now, ..ticket.ask.holder } });
        self.act(Action::Grant { id, grant });
    }

    fn tell_loaded(&mut self, now: Now, id: RequestId) {
        let ticket = self.end_ticket(now, id);
        let key = self.entries[ticket.entry].key.clone();
        self.act(Action::Loaded { id, key });
    }

    pub(crate) fn refuse(&mut self, now: Now, id: RequestId, refusal: Refusal) {
        self.end_ticket(now, id);
        self.act(Action::Refuse { id, refusal });
    }

    /// Refuses every ticket of `entry`.
    pub(crate) fn refuse_all(&mut self, now: Now, entry: EntryId, refusal: &Refusal) {
        for id in self.entries[entry].queue.clone() {
            self.refuse(now, id, refusal.clone());
        }
    }

    /// The only end of a ticket. What it alone kept waiting is given up.
    fn end_ticket(&mut self, now: Now, id: RequestId) -> Ticket {
        let ticket = self.tickets.remove(&id).expect("P3: a ticket ends once");
        let entry = &mut self.entries[ticket.entry];
        entry.queue.remove(&id);
        if entry.queue.is_empty() {
            match &entry.phase {
                Phase::WaitsForRoom(_) => self.abandon_waiting(now, ticket.entry),
                Phase::Admission(_) => self.withdraw(now, ticket.entry),
                Phase::Ready(serving) => serving.gate.clear_queued(),
                Phase::Idle
                | Phase::Checking { .. }
                | Phase::Starting(_)
                | Phase::Proving(_)
                | Phase::Stopping { .. } => {}
            }
        }
        ticket
    }

    /// The ticket waits on a drain from now on, on its own terms; it is told who holds what.
    pub(crate) fn wait_on_drain(&mut self, now: Now, id: RequestId) {
        let within = self.drain_wait_of(id);
        let Some(ticket) = self.tickets.get_mut(&id).filter(|t| t.wait == Wait::Turn) else { return };
        ticket.wait = Wait::Drain { until: now.after(within), notice_at: now.after(NOTICE_EVERY) };
        self.notify(id);
    }

    fn drain_wait_of(&self, id: RequestId) -> Duration {
        self.tickets.get(&id).and_then(|t| t.ask.drain_wait).unwrap_or(self.config.drain_wait)
    }

    /// The ticket waits for its turn again.
    pub(crate) fn wait_for_turn(&mut self, entry: EntryId) {
        for id in &self.entries[entry].queue {
            if let Some(ticket) = self.tickets.get_mut(id) {
                ticket.wait = Wait::Turn;
            }
        }
    }

    fn notify(&mut self, id: RequestId) {
        let entry = &self.entries[self.tickets[&id].entry];
        let drained: Vec<EntryId> = match &entry.phase {
            Phase::WaitsForRoom(waiting) => waiting.drains.iter().copied().collect(),
            _ => vec![self.tickets[&id].entry],
        };
        let holders = drained.into_iter().flat_map(|entry| self.held(entry)).collect();
        self.act(Action::Notice { id, holders });
    }

    /// Who holds leases on the present child of `entry`.
    pub(crate) fn held(&self, entry: EntryId) -> Vec<Held> {
        let entry = &self.entries[entry];
        let of_it = |line: &&LeaseLine| Some(line.spawn) == entry.spawn();
        let held = |line: &LeaseLine| Held { key: entry.key.clone(), holder: line.holder.clone() };
        self.leases.values().filter(of_it).map(held).collect()
    }

    pub(crate) fn on_due_tickets(&mut self, now: Now) {
        let late: Vec<_> = self.tickets.iter().filter(|(_, t)| t.queue_until <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(ticket) = self.tickets.get(&id) else { continue };
            let key = self.entries[ticket.entry].key.clone();
            let within = now.since(ticket.since);
            self.refuse(now, id, Refusal::QueueTimeout { key, within });
        }
        let due: Vec<_> = self.tickets.iter().filter(|(_, t)| self.is_due(now, t)).map(|(id, _)| *id).collect();
        for id in due {
            // The one before may have given up the drain that this one waited on.
            let Some(ticket) = self.tickets.get(&id).filter(|t| self.is_due(now, t)) else { continue };
            match ticket.wait {
                Wait::Drain { until, .. } if until > now => self.remind(now, id),
                _ => self.on_drain_deadline(now, id),
            }
        }
    }

    /// Whether the time of `ticket` on a drain is up, for now or for good.
    fn is_due(&self, now: Now, ticket: &Ticket) -> bool {
        match ticket.wait {
            Wait::Drain { until, notice_at } => until.min(notice_at) <= now,
            Wait::Entitled => !self.is_drained_for_young(now, ticket.entry),
            Wait::Turn => false,
        }
    }

    fn remind(&mut self, now: Now, id: RequestId) {
        let ticket = self.tickets.get_mut(&id).expect("P3: it waits");
        if let Wait::Drain { notice_at, .. } = &mut ticket.wait {
            *notice_at = now.after(NOTICE_EVERY);
            self.notify(id);
        }
    }

    fn on_drain_deadline(&mut self, now: Now, id: RequestId) {
        let ticket = &self.tickets[&id];
        let entry = ticket.entry;
        if self.entries[entry].serving().is_some() && self.is_drained_for_young(now, entry) {
            self.tickets.get_mut(&id).expect("P3: it waits").wait = Wait::Entitled;
            self.serve(now, entry);
        } else {
            self.refuse_busy(now, id);
        }
    }

    /// Whether everybody who drains `entry` is a build that waited less than the maximum.
    fn is_drained_for_young(&self, now: Now, entry: EntryId) -> bool {
        let Some(serving) = self.entries[entry].serving() else { return false };
        let young = |waiter: &EntryId| {
            let waiting = self.entries[*waiter].waiting();
            waiting.is_some_and(|w| now.since(w.since) < self.config.max_wait)
        };
        serving.drain.askers.is_empty() && serving.drain.waiters.iter().all(young)
    }

    /// What did not drain in time for one caller of a build holds up nobody else: those behind it come first now.
    fn refuse_busy(&mut self, now: Now, id: RequestId) {
        let entry = self.tickets[&id].entry;
        let waiting = self.entries[entry].waiting_mut();
        let victim = waiting.and_then(|w| {
            w.turn = now;
            w.drains.first().copied()
        });
        let key = self.entries[victim.unwrap_or(entry)].key.clone();
        let within = self.drain_wait_of(id);
        self.refuse(now, id, Refusal::EngineBusy { key, within });
    }
}
