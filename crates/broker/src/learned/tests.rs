use super::*;
use crate::{Company, KvType};
use proptest::prelude::*;

const PLAN: LaunchPlan = LaunchPlan { context_per_slot: 8192, slots: 2, kv: KvType::Q8 };

fn card() -> DeviceId {
    DeviceId("GPU-0".into())
}

/// MiB of system memory and of the one card.
fn marks(private: u64, device: u64) -> Marks {
    Marks { private: Some(Bytes::mib(private)), device: [(card(), Bytes::mib(device))].into() }
}

fn on_card() -> Split {
    Split { devices: vec![(card(), 33)], gpu_layers: 33, cpu_moe: 0 }
}

fn key() -> LaunchKey {
    LaunchKey { plan: PLAN, split: on_card() }
}

/// 200 MiB beside 1,000 MiB on the card.
fn estimate() -> Marks {
    marks(200, 1000)
}

fn experience(spawn: u64, news: News) -> Experience {
    Experience { key: key(), spawn: Spawn(spawn), estimate: estimate(), news }
}

fn lesson(all: &[(u64, News)]) -> Lesson {
    let mut lesson = Lesson::new(key());
    for (spawn, news) in all {
        lesson.take(&experience(*spawn, news.clone()));
    }
    lesson
}

fn saw(private: u64, device: u64) -> News {
    News::Saw(marks(private, device))
}

/// It needed more than so many MiB of the card.
fn died(device: u64) -> News {
    News::Died(Marks { private: None, device: [(card(), Bytes::mib(device))].into() })
}

fn placement(estimate: &Marks, split: Split) -> Placement {
    let claim = Claim {
        device: estimate.device.clone(),
        ram_private: estimate.private.expect("estimated"),
        accelerated: Bytes::mib(1000),
        ..Claim::default()
    };
    Placement { claim, split, company: Company::Any, estimate: None }
}

/// What a placement of `estimate` with `plan` claims after `lessons`.
fn claimed(lessons: Vec<Lesson>, (plan, source): (LaunchPlan, Source), estimate: &Marks) -> Option<Marks> {
    let mut placed = placement(estimate, on_card());
    Learned::of(&lessons.into(), plan, source).correct(&mut placed);
    placed.estimate.is_some().then(|| Marks::of(&placed.claim))
}

fn next(lesson: Lesson) -> Option<Marks> {
    claimed(vec![lesson], (PLAN, Source::Estimated), &estimate())
}

#[test]
fn what_was_seen_is_the_next_estimate_whether_it_is_more_or_less() {
    assert_eq!(next(lesson(&[(1, saw(300, 1500))])), Some(marks(300, 1500)));
    assert_eq!(next(lesson(&[(1, saw(100, 800))])), Some(marks(100, 800)));
    assert_eq!(next(lesson(&[(1, saw(100, 1500)), (2, saw(150, 800))])), Some(marks(150, 1500)), "of each the most");
    assert_eq!(next(lesson(&[])), None);
}

#[test]
fn a_part_of_which_nothing_was_seen_stays_estimated() {
    let of_card = Marks { private: None, ..marks(0, 700) };
    assert_eq!(next(lesson(&[(1, News::Saw(of_card))])), Some(marks(200, 700)));
    let of_memory = Marks { device: BTreeMap::new(), ..marks(150, 0) };
    assert_eq!(next(lesson(&[(1, News::Saw(of_memory))])), Some(marks(150, 1000)));
}

#[test]
fn other_settings_are_not_believed() {
    let known = lesson(&[(1, saw(300, 1500))]);
    for plan in [
        LaunchPlan { context_per_slot: 8193, ..PLAN },
        LaunchPlan { slots: 1, ..PLAN },
        LaunchPlan { kv: KvType::F16, ..PLAN },
    ] {
        assert_eq!(claimed(vec![known.clone()], (plan, Source::Estimated), &estimate()), None, "{plan:?}");
    }
    for split in [
        Split { gpu_layers: 32, ..on_card() },
        Split { cpu_moe: 1, ..on_card() },
        Split { devices: vec![(card(), 32)], ..on_card() },
        Split { devices: vec![(DeviceId("GPU-1".into()), 33)], ..on_card() },
    ] {
        let elsewhere = Lesson { key: LaunchKey { split, ..key() }, ..known.clone() };
        assert_eq!(next(elsewhere.clone()), None, "{elsewhere:?}");
    }
}

