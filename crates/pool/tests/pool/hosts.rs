//! Builds on hosts with several pools of memory, and a host that changes.
use crate::world::{Child, Outcome, World, catalog, facts, host, key};
use motorpool_gguf::{read_header, write};
use motorpool_pool::{
    Becomes, BudgetSetting, Card, Facts, Host, HostShape, Input, ModelShape, Prospect, Refusal, RefusedContext,
    RequestId, Which, copies,
};
use motorpool_vocab::{Bytes, DeviceId, EventKind, PhaseView, Spawn};
use std::{io::Cursor, sync::Arc, time::Duration};

fn cards(gib: &[u64]) -> Host {
    let cards = gib.iter().enumerate().map(|(n, gib)| Card::new(&format!("GPU-{n}"), Bytes::gib(*gib))).collect();
    Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() }
}

/// Models of 7 GiB, one of 4 GiB for the processor, and one pinned.
fn world(host: Host) -> World {
    let models = [
        ("a", 7168, ""),
        ("b", 7168, ""),
        ("c", 7168, ""),
        ("cpu", 4096, "gpu_layers = 0"),
        ("huge", 12_288, ""),
        ("pin", 5120, "pinned = true"),
        ("whale", 90_000, ""),
    ];
    World::on(host, catalog(&models))
}

fn refusal(w: &World, n: usize) -> String {
    w.denials.get(n).map(ToString::to_string).expect("a denial")
}

/// What is reserved on each card, in GiB, and in system memory.
fn committed(w: &World) -> Vec<u64> {
    w.pool.snapshot(w.now).pool.memory.iter().map(|pool| pool.committed.get() >> 30).collect()
}

#[test]
fn each_card_gets_one_and_the_third_takes_the_place_of_the_less_wanted() {
    let mut w = world(cards(&[8, 8]));
    for model in ["a", "b"] {
        let id = w.resident(model);
        w.leave(id);
    }
    assert_eq!(committed(&w), [7, 7, 0]);
    let again = w.enter("a").expect("warm");
    w.leave(again);
    let c = w.resident("c");
    w.ended("b", Child::Asked);
    w.ready("c");
    assert!(w.is_granted(c));
    assert_eq!((w.phase("a"), w.phase("b")), (Some(PhaseView::Ready), Some(PhaseView::Idle)));
    assert_eq!(committed(&w), [7, 7, 0]);
}

#[test]
fn a_model_on_the_processor_is_loaded_beside_full_cards_and_never_goes_for_one() {
    let mut w = world(cards(&[8]));
    let a = w.resident("a");
    w.leave(a);
    let cpu = w.resident("cpu");
    assert!(w.is_granted(cpu));
    w.leave(cpu);
    assert_eq!(committed(&w), [7, 4]);
    w.resident("b");
    w.ended("a", Child::Asked);
    w.ready("b");
    assert_eq!(w.phase("cpu"), Some(PhaseView::Ready));
    assert_eq!(committed(&w), [7, 4]);
}

#[test]
fn an_elder_keeps_the_card_where_it_was_judged_to_go() {
    let mut w = world(cards(&[8, 8]));
    let a = w.resident("a");
    let b = w.resident("b");
    w.pass(Duration::from_secs(11));
    w.acquire("c");
    w.check_all();
    let waiter = &w.pool.snapshot(w.now).waiters[0];
    assert_eq!((waiter.needs, waiter.waits_for.len()), (Bytes::gib(7), 1));
    w.acquire("huge");
    w.check_all();
    w.leave(b);
    w.leave(a);
    w.obey();
    assert_eq!(w.phase("c"), Some(PhaseView::Ready), "who came first");
}

