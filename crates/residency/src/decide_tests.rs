use super::*;
use crate::{
    resident::{Phase, Sizes},
    testing::{foreign, in_use, of_kind, ours, protected, router},
};
use motorpool_vocab::Bytes;
use proptest::prelude::*;

const CHAT: Protection = Protection::Config(Role::Chat);

fn kinds(plan: &Plan) -> Vec<NoticeKind> {
    plan.notices.iter().map(|notice| notice.kind).collect()
}

fn evicted(plan: &Plan) -> Vec<&str> {
    match &plan.action {
        Action::Load { evict } | Action::Delegate { release: evict, .. } if !evict.is_empty() => {
            evict.iter().map(|one| one.seen.id.as_str()).collect()
        }
        Action::Delegate { fallback, .. } => fallback.iter().map(|one| one.seen.id.as_str()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_server_that_its_user_manages_is_only_observed_and_stress_is_told_all_the_same() {
    let mut facts = router(Capacity::Of(1), vec![ours("a")]);
    facts.lifecycle = Lifecycle::UserManaged;
    (facts.keep.context, facts.keep.max_context) = (Some(9000), Some(8192));
    let plan = decide(&facts);
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Observe, vec![NoticeKind::Stress]));
}

#[test]
fn stragglers_go_only_for_a_model_that_ollama_has() {
    for (catalogue, action, told) in [
        (Catalogue::Lacks, Action::Decline(Decline::NoSuchModel), vec![NoticeKind::WillNotFit]),
        (Catalogue::Unread("401".into()), Action::Decline(Decline::Unread("401".into())), vec![]),
    ] {
        let mut facts = of_kind(Kind::Ollama, vec![ours("a")]);
        facts.now = Now::ZERO.after(MIN_RESIDENCY * 2);
        facts.catalogue = catalogue.clone();
        let plan = decide(&facts);
        assert_eq!((plan.action.clone(), kinds(&plan)), (action, told));
        facts.residents.clear();
        let nothing = Action::Delegate { release: vec![], fallback: vec![] };
        assert_eq!(decide(&facts).action, nothing, "where nothing goes, its server says it");
    }
}

#[test]
fn each_resident_larger_than_its_part_in_graphics_memory_is_told_first() {
    let mut facts = router(Capacity::Of(3), vec![ours("a"), ours("b"), ours("k")]);
    facts.residents[0].seen.sizes = Some(Sizes { total: Bytes::gib(2), vram: Bytes::gib(1) });
    facts.residents[1].seen.sizes = Some(Sizes { total: Bytes::gib(2), vram: Bytes::gib(2) });
    let plan = decide(&facts);
    assert_eq!(kinds(&plan), [NoticeKind::Stress, NoticeKind::CoResident]);
    assert_eq!(plan.notices[0].model, "a");
}

#[test]
fn a_context_that_the_model_has_is_no_stress() {
    let mut facts = router(Capacity::Of(1), vec![ours("k")]);
    (facts.keep.context, facts.keep.max_context) = (Some(8192), Some(8192));
    assert_eq!(kinds(&decide(&facts)), []);
}

#[test]
fn beside_a_resident_model_nothing_goes_whoever_loaded_the_neighbours() {
    let plan = decide(&router(Capacity::Of(3), vec![ours("a"), foreign("b"), foreign("k")]));
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Resident, vec![NoticeKind::CoResident]));
    let plan = decide(&router(Capacity::Of(2), vec![ours("a"), foreign("b"), foreign("k")]));
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Resident, vec![NoticeKind::Stress]));
    let plan = decide(&router(Capacity::Unknown, vec![foreign("k")]));
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Resident, vec![]));
}

#[test]
fn a_model_is_resident_by_its_alias_and_one_that_sleeps_is_resident_too() {
    let mut aliased = foreign("x");
    aliased.seen.aliases = vec!["k".into()];
    aliased.seen.phase = Phase::Sleeping;
    assert_eq!(decide(&router(Capacity::Of(1), vec![aliased])).action, Action::Resident);
}

#[test]
fn a_model_that_loads_is_waited_for() {
    let mut loading = foreign("k");
    loading.seen.phase = Phase::Loading;
    assert_eq!(decide(&router(Capacity::Of(1), vec![loading])).action, Action::Await);
}

#[test]
fn a_router_that_does_not_tell_its_capacity_gets_nothing_beside_others() {
    let plan = decide(&router(Capacity::Unknown, vec![foreign("a")]));
    assert_eq!(plan.action, Action::Decline(Decline::CapacityUnknown { n_residents: 1 }));
    assert_eq!(kinds(&plan), [NoticeKind::WillNotFit]);
}

#[test]
fn an_empty_router_that_does_not_tell_its_capacity_loads() {
    let plan = decide(&router(Capacity::Unknown, vec![]));
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Load { evict: vec![] }, vec![]));
}

