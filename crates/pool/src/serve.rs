//! Leases: granted to tickets, entered past the pool, given back.
//!
//! An engine serves its own tickets and those of its siblings, as [`pick_ticket`] orders them. One that asks for a
//! certain replica waits for that; one whose session is bound to another replica goes elsewhere once it waited as long
//! as makes a further replica start: a prompt evaluated again costs less than a turn behind others.
use crate::{
    Action, Grant, KeepAlive, Pool, RequestId, SlotChoice, Want,
    entry::{EntryId, LeaseLine, Serving, Ticket, Wait},
    queue::{Affinity, Descent, Occupied, Owner, Queued, Quiet, in_order, pick_ticket},
    session::Given,
};
use motorpool_vocab::{Holder, Lane, Now, Spawn, TryEnter};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl Pool {
    pub(crate) fn on_entered(&mut self, now: Now, id: RequestId, (spawn, holder): (Spawn, Holder)) {
        if let Some(entry) = self.entry_of(spawn) {
            let target = &mut self.entries[entry];
            target.hit(now);
            target.last_work = Some(now);
            target.last_actor.clone_from(&holder.actor);
            target.shares.take(holder.owner.as_ref());
            if let Some(serving) = target.serving_mut() {
                serving.n_leases += 1;
            }
            self.keep(entry, None);
        }
        self.leases.insert(id, LeaseLine { spawn, holder, slot: None });
    }

    pub(crate) fn on_left(&mut self, now: Now, id: RequestId, spawn: Spawn) {
        let line = self.leases.remove(&id);
        let Some(entry) = self.entry_of(spawn) else { return };
        let target = &mut self.entries[entry];
        target.last_use = Some(now);
        let model = target.key.model().clone();
        if let Some(LeaseLine { holder, slot, .. }) = line {
            if holder.lane != Lane::Ambient {
                target.last_work = Some(now);
            }
            if let Some(serving) = target.serving_mut() {
                serving.n_leases = serving.n_leases.saturating_sub(1);
                let background = u32::from(holder.lane != Lane::Interactive);
                serving.n_background = serving.n_background.saturating_sub(background);
                if let Some(slot) = slot {
                    serving.slots.give_back(now, slot);
                }
            }
            if let Some(session) = &holder.session {
                self.sessions.used(now, &model, session);
            }
        }
        // Before the next ticket: a slot is free now for the inference that may be due.
        self.watch_one(now, entry);
        self.serve(now, entry);
    }

    /// Lets tickets into a ready engine as far as slots go. A draining one takes only those whose drain deadline passed
    /// while the drain is for somebody young.
    pub(crate) fn serve(&mut self, now: Now, entry: EntryId) {
        self.tell_loaded(now, entry);
        while let Some(id) = self.next_of(now, entry) {
            let Some(serving) = self.entries[entry].serving() else { return };
            if serving.gate.grant() != TryEnter::Entered {
                break;
            }
            self.grant(now, id, entry);
        }
        let model = self.entries[entry].key.model().clone();
        self.mark_gates(&model);
    }

    /// Who only wants to find the model there finds it.
    fn tell_loaded(&mut self, now: Now, entry: EntryId) {
        if self.entries[entry].serving().is_none_or(|serving| serving.drain.for_good.is_some()) {
            return;
        }
        let waits = |id: &RequestId| self.tickets[id].ask.want == Want::Resident;
        let told: Vec<_> = self.candidates(now, entry).into_iter().filter(waits).collect();
        for id in told {
            self.end_ticket(now, id);
            // Who asked will come: it is not idle from the time before.
            self.entries[entry].last_use = Some(now);
            let key = self.entries[entry].key.clone();
            self.act(Action::Loaded { id, key });
        }
    }

    /// The next ticket that may have a slot of this engine.
    fn next_of(&self, now: Now, entry: EntryId) -> Option<RequestId> {
        let serving = self.entries[entry].serving()?;
        if serving.health.is_barred() {
            return None;
        }
        let draining = serving.drain.is_active();
        let young = draining && self.is_drained_for_young(now, entry);
        let may = |id: &RequestId| {
            let Ticket { entry: of, wait, ask, .. } = &self.tickets[id];
            ask.want == Want::Lease && (!draining || young && *of == entry && *wait == Wait::Entitled)
        };
        let waiting = self.candidates(now, entry).into_iter().filter(may);
        let queue = self.queue_of(now, entry, waiting.collect());
        pick_ticket(now, self.config.max_wait, self.occupied(now, entry, serving), &queue)
    }

    /// The engine's own tickets, and those of its siblings that it may serve.
    fn candidates(&self, now: Now, entry: EntryId) -> Vec<RequestId> {
        let own = self.entries[entry].queue.iter().copied();
        let others = self.siblings(entry).flat_map(|other| self.entries[other].queue.iter().copied());
        own.chain(others.filter(|id| self.may_go_elsewhere(now, *id))).collect()
    }

    fn may_go_elsewhere(&self, now: Now, id: RequestId) -> bool {
        let Ticket { ask, since, .. } = &self.tickets[&id];
        let bound = ask.holder.session.as_deref().and_then(|s| self.sessions.replica_of(now, &ask.model, s));
        let waited = now.since(*since) >= self.config.scale.fan_out_after;
        ask.replica.is_none() && (bound.is_none() || waited)
    }

    /// These tickets as the choice for `entry` sees them.
    fn queue_of(&self, now: Now, entry: EntryId, tickets: Vec<RequestId>) -> Vec<Queued> {
        let owners = self.owners(entry, &tickets);
        tickets.into_iter().map(|id| self.queued(now, (entry, &owners), id)).collect()
    }

    /// Whose these tickets are, and what each of those has had of `entry`. Without keys nobody is told apart, nor where an
    /// operator has moved one: his word would be undone by it.
    fn owners(&self, entry: EntryId, tickets: &[RequestId]) -> BTreeMap<Option<&Arc<str>>, Owner> {
        let names: BTreeSet<_> = tickets.iter().map(|id| self.tickets[id].ask.holder.owner.as_ref()).collect();
        if names.len() < 2 || tickets.iter().any(|id| self.tickets[id].turn.placed) {
            return BTreeMap::new();
        }
        let shares = &self.entries[entry].shares;
        names.into_iter().enumerate().map(|(id, name)| (name, Owner { id, had: shares.of(name) })).collect()
    }

    fn queued(
        &self,
        now: Now,
        (entry, owners): (EntryId, &BTreeMap<Option<&Arc<str>>, Owner>),
        id: RequestId,
    ) -> Queued {
        let Ticket { ask, since, turn, .. } = &self.tickets[&id];
        let target = &self.entries[entry];
        let holder = &ask.holder;
        let bound = holder.session.as_deref().and_then(|s| self.sessions.replica_of(now, &ask.model, s));
        let affinity = if turn.placed {
            // An operator's word is not undone by what it finds there.
            Affinity::None
        } else if bound == Some(target.key.replica()) {
            Affinity::Session
        } else if holder.actor.is_some() && holder.actor == target.last_actor {
            Affinity::Actor
        } else {
            Affinity::None
        };
        Queued {
            id,
            lane: holder.lane,
            descent: if holder.parent.is_some() { Descent::Child } else { Descent::Alone },
            since: *since,
            turn: turn.number,
            priority: ask.priority.unwrap_or(0),
            affinity,
            owner: owners.get(&holder.owner.as_ref()).copied().unwrap_or_default(),
        }
    }

    fn occupied(&self, now: Now, entry: EntryId, serving: &Serving) -> Occupied {
        Occupied {
            width: serving.gate.width(),
            granted: serving.gate.granted(),
            background: serving.n_background,
            quiet: self.quiet(now, entry),
        }
    }

    /// Whether nothing but ambient work was there for long enough, on any engine of the model.
    pub(crate) fn quiet(&self, now: Now, entry: EntryId) -> Quiet {
        match self.quiet_from(entry) {
            None => Quiet::Enough,
            Some(from) if from <= now && !self.is_at_work(entry) => Quiet::Enough,
            Some(_) => Quiet::NotYet,
        }
    }

    /// When ambient work may begin, unless other work comes; `None`: at once.
    pub(crate) fn quiet_from(&self, entry: EntryId) -> Option<Now> {
        let quiet = self.config.queue.quiet;
        let family = self.family(self.entries[entry].key.model())?;
        let last_work = family.values().filter_map(|entry| self.entries[*entry].last_work).max()?;
        (!quiet.is_zero()).then(|| last_work.after(quiet))
    }

    /// Whether work that is not ambient is served or waited for on any engine of the model.
    fn is_at_work(&self, entry: EntryId) -> bool {
        let model = self.entries[entry].key.model();
        let family = || self.family(model).into_iter().flat_map(|family| family.values().copied());
        let spawns: Vec<_> = family().filter_map(|entry| self.entries[entry].spawn()).collect();
        let works = |line: &LeaseLine| line.holder.lane != Lane::Ambient && spawns.contains(&line.spawn);
        family().any(|entry| self.is_wanted(entry)) || self.leases.values().any(works)
    }

    fn grant(&mut self, now: Now, id: RequestId, entry: EntryId) {
        let ask = self.end_ticket(now, id).ask;
        let holder = Holder { since: now, ..ask.holder };
        self.keep(entry, ask.keep_alive);
        let given = if ask.slots == SlotChoice::Pool { self.slot_for(now, entry, &holder) } else { None };
        let target = &mut self.entries[entry];
        target.hit(now);
        target.last_actor.clone_from(&holder.actor);
        target.shares.take(holder.owner.as_ref());
        if holder.lane != Lane::Ambient {
            target.last_work = Some(now);
        }
        let (key, replica) = (target.key.clone(), target.key.replica());
        let serving = target.serving_mut().expect("P3: a lease is granted by a ready engine");
        serving.n_leases += 1;
        serving.n_background += u32::from(holder.lane != Lane::Interactive);
        let (spawn, endpoint, gate) = (serving.spawn, serving.endpoint.clone(), serving.gate.clone());
        if let Some(session) = &holder.session {
            self.sessions.bind(now, (&ask.model, session), replica);
        }
        let returning = self.returning(spawn, given.as_ref());
        let slot = given.map(|given| given.slot);
        self.leases.insert(id, LeaseLine { spawn, holder, slot });
        self.act(Action::Grant { id, grant: Grant { key, spawn, endpoint, gate, slot, returning } });
    }

    /// What the last request says of how long its engine is kept; one that says nothing, as the model says.
    fn keep(&mut self, entry: EntryId, wish: Option<KeepAlive>) {
        let target = &mut self.entries[entry];
        let keep = wish.unwrap_or(KeepAlive::of_model(target.model.idle_ttl));
        if let Some(serving) = target.serving_mut() {
            serving.keep = keep;
        }
    }

    /// The slot of a request that belongs to a session; the lease is counted in already.
    fn slot_for(&mut self, now: Now, entry: EntryId, holder: &Holder) -> Option<Given> {
        let session = holder.session.as_deref()?;
        let serving = self.entries[entry].serving_mut()?;
        let room = (serving.gate.width(), serving.gate.granted().saturating_sub(1));
        serving.slots.take(now, session, room)
    }

    /// Tickets for a lease of `entry`, in the order in which they would be served.
    pub(crate) fn pending_in_order(&self, now: Now, entry: EntryId) -> Vec<Queued> {
        let leases = self.entries[entry].queue.iter().filter(|id| self.tickets[*id].ask.want == Want::Lease);
        let queue = self.queue_of(now, entry, leases.copied().collect());
        in_order(now, self.config.max_wait, queue)
    }
}