#[test]
fn a_denial_names_the_bound_and_who_holds_it() {
    let mut w = world(cards(&[8]));
    let pin = w.resident("pin");
    w.leave(pin);
    let a = w.acquire("a");
    w.check_all();
    let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(a) else { panic!("denied") };
    let (five, seven) = (Bytes::gib(5), Bytes::gib(7));
    assert_eq!((denial.requested.total(), &denial.holders), (seven, &vec![(key("pin"), five)]));
    let line = format!(
        "budget exhausted: would commit {} against {} (co-residency ceiling — RAM spillover off)",
        Bytes::gib(12).get(),
        Bytes::gib(8).per_mille(950).get()
    );
    assert_eq!(refusal(&w, 0), line);
    let whale = w.acquire("whale");
    w.check_all();
    assert!(matches!(w.outcome(whale), Some(Outcome::Refused(Refusal::CapacityDenied(d))) if d.which() == "budget"));
    assert_eq!(w.denials.len(), 2);
    assert_eq!(w.n_events(|e| matches!(e, EventKind::CapacityDenied { .. })), 2);
}

#[test]
fn a_lump_larger_than_a_card_goes_to_memory_when_it_is_alone() {
    let mut w = world(cards(&[8]));
    let a = w.resident("a");
    w.leave(a);
    w.resident("huge");
    w.ended("a", Child::Asked);
    w.ready("huge");
    assert_eq!(committed(&w), [0, 12]);
}

#[test]
fn a_budget_shrunk_under_what_is_there_evicts_nobody_and_a_larger_one_lets_builds_in() {
    let mut w = World::new(2000);
    let a = w.resident("a");
    let b = w.resident("b");
    w.feed(Input::Host(host(1100)));
    assert_eq!(w.committed(), Bytes::mib(1200));
    assert!(w.pool.snapshot(w.now).entries.iter().all(|e| e.phase == PhaseView::Ready), "nobody goes by itself");
    let c = w.acquire("c");
    w.check_all();
    assert_eq!(w.phase("c"), Some(PhaseView::WaitsForRoom));
    w.feed(Input::Host(host(1800)));
    w.ready("c");
    assert!(w.is_granted(c));
    for id in [a, b, c] {
        w.leave(id);
    }
    w.feed(Input::Host(host(0)));
    assert_eq!(w.pool.snapshot(w.now).pool.budget, None);
}

#[test]
fn a_lost_card_is_no_place_for_a_build_that_waits() {
    let mut w = world(cards(&[8]));
    let a = w.resident("a");
    w.acquire("b");
    w.check_all();
    assert_eq!(w.phase("b"), Some(PhaseView::WaitsForRoom));
    w.feed(Input::Host(Host { cards: vec![], ..cards(&[]) }));
    assert_eq!(w.phase("b"), Some(PhaseView::Starting { progress: None }), "in memory, which is all there is now");
    assert_eq!(w.child("a", Child::Serving), Spawn(1), "who is there stays");
    w.leave(a);
}

#[test]
fn a_launch_says_which_device_it_is_for() {
    let mut w = world(cards(&[8, 16]));
    w.resident("huge");
    let memory = w.pool.snapshot(w.now).pool.memory;
    let on: Vec<_> = memory.iter().filter(|pool| !pool.committed.is_zero()).map(|pool| pool.device.clone()).collect();
    assert_eq!(on, [Some(DeviceId("GPU-1".into()))]);
    assert_eq!(Which::Device(DeviceId("GPU-1".into())).to_string(), " (device GPU-1)");
}

/// A header whose context could be a million tokens.
pub(crate) fn with_header() -> Facts {
    let bytes = write::Smoke { context: 1 << 20, ..write::Smoke::default() }.writer().finish();
    let length = u64::try_from(bytes.len()).expect("small");
    let header = read_header(Cursor::new(bytes), length).expect("whole");
    Facts { context_length: Some(1 << 20), shape: ModelShape::of(&[header]).ok().map(Arc::new), ..facts() }
}

#[test]
fn what_no_longer_fits_as_it_was_planned_is_planned_anew_before_it_is_denied() {
    let models: [(&str, u64, &str); 2] = [("roomy", 0, "prompt_cache = \"1GiB\""), ("busy", 1200, "")];
    let mut w = World::on(host(2048), catalog(&models));
    let busy = w.resident("busy");
    w.pass(Duration::from_secs(11));
    let roomy = w.acquire("roomy");
    let (build, _) = w.checks.remove(0);
    w.feed(Input::Checked { build, result: Ok(with_header()) });
    let needs = w.pool.snapshot(w.now).waiters[0].needs;
    let less = needs.saturating_sub(Bytes::new(1));
    w.feed(Input::Host(Host { budget: BudgetSetting::explicit(less), ..host(0) }));
    assert!(w.denials.is_empty() && w.pool.snapshot(w.now).waiters[0].needs <= less, "{:?}", w.denials);
    w.leave(busy);
    w.ended("busy", Child::Asked);
    w.ready("roomy");
    assert!(w.is_granted(roomy));
}

