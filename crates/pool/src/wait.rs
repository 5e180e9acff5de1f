//! How tickets wait on drains, are told who holds what, and what happens when their time is up.
use crate::{
    Action, Held, OnDeadline, Pool, Refusal, RequestId,
    entry::{EntryId, LeaseLine, Phase, Ticket, Wait},
    replica::Moved,
    room::Spoken,
};
use motorpool_broker::Room;
use motorpool_vocab::{Now, StopReason};
use std::{collections::BTreeSet, time::Duration};

/// How often a waiting caller is told who holds what it waits for.
const NOTICE_EVERY: Duration = Duration::from_secs(5);

impl Pool {
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
        let late: Vec<_> = self
            .tickets
            .iter()
            .filter(|(_, t)| t.queue_until.is_some_and(|until| until <= now))
            .map(|(id, _)| *id)
            .collect();
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
        } else if self.config.on_deadline == OnDeadline::Cut && self.entries[entry].waiting().is_some() {
            self.cut(now, entry);
        } else {
            self.refuse_busy(now, id);
        }
    }

    /// What still drains for the build of `entry` is ended, if it is still needed.
    fn cut(&mut self, now: Now, entry: EntryId) {
        let needed = self.judge(now, entry, &self.spoken_before(entry));
        self.wait_for_turn(entry);
        let Some(Room::Drain { set, .. }) = needed else { return };
        let victims: Vec<_> = set.iter().filter_map(|spawn| self.entry_of(*spawn)).collect();
        let told = |victim: &EntryId| self.entries[entry].waiting().is_some_and(|w| w.drains.contains(victim));
        if victims.iter().any(|victim| self.is_busy(*victim) && !told(victim)) {
            // Whoever would have to go now was never told to finish: it is drained first.
            return;
        }
        for victim in victims {
            self.tear_down(now, victim, StopReason::Evicted);
        }
        self.owe(entry, &set);
    }

    /// What builds that come before that of `entry` were judged to take.
    fn spoken_before(&self, entry: EntryId) -> Spoken {
        let mut spoken = Spoken::default();
        for elder in self.waiting_in_order().into_iter().take_while(|elder| *elder != entry) {
            let Some(waiting) = self.entries[elder].waiting() else { continue };
            spoken.claims.extend(waiting.placement.as_ref().map(|placement| placement.claim.clone()));
            spoken.drains.extend(waiting.drains.iter().copied());
        }
        spoken
    }

    /// How important the most important of those is who wait for `entry`.
    pub(crate) fn importance(&self, entry: EntryId) -> i32 {
        let model = self.entries[entry].model.priority;
        let asked = self.entries[entry].queue.iter().filter_map(|id| self.tickets[id].ask.priority);
        asked.fold(model, i32::max)
    }

    /// Whether the build of `entry` gives way: to a replica that serves already, or until its backoff has passed.
    pub(crate) fn is_better_elsewhere(&mut self, now: Now, entry: EntryId, room: &Room) -> bool {
        let gives_way = self.move_to_sibling(now, entry) == Moved::All
            || self.entries[entry].backoff.holds(now) && matches!(room, Room::Evict { .. } | Room::Drain { .. });
        if gives_way {
            self.drain_for(now, entry, &BTreeSet::new());
        }
        gives_way
    }

    /// Whether everybody who drains `entry` is a build that waited less than the maximum.
    pub(crate) fn is_drained_for_young(&self, now: Now, entry: EntryId) -> bool {
        let Some(serving) = self.entries[entry].serving() else { return false };
        let young = |waiter: &EntryId| {
            let waiting = self.entries[*waiter].waiting();
            waiting.is_some_and(|w| now.since(w.since) < self.config.max_wait)
        };
        serving.drain.askers.is_empty() && serving.drain.for_good.is_none() && serving.drain.waiters.iter().all(young)
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