#[test]
fn a_free_slot_is_filled_beside_the_others_and_loading_ones_count() {
    let mut loading = foreign("b");
    loading.seen.phase = Phase::Loading;
    for capacity in [Capacity::Of(3), Capacity::Unlimited] {
        let plan = decide(&router(capacity, vec![ours("a"), loading.clone()]));
        assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Load { evict: vec![] }, vec![NoticeKind::CoResident]));
    }
    let plan = decide(&router(Capacity::Of(2), vec![ours("a"), loading]));
    assert_eq!(evicted(&plan), ["a"]);
}

#[test]
fn a_full_router_gives_up_the_unprotected_before_the_configured_in_listing_order_and_exactly_what_is_needed() {
    let residents = vec![protected("c", CHAT), ours("a"), ours("b")];
    let plan = decide(&router(Capacity::Of(3), residents.clone()));
    assert_eq!((evicted(&plan), kinds(&plan)), (vec!["a"], vec![NoticeKind::AboutToEvict]));
    assert_eq!(evicted(&decide(&router(Capacity::Of(2), residents.clone()))), ["a", "b"]);
    assert_eq!(evicted(&decide(&router(Capacity::Of(1), residents))), ["a", "b", "c"]);
}

#[test]
fn too_few_candidates_are_a_decline_and_nothing_goes() {
    let residents = vec![ours("a"), foreign("b"), protected("c", Protection::Tag), protected("d", Protection::Worker)];
    let plan = decide(&router(Capacity::Of(3), residents));
    let why = Decline::Full { needed: 2, may_go: 1, n_residents: 4, stranded: vec![] };
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Decline(why), vec![NoticeKind::WillNotFit]));
}

#[test]
fn too_few_only_because_they_are_in_use_is_a_wait_for_them() {
    let plan = decide(&router(Capacity::Of(2), vec![in_use(ours("a")), foreign("b")]));
    assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Wait { busy: vec!["a".into()] }, vec![]));
    let plan = decide(&router(Capacity::Of(1), vec![in_use(ours("a")), foreign("b")]));
    assert!(matches!(plan.action, Action::Decline(_)), "one that is free would not be enough");
}

#[test]
fn a_pinned_model_displaces_only_what_is_unprotected_and_the_decline_names_whom_it_would_have_stranded() {
    let mut facts = router(Capacity::Of(2), vec![protected("c", CHAT), ours("a")]);
    facts.keep.protection = Protection::Tag;
    assert_eq!(evicted(&decide(&facts)), ["a"]);
    facts.residents[1] = foreign("a");
    let plan = decide(&facts);
    let Action::Decline(why) = &plan.action else { panic!("{:?}", plan.action) };
    assert!(why.to_string().ends_with("a pinned model does not displace c (chat)"), "{why}");
    assert_eq!(plan.notices[0].detail.role, Some(Role::Chat));
    facts.residents[0] = in_use(protected("c", CHAT));
    assert!(matches!(decide(&facts).action, Action::Decline(_)), "a pinned one does not wait for a configured one");
}

#[test]
fn nothing_goes_for_a_model_that_the_server_does_not_have_or_may_not_have() {
    for (catalogue, why, told) in [
        (Catalogue::Lacks, Decline::NoSuchModel, vec![NoticeKind::WillNotFit]),
        (Catalogue::Unread("401".into()), Decline::Unread("401".into()), vec![]),
    ] {
        let mut facts = router(Capacity::Of(1), vec![ours("a")]);
        facts.catalogue = catalogue;
        let plan = decide(&facts);
        assert_eq!((plan.action.clone(), kinds(&plan)), (Action::Decline(why), told));
    }
}

