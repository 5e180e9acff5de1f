//! B4: lines of children that are gone stay until their devices agree.
use crate::{
    cards::{MODELS, host, world},
    machine::{Answers, Health, Tells, card},
    world::{Child, Outcome, World, catalog, key},
};
use motorpool_pool::{Answer, Force, Input, OnDeadline, PoolConfig, Refusal, SizedBy};
use motorpool_vocab::{Bytes, EventKind, PhaseView, Spawn};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn released(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::Released { .. }))
}

fn unload(w: &mut World, model: &str) -> motorpool_pool::RequestId {
    let key = key(model);
    let id = w.admin(|id| Input::Evict { id, key, force: Force::No });
    w.ended(model, Child::Asked);
    id
}

#[test]
fn a_line_goes_at_once_when_the_driver_shows_no_more_of_it() {
    let mut w = world(&[8]);
    w.idles("a");
    let asked = unload(&mut w, "a");
    assert_eq!((released(&w), w.committed()), (1, Bytes::ZERO));
    assert_eq!(w.outcome(asked), Some(&Outcome::Answered(Answer::Unloaded)));
}

#[test]
fn a_line_stays_while_the_driver_shows_the_process_and_the_asker_waits_with_it() {
    let mut w = world(&[8]);
    w.machine.lag = SECOND;
    w.idles("a");
    let asked = unload(&mut w, "a");
    assert_eq!((released(&w), w.committed(), w.outcome(asked)), (0, Bytes::mib(7168), None), "B4");
    let view = w.pool.snapshot(w.now).entries.into_iter().find(|e| e.phase == PhaseView::Reclaiming).expect("shown");
    assert_eq!((view.spawn, view.reserved), (Some(Spawn(1)), Bytes::mib(7168)));
    let other = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    w.pass(Duration::from_millis(999));
    assert_eq!(released(&w), 0);
    w.pass(Duration::from_millis(200));
    assert_eq!((released(&w), w.committed()), (1, Bytes::ZERO));
    for id in [asked, other] {
        assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::Unloaded)));
    }
}

#[test]
fn where_only_totals_are_told_nine_tenths_must_be_free_again() {
    let mut w = world(&[8]);
    w.machine.tells = Tells::TotalsOnly;
    w.machine.lag = SECOND;
    w.idles("a");
    unload(&mut w, "a");
    w.pass(Duration::from_millis(900));
    assert_eq!(released(&w), 0, "B4");
    w.pass(Duration::from_millis(200));
    assert_eq!(released(&w), 1);
}

#[test]
fn where_only_totals_are_told_what_one_gives_back_is_not_taken_for_anothers() {
    let mut w = world(&[16]);
    w.machine.tells = Tells::TotalsOnly;
    w.idles("a");
    w.idles("b");
    w.machine.lag = SECOND;
    unload(&mut w, "a");
    w.machine.lag = 3 * SECOND;
    unload(&mut w, "b");
    w.pass(2 * SECOND);
    assert_eq!((released(&w), w.committed()), (1, Bytes::mib(7168)), "B4: 7 GiB are back, not 14");
    w.pass(2 * SECOND);
    assert_eq!((released(&w), w.committed()), (2, Bytes::ZERO));
}

#[test]
fn where_only_totals_are_told_what_came_back_before_a_stop_began_does_not_count_for_it() {
    let mut w = world(&[16]);
    w.machine.tells = Tells::TotalsOnly;
    w.idles("a");
    w.idles("b");
    w.machine.lag = SECOND;
    unload(&mut w, "a");
    w.admin(|id| Input::Evict { id, key: key("b"), force: Force::No });
    w.pass(2 * SECOND);
    w.machine.lag = 2 * SECOND;
    w.ended("b", Child::Asked);
    w.pass(SECOND);
    assert_eq!((released(&w), w.committed()), (1, Bytes::mib(7168)), "B4: it began to stop before the first was back");
}

#[test]
fn a_crash_is_awaited_like_a_stop() {
    let mut w = world(&[8]);
    w.machine.lag = SECOND;
    let spawn = w.idles("a");
    w.gone(spawn);
    assert_eq!((w.phase("a"), w.committed()), (Some(PhaseView::Idle), Bytes::mib(7168)), "B4");
    w.pass(2 * SECOND);
    assert_eq!(w.committed(), Bytes::ZERO);
}

#[test]
fn a_driver_that_gives_nothing_back_is_waited_for_so_long_and_then_it_is_others_use() {
    let mut w = world(&[8]);
    w.machine.lag = Duration::from_mins(5);
    w.idles("a");
    unload(&mut w, "a");
    w.pass(Duration::from_millis(4_950));
    assert_eq!((released(&w), w.card(0).0), (0, Some(Bytes::ZERO)));
    w.pass(Duration::from_millis(100));
    assert_eq!((released(&w), w.committed(), w.card(0).0), (1, Bytes::ZERO, Some(Bytes::mib(7168))));
    w.pass(Duration::from_mins(5));
    w.read_cards();
    assert_eq!(w.card(0).0, Some(Bytes::ZERO));
}

#[test]
fn nobody_waits_for_a_device_that_can_never_agree() {
    let mut w = World::on(host(SizedBy::Operator, &[8]), catalog(&MODELS));
    w.machine.health.insert(card(0), Health::Missing);
    w.idles("a");
    unload(&mut w, "a");
    assert_eq!(released(&w), 1, "never readable");
    let mut w = world(&[8]);
    w.idles("a");
    w.health(0, Health::Lost);
    unload(&mut w, "a");
    assert_eq!(released(&w), 1, "lost");
}

