//! Victims: how candidates are ranked, and the set that goes.
//!
//! Those already draining go first. By demand, the rest go by fewest recent hits, oldest use, key: the set is the
//! shortest prefix of that order that suffices, from which members are dropped, most demanded first, while it still
//! suffices. So the most demanded victim is as little demanded as can be, then the next, and so on (P10).
//!
//! `gdsf` weighs what a victim costs to have back (demand × reload time) by what it frees. Up to twelve candidates the
//! set of the least cost is found exactly, above that by the same prefix and drop.
//!
//! Over thousands of candidates the order is the most that a decision costs, so candidates stay where they are, and small
//! stand-ins of one machine word are put in order, which seldom tie. What a prefix took out is mostly needed gone: a line
//! that alone passes what is left ([`crate::slack`]) stays out without being tried.
//!
//! Over several attempts the prefix is the shortest that suffices for any of them: its last member is the most demanded
//! victim of each that fits then, and those that fit later need a more demanded one.
use crate::{
    Ledger, Standing,
    charges::Weighed,
    lines::{LineId, Lines},
    placement::Attempt,
    room::Movable,
    scratch::Scratch,
};
use motorpool_vocab::{EngineKey, Now, Spawn};
use std::cmp::Ordering;

/// So many candidates are tried in every combination.
const EXACT_MOST: usize = 12;
/// So many are put in order at first, and at most so many leave between two looks.
const SORTED_FIRST: usize = 512;
const STEP_MOST: usize = 64;
/// Cost by byte is kept in parts of 2^60: demand and time have 64 bits together.
const PER_BYTE_BITS: u32 = 60;
/// Bits of a stand-in for the time of last use.
const AGE_BITS: u32 = 43;
/// The largest demand of a stand-in; all that is more is alike there.
const WORTH_MOST: u64 = (1 << (63 - AGE_BITS)) - 1;

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
    lines: &'a Lines,
    /// As they came.
    all: Vec<Ranked<'a>>,
    /// All of them, the first `n_sorted` in order.
    order: Vec<StandIn>,
    n_sorted: usize,
}

/// What stands for a candidate in the order.
#[derive(Clone, Copy, Debug)]
struct StandIn {
    /// Never less for one that goes later; the same for some that do not go at once.
    rough: u64,
    /// Where it is in `all`.
    at: u32,
    /// Where what it holds is: what is taken out of sums is not looked for in `all`.
    line: LineId,
}

/// A sufficient set. Smaller is better: less cost, then the most demanded member less demanded, then the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victims {
    cost: u128,
    /// Places in the ranking, the most demanded first.
    members: Vec<usize>,
}