#[test]
fn lm_studio_gives_up_nothing_before_it_says_that_it_is_full() {
    let residents = vec![protected("c", CHAT), foreign("f"), ours("a"), in_use(ours("u"))];
    let Action::Delegate { release, fallback } = decide(&of_kind(Kind::LmStudio, residents)).action else {
        panic!("the server loads")
    };
    assert_eq!(release, []);
    assert_eq!(fallback.iter().map(|one| one.seen.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn ollama_gives_up_only_stragglers() {
    let mut facts = of_kind(
        Kind::Ollama,
        vec![ours("old"), protected("c", CHAT), foreign("f"), in_use(ours("u")), ours("young"), ours("edge")],
    );
    facts.now = Now::ZERO.after(Duration::from_secs(20));
    facts.residents[4].used = Used::Idle(Some(Now::ZERO.after(Duration::from_secs(15))));
    facts.residents[5].used = Used::Idle(Some(Now::ZERO.after(Duration::from_secs(10))));
    assert_eq!(evicted(&decide(&facts)), ["old"]);
}

fn some_resident() -> impl Strategy<Value = Resident> {
    let protection = prop_oneof![
        3 => Just(Protection::None),
        1 => Just(CHAT),
        1 => Just(Protection::Tag),
        1 => Just(Protection::Worker)
    ];
    let used = prop_oneof![3 => Just(Used::Idle(Some(Now::ZERO))), 1 => Just(Used::InUse)];
    let phase = prop_oneof![3 => Just(Phase::Loaded), 1 => Just(Phase::Loading), 1 => Just(Phase::Sleeping)];
    (0..12u8, any::<bool>(), protection, used, phase).prop_map(|(name, is_ours, protection, used, phase)| {
        // One in twelve is the wanted model itself.
        let name = if name == 0 { "k".to_owned() } else { format!("m{name}") };
        let owner = if is_ours { Owner::Ours(crate::By::Us) } else { Owner::Foreign };
        let mut resident = Resident { owner, protection, used, ..ours(&name) };
        resident.seen.phase = phase;
        resident
    })
}

fn some_facts() -> impl Strategy<Value = Facts> {
    let capacity = prop_oneof![
        1 => Just(Capacity::Unknown),
        1 => Just(Capacity::Unlimited),
        6 => (1..6u32).prop_map(Capacity::Of)
    ];
    let kind = prop_oneof![4 => Just(Kind::Router), 1 => Just(Kind::LmStudio), 1 => Just(Kind::Ollama)];
    let catalogue =
        prop_oneof![4 => Just(Catalogue::Has), 1 => Just(Catalogue::Lacks), 1 => Just(Catalogue::Unread("x".into()))];
    let keep = prop_oneof![2 => Just(Protection::None), 1 => Just(Protection::Tag), 1 => Just(CHAT)];
    (capacity, kind, catalogue, keep, proptest::collection::vec(some_resident(), 0..7), 0..30u64).prop_map(
        |(capacity, kind, catalogue, keep, residents, seconds)| {
            let mut facts = Facts { kind, catalogue, ..router(capacity, residents) };
            facts.keep.protection = keep;
            facts.now = Now::ZERO.after(Duration::from_secs(seconds));
            facts
        },
    )
}

fn victims(action: &Action) -> Vec<Resident> {
    match action {
        Action::Load { evict } => evict.clone(),
        Action::Delegate { release, fallback } => [release.clone(), fallback.clone()].concat(),
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn r1_nothing_foreign_tagged_loaded_by_a_helper_or_in_use_is_ever_evicted(facts in some_facts()) {
        for victim in victims(&decide(&facts).action) {
            prop_assert!(victim.is_ours());
            prop_assert!(!matches!(victim.protection, Protection::Tag | Protection::Worker));
            prop_assert_ne!(victim.used, Used::InUse);
            let is_configured = matches!(victim.protection, Protection::Config(_));
            prop_assert!(!(is_configured && facts.keep.protection == Protection::Tag));
        }
    }

    #[test]
    fn r2_a_router_loses_exactly_what_is_needed_and_nothing_when_the_model_is_there(facts in some_facts()) {
        let plan = decide(&facts);
        let is_there = facts.residents.iter().any(|one| one.seen.id == "k");
        prop_assert!(!is_there || victims(&plan.action).is_empty());
        if let (Action::Load { evict }, Kind::Router) = (&plan.action, facts.kind) {
            let left = facts.residents.len() - evict.len();
            if let Capacity::Of(limit) = facts.capacity {
                prop_assert!(left < limit as usize);
                prop_assert!(evict.is_empty() || left + 1 == limit as usize);
            } else {
                prop_assert!(evict.is_empty());
            }
        }
    }

    #[test]
    fn r3_nothing_goes_and_nobody_is_told_that_it_will_for_a_load_that_cannot_succeed(facts in some_facts()) {
        let plan = decide(&facts);
        if facts.kind == Kind::Router && facts.catalogue != Catalogue::Has {
            prop_assert!(victims(&plan.action).is_empty());
            prop_assert!(plan.notices.iter().all(|notice| notice.kind != NoticeKind::AboutToEvict));
        }
    }

    #[test]
    fn no_configured_model_goes_while_an_unprotected_one_could(facts in some_facts()) {
        if let Action::Load { evict } = decide(&facts).action
            && evict.iter().any(|one| one.protection == CHAT)
        {
            let could = |one: &&Resident| one.rank() == Some(0) && one.is_idle();
            let n_unprotected = facts.residents.iter().filter(could).count();
            let n_gone = evict.iter().filter(|one| one.protection == Protection::None).count();
            prop_assert_eq!(n_unprotected, n_gone);
        }
    }

    #[test]
    fn every_refusal_is_told_but_one_whose_reason_is_an_error(facts in some_facts()) {
        let plan = decide(&facts);
        let is_told = plan.notices.iter().any(|notice| notice.kind == NoticeKind::WillNotFit);
        let is_refused = matches!(&plan.action, Action::Decline(why) if !matches!(why, Decline::Unread(_)));
        prop_assert_eq!(is_told, is_refused);
    }
}