#[test]
fn a_card_that_is_missing_for_a_moment_is_waited_for() {
    let mut w = world(&[8]);
    w.idles("a");
    w.health(0, Health::Missing);
    unload(&mut w, "a");
    w.pass(SECOND);
    assert_eq!(released(&w), 0, "B4");
    w.health(0, Health::Well);
    assert_eq!(released(&w), 1);
}

#[test]
fn looks_that_are_never_answered_keep_a_line_for_five_seconds() {
    let mut w = world(&[8]);
    w.idles("a");
    w.machine.answers = Answers::Never;
    unload(&mut w, "a");
    w.pass(Duration::from_millis(4_900));
    assert_eq!(released(&w), 0);
    w.pass(Duration::from_millis(200));
    assert_eq!(released(&w), 1);
}

#[test]
fn a_look_that_began_before_the_end_proves_nothing() {
    let mut w = world(&[8]);
    let spawn = w.idles("a");
    w.machine.answers = Answers::Never;
    let before = w.now;
    w.pass(SECOND);
    w.gone(spawn);
    let mut shown = w.machine.look(w.now);
    w.feed(Input::Cards { begun_at: before, cards: shown.clone() });
    assert_eq!(released(&w), 0, "B4");
    shown.clone_from(&w.machine.look(w.now));
    w.feed(Input::Cards { begun_at: w.now, cards: shown });
    assert_eq!(released(&w), 1);
}

#[test]
fn a_key_is_built_anew_beside_the_line_of_its_last_child() {
    let mut w = world(&[16]);
    w.machine.lag = 3 * SECOND;
    let first = w.idles("a");
    w.gone(first);
    let again = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again));
    assert_eq!(w.committed(), Bytes::mib(2 * 7168), "P1, and the line is still the old spawn's");
    w.pass(4 * SECOND);
    assert_eq!(w.committed(), Bytes::mib(7168), "P4");
}

#[test]
fn who_shuts_down_does_not_wait_for_the_device() {
    let mut w = world(&[8]);
    w.machine.lag = 3 * SECOND;
    w.idles("a");
    let closed = w.admin(|id| Input::Shutdown { id });
    w.obey();
    assert_eq!(w.outcome(closed), Some(&Outcome::Answered(Answer::Ended(vec![]))), "P11");
}

const KEPT: &str = "unloaded its previous model and waited 5 s, the driver has not given the memory back";

#[test]
fn a_build_for_which_replies_were_cut_is_told_what_the_driver_keeps_of_them() {
    let host = host(SizedBy::Machine, &[8]);
    let config = PoolConfig { host, on_deadline: OnDeadline::Cut, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&MODELS));
    w.read_cards();
    w.machine.lag = Duration::from_mins(1);
    w.resident("a");
    w.pass_reading(15);
    let b = w.acquire("b");
    w.check_all();
    w.pass_reading(30);
    w.ended("a", Child::Killed);
    w.pass(Duration::from_secs(6));
    let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(b) else { panic!("{:?}", w.outcome(b)) };
    assert!(denial.prose().contains(KEPT), "{}", denial.prose());
}

#[test]
fn an_attempt_is_put_off_for_what_the_driver_keeps_of_those_that_were_stopped_for_it() {
    let mut w = world(&[8]);
    w.machine.lag = Duration::from_mins(1);
    w.idles("a");
    let targets = [(w.model("b").id.clone(), 1)].into();
    w.admin(|id| Input::Reconcile { id, targets });
    w.check_all();
    w.ended("a", Child::Asked);
    w.pass(Duration::from_secs(6));
    let deferred: Vec<_> = w.events.iter().filter_map(|e| why(&e.kind)).collect();
    assert!(matches!(deferred[..], [why] if why.ends_with("(measured free graphics memory)")), "{deferred:?}");
}

fn why(event: &EventKind) -> Option<&str> {
    if let EventKind::Deferred { why, .. } = event { Some(why) } else { None }
}

/// With each lag, and success after it.
#[test]
fn a_build_gets_the_room_of_its_victim_when_the_driver_gives_it_back_or_is_told_that_it_did_not() {
    for (lag, tells) in [0, 1, 8].into_iter().flat_map(|lag| [(lag, Tells::ByProcess), (lag, Tells::TotalsOnly)]) {
        let mut w = world(&[8]);
        w.machine.tells = tells;
        w.machine.lag = Duration::from_secs(lag);
        w.idles("a");
        // One that was used lately would come back by itself.
        w.pass_reading(65);
        let b = w.acquire("b");
        w.check_all();
        w.ended("a", Child::Asked);
        w.pass(Duration::from_secs(6));
        if lag < 5 {
            w.ready("b");
            assert!(w.is_granted(b) && w.denials.is_empty(), "{lag} s, {tells:?}: {:?}", w.denials);
            continue;
        }
        let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(b) else {
            panic!("{:?}", w.outcome(b))
        };
        assert!(denial.to_string().ends_with("(measured free graphics memory)"), "{denial}");
        assert!(denial.prose().contains(KEPT), "{}", denial.prose());
        w.pass_reading(5);
        let again = w.acquire("b");
        w.check_all();
        w.ready("b");
        assert!(w.is_granted(again), "{tells:?}");
    }
}
