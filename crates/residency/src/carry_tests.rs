use super::*;
use crate::{
    protection::Role,
    resident::{Phase, Seen, Sizes},
    testing::{ours, protected},
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn holding(models: &[&str]) -> Listing {
    Listing { rows: models.iter().map(|&model| Seen::new(model, Phase::Loaded)).collect() }
}

fn other(why: &str) -> Failure {
    Failure::Other(why.into())
}

fn changes(carry: &mut Carry) -> Vec<(MutationKind, String)> {
    carry.take_mutations().into_iter().map(|one| (one.kind, one.model)).collect()
}

#[test]
fn victims_go_in_order_and_then_the_model_is_loaded() {
    let (mut carry, step) = Carry::load("k", vec![ours("a"), ours("b")], &[]);
    assert_eq!(step, Step::Evict(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Evict(ours("b")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Load);
    assert_eq!(carry.on_happened(Happened::Well(Some(holding(&["k"])))), Step::Done(Ending::Loaded));
    let (evict, load) = (MutationKind::Evict, MutationKind::Load);
    assert_eq!(changes(&mut carry), [(evict, "a".into()), (evict, "b".into()), (load, "k".into())]);
    assert_eq!(carry.take_notices(), []);
}

#[test]
fn a_load_that_fails_restores_in_eviction_order_goes_on_past_failures_and_keeps_its_own_error() {
    let (mut carry, _) = Carry::load("k", vec![ours("a"), ours("b"), ours("c")], &[]);
    for _ in 0..3 {
        let _ = carry.on_happened(Happened::Well(None));
    }
    assert_eq!(carry.on_happened(Happened::Badly(other("corrupt"), None)), Step::Restore(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Restore(ours("b")));
    assert_eq!(carry.on_happened(Happened::Badly(other("gone"), None)), Step::Restore(ours("c")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(other("corrupt"))));
    let notices = carry.take_notices();
    let told: Vec<_> = notices.iter().map(|one| (one.kind, &one.detail.restored, &one.detail.unrestored)).collect();
    let (back, lost, none) = (vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()], vec![]);
    assert_eq!(told, [(NoticeKind::Swap, &back, &none), (NoticeKind::WillNotFit, &none, &lost)]);
}

#[test]
fn an_unload_that_fails_restores_what_had_gone_and_only_that() {
    let (mut carry, _) = Carry::load("k", vec![ours("a"), ours("b")], &[]);
    let _ = carry.on_happened(Happened::Well(None));
    assert_eq!(carry.on_happened(Happened::Badly(other("busy"), None)), Step::Restore(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(other("busy"))));
}

#[test]
fn a_victim_that_is_spared_is_never_restored_and_what_goes_instead_is_the_next_of_the_fallback() {
    let spared = |there: &[&str]| Happened::Spared(Stays::InUse, holding(there));
    let full = || Happened::Badly(Failure::Capacity("full".into()), None);
    let (mut carry, _) = Carry::load("k", vec![ours("a"), ours("b")], &[]);
    assert_eq!(carry.on_happened(spared(&["b"])), Step::Evict(ours("b")), "gone by itself");
    assert_eq!(carry.on_happened(spared(&["b"])), Step::Done(Ending::Failed(Failure::InUse("b".into()))));
    assert_eq!(changes(&mut carry), []);
    let (mut carry, _) = Carry::delegate("k", vec![], vec![ours("a"), ours("b"), ours("c")]);
    assert_eq!(carry.on_happened(full()), Step::Evict(ours("a")));
    assert_eq!(carry.on_happened(spared(&["a", "b", "c"])), Step::Evict(ours("b")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Load);
    assert_eq!(carry.on_happened(full()), Step::Evict(ours("c")));
    assert_eq!(carry.on_happened(spared(&["a", "c"])), Step::Restore(ours("b")));
    let done = Step::Done(Ending::Failed(Failure::Capacity("full".into())));
    assert_eq!(carry.on_happened(Happened::Well(None)), done);
}

#[test]
fn a_spared_victim_is_told_apart_and_what_had_gone_before_it_is_back_first() {
    for (why, failure) in [(Stays::InUse, Failure::InUse("b".into())), (Stays::NotOurs, Failure::Changed("b".into()))] {
        let (mut carry, _) = Carry::load("k", vec![ours("a"), ours("b")], &[]);
        assert_eq!(carry.on_happened(Happened::Well(None)), Step::Evict(ours("b")));
        assert_eq!(carry.on_happened(Happened::Spared(why, holding(&["b"]))), Step::Restore(ours("a")));
        assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(failure)));
    }
}

#[test]
fn one_that_went_although_its_unload_failed_is_told_and_put_back() {
    let (mut carry, _) = Carry::load("k", vec![ours("a"), ours("b")], &[]);
    let gone = Happened::Badly(other("hung up"), Some(holding(&["b"])));
    assert_eq!(carry.on_happened(gone), Step::Restore(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(other("hung up"))));
    let (evict, restore) = (MutationKind::Evict, MutationKind::Restore);
    assert_eq!(changes(&mut carry), [(evict, "a".into()), (restore, "a".into())]);
    let (mut carry, _) = Carry::load("k", vec![ours("a")], &[]);
    let stays = Happened::Badly(other("busy"), Some(holding(&["a"])));
    assert_eq!(carry.on_happened(stays), Step::Done(Ending::Failed(other("busy"))), "it never went");
}

#[test]
fn stragglers_go_as_far_as_they_do_and_those_that_went_for_a_load_that_fails_are_back() {
    let (mut carry, step) = Carry::delegate("k", vec![ours("a"), ours("b"), ours("c")], vec![]);
    assert_eq!(step, Step::Evict(ours("a")));
    assert_eq!(carry.on_happened(Happened::Badly(other("busy"), None)), Step::Evict(ours("b")), "it may stay");
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Evict(ours("c")));
    assert_eq!(carry.on_happened(Happened::Spared(Stays::InUse, holding(&["a", "c"]))), Step::Load);
    assert_eq!(carry.on_happened(Happened::Badly(other("corrupt"), None)), Step::Restore(ours("b")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(other("corrupt"))));
}

#[test]
fn a_load_that_nobody_saw_is_no_change() {
    let (mut carry, _) = Carry::delegate("k", vec![], vec![ours("a")]);
    let full = Happened::Badly(Failure::Capacity("full".into()), None);
    assert_eq!(carry.on_happened(full), Step::Evict(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Load);
    assert_eq!(carry.on_happened(Happened::Unseen(None)), Step::Done(Ending::Loaded));
    assert_eq!(changes(&mut carry), [(MutationKind::Evict, "a".into())]);
}

#[test]
fn every_kind_of_change_is_told_by_something() {
    let (mut carry, _) = Carry::load("k", vec![ours("a")], &[]);
    let _ = carry.on_happened(Happened::Well(None));
    let _ = carry.on_happened(Happened::Badly(other("corrupt"), None));
    let _ = carry.on_happened(Happened::Well(None));
    let (mut other, _) = Carry::load("k", vec![], &[]);
    let _ = other.on_happened(Happened::Well(None));
    let told: BTreeSet<_> = changes(&mut carry).into_iter().chain(changes(&mut other)).map(|(kind, _)| kind).collect();
    assert_eq!(told, BTreeSet::from(MutationKind::ALL));
}

#[test]
fn what_is_done_stays_done() {
    let (mut carry, _) = Carry::load("k", vec![ours("a")], &[]);
    let _ = carry.on_happened(Happened::Well(None));
    assert_eq!(carry.on_happened(Happened::Badly(other("corrupt"), None)), Step::Restore(ours("a")));
    let done = Step::Done(Ending::Failed(other("corrupt")));
    assert_eq!(carry.on_happened(Happened::Well(None)), done);
    assert_eq!(carry.on_happened(Happened::Badly(other("its request went away"), None)), done);
    assert_eq!(carry.on_happened(Happened::Well(None)), done);
}

#[test]
fn a_configured_model_that_went_is_told_loudly_with_its_role_and_bytes() {
    let mut victim = protected("a", Protection::Config(Role::Memory));
    victim.seen.sizes = Some(Sizes { total: Bytes::gib(3), vram: Bytes::gib(2) });
    let (mut carry, _) = Carry::load("k", vec![victim], &[]);
    let _ = carry.on_happened(Happened::Well(None));
    let _ = carry.on_happened(Happened::Well(None));
    let notices = carry.take_notices();
    assert_eq!(notices.len(), 1);
    let detail = &notices[0].detail;
    assert_eq!((notices[0].kind, detail.role), (NoticeKind::Swap, Some(Role::Memory)));
    assert_eq!((detail.swapped_out.clone(), detail.freed_vram), (vec!["a".to_owned()], Some(Bytes::gib(2))));
}

#[test]
fn a_pinned_resident_that_the_server_displaced_is_put_back_once_and_the_model_must_have_survived() {
    for (after, ending) in [
        (Some(holding(&["k", "p"])), Ending::Loaded),
        (
            Some(holding(&["p"])),
            Ending::Failed(other("the server displaced it again for a pinned model that was put back")),
        ),
    ] {
        let pinned = protected("p", Protection::Tag);
        let (mut carry, step) = Carry::load("k", vec![], &[pinned.clone(), ours("a")]);
        assert_eq!(step, Step::Load);
        assert_eq!(
            carry.on_happened(Happened::Well(Some(holding(&["k"])))),
            Step::Restore(pinned),
            "the other is not pinned"
        );
        assert_eq!(carry.on_happened(Happened::Well(None)), Step::Confirm);
        assert_eq!(carry.on_happened(Happened::Well(after)), Step::Done(ending));
    }
}

#[test]
fn a_pinned_resident_that_a_failed_load_displaced_is_put_back() {
    let pinned = protected("p", Protection::Tag);
    let (mut carry, _) = Carry::load("k", vec![], std::slice::from_ref(&pinned));
    assert_eq!(carry.on_happened(Happened::Badly(other("corrupt"), Some(holding(&[])))), Step::Restore(pinned));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Done(Ending::Failed(other("corrupt"))));
}

#[test]
fn each_capacity_rejection_costs_one_more_and_the_first_is_reported_when_none_is_left() {
    let full = |why: &str| Happened::Badly(Failure::Capacity(why.into()), None);
    let (mut carry, step) = Carry::delegate("k", vec![], vec![ours("a"), ours("b")]);
    assert_eq!(step, Step::Load);
    assert_eq!(carry.on_happened(full("first")), Step::Evict(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Load);
    assert_eq!(carry.on_happened(full("second")), Step::Evict(ours("b")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Load);
    assert_eq!(carry.on_happened(full("third")), Step::Restore(ours("a")));
    assert_eq!(carry.on_happened(Happened::Well(None)), Step::Restore(ours("b")));
    let done = Step::Done(Ending::Failed(Failure::Capacity("first".into())));
    assert_eq!(carry.on_happened(Happened::Well(None)), done);
    let kinds: Vec<_> = carry.take_notices().into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [NoticeKind::AboutToEvict, NoticeKind::AboutToEvict, NoticeKind::Swap]);
}

#[test]
fn anything_but_a_capacity_rejection_costs_nobody_their_place() {
    let (mut carry, _) = Carry::delegate("k", vec![], vec![ours("a")]);
    let done = Step::Done(Ending::Failed(other("500")));
    assert_eq!(carry.on_happened(Happened::Badly(other("500"), None)), done);
}

proptest! {
    #[test]
    fn r4_whatever_fails_all_that_went_is_tried_again_in_order(outcomes in proptest::collection::vec(0..3u8, 24)) {
        let names = ["a", "b", "c"];
        let (mut carry, mut step) = Carry::delegate("k", vec![], names.map(ours).to_vec());
        let (mut gone, mut tried, mut first) = (Vec::new(), Vec::new(), None);
        for outcome in outcomes {
            let why = if outcome == 1 { other("no") } else { Failure::Capacity("full".into()) };
            let happened = if outcome == 0 { Happened::Well(None) } else { Happened::Badly(why.clone(), None) };
            match &step {
                Step::Evict(one) if outcome == 0 => gone.push(one.seen.id.clone()),
                Step::Restore(one) => tried.push(one.seen.id.clone()),
                Step::Done(ending) => {
                    match ending {
                        Ending::Loaded => prop_assert!(tried.is_empty()),
                        Ending::Failed(why) => {
                            prop_assert_eq!(Some(why), first.as_ref());
                            prop_assert_eq!(&tried, &gone);
                        }
                    }
                    return Ok(());
                }
                Step::Load | Step::Evict(_) | Step::Confirm => {}
            }
            if outcome != 0 && !matches!(step, Step::Restore(_)) {
                first.get_or_insert(why);
            }
            step = carry.on_happened(happened);
        }
        prop_assert!(false, "it comes to an end");
    }
}
