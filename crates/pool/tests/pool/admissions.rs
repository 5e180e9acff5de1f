//! The measured check, right before a start.
use crate::{
    cards::{MODELS, host, world},
    machine::{Answers, Health, Tells, card},
    world::{Child, Outcome, World, catalog},
};
use motorpool_pool::{BudgetSetting, Denial, Host, LoadSlots, PoolConfig, Refusal, SizedBy};
use motorpool_vocab::{Bytes, EventKind, PhaseView, StopReason};
use std::{num::NonZeroU32, time::Duration};

fn denial(w: &World, id: motorpool_pool::RequestId) -> &Denial {
    let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(id) else { panic!("{:?}", w.outcome(id)) };
    denial
}

fn n_evicted(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::Stopping { reason: StopReason::Evicted, .. }))
}

#[test]
fn what_another_process_took_since_the_last_reading_is_found_and_its_holder_is_named() {
    let mut w = world(&[16]);
    w.use_card(0, Bytes::gib(12));
    let a = w.acquire("a");
    w.check_all();
    let denied = denial(&w, a);
    let (required, free) = (Bytes::mib(7168), Bytes::gib(4));
    let line = format!("would commit {} against {} (measured free graphics memory)", required.get(), free.get());
    assert!(denied.to_string().ends_with(&line), "{denied}");
    assert!(denied.prose().contains("there, blender (process 4711) uses 12.0 GiB"), "{}", denied.prose());
    assert_eq!((w.denials.len(), w.committed(), w.phase("a")), (1, Bytes::ZERO, Some(PhaseView::Idle)));
    let again = w.acquire("a");
    w.check_all();
    assert!(denial(&w, again).prose().contains("There, blender (process 4711) uses 12.0 GiB"), "the ledger knows now");
    w.use_card(0, Bytes::ZERO);
    w.read_cards();
    w.idles("a");
}

#[test]
fn one_gib_is_what_drivers_and_estimates_may_be_wrong_by() {
    for (foreign, passes) in [(10_240, true), (10_241, false)] {
        let mut w = world(&[16]);
        w.use_card(0, Bytes::mib(foreign));
        w.acquire("a");
        w.check_all();
        assert_eq!(w.children.len(), usize::from(passes), "7 GiB beside {foreign} MiB of 16 GiB");
    }
}

#[test]
fn an_idle_engine_makes_room_by_what_was_measured_and_its_memory_is_awaited() {
    let mut w = world(&[16]);
    w.idles("a");
    w.machine.lag = Duration::from_secs(1);
    w.use_card(0, Bytes::gib(5));
    let b = w.acquire("b");
    w.check_all();
    assert_eq!(w.phase("b"), Some(PhaseView::WaitsForSlot), "evicted, not denied");
    w.ended("a", Child::Asked);
    assert!(w.children.is_empty(), "the driver still has it");
    w.pass(Duration::from_secs(2));
    w.ready("b");
    assert!(w.is_granted(b) && w.denials.is_empty());
    assert_eq!(n_evicted(&w), 1);
}

/// On 16 GiB a, with all its slots taken, and c, idle; others took 7 GiB unseen. Whatever wants a second engine of a is
/// short of 1 GiB that c has.
fn short_of_what_is_idle() -> World {
    let models = [("a", 4096, "gpu_layers = 99\nreplicas = { max = 2 }"), ("c", 3072, "gpu_layers = 99")];
    let mut w = World::on(host(SizedBy::Machine, &[16]), catalog(&models));
    w.read_cards();
    w.idles("c");
    w.resident("a");
    w.use_card(0, Bytes::gib(7));
    w
}

#[test]
fn a_build_that_nobody_waits_for_stops_nobody_for_what_was_measured_either() {
    let mut w = short_of_what_is_idle();
    w.acquire("a");
    w.pass(Duration::from_secs(2));
    w.check_all();
    assert_eq!((n_evicted(&w), w.phase("c")), (0, Some(PhaseView::Ready)));
    let deferred = w.n_events(|e| matches!(e, EventKind::Deferred { .. }));
    assert_eq!((deferred, w.denials.len(), w.committed()), (1, 0, Bytes::gib(7)), "put off, not denied");
}