#[test]
fn a_question_about_launches_sees_each_beside_those_before_it_and_changes_nothing() {
    let mut w = world(cards(&[8, 8]));
    let a = w.resident("a");
    w.leave(a);
    let before = w.pool.snapshot(w.now);
    let outlook = |names: &[&str], replicas| {
        let models: Vec<_> = names.iter().map(|name| w.model(name)).collect();
        let prospect = |(key, model)| Prospect { key, model, facts: Ok(facts()) };
        w.pool.outlook(w.now, copies(&models, replicas).into_iter().map(prospect).collect())
    };
    let becomes: Vec<_> = outlook(&["a", "b", "c"], 1).into_iter().map(|outlook| outlook.becomes).collect();
    assert!(matches!(&becomes[0], Becomes::Resident(claim) if claim.total() == Bytes::gib(7)), "{becomes:?}");
    assert!(matches!(&becomes[1], Becomes::Fits(_)), "{becomes:?}");
    assert!(matches!(&becomes[2], Becomes::Evicts(keys, _) if *keys == [key("a")]), "{becomes:?}");
    let three = outlook(&["b"], 3);
    assert_eq!(three.iter().map(|outlook| outlook.key.replica()).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(matches!(&three[1].becomes, Becomes::Evicts(keys, _) if *keys == [key("a")]), "{three:?}");
    assert!(matches!(&three[2].becomes, Becomes::Denied(_)), "no waiting brings a third card: {three:?}");
    let twice = outlook(&["b", "b"], 1);
    assert_eq!(twice[1].key.replica(), 1, "named again, it is another copy");
    assert_eq!(w.pool.snapshot(w.now), before);
}

#[test]
fn a_question_about_launches_stands_behind_the_builds_that_wait() {
    let mut w = world(cards(&[8]));
    w.resident("a");
    w.pass(Duration::from_secs(11));
    w.acquire("b");
    w.check_all();
    assert_eq!(w.pool.snapshot(w.now).waiters.len(), 1, "it waits for a drain");
    let c = Prospect { key: key("c"), model: w.model("c"), facts: Ok(facts()) };
    let outlook = w.pool.outlook(w.now, vec![c]);
    assert!(matches!(&outlook[0].becomes, Becomes::Denied(_)), "the card is promised to b: {outlook:?}");
}

/// A build of "roomy", looked at, on a host with 2 GiB; it would grow from 65,536 tokens to four times as many.
fn roomy(w: &mut World) -> RequestId {
    let id = w.acquire("roomy");
    let (build, _) = w.checks.pop().expect("a look");
    w.feed(Input::Checked { build, result: Ok(with_header()) });
    id
}

fn growing() -> World {
    let models: [(&str, u64, &str); 3] = [
        ("roomy", 0, "prompt_cache = \"64MiB\"\nslots = 2\ncontext_target = 262144"),
        ("busy", 1200, ""),
        ("elder", 1700, ""),
    ];
    World::on(host(2048), catalog(&models))
}

fn grown_to(w: &World) -> Vec<u32> {
    let grown = |event: &motorpool_vocab::Event| match event.kind {
        EventKind::ContextGrown { from: 65_536, context_per_slot, slots: 2, .. } => Some(context_per_slot),
        _ => None,
    };
    w.events.iter().filter_map(grown).collect()
}

#[test]
fn a_launch_takes_more_context_where_there_is_room_and_says_so() {
    let mut w = growing();
    w.resident("busy");
    roomy(&mut w);
    assert_eq!(w.phase("roomy"), Some(PhaseView::Starting { progress: None }));
    assert_eq!(grown_to(&w), [262_144]);
}

/// `roomy` on one card, beside an idle engine, with so much of others there when it is looked at right before the start.
fn roomy_on(card: Bytes, more: &str, foreign: Bytes) -> World {
    let says = format!("prompt_cache = \"64MiB\"\nslots = 2\n{more}");
    let cards = vec![Card::new("GPU-0", card)];
    let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() };
    let mut w = World::on(host, catalog(&[("roomy", 0, &says), ("idle", 300, "")]));
    let id = w.resident("idle");
    w.leave(id);
    w.machine.foreign.insert(DeviceId("GPU-0".into()), foreign);
    roomy(&mut w);
    assert_eq!(w.phase("roomy"), Some(PhaseView::Starting { progress: None }));
    w
}

