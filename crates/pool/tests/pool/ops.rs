//! What random traces are drawn from: [`Op`], [`any_trace`].
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Acquire(usize),
    /// On terms of its own: seconds for others to finish, seconds in all.
    Hurry(usize, u64, u64),
    /// The next child to be ready has so many slots.
    Width(u32),
    /// A lease ends and the pool is told later.
    LeaveUntold(usize),
    Load(usize),
    Enter(usize),
    EnterUntold(usize),
    Tell,
    Leave(usize),
    Cancel(usize),
    CheckOk(usize),
    CheckBad,
    Progress(usize),
    Ready(usize),
    Gone(usize),
    OldNews(u64),
    UnloadIdle(usize),
    Evict(usize),
    Force(usize),
    ReleaseIdle,
    Pass(u64),
    Retire,
    Shutdown,
    KillAll,
}

fn any_op() -> impl Strategy<Value = Op> {
    let n = 0usize..12;
    prop_oneof![
        12 => n.clone().prop_map(Op::Acquire),
        3 => (n.clone(), 0u64..70, 0u64..90).prop_map(|(n, drain, queue)| Op::Hurry(n, drain, queue)),
        2 => (1u32..5).prop_map(Op::Width),
        4 => n.clone().prop_map(Op::LeaveUntold),
        3 => n.clone().prop_map(Op::Load),
        4 => n.clone().prop_map(Op::Enter),
        3 => n.clone().prop_map(Op::EnterUntold),
        4 => Just(Op::Tell),
        14 => n.clone().prop_map(Op::Leave),
        3 => n.clone().prop_map(Op::Cancel),
        12 => n.clone().prop_map(Op::CheckOk),
        1 => Just(Op::CheckBad),
        2 => n.clone().prop_map(Op::Progress),
        12 => n.clone().prop_map(Op::Ready),
        10 => n.clone().prop_map(Op::Gone),
        2 => (0u64..40).prop_map(Op::OldNews),
        2 => n.clone().prop_map(Op::UnloadIdle),
        2 => n.clone().prop_map(Op::Evict),
        1 => n.prop_map(Op::Force),
        1 => Just(Op::ReleaseIdle),
        10 => prop_oneof![Just(100), Just(3_000), Just(5_000), Just(12_000), Just(16_000), Just(40_000), Just(700_000)]
            .prop_map(Op::Pass),
    ]
}

/// How children end when the pool closes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obedience {
    Obey,
    /// Nobody is gone before everybody was told.
    Stick,
}

/// A trace, what is asked of a pool that closes already, and how it ends.
pub(crate) fn any_trace() -> impl Strategy<Value = (Vec<Op>, Op, Vec<Op>, Obedience)> {
    let late = prop_oneof![Just(vec![]), prop::collection::vec(any_op(), 1..50)];
    let close = prop_oneof![2 => Just(Op::Retire), 1 => Just(Op::Shutdown), 1 => Just(Op::KillAll)];
    let obedience = prop_oneof![3 => Just(Obedience::Obey), 1 => Just(Obedience::Stick)];
    (prop::collection::vec(any_op(), 1..200), close, late, obedience)
}
