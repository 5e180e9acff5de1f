//! [`pick_room`]: where a load fits, what to wait for, what must go, or the proof that nothing helps.
//!
//! Every possible placement is judged; the cheapest set of victims wins, ties by the order of the attempts (fewer
//! devices first). How victims are ranked and picked is in `victims.rs` (P10).
//!
//! Builds that waited longer are served first: their claims count as taken and what they wait for as gone, so a
//! younger build gets only room that no elder needs.
use crate::{
    Excess, Ledger, Load, Parts, Placement, Policy,
    lines::LineId,
    placement::{Attempt, View, attempts, regardless},
    scratch::{Scratch, admits},
    victims::{Ranking, pick_victims},
};
use motorpool_vocab::{Bytes, Claim, EngineKey, Now, Spawn};
use std::{collections::BTreeSet, time::Duration};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// What is to be placed.
    pub load: &'a Load,
    /// Claims of builds that waited longer, where they were judged to go.
    pub elders: &'a [Claim],
    /// Children that are on their way out: their bytes will come back without anybody else being stopped.
    pub leaving: &'a [Spawn],
    /// Children that are drained for those builds. Their bytes will come back, unless the drain is given up.
    pub draining: &'a [Spawn],
    /// Children that will never leave: pinned ones and stuck ones.
    pub fixed: &'a [Spawn],
    /// How victims are ranked.
    pub policy: Policy,
}

/// A child that may be stopped for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The child.
    pub spawn: Spawn,
    /// Its key, the last tie.
    pub key: EngineKey,
    /// Whether it serves now.
    pub standing: Standing,
    /// Leases granted in the demand window.
    pub hits: u32,
    /// When it last began or ended a lease.
    pub last_use: Now,
    /// How long it took to load, or is thought to.
    pub reload: Duration,
}

/// What a candidate is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nobody may enter any more and the last one left.
    Drained,
    /// Nobody may enter any more; somebody is still in.
    Draining,
    /// No lease, no ticket.
    Idle,
    /// Leases or tickets.
    Busy,
}

/// The answer, with the placement that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// It can be reserved now.
    Fits(Placement),
    /// What is leaving, or an elder's turn, will settle it; nobody is to be stopped for it.
    Wait(Placement),
    /// Stop these idle ones.
    Evict {
        /// Who goes, least demanded first.
        set: Vec<Spawn>,
        /// What fits then.
        placement: Placement,
    },
    /// Idle ones do not suffice: drain the busy ones among these.
    Drain {
        /// Who goes, least demanded first.
        set: Vec<Spawn>,
        /// What fits then.
        placement: Placement,
    },
    /// Not even with everything gone that can go.
    Never(Proof),
}

/// Why something fits nowhere: the attempt that came nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// What it would have claimed.
    pub claim: Claim,
    /// Which bound that passes.
    pub excess: Excess,
}

/// A candidate and its line.
pub(crate) type Movable<'a> = (&'a Candidate, LineId);

impl Room {
    /// The placement that was judged, unless there is none.
    pub fn placement(&self) -> Option<&Placement> {
        match self {
            Self::Fits(placement)
            | Self::Wait(placement)
            | Self::Evict { placement, .. }
            | Self::Drain { placement, .. } => Some(placement),
            Self::Never(_) => None,
        }
    }
}

impl Proof {
    /// Of `attempts`, none of which fits beside what is in `rest`: the one that is short of the least.
    pub(crate) fn of(rest: &mut Scratch<'_>, attempts: Vec<Placement>) -> Self {
        let short = attempts.into_iter().map(|attempt| (rest.shortfall(&attempt.claim).most(), attempt.claim));
        // One that needs only to be alone has no arithmetic of its own.
        let nearest = short.filter(|(by, _)| !by.is_zero()).reduce(|a, b| if b.0 < a.0 { b } else { a });
        let claim = nearest.map(|(_, claim)| claim).unwrap_or_default();
        let excess = rest.excess(&claim).unwrap_or_else(Excess::nothing);
        Self { claim, excess }
    }
}

