//! [`pick_room`]: whether a claim fits, what to wait for, what must go, or the proof that nothing helps.
//!
//! Candidates are ranked by demand: those already draining first, then fewest recent hits, oldest use, key. The set
//! is the shortest prefix of that order that suffices, from which members are dropped, most demanded first, while it
//! still suffices. So the most demanded victim is as little demanded as can be, then the next, and so on (P10).
//!
//! Builds that waited longer are served first: their claims count as taken and what they wait for as gone, so a
//! younger build gets only room that no elder needs.
use crate::{Excess, Ledger, ledger::Charged};
use motorpool_vocab::{Claim, EngineKey, Now, Spawn};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// What is to be placed.
    pub claim: &'a Claim,
    /// Claims of builds that waited longer.
    pub elders: &'a [Claim],
    /// Children that are on their way out: their bytes will come back without anybody else being stopped.
    pub leaving: &'a [Spawn],
    /// Children that are drained for those builds. Their bytes will come back, unless the drain is given up.
    pub draining: &'a [Spawn],
    /// Children that will never leave: pinned ones and stuck ones.
    pub fixed: &'a [Spawn],
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

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// It can be reserved now.
    Fits,
    /// What is leaving, or an elder's turn, will settle it; nobody is to be stopped for it.
    Wait,
    /// Stop these idle ones.
    Evict(Vec<Spawn>),
    /// Idle ones do not suffice: drain the busy ones among these.
    Drain(Vec<Spawn>),
    /// Not even with everything gone that can go.
    Never(Excess),
}

/// Decides; see the module's documentation. Candidates that are idle suffice before busy ones are looked at.
pub fn pick_room(ledger: &Ledger, query: &Query<'_>, candidates: &[Candidate]) -> Room {
    if let Some(excess) = proof_of_never(ledger, query) {
        return Room::Never(excess);
    }
    let mut base = ledger.charged().clone();
    query.elders.iter().for_each(|elder| base.add(elder));
    for line in query.leaving.iter().chain(query.draining).filter_map(|spawn| ledger.line(*spawn)) {
        base.remove(line);
    }
    let suffices_without = |gone: &Charged| ledger.excess_of(gone.clone(), query.claim).is_none();
    if suffices_without(&base) {
        let fits_now = ledger.shortfall(&[], query.claim).fits();
        return if fits_now { Room::Fits } else { Room::Wait };
    }
    let idle: Vec<_> = candidates.iter().filter(|c| matches!(c.standing, Standing::Idle | Standing::Drained)).collect();
    if let Some(set) = pick_set(ledger, &base, query.claim, idle) {
        // Nobody is stopped for a build that would still need an elder's drain to succeed.
        let gone: Vec<_> = set.iter().chain(query.leaving).copied().collect();
        let suffices = ledger.shortfall(&gone, query.claim).fits();
        return if suffices { Room::Evict(set) } else { Room::Wait };
    }
    pick_set(ledger, &base, query.claim, candidates.iter().collect()).map_or(Room::Wait, Room::Drain)
}

fn proof_of_never(ledger: &Ledger, query: &Query<'_>) -> Option<Excess> {
    let going: Vec<_> = ledger.spawns().filter(|spawn| !query.fixed.contains(spawn)).collect();
    ledger.excess_without(&going, query.claim)
}

/// The victim set, ranked order, or `None` when all together do not suffice.
fn pick_set(ledger: &Ledger, base: &Charged, claim: &Claim, mut ranked: Vec<&Candidate>) -> Option<Vec<Spawn>> {
    ranked.sort_by(|a, b| rank(a).cmp(&rank(b)));
    let line = |c: &Candidate| ledger.line(c.spawn);
    let mut rest = base.clone();
    let mut set = Vec::new();
    for candidate in ranked {
        if ledger.excess_of(rest.clone(), claim).is_none() {
            break;
        }
        rest.remove(line(candidate)?);
        set.push(candidate);
    }
    ledger.excess_of(rest.clone(), claim).is_none().then(|| drop_superfluous(ledger, rest, claim, set))
}