#[test]
fn an_operator_who_wants_another_engine_has_idle_ones_stopped_for_what_was_measured_too() {
    let mut w = short_of_what_is_idle();
    let targets = [(w.model("a").id.clone(), 2)].into();
    w.admin(|id| motorpool_pool::Input::Reconcile { id, targets });
    w.check_all();
    w.ended("c", Child::Asked);
    assert_eq!((n_evicted(&w), w.denials.len()), (1, 0));
    assert_eq!(w.children.len(), 2, "c made room for the second");
}

#[test]
fn who_was_stopped_by_what_was_measured_for_a_build_that_is_denied_comes_back() {
    let mut w = world(&[16]);
    w.idles("a");
    w.machine.lag = Duration::from_secs(1);
    w.use_card(0, Bytes::gib(5));
    let b = w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.use_card(0, Bytes::gib(12));
    w.pass(Duration::from_secs(2));
    assert!(denial(&w, b).prose().contains("blender"));
    w.use_card(0, Bytes::ZERO);
    w.pass_reading(15);
    w.check_all();
    w.ready("a");
}

#[test]
fn a_build_whose_last_start_failed_stops_nobody_for_what_was_measured_until_its_backoff_has_passed() {
    // What others use counts in the ledger only where the machine told the size.
    for sized in [SizedBy::Machine, SizedBy::Operator] {
        let mut w = World::on(host(sized, &[16]), catalog(&MODELS));
        w.read_cards();
        w.idles("a");
        w.acquire("b");
        w.check_all();
        let failed = w.child("b", Child::Loading);
        w.gone(failed);
        w.use_card(0, Bytes::gib(5));
        let b = w.acquire("b");
        w.check_all();
        assert_eq!((n_evicted(&w), w.outcome(b), w.committed()), (0, None, Bytes::gib(7)), "{sized:?}");
        w.pass(Duration::from_secs(1));
        w.ended("a", Child::Asked);
        w.ready("b");
        assert!(w.is_granted(b) && w.denials.is_empty(), "{sized:?}");
    }
}

#[test]
fn what_grows_during_the_wait_is_not_met_with_a_second_eviction() {
    let mut w = world(&[20]);
    w.idles("a");
    w.idles("c");
    w.machine.lag = Duration::from_secs(1);
    w.use_card(0, Bytes::gib(5));
    let b = w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.use_card(0, Bytes::gib(12));
    w.pass(Duration::from_secs(2));
    assert!(denial(&w, b).prose().contains("blender"), "{}", denial(&w, b).prose());
    assert_eq!((n_evicted(&w), w.phase("c")), (1, Some(PhaseView::Ready)), "room is made once");
}

#[test]
fn nobody_goes_where_all_that_is_idle_does_not_suffice() {
    let mut w = world(&[16]);
    w.idles("c");
    w.use_card(0, Bytes::gib(12));
    let a = w.acquire("a");
    w.check_all();
    assert!(denial(&w, a).prose().contains("blender"));
    assert_eq!((n_evicted(&w), w.phase("c")), (0, Some(PhaseView::Ready)));
}

#[test]
fn a_driver_that_keeps_what_was_measured_to_be_missing_is_said_to() {
    let mut w = world(&[16]);
    w.idles("a");
    w.machine.lag = Duration::from_mins(1);
    w.use_card(0, Bytes::gib(5));
    let b = w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.pass(Duration::from_secs(6));
    assert!(denial(&w, b).prose().contains("waited 5 s, the driver has not given the memory back"));
}

#[test]
fn a_look_that_nobody_answers_leaves_it_to_the_ledger_after_five_seconds() {
    let mut w = world(&[8]);
    w.machine.answers = Answers::Never;
    let a = w.acquire("a");
    w.check_all();
    w.pass(Duration::from_millis(4_900));
    assert!(w.children.is_empty());
    w.pass(Duration::from_millis(100));
    w.ready("a");
    assert!(w.is_granted(a));
}

#[test]
fn a_look_that_began_before_it_was_asked_for_does_not_count() {
    let mut w = world(&[8]);
    w.machine.answers = Answers::Never;
    let shown = w.machine.look(w.now);
    let before = w.now;
    w.pass(Duration::from_secs(1));
    w.acquire("a");
    w.check_all();
    w.feed(motorpool_pool::Input::Cards { begun_at: before, cards: shown });
    assert!(w.children.is_empty());
    w.read_cards();
    assert_eq!(w.children.len(), 1);
}