/// What `roomy` has on the card.
fn taken(w: &World) -> Bytes {
    w.pool.snapshot(w.now).pool.accelerated.saturating_sub(Bytes::mib(300))
}

#[test]
fn a_context_that_grew_is_given_up_where_a_card_turns_out_fuller_and_nobody_goes_for_it() {
    let target = "context_target = 1048576";
    let grown = taken(&roomy_on(Bytes::gib(64), target, Bytes::ZERO));
    let plain = taken(&roomy_on(Bytes::gib(64), "", Bytes::ZERO));
    let (slack, idle) = (Bytes::gib(1), Bytes::mib(300));
    let card = Bytes::sum([grown, grown.per_mille(100), idle]);
    // 1 MiB less than passes.
    let foreign = Bytes::sum([card, slack, Bytes::mib(1)]).saturating_sub(Bytes::sum([grown, idle]));
    assert!(card.saturating_sub(foreign) > plain.saturating_add(idle), "{grown} {plain}");
    let w = roomy_on(card, target, foreign);
    assert_eq!(taken(&w), plain);
    let told = |w: &World| w.n_events(|event| matches!(event, EventKind::ContextGrown { .. }));
    assert_eq!(
        (told(&w), told(&roomy_on(Bytes::gib(64), target, Bytes::ZERO))),
        (0, 1),
        "what is given up is not told"
    );
    assert_eq!(w.n_events(|event| matches!(event, EventKind::Stopping { .. })), 0);
    assert!(w.denials.is_empty());
}

#[test]
fn nobody_is_drained_or_kept_waiting_for_a_context_that_grew() {
    let mut w = growing();
    w.resident("busy");
    w.pass(Duration::from_secs(11));
    w.acquire("elder");
    w.check_all();
    assert_eq!(w.phase("elder"), Some(PhaseView::WaitsForRoom));
    roomy(&mut w);
    assert_eq!(w.phase("roomy"), Some(PhaseView::Starting { progress: None }), "beside busy and beside elder");
    assert_eq!(grown_to(&w), [0_u32; 0], "what elder needs is not taken for growth");
}

#[test]
fn a_context_that_cannot_be_is_refused_as_that_once_for_all_who_wait() {
    let models: [(&str, u64, &str); 1] = [("long", 0, "context = 16777216\nslots = 1")];
    let mut w = World::on(host(1500), catalog(&models));
    let ids = [w.acquire("long"), w.acquire("long")];
    let (build, _) = w.checks.remove(0);
    w.feed(Input::Checked { build, result: Ok(with_header()) });
    let [denial] = &w.denials[..] else { panic!("one line: {:?}", w.denials) };
    let RefusedContext { asked, fits } = denial.context.expect("the context's refusal");
    assert!(asked == 16_777_216 && (256..asked).contains(&fits), "{denial}");
    for id in ids {
        let of_context = |refusal: &Refusal| matches!(refusal, Refusal::CapacityDenied(d) if d.context.is_some());
        assert!(matches!(w.outcome(id), Some(Outcome::Refused(refusal)) if of_context(refusal)));
    }
    let told = |event: &EventKind| matches!(event, EventKind::ContextDenied { fits: f, .. } if *f == fits);
    assert_eq!((w.n_events(told), w.n_events(|e| matches!(e, EventKind::CapacityDenied { .. }))), (1, 0));
    let prospect = Prospect { key: key("long"), model: w.model("long"), facts: Ok(with_header()) };
    let outlook = w.pool.outlook(w.now, vec![prospect]);
    assert!(matches!(&outlook[0].becomes, Becomes::Denied(d) if d.context.is_some_and(|c| c.fits == fits)));
}
