//! Victims: how candidates are ranked, and the set that goes.
//!
//! Those already draining go first. By demand, the rest go by fewest recent hits, oldest use, key: the set is the
//! shortest prefix of that order that suffices, from which members are dropped, most demanded first, while it still
//! suffices. So the most demanded victim is as little demanded as can be, then the next, and so on (P10).
//!
//! `gdsf` weighs what a victim costs to have back (demand × reload time) by what it frees. Up to twelve candidates the
//! set of the least cost is found exactly, above that by the same prefix and drop.
//!
//! Over several attempts the prefix is the shortest that suffices for any of them: its last member is the most demanded
//! victim of each that fits then, and those that fit later need a more demanded one.
use crate::{Ledger, Standing, lines::LineId, placement::Attempt, room::Movable, scratch::Scratch};
use motorpool_vocab::{EngineKey, Now, Spawn};
use std::cmp::Ordering;

/// So many candidates are tried in every combination.
const EXACT_MOST: usize = 12;
/// So many are put in order at first, and at most so many leave between two looks.
const SORTED_FIRST: usize = 512;
const STEP_MOST: usize = 64;
/// Cost by byte is kept in parts of 2^60: demand and time have 64 bits together.
const PER_BYTE_BITS: u32 = 60;

/// How victims are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Fewest recent hits, then oldest use, then key.
    #[default]
    DemandLru,
    /// Oldest use, then key.
    Lru,
    /// Least demand × reload time ÷ bytes, then oldest use, then key.
    Gdsf,
}

/// A candidate's place: smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked<'a> {
    stays_open: bool,
    worth: u128,
    last_use: Now,
    key: &'a EngineKey,
    spawn: Spawn,
    line: LineId,
    cost: u64,
}

/// Candidates in order. Most decisions look at the first few: the rest is put in order when it is asked for.
#[derive(Debug)]
pub(crate) struct Ranking<'a> {
    policy: Policy,
    all: Vec<Ranked<'a>>,
    n_sorted: usize,
}

/// A sufficient set. Smaller is better: less cost, then the most demanded member less demanded, then the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victims {
    cost: u128,
    /// Places in the ranking, the most demanded first.
    members: Vec<usize>,
}

impl<'a> Ranking<'a> {
    pub(crate) fn of<'m>(ledger: &Ledger, policy: Policy, candidates: impl Iterator<Item = &'m Movable<'a>>) -> Self
    where
        'a: 'm,
    {
        let mut all: Vec<_> = candidates.map(|c| rank(ledger, policy, *c)).collect();
        // One that comes twice comes twice in a row, for a pool names its candidates in order; else it is sorted out.
        if !all.is_sorted_by(|a, b| a.spawn < b.spawn) {
            all.sort_unstable_by_key(|c| c.spawn);
            all.dedup_by_key(|c| c.spawn);
        }
        Self { policy, all, n_sorted: 0 }
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// Puts at least the first `n` in order.
    fn sort_first(&mut self, n: usize) {
        if n <= self.n_sorted {
            return;
        }
        let end = n.max(self.n_sorted * 4).max(SORTED_FIRST).min(self.all.len());
        let rest = &mut self.all[self.n_sorted..];
        let more = end - self.n_sorted;
        if more < rest.len() {
            rest.select_nth_unstable(more);
        }
        rest[..more].sort_unstable();
        self.n_sorted = end;
    }

    fn spawns(&self, victims: &Victims) -> Vec<Spawn> {
        victims.members.iter().rev().map(|n| self.all[*n].spawn).collect()
    }

    fn set(&self, members: Vec<usize>) -> Victims {
        Victims { cost: members.iter().map(|n| u128::from(self.all[*n].cost)).sum(), members }
    }
}

fn rank<'a>(ledger: &Ledger, policy: Policy, (c, line): Movable<'a>) -> Ranked<'a> {
    let stays_open = matches!(c.standing, Standing::Idle | Standing::Busy);
    let (worth, cost) = match policy {
        Policy::DemandLru => (u128::from(c.hits), 0),
        Policy::Lru => (0, 0),
        Policy::Gdsf => {
            let millis = u32::try_from(c.reload.as_millis()).unwrap_or(u32::MAX);
            let cost = u64::from(c.hits) * u64::from(millis);
            let bytes = ledger.lines().weighed(line).whole().max(1);
            // What is draining has been given up already.
            ((u128::from(cost) << PER_BYTE_BITS) / bytes, if stays_open { cost } else { 0 })
        }
    };
    Ranked { stays_open, worth, last_use: c.last_use, key: &c.key, spawn: c.spawn, line, cost }
}

