//! Engines that were planned for a card and compute on the processor.
use crate::{
    cards::{MODELS, host, world},
    machine::{Answers, Health, ON_DEVICE, ON_PROCESSOR, Tells, card},
    world::{Child, Outcome, World, catalog},
};
use motorpool_pool::{Input, Measured, OnCpuFallback, PoolConfig, Refusal, SizedBy};
use motorpool_vocab::{Bytes, EventKind, FailureClass, PhaseView, StopReason};
use std::time::Duration;

/// `a` is asked for and became ready; its driver shows so much of its claim, in thousandths.
fn ready(tells: Tells, takes: u64, reports: Option<&'static str>) -> (World, motorpool_pool::RequestId) {
    let mut w = world(&[8]);
    (w.machine.tells, w.machine.takes, w.machine.reports) = (tells, takes, reports);
    w.read_cards();
    let a = w.acquire("a");
    w.check_all();
    w.ready("a");
    (w, a)
}

fn is_refused(w: &World, id: motorpool_pool::RequestId) -> bool {
    matches!(w.outcome(id), Some(Outcome::Refused(Refusal::StartFailed { fault, .. })) if fault.class == FailureClass::CpuFallback)
}

fn n_fallbacks(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::CpuFallback { planned, .. } if *planned == Bytes::mib(7168)))
}

#[test]
fn an_engine_that_reports_no_buffer_on_a_device_is_stopped_before_it_serves() {
    for tells in [Tells::ByProcess, Tells::TotalsOnly] {
        let (mut w, a) = ready(tells, 50, Some(ON_PROCESSOR));
        assert!(is_refused(&w, a) && w.open.is_empty(), "{:?}", w.outcome(a));
        assert_eq!(n_fallbacks(&w), 1);
        w.ended("a", Child::Killed);
        w.pass(Duration::from_secs(5));
        let last = w.pool.snapshot(w.now).entries.remove(0).last_exit.expect("it ended");
        assert_eq!((last.reason, last.class), (StopReason::CpuFallback, Some(FailureClass::CpuFallback)));
        assert_eq!((last.ever_ready, w.committed()), (false, Bytes::ZERO));
    }
}

#[test]
fn a_report_of_a_buffer_on_a_device_is_enough_whatever_the_driver_shows() {
    let (w, a) = ready(Tells::ByProcess, 0, Some(ON_DEVICE));
    assert!(w.is_granted(a));
    assert_eq!(n_fallbacks(&w), 0);
}

#[test]
fn without_a_report_the_driver_decides_once_a_late_report_would_have_been_read() {
    let (w, a) = ready(Tells::ByProcess, 100, None);
    assert!(w.is_granted(a), "a tenth is there");
    let (mut w, a) = ready(Tells::ByProcess, 99, None);
    assert_eq!((w.outcome(a), w.phase("a")), (None, Some(PhaseView::Starting { progress: Some(1000) })));
    w.pass(Duration::from_millis(999));
    assert_eq!(w.outcome(a), None);
    w.pass(Duration::from_millis(1));
    assert!(is_refused(&w, a));
}

#[test]
fn where_nobody_tells_it_is_taken_as_planned() {
    let (mut w, a) = ready(Tells::TotalsOnly, 0, None);
    w.pass(Duration::from_millis(4_999));
    assert_eq!(w.outcome(a), None, "its tree was not measured");
    w.pass(Duration::from_millis(1));
    assert!(w.is_granted(a), "it is never waited for longer");
    let (mut w, a) = ready(Tells::TotalsOnly, 0, None);
    let spawn = w.child("a", Child::Serving);
    w.feed(Input::Measured { spawn, measured: Measured::default() });
    w.pass(Duration::from_secs(1));
    assert!(w.is_granted(a), "a report would be there by now");
    let mut w = world(&[8]);
    w.machine.reports = None;
    w.machine.answers = Answers::Never;
    let a = w.acquire("a");
    w.check_all();
    w.pass(Duration::from_secs(5));
    w.ready("a");
    w.pass(Duration::from_secs(5));
    assert!(w.is_granted(a));
}

#[test]
fn a_card_that_cannot_be_read_proves_nothing_against_it() {
    let mut w = World::on(host(SizedBy::Operator, &[8]), catalog(&MODELS));
    w.machine.reports = None;
    w.health(0, Health::Missing);
    let a = w.acquire("a");
    w.check_all();
    let spawn = w.ready("a");
    w.feed(Input::Measured { spawn, measured: Measured::default() });
    w.pass(Duration::from_secs(1));
    assert!(w.is_granted(a));
    assert!(w.machine.health.contains_key(&card(0)));
}

#[test]
fn who_only_wants_to_be_warned_is() {
    let config = PoolConfig {
        host: host(SizedBy::Machine, &[8]),
        on_cpu_fallback: OnCpuFallback::Warn,
        ..PoolConfig::default()
    };
    let mut w = World::configured(config, catalog(&MODELS));
    w.machine.reports = Some(ON_PROCESSOR);
    w.machine.takes = 0;
    w.read_cards();
    let a = w.resident("a");
    assert!(w.is_granted(a));
    assert_eq!(n_fallbacks(&w), 1);
    let spawn = w.child("a", Child::Serving);
    for _ in 0..3 {
        let private = Some(Bytes::gib(9));
        w.feed(Input::Measured { spawn, measured: Measured { private, ..Measured::default() } });
    }
    assert!(w.learned.is_empty(), "what it takes on the processor is no lesson for a card: {:?}", w.learned);
}

#[test]
fn a_proof_that_is_awaited_ends_with_its_child_and_with_the_pool() {
    let (mut w, a) = ready(Tells::ByProcess, 0, None);
    w.gone(w.child("a", Child::Serving));
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
    let (mut w, a) = ready(Tells::TotalsOnly, 0, None);
    let closed = w.admin(|id| Input::Retire { id });
    w.pass(Duration::from_secs(5));
    assert!(w.is_granted(a), "it was begun before");
    w.leave(a);
    w.obey();
    w.pass(Duration::from_secs(5));
    assert!(w.outcome(closed).is_some(), "P11");
    let (mut w, a) = ready(Tells::TotalsOnly, 0, None);
    w.admin(|id| Input::Shutdown { id });
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::ShuttingDown))), "P11");
    w.obey();
}