#[test]
fn what_is_far_from_the_estimate_counts_when_two_children_saw_it() {
    for (far, further) in [(saw(601, 1000), saw(700, 900)), (saw(200, 333), saw(190, 300))] {
        let once = lesson(&[(1, far.clone())]);
        assert_eq!(next(once.clone()), None, "{far:?}");
        assert_eq!(next(lesson(&[(1, far.clone()), (1, further.clone())])), None, "the same child");
        let (News::Saw(a), News::Saw(b)) = (far.clone(), further.clone()) else { panic!("seen") };
        let mut most = a;
        most.raise(&b);
        assert_eq!(next(lesson(&[(1, far), (2, further)])), Some(most));
    }
    assert_eq!(next(lesson(&[(1, saw(600, 3000))])), Some(marks(600, 3000)), "three times is not more than that");
    assert_eq!(next(lesson(&[(1, saw(67, 334))])), Some(marks(67, 334)), "a third is not less than that");
}

#[test]
fn one_far_above_and_one_far_below_are_not_the_same_seen_twice() {
    let both = lesson(&[(1, saw(200, 4000)), (2, saw(200, 100))]);
    assert_eq!(next(both), None);
}

#[test]
fn what_is_near_in_between_neither_confirms_nor_forgets_a_doubt() {
    let near = lesson(&[(1, saw(200, 4000)), (2, saw(210, 1100))]);
    assert_eq!(next(near.clone()), Some(marks(210, 1100)));
    let mut again = near;
    again.take(&experience(3, saw(200, 5000)));
    assert_eq!(next(again), Some(marks(210, 5000)));
}

#[test]
fn a_child_that_grows_to_what_was_estimated_takes_back_its_own_doubt() {
    let grew = lesson(&[(1, saw(200, 300)), (1, saw(200, 900)), (2, saw(200, 290))]);
    assert_eq!(next(grew), Some(marks(200, 900)));
}

#[test]
fn of_what_an_operator_declared_more_is_learned_and_never_less() {
    let more = claimed(vec![lesson(&[(1, saw(300, 1500))])], (PLAN, Source::Declared), &estimate());
    assert_eq!(more, Some(marks(300, 1500)));
    let less = claimed(vec![lesson(&[(1, saw(100, 800))])], (PLAN, Source::Declared), &estimate());
    assert_eq!(less, Some(estimate()));
    let by_size = claimed(vec![lesson(&[(1, saw(100, 800))])], (PLAN, Source::FileSize), &estimate());
    assert_eq!(by_size, Some(marks(200, 800)), "its driver showed the card's part");
}

#[test]
fn a_death_by_memory_raises_what_is_planned_to_what_was_needed_at_least() {
    assert_eq!(next(lesson(&[(1, died(1400))])), Some(marks(200, 1400)));
    let known = lesson(&[(1, saw(200, 1100)), (2, died(1400))]);
    assert_eq!(next(known), Some(marks(200, 1400)), "more than what another one held");
    let served = lesson(&[(1, died(1400)), (2, saw(200, 1100))]);
    assert_eq!(next(served), Some(marks(200, 1100)), "there was enough after all");
}

#[test]
fn a_death_far_above_the_estimate_counts_from_the_second_on() {
    assert_eq!(next(lesson(&[(1, died(3001))])), None);
    assert_eq!(next(lesson(&[(1, died(3001)), (1, died(3001))])), None, "the same child");
    assert_eq!(next(lesson(&[(1, died(3001)), (2, died(3002))])), Some(marks(200, 3002)));
    assert_eq!(next(lesson(&[(1, died(3000))])), Some(marks(200, 3000)));
}