/// Decides; see the module's documentation. Candidates that are idle suffice before busy ones are looked at.
pub fn pick_room(ledger: &Ledger, query: &Query<'_>, candidates: &[Candidate]) -> Room {
    let going: BTreeSet<Spawn> = query.leaving.iter().chain(query.draining).copied().collect();
    let mut base = Scratch::without(ledger, &going);
    for elder in query.elders {
        base.add_claim(elder);
    }
    let mut most = Scratch::with_only(ledger, query.fixed);
    let line = |c: &Candidate| if going.contains(&c.spawn) { None } else { ledger.lines().find(c.spawn) };
    let movable: Vec<Movable<'_>> = candidates.iter().filter_map(|c| Some((c, line(c)?))).collect();
    let all = attempts(ledger, query.load, &views(query.load, (&base, &most), &movable));
    if ledger.limits().is_none() {
        return Room::Fits(regardless(ledger, all));
    }
    let possible = weigh_possible(&mut base, &most, &all);
    let Some(first) = possible.first() else { return Room::Never(Proof::of(&mut most, all)) };
    let mut fitting = possible.iter().filter(|attempt| base.admits(attempt)).peekable();
    if let Some(best) = fitting.peek().copied() {
        let now = fitting.find(|attempt| admits(ledger, ledger.charges(), attempt));
        return now.map_or_else(|| Room::Wait(best.placement.clone()), |now| Room::Fits(now.placement.clone()));
    }
    let mut idle = Ranking::of(ledger, query.policy, movable.iter().filter(|c| is_idle(c)));
    if let Some((set, attempt)) = pick_victims(&mut base, &possible, &mut idle) {
        let placement = attempt.placement.clone();
        let suffices = suffices_now(ledger, query, &set, &placement);
        return if suffices { Room::Evict { set, placement } } else { Room::Wait(placement) };
    }
    if movable.iter().all(is_idle) {
        return Room::Wait(first.placement.clone());
    }
    let mut everybody = Ranking::of(ledger, query.policy, movable.iter());
    match pick_victims(&mut base, &possible, &mut everybody) {
        Some((set, attempt)) => Room::Drain { set, placement: attempt.placement.clone() },
        None => Room::Wait(first.placement.clone()),
    }
}

fn is_idle((candidate, _): &Movable<'_>) -> bool {
    matches!(candidate.standing, Standing::Idle | Standing::Drained)
}

/// Nobody is stopped for a build that would still need an elder's drain to succeed.
fn suffices_now(ledger: &Ledger, query: &Query<'_>, set: &[Spawn], placement: &Placement) -> bool {
    if query.draining.is_empty() && query.elders.is_empty() {
        return true;
    }
    let mut gone = Scratch::without(ledger, set.iter().chain(query.leaving));
    let weighed = gone.weigh(&placement.claim);
    gone.admits(&Attempt { placement: placement.clone(), weighed })
}

/// What cards have free as things are, with everything gone, and, where a cut depends on it, without the idle ones and
/// without all candidates.
fn views(load: &Load, (base, most): (&Scratch<'_>, &Scratch<'_>), movable: &[Movable<'_>]) -> Vec<View> {
    let mut views = vec![base.view()];
    if views[0].free.is_empty() {
        return views;
    }
    if matches!(load.parts, Parts::Known { .. }) {
        views.push(base.view_without(movable.iter().filter(|c| is_idle(c)).map(|(_, line)| *line)));
        views.push(base.view_without(movable.iter().map(|(_, line)| *line)));
    }
    views.push(most.view());
    views.dedup();
    views
}

/// The attempts that fit with everything gone that can go, weighed.
fn weigh_possible(base: &mut Scratch<'_>, most: &Scratch<'_>, all: &[Placement]) -> Vec<Attempt> {
    let attempt = |placement: &Placement| {
        let attempt = Attempt { weighed: base.weigh(&placement.claim), placement: placement.clone() };
        most.admits(&attempt).then_some(attempt)
    };
    all.iter().filter_map(attempt).collect()
}

impl Excess {
    /// No excess at all; of nothing.
    fn nothing() -> Self {
        Self { would_commit: Bytes::ZERO, bound: Bytes::ZERO, which: crate::Which::Total }
    }
}

#[cfg(test)]
mod tests;
