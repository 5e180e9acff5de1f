//! Tickets from their acquire to their one end; who is turned away because too many wait.
//!
//! A ticket ends in exactly one place: [`Pool::end_ticket`] (P3). How it waits on drains is in `wait.rs`, how it gets
//! its lease in `serve.rs`.
use crate::{
    Action, Ask, OnAbandon, Pool, Queue, Refusal, RequestId, Want,
    entry::{EntryId, Phase, Ticket, Wait},
    pool::Mode,
};
use motorpool_vocab::{Lane, ModelId, Now, StopReason};

impl Pool {
    pub(crate) fn on_acquire(&mut self, now: Now, id: RequestId, ask: Ask) {
        if let Some(refusal) = self.closed() {
            return self.act(Action::Refuse { id, refusal });
        }
        let Some(entry) = self.route(now, &ask) else {
            return self.act(Action::Refuse { id, refusal: Refusal::UnknownModel(ask.model) });
        };
        let entry = match self.admitting(now, entry, &ask) {
            Ok(entry) => entry,
            Err(refusal) => return self.act(Action::Refuse { id, refusal }),
        };
        let crowded = self.crowded(&ask).or_else(|| self.crowded_by_its_own(&ask));
        let has_slot = self.entries[entry].serving().is_some_and(|s| s.gate.granted() < s.gate.width());
        if let Some(refusal) = crowded.clone().filter(|_| !has_slot) {
            return self.act(Action::Refuse { id, refusal });
        }
        self.enqueue(now, id, (entry, ask));
        self.attend(now, entry, id);
        if let Some(refusal) = crowded.filter(|_| self.tickets.contains_key(&id)) {
            self.refuse(now, id, refusal);
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

    /// Why one more may not wait, if that is so. Who only wants to find a model there does not count, nor who is less
    /// urgent: that waits as long as it must, and would lock others out.
    fn crowded(&self, ask: &Ask) -> Option<Refusal> {
        let terms = self.config.queue;
        let lease = |t: &&Ticket| t.ask.want == Want::Lease && t.ask.holder.lane <= ask.holder.lane;
        let of_it = |t: &&Ticket| t.ask.model == ask.model;
        if ask.want != Want::Lease || self.tickets.len() < terms.per_model.min(terms.in_all) {
            return None;
        }
        let (in_all, per_model) =
            (self.tickets.values().filter(lease).count(), self.tickets.values().filter(lease).filter(of_it).count());
        if per_model >= terms.per_model {
            Some(Refusal::QueueFull { queue: Queue::Model(ask.model.clone()), limit: terms.per_model })
        } else {
            (in_all >= terms.in_all).then_some(Refusal::QueueFull { queue: Queue::All, limit: terms.in_all })
        }
    }

    /// The same of what others of its access key may leave it: so that they fill no queue for everybody.
    fn crowded_by_its_own(&self, ask: &Ask) -> Option<Refusal> {
        let owner = ask.holder.owner.as_ref().filter(|_| ask.want == Want::Lease)?;
        let terms = self.config.queue;
        let own = |t: &&Ticket| t.ask.want == Want::Lease && t.ask.holder.owner.as_ref() == Some(owner);
        let share = |limit: usize| limit.saturating_mul(terms.of_one_key).div_ceil(1000).max(1);
        let full = |waiting: usize, limit: usize| (waiting >= limit).then_some(limit);
        let in_all = self.tickets.values().filter(own).count();
        let limit = if let Some(most) = ask.most_waiting {
            full(in_all, usize::try_from(most).unwrap_or(usize::MAX))?
        } else {
            let of_it = self.tickets.values().filter(own).filter(|t| t.ask.model == ask.model).count();
            full(of_it, share(terms.per_model)).or_else(|| full(in_all, share(terms.in_all)))?
        };
        Some(Refusal::QueueFull { queue: Queue::Key, limit })
    }

    fn enqueue(&mut self, now: Now, id: RequestId, (entry, ask): (EntryId, Ask)) {
        let configured = (ask.holder.lane == Lane::Interactive).then_some(self.config.queue_wait);
        let queue_until = ask.queue_wait.or(configured).map(|within| now.after(within));
        let turn = self.number_turn();
        self.tickets.insert(id, Ticket { entry, ask, since: now, queue_until, turn, wait: Wait::Turn });
        self.entries[entry].queue.insert(id);
    }

    /// What a new ticket sets going.
    pub(crate) fn attend(&mut self, now: Now, entry: EntryId, id: RequestId) {
        if self.tickets[&id].ask.holder.lane != Lane::Ambient {
            self.entries[entry].last_work = Some(now);
        }
        match &self.entries[entry].phase {
            // Ambient work waits until it is quiet, and takes nobody's place.
            Phase::Idle if self.is_wanted(entry) => self.begin_check(entry),
            Phase::Ready(serving) if serving.drain.is_active() => self.wait_on_drain(now, id),
            Phase::Ready(_) => self.serve(now, entry),
            Phase::WaitsForRoom(waiting) if !waiting.drains.is_empty() => self.wait_on_drain(now, id),
            Phase::Idle
            | Phase::WaitsForRoom(_)
            | Phase::Checking { .. }
            | Phase::Admission(_)
            | Phase::Starting(_)
            | Phase::Proving(_)
            | Phase::Stopping { .. } => {}
        }
        let model = self.entries[entry].key.model().clone();
        self.mark_gates(&model);
    }

    pub(crate) fn on_cancel(&mut self, now: Now, id: RequestId) {
        if self.tickets.contains_key(&id) {
            self.end_ticket(now, id);
        } else {
            self.forget_operator(now, id);
        }
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
    pub(crate) fn end_ticket(&mut self, now: Now, id: RequestId) -> Ticket {
        let ticket = self.tickets.remove(&id).expect("P3: a ticket ends once");
        self.entries[ticket.entry].queue.remove(&id);
        if !self.is_kept(ticket.entry) {
            match &self.entries[ticket.entry].phase {
                Phase::WaitsForRoom(_) => self.abandon_waiting(now, ticket.entry),
                Phase::Admission(_) => self.withdraw(now, ticket.entry),
                Phase::Starting(_) | Phase::Proving(_) if self.config.on_abandon == OnAbandon::Abort => {
                    self.tear_down(now, ticket.entry, StopReason::Abandoned);
                }
                Phase::Idle
                | Phase::Checking { .. }
                | Phase::Starting(_)
                | Phase::Proving(_)
                | Phase::Ready(_)
                | Phase::Stopping { .. } => {}
            }
        }
        self.mark_gates(&ticket.ask.model);
        ticket
    }

    /// Whether somebody waits for `entry` for whom others may have to go.
    pub(crate) fn is_wanted(&self, entry: EntryId) -> bool {
        self.entries[entry].queue.iter().any(|id| self.tickets[id].ask.holder.lane != Lane::Ambient)
    }

    /// At the gates of a model nobody enters past those who wait for any of its engines (G3). Ambient work lets
    /// everybody pass.
    pub(crate) fn mark_gates(&self, model: &ModelId) {
        let Some(family) = self.family(model) else { return };
        let waits = family.values().any(|entry| self.is_wanted(*entry));
        for serving in family.values().filter_map(|entry| self.entries[*entry].serving()) {
            if waits { serving.gate.mark_queued() } else { serving.gate.clear_queued() }
        }
    }
}