fn drop_superfluous(ledger: &Ledger, mut rest: Charged, claim: &Claim, set: Vec<&Candidate>) -> Vec<Spawn> {
    let mut kept: Vec<Spawn> = Vec::new();
    for candidate in set.into_iter().rev() {
        let Some(line) = ledger.line(candidate.spawn) else { continue };
        let mut with_it = rest.clone();
        with_it.add(line);
        if ledger.excess_of(with_it.clone(), claim).is_none() {
            rest = with_it;
        } else {
            kept.push(candidate.spawn);
        }
    }
    kept.reverse();
    kept
}

fn rank(c: &Candidate) -> (bool, u32, Now, &EngineKey) {
    (matches!(c.standing, Standing::Idle | Standing::Busy), c.hits, c.last_use, &c.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Verdict};
    use motorpool_vocab::{Bytes, FileId};
    use proptest::prelude::*;

    fn key(n: u64) -> EngineKey {
        format!("e:m{n}:0").parse().expect("a key")
    }

    fn idle(n: u64, hits: u32) -> Candidate {
        Candidate { spawn: Spawn(n), key: key(n), standing: Standing::Idle, hits, last_use: Now::ZERO }
    }

    fn ledger(budget_mib: u64, lines: &[(u64, u64)]) -> Ledger {
        let mut ledger = Ledger::new(Budget::of(Bytes::mib(budget_mib)));
        for (spawn, mib) in lines {
            assert_eq!(ledger.reserve(Spawn(*spawn), Claim::private(Bytes::mib(*mib))), Verdict::Admit);
        }
        ledger
    }

    fn asked(claim: &Claim) -> Query<'_> {
        Query { claim, elders: &[], leaving: &[], draining: &[], fixed: &[] }
    }

    #[test]
    fn a_hundred_and_twentynine_of_a_hundred_and_ninetytwo() {
        let ledger = ledger(192 * 1024, &[(1, 100 * 1024)]);
        let claim = Claim::private(Bytes::gib(29));
        assert_eq!(pick_room(&ledger, &asked(&claim), &[idle(1, 0)]), Room::Fits, "bytes, not a count of models");
    }

    #[test]
    fn the_least_demanded_go_and_nobody_superfluous() {
        let ledger = ledger(2000, &[(1, 300), (2, 700), (3, 900)]);
        let claim = Claim::private(Bytes::mib(600));
        let candidates = [idle(3, 9), idle(1, 0), idle(2, 1)];
        assert_eq!(pick_room(&ledger, &asked(&claim), &candidates), Room::Evict(vec![Spawn(2)]), "1 alone is no help");
    }

    #[test]
    fn an_impossible_claim_is_refused_with_its_proof_and_nobody_stopped() {
        let ledger = ledger(1024, &[(1, 300)]);
        let claim = Claim::private(Bytes::mib(1100));
        let proof = Excess { would_commit: Bytes::mib(1100), bound: Bytes::gib(1) };
        assert_eq!(pick_room(&ledger, &asked(&claim), &[idle(1, 0)]), Room::Never(proof));
    }

    #[test]
    fn what_never_leaves_counts_in_the_proof() {
        let ledger = ledger(1024, &[(1, 300)]);
        let claim = Claim::private(Bytes::mib(800));
        let query = Query { fixed: &[Spawn(1)], ..asked(&claim) };
        assert!(matches!(pick_room(&ledger, &query, &[]), Room::Never(e) if e.would_commit == Bytes::mib(1100)));
    }

    #[test]
    fn bytes_on_their_way_back_are_waited_for_instead_of_stopping_more() {
        let ledger = ledger(1024, &[(1, 500), (2, 500)]);
        let claim = Claim::private(Bytes::mib(400));
        let query = Query { leaving: &[Spawn(1)], ..asked(&claim) };
        assert_eq!(pick_room(&ledger, &query, &[idle(2, 0)]), Room::Wait);
    }

    #[test]
    fn a_younger_build_takes_only_room_no_elder_needs() {
        let ledger = ledger(2000, &[(1, 1000)]);
        let elder = [Claim::private(Bytes::mib(1500))];
        let small = Claim::private(Bytes::mib(400));
        let query = Query { elders: &elder, leaving: &[Spawn(1)], ..asked(&small) };
        assert_eq!(pick_room(&ledger, &query, &[]), Room::Fits, "1,500 + 400 fit once 1 is gone");
        let larger = Claim::private(Bytes::mib(600));
        let query = Query { claim: &larger, ..query };
        assert_eq!(pick_room(&ledger, &query, &[]), Room::Wait, "it fits now, but the elder could not come");
    }

    #[test]
    fn busy_ones_are_drained_only_when_idle_ones_do_not_suffice_and_draining_ones_first() {
        let ledger = ledger(1100, &[(1, 500), (2, 500)]);
        let busy = |n, hits| Candidate { standing: Standing::Busy, ..idle(n, hits) };
        let claim = Claim::private(Bytes::mib(400));
        assert_eq!(pick_room(&ledger, &asked(&claim), &[busy(1, 0), idle(2, 9)]), Room::Evict(vec![Spawn(2)]));
        assert_eq!(pick_room(&ledger, &asked(&claim), &[busy(1, 0), busy(2, 9)]), Room::Drain(vec![Spawn(1)]));
        let draining = Candidate { standing: Standing::Draining, ..idle(2, 9) };
        assert_eq!(pick_room(&ledger, &asked(&claim), &[busy(1, 0), draining]), Room::Drain(vec![Spawn(2)]));
        assert_eq!(pick_room(&ledger, &asked(&claim), &[]), Room::Wait, "others are protected for now");
    }

    #[test]
    fn nobody_is_stopped_for_room_that_an_elders_drain_may_not_bring() {
        let ledger = ledger(1300, &[(1, 900), (2, 300)]);
        let (elder, claim) = ([Claim::private(Bytes::mib(600))], Claim::private(Bytes::mib(600)));
        let query = Query { elders: &elder, draining: &[Spawn(1)], ..asked(&claim) };
        assert_eq!(pick_room(&ledger, &query, &[idle(2, 0)]), Room::Wait);
        let small = Claim::private(Bytes::mib(90));
        let roomy = Query { claim: &small, ..query };
        assert_eq!(pick_room(&ledger, &roomy, &[idle(2, 0)]), Room::Fits, "it needs nobody to go");
        let gone = Query { leaving: &[Spawn(1)], draining: &[], ..query };
        assert_eq!(pick_room(&ledger, &gone, &[idle(2, 0)]), Room::Evict(vec![Spawn(2)]), "1 cannot stay any more");
    }

    /// The ranked index set as a number, most demanded in the highest bit: the order that P10 minimises.
    fn brute_force(ledger: &Ledger, claim: &Claim, ranked: &[Candidate]) -> Option<Vec<Spawn>> {
        (0u32..1 << ranked.len()).find_map(|mask| {
            let set: Vec<_> = (0..ranked.len()).filter(|i| mask >> i & 1 == 1).map(|i| ranked[i].spawn).collect();
            ledger.shortfall(&set, claim).fits().then_some(set)
        })
    }

    proptest! {
        /// P10: sufficient, irredundant, lexicographically optimal; shared files included.
        #[test]
        fn victim_sets_equal_brute_force(
            lines in prop::collection::vec((1u64..600, 0u64..3, 0u32..4), 1..10),
            asks in 1u64..2500,
            budget in 1024u64..3000,
        ) {
            let mut ledger = Ledger::new(Budget::of(Bytes::ZERO));
            let mut candidates = Vec::new();
            for (n, (mib, inode, hits)) in (0u64..).zip(&lines) {
                let id = FileId { device: 0, inode: *inode, size: 1, mtime_nanos: 0 };
                let claim = Claim {
                    ram_files: [(id, Bytes::mib(200 * inode))].into(),
                    ..Claim::private(Bytes::mib(*mib))
                };
                let _ = ledger.reserve(Spawn(n), claim);
                candidates.push(idle(n, *hits));
            }
            let ledger = ledger.under(Budget::of(Bytes::mib(budget)));
            let claim = Claim::private(Bytes::mib(asks));
            candidates.sort_by(|a, b| rank(a).cmp(&rank(b)));
            let expected = match brute_force(&ledger, &claim, &candidates) {
                None => Room::Never(ledger.excess_without(&(0..10).map(Spawn).collect::<Vec<_>>(), &claim).expect("over")),
                Some(set) if set.is_empty() => Room::Fits,
                Some(set) => Room::Evict(set),
            };
            prop_assert_eq!(pick_room(&ledger, &asked(&claim), &candidates), expected, "P10");
        }
    }
}