#[test]
fn a_card_that_is_missing_for_a_moment_is_judged_by_the_ledger_and_one_that_is_lost_takes_nothing() {
    let mut w = world(&[8, 8]);
    w.health(0, Health::Missing);
    w.acquire("a");
    w.check_all();
    assert_eq!(w.children.len(), 1);
    let mut w = world(&[8, 8]);
    w.machine.health.insert(card(0), Health::Lost);
    w.acquire("a");
    w.check_all();
    w.ready("a");
    let memory = w.pool.snapshot(w.now).pool.memory;
    assert_eq!((memory[0].committed, memory[1].committed), (Bytes::ZERO, Bytes::mib(7168)), "to the other one");
}

#[test]
fn a_restart_is_checked_like_a_first_load() {
    let mut w = world(&[16]);
    let spawn = w.idles("a");
    w.gone(spawn);
    w.use_card(0, Bytes::gib(12));
    let a = w.acquire("a");
    w.check_all();
    assert!(denial(&w, a).prose().contains("blender"));
}

/// One that loads has taken a tenth of its 7 GiB, and others `foreign` MiB; whether the next one is started beside it.
fn is_started_beside_a_load(tells: Tells, foreign: u64) -> bool {
    let load_slots = LoadSlots::PerDevice(NonZeroU32::new(2).expect("not zero"));
    let config = PoolConfig { host: host(SizedBy::Machine, &[16]), load_slots, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&MODELS));
    w.machine.tells = tells;
    w.machine.takes = 100;
    w.read_cards();
    w.acquire("a");
    w.check_all();
    assert_eq!(w.children.len(), 1);
    w.use_card(0, Bytes::mib(foreign));
    w.acquire("b");
    w.check_all();
    w.children.len() == 2
}

#[test]
fn what_others_that_load_have_not_taken_is_not_free() {
    assert!(!is_started_beside_a_load(Tells::ByProcess, 3_200), "of the 12.2 GiB that are free 6.3 are promised");
    assert!(is_started_beside_a_load(Tells::ByProcess, 3_000));
    assert!(is_started_beside_a_load(Tells::TotalsOnly, 3_200), "what is used may be what was promised");
    assert!(!is_started_beside_a_load(Tells::TotalsOnly, 9_700));
}

#[test]
fn nothing_is_measured_where_nothing_is_enforced_or_claimed_on_a_card() {
    let unbound = Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..host(SizedBy::Machine, &[8]) };
    let mut w = World::on(unbound, catalog(&MODELS));
    w.use_card(0, Bytes::gib(8));
    w.machine.answers = Answers::Never;
    w.acquire("a");
    w.check_all();
    assert_eq!(w.children.len(), 1);
    let models = [("cpu", 4096, "gpu_layers = 0")];
    let mut w = World::on(host(SizedBy::Machine, &[8]), catalog(&models));
    w.machine.answers = Answers::Never;
    w.acquire("cpu");
    w.check_all();
    assert_eq!(w.children.len(), 1);
}

#[test]
fn a_build_whose_card_is_taken_away_before_its_start_goes_elsewhere() {
    let mut w = World::on(host(SizedBy::Machine, &[8, 9]), catalog(&MODELS));
    w.machine.answers = Answers::Never;
    w.acquire("a");
    w.check_all();
    assert_eq!(w.phase("a"), Some(PhaseView::WaitsForSlot));
    let mut without = host(SizedBy::Machine, &[8, 9]);
    without.cards.remove(0);
    w.feed(motorpool_pool::Input::Host(without));
    w.pass(Duration::from_secs(5));
    w.ready("a");
    let memory = w.pool.snapshot(w.now).pool.memory;
    assert_eq!((memory[0].device.clone(), memory[0].committed), (Some(card(1)), Bytes::mib(7168)));
    let mut w = world(&[8, 9]);
    w.machine.answers = Answers::Never;
    w.acquire("a");
    w.check_all();
    w.machine.health.insert(card(0), Health::Missing);
    w.read_cards();
    w.machine.answers = Answers::AtOnce;
    assert_eq!(w.children.len(), 1, "missing for a moment");
}