impl<'a> Ranking<'a> {
    pub(crate) fn of<'m>(ledger: &'a Ledger, policy: Policy, candidates: impl Iterator<Item = &'m Movable<'a>>) -> Self
    where
        'a: 'm,
    {
        let mut all: Vec<_> = candidates.map(|c| rank(ledger, policy, *c)).collect();
        // One that comes twice comes twice in a row, for a pool names its candidates in order; else it is sorted out.
        if !all.is_sorted_by(|a, b| a.spawn < b.spawn) {
            all.sort_unstable_by_key(|c| c.spawn);
            all.dedup_by_key(|c| c.spawn);
        }
        let order = stand_ins(policy, &all);
        Self { policy, lines: ledger.lines(), all, order, n_sorted: 0 }
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// The one at `place` of the order, which was asked for.
    fn at(&self, place: usize) -> &Ranked<'a> {
        self.stood_for(self.order[place])
    }

    fn stood_for(&self, stand_in: StandIn) -> &Ranked<'a> {
        &self.all[stand_in.at as usize]
    }

    fn weighed(&self, place: usize) -> &'a Weighed {
        self.lines.weighed(self.order[place].line)
    }

    /// Puts at least the first `n` in order.
    fn sort_first(&mut self, n: usize) {
        if n <= self.n_sorted {
            return;
        }
        let end = n.max(self.n_sorted * 4).max(SORTED_FIRST).min(self.all.len());
        let mut order = std::mem::take(&mut self.order);
        let rest = &mut order[self.n_sorted..];
        let mut more = end - self.n_sorted;
        if more < rest.len() {
            let (_, last, beyond) = rest.select_nth_unstable_by_key(more - 1, |c| c.rough);
            more += gather(beyond, last.rough);
        }
        rest[..more].sort_unstable_by_key(|c| c.rough);
        // Words compare fast; who has the same is told apart afterwards.
        for alike in rest[..more].chunk_by_mut(|a, b| a.rough == b.rough).filter(|alike| alike.len() > 1) {
            alike.sort_unstable_by(|a, b| self.stood_for(*a).cmp(self.stood_for(*b)));
        }
        self.n_sorted += more;
        self.order = order;
    }

    fn spawns(&self, victims: &Victims) -> Vec<Spawn> {
        victims.members.iter().rev().map(|n| self.at(*n).spawn).collect()
    }

    fn set(&self, members: Vec<usize>) -> Victims {
        Victims { cost: members.iter().map(|n| u128::from(self.at(*n).cost)).sum(), members }
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

/// In one word: whether it is draining, its worth, its age; as far as they go there without putting two in another order.
fn stand_ins(policy: Policy, all: &[Ranked<'_>]) -> Vec<StandIn> {
    let ages = || all.iter().map(|c| c.last_use.as_nanos());
    let oldest = ages().min().unwrap_or(0);
    let range = ages().max().unwrap_or(0) - oldest;
    let shift = (u64::BITS - range.leading_zeros()).saturating_sub(AGE_BITS);
    let rough = |c: &Ranked<'_>| match policy {
        Policy::DemandLru | Policy::Lru => match u64::try_from(c.worth) {
            Ok(worth) if worth < WORTH_MOST => worth << AGE_BITS | (c.last_use.as_nanos() - oldest) >> shift,
            // Beyond, worth alone decides, and it is not all there.
            _ => WORTH_MOST << AGE_BITS,
        },
        Policy::Gdsf => magnitude(c.worth),
    };
    let stand_in =
        |(at, c): (u32, &Ranked<'_>)| StandIn { rough: rough(c) | u64::from(c.stays_open) << 63, at, line: c.line };
    (0..).zip(all).map(stand_in).collect()
}

/// Moves those with the same word to the front, and says how many.
fn gather(stand_ins: &mut [StandIn], rough: u64) -> usize {
    let mut n = 0;
    for at in 0..stand_ins.len() {
        if stand_ins[at].rough == rough {
            stand_ins.swap(n, at);
            n += 1;
        }
    }
    n
}

/// How long a number below 2^127 is and its first bits: 63 bits that keep the order.
fn magnitude(n: u128) -> u64 {
    let length = u128::BITS - n.leading_zeros();
    let first = (n << n.leading_zeros().min(127)) >> (u128::BITS - 56);
    u64::from(length) << 56 | u64::try_from(first).unwrap_or(0)
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
        let ranked: Vec<_> = (0..ranking.len()).map(|place| *ranking.at(place)).collect();
        let exact = |attempt| Some((Search::new(base, attempt, &ranked).run()?, attempt));
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
        for place in taken..end {
            base.remove(ranking.weighed(place));
        }
        (taken, step) = (end, (step * 2).min(STEP_MOST));
    }
    if !any_fits(base) {
        return None;
    }
    // The last step may have been too long.
    while taken > 0 {
        let last = ranking.weighed(taken - 1);
        base.add(last);
        if !any_fits(base) {
            base.remove(last);
            break;
        }
        taken -= 1;
    }
    Some(taken)
}

/// The members of the first `n`, which are not in `base`, that `attempt` needs gone.
fn drop_superfluous(base: &mut Scratch<'_>, attempt: &Attempt, (ranking, n): (&Ranking<'_>, usize)) -> Victims {
    let (mut members, mut back) = (Vec::new(), Vec::new());
    // What is left at most, and at least: files count with nothing, and whole.
    let mut most = base.slack(attempt);
    let mut least = most.clone();
    for place in (0..n).rev() {
        let line = ranking.weighed(place);
        if most.is_passed_by(line) {
            members.push(place);
        } else if least.holds(line) {
            least.take_whole(line);
            back.push(line);
        } else {
            // Only a trial tells.
            back.drain(..).for_each(|line| base.add(line));
            base.add(line);
            if !base.admits(attempt) {
                base.remove(line);
                members.push(place);
            }
            most = base.slack(attempt);
            least = most.clone();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BudgetSetting, Candidate, Host};
    use motorpool_vocab::{Bytes, Claim};
    use proptest::prelude::*;
    use std::time::Duration;

    fn any_time() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..4, 1u64 << 43..(1 << 43) + 4, any::<u64>()]
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let hits = prop_oneof![0u32..4, (1u32 << 20) - 2..(1 << 20) + 2, any::<u32>()];
        (any::<bool>(), hits, any_time(), 0u64..4).prop_map(|(open, hits, last_use, reload)| Candidate {
            spawn: Spawn(0),
            key: "e:m:0".parse().expect("a key"),
            standing: if open { Standing::Idle } else { Standing::Drained },
            hits,
            last_use: Now::from_nanos(last_use),
            reload: Duration::from_millis(reload * 40_000),
        })
    }

    proptest! {
        /// What is put in order by stand-ins, and piece by piece, is in the order of what they stand for.
        #[test]
        fn stand_ins_put_no_two_in_another_order(candidates in prop::collection::vec(any_candidate(), 1..40)) {
            let host = Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..Host::default() };
            let mut ledger = Ledger::new(host.bounds());
            let number = |(spawn, candidate): (u64, Candidate)| Candidate { spawn: Spawn(spawn), ..candidate };
            let candidates: Vec<_> = (1..).zip(candidates).map(number).collect();
            for candidate in &candidates {
                let _ = ledger.reserve(candidate.spawn, Claim::private(Bytes::new(candidate.spawn.0 % 3)));
            }
            let line = |spawn| ledger.lines().find(spawn).expect("a line");
            let movable: Vec<Movable<'_>> = candidates.iter().map(|c| (c, line(c.spawn))).collect();
            for policy in [Policy::DemandLru, Policy::Lru, Policy::Gdsf] {
                let mut ranking = Ranking::of(&ledger, policy, movable.iter());
                ranking.sort_first(ranking.len());
                let in_order: Vec<_> = (0..ranking.len()).map(|place| *ranking.at(place)).collect();
                prop_assert!(in_order.is_sorted(), "{:?}: {:?}", policy, in_order);
            }
        }
    }

    #[test]
    fn a_magnitude_keeps_the_order_of_what_it_stands_for() {
        let numbers = [0, 1, 2, 3, 255, 256, (1 << 56) - 1, 1 << 56, (1 << 56) + 1, 1 << 90, (1 << 126) + (1 << 80)];
        let magnitudes: Vec<_> = numbers.into_iter().map(magnitude).collect();
        assert!(magnitudes.is_sorted() && magnitudes[..8].is_sorted_by(|a, b| a < b), "{magnitudes:?}");
        assert!(magnitude((1 << 127) - 1) < 1 << 63);
    }
}