#[test]
fn a_smaller_plan_lacks_as_much_as_the_one_that_died_in_the_same_place() {
    let dead = || vec![lesson(&[(1, died(1400))])];
    let smaller = (LaunchPlan { context_per_slot: 4096, ..PLAN }, Source::Estimated);
    assert_eq!(claimed(dead(), smaller, &marks(150, 700)), Some(marks(150, 1100)));
    let seen = Lesson { key: LaunchKey { plan: smaller.0, ..key() }, ..lesson(&[(2, saw(150, 720))]) };
    let both = [dead(), vec![seen]].concat();
    assert_eq!(claimed(both, smaller, &marks(150, 700)), Some(marks(150, 720)), "of it something is known");
    let other_type = (LaunchPlan { kv: KvType::F16, ..PLAN }, Source::Estimated);
    assert_eq!(claimed(dead(), other_type, &estimate()), None);
    let elsewhere = Split { devices: vec![(DeviceId("GPU-1".into()), 33)], ..on_card() };
    let elsewhere = Lesson { key: LaunchKey { split: elsewhere, ..key() }, ..lesson(&[(1, died(1400))]) };
    assert_eq!(next(elsewhere), None);
}

#[test]
fn where_devices_share_system_memory_all_of_it_counts_as_theirs() {
    let split = Split { devices: vec![], gpu_layers: 33, cpu_moe: 0 };
    let private = |mib| Marks { private: Some(Bytes::mib(mib)), device: BTreeMap::new() };
    let mut lesson = Lesson::new(LaunchKey { split: split.clone(), ..key() });
    lesson.believed = Some(private(300));
    let mut placed = placement(&private(200), split);
    Learned::of(&vec![lesson].into(), PLAN, Source::Estimated).correct(&mut placed);
    assert_eq!((placed.claim.total(), placed.claim.accelerated), (Bytes::mib(300), Bytes::mib(300)));
}

fn some_marks() -> impl Strategy<Value = Marks> {
    let part = || prop_oneof![Just(None), (0u64..4000).prop_map(Some)];
    (part(), part()).prop_map(|(private, device)| Marks {
        private: private.map(Bytes::mib),
        device: device.into_iter().map(|mib| (card(), Bytes::mib(mib))).collect(),
    })
}

proptest! {
    #[test]
    fn what_is_believed_was_seen_and_one_alone_far_away_changes_nothing(
        seen in prop::collection::vec((1u64..5, some_marks()), 1..12),
    ) {
        let lesson = lesson(&seen.iter().map(|(spawn, marks)| (*spawn, News::Saw(marks.clone()))).collect::<Vec<_>>());
        let believed = lesson.believed.clone().unwrap_or_default();
        let near = |marks: &Marks| far_from(&estimate(), marks).is_none();
        for (place, bytes) in believed.parts() {
            let same = |(_, marks): &&(u64, Marks)| marks.parts().any(|part| part == (place, bytes));
            prop_assert!(seen.iter().any(|one| same(&one)), "L2: {believed:?}");
        }
        for (_, marks) in seen.iter().filter(|(_, marks)| near(marks)) {
            for (place, bytes) in marks.parts() {
                prop_assert!(believed.at(place) >= bytes, "L2: {believed:?}");
            }
        }
        let far_by: std::collections::BTreeSet<u64> =
            seen.iter().filter(|(_, marks)| !near(marks)).map(|(spawn, _)| *spawn).collect();
        if far_by.len() < 2 {
            let most = seen.iter().filter(|(_, marks)| near(marks)).fold(None, |most: Option<Marks>, (_, marks)| {
                let mut most = most.unwrap_or_default();
                most.raise(marks);
                Some(most)
            });
            prop_assert_eq!(lesson.believed, most, "L1");
        }
    }
}
