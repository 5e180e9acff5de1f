use super::*;
use crate::{
    Action, Capacity, Carry, Happened,
    carry::Failure,
    decide,
    testing::{foreign, ours, router},
};
use std::collections::BTreeSet;

fn told(kind: NoticeKind, model: &str) -> Notice {
    Notice { kind, model: model.into(), message: String::new(), detail: Detail::default() }
}

#[test]
fn every_kind_is_told_by_something() {
    let mut all = Vec::new();
    for residents in [vec![ours("a")], vec![foreign("a")], vec![ours("a"), ours("k")]] {
        for capacity in [Capacity::Of(1), Capacity::Of(2)] {
            let plan = decide(&router(capacity, residents.clone()));
            all.extend(plan.notices);
            let Action::Load { evict } = plan.action else { continue };
            let (mut carry, _) = Carry::load("k", evict, &residents);
            let _ = carry.on_happened(Happened::Well(None));
            let _ = carry.on_happened(Happened::Badly(Failure::Other("no".into()), None));
            let _ = carry.on_happened(Happened::Well(None));
            all.extend(carry.take_notices());
        }
    }
    all.extend(Pace::Watched { since: Now::ZERO }.observe(Now::ZERO.after(SETTLED), 1, "k"));
    let kinds: BTreeSet<NoticeKind> = all.iter().map(|notice| notice.kind).collect();
    assert_eq!(kinds, BTreeSet::from(NoticeKind::ALL));
}

#[test]
fn the_same_about_the_same_model_is_told_once_in_a_minute() {
    let (mut repeats, start) = (Repeats::default(), Now::ZERO);
    assert!(repeats.is_news(start, "t", &told(NoticeKind::Swap, "a")));
    assert!(!repeats.is_news(
        start.after(REPEAT.saturating_sub(Duration::from_nanos(1))),
        "t",
        &told(NoticeKind::Swap, "a")
    ));
    assert!(repeats.is_news(start, "t", &told(NoticeKind::Stress, "a")));
    assert!(repeats.is_news(start, "t", &told(NoticeKind::Swap, "b")));
    assert!(repeats.is_news(start, "u", &told(NoticeKind::Swap, "a")));
    assert!(repeats.is_news(start.after(REPEAT), "t", &told(NoticeKind::Swap, "a")));
}

#[test]
fn a_slow_request_is_told_once_and_not_before_half_a_minute() {
    let mut pace = Pace::Watched { since: Now::ZERO };
    let at = |seconds| Now::ZERO.after(Duration::from_secs(seconds));
    assert_eq!(pace.observe(at(29), 0, "k"), None);
    assert_eq!(pace.observe(at(30), 60, "k"), None, "two a second are enough");
    assert!(pace.observe(at(30), 59, "k").is_some());
    assert_eq!(pace.observe(at(99), 59, "k"), None);
}

#[test]
fn programs_read_what_applies_and_nothing_else() {
    assert_eq!(Detail::default().fields(), []);
    let detail = Detail {
        resident_count: Some(2),
        swapped_out: vec!["a".into()],
        role: Some(Role::Chat),
        freed_vram: Some(Bytes::new(7)),
        ..Detail::default()
    };
    let wanted = [
        ("residentCount", Field::Number(2)),
        ("role", Field::Text("chat".into())),
        ("swappedOut", Field::List(vec!["a".into()])),
        ("freedVramBytes", Field::Number(7)),
    ];
    assert_eq!(detail.fields(), wanted);
}