/// The best set over all `attempts` that makes room in `base`, least demanded first, and the attempt it is for; `None`
/// when all together do not suffice for any. `base` is as before afterwards.
pub(crate) fn pick_victims<'p>(
    base: &mut Scratch<'_>,
    attempts: &'p [Attempt],
    ranking: &mut Ranking<'_>,
) -> Option<(Vec<Spawn>, &'p Attempt)> {
    let (victims, attempt) = if ranking.policy == Policy::Gdsf && ranking.len() <= EXACT_MOST {
        ranking.sort_first(ranking.len());
        let exact = |attempt| Some((Search::new(base, attempt, &ranking.all).run()?, attempt));
        first_least(attempts.iter().filter_map(exact))?
    } else {
        let whole = base.mark();
        let least = take_prefix(base, attempts, ranking).and_then(|n| drop_for_each(base, attempts, (ranking, n)));
        base.go_back(&whole);
        least?
    };
    Some((ranking.spawns(&victims), attempt))
}

/// The best set among the first `n`, which are not in `base`. Their last is a member for every attempt that fits now,
/// and what would fit later only is worse.
fn drop_for_each<'p>(
    base: &mut Scratch<'_>,
    attempts: &'p [Attempt],
    (ranking, n): (&Ranking<'_>, usize),
) -> Option<(Victims, &'p Attempt)> {
    let fitting: Vec<&Attempt> = attempts.iter().filter(|attempt| base.admits(attempt)).collect();
    let without_prefix = base.mark();
    let dropped = |attempt| {
        base.go_back(&without_prefix);
        (drop_superfluous(base, attempt, (ranking, n)), attempt)
    };
    first_least(fitting.into_iter().map(dropped))
}

fn first_least<'p>(sets: impl Iterator<Item = (Victims, &'p Attempt)>) -> Option<(Victims, &'p Attempt)> {
    sets.reduce(|best, other| if other.0 < best.0 { other } else { best })
}

/// Takes the shortest prefix out of `base` without which some attempt fits, and says how long it is; `None` when there
/// is none.
fn take_prefix(base: &mut Scratch<'_>, attempts: &[Attempt], ranking: &mut Ranking<'_>) -> Option<usize> {
    let any_fits = |base: &Scratch<'_>| attempts.iter().any(|attempt| base.admits(attempt));
    let (mut taken, mut step) = (0, 1);
    while !any_fits(base) && taken < ranking.len() {
        let end = (taken + step).min(ranking.len());
        ranking.sort_first(end);
        for ranked in &ranking.all[taken..end] {
            base.remove_line(ranked.line);
        }
        (taken, step) = (end, (step * 2).min(STEP_MOST));
    }
    if !any_fits(base) {
        return None;
    }
    // The last step may have been too long.
    while taken > 0 {
        let last = ranking.all[taken - 1].line;
        base.add_line(last);
        if !any_fits(base) {
            base.remove_line(last);
            break;
        }
        taken -= 1;
    }
    Some(taken)
}

/// The members of the first `n`, which are not in `base`, that `attempt` needs gone.
fn drop_superfluous(base: &mut Scratch<'_>, attempt: &Attempt, (ranking, n): (&Ranking<'_>, usize)) -> Victims {
    let mut members = Vec::new();
    for place in (0..n).rev() {
        base.add_line(ranking.all[place].line);
        if !base.admits(attempt) {
            base.remove_line(ranking.all[place].line);
            members.push(place);
        }
    }
    ranking.set(members)
}

/// Every combination, in the order of [`Victims`] among equal cost.
struct Search<'a, 'l> {
    base: &'a mut Scratch<'l>,
    attempt: &'a Attempt,
    ranked: &'a [Ranked<'a>],
    chosen: Vec<usize>,
    best: Option<Victims>,
}

impl<'a, 'l> Search<'a, 'l> {
    fn new(base: &'a mut Scratch<'l>, attempt: &'a Attempt, ranked: &'a [Ranked<'a>]) -> Self {
        Self { base, attempt, ranked, chosen: Vec::new(), best: None }
    }

    fn run(mut self) -> Option<Victims> {
        self.descend(self.ranked.len(), 0);
        self.best
    }

    /// Decides about the candidates below `n`, the most demanded of them first; without it before with it.
    fn descend(&mut self, n: usize, cost: u128) {
        // What was found comes before all that costs the same and is found later.
        if self.best.as_ref().is_some_and(|best| cost.cmp(&best.cost) != Ordering::Less) {
            return;
        }
        let Some(below) = n.checked_sub(1) else {
            if self.base.admits(self.attempt) {
                self.best = Some(Victims { cost, members: self.chosen.clone() });
            }
            return;
        };
        self.descend(below, cost);
        self.base.remove_line(self.ranked[below].line);
        self.chosen.push(below);
        self.descend(below, cost + u128::from(self.ranked[below].cost));
        self.chosen.pop();
        self.base.add_line(self.ranked[below].line);
    }
}
