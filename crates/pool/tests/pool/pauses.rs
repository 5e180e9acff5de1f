//! The pause after a panic of the graphics driver.
use crate::{
    cards::host,
    world::{Child, Outcome, World, catalog},
};
use motorpool_pool::{GpuPause, Input, Refusal, RequestId, SizedBy};
use motorpool_vocab::{Bytes, EventKind, ModelId};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn pause(w: &mut World, within: Duration) {
    let until = w.now.after(within);
    let (happened, signature) = ("2026-01-02 03:04:05".to_owned(), "AGXG14".to_owned());
    w.feed(Input::GpuPause(Some(GpuPause { happened, signature, until })));
}

/// One card, where a and b fit one by one and fill it; cpu does not go there.
fn world() -> World {
    let models = [("a", 7168, "gpu_layers = 99"), ("b", 7168, "gpu_layers = 99"), ("cpu", 600, "gpu_layers = 0")];
    let mut w = World::on(host(SizedBy::Machine, &[12]), catalog(&models));
    w.read_cards();
    w
}

fn is_paused(w: &World, id: RequestId) -> bool {
    matches!(w.outcome(id), Some(Outcome::Refused(Refusal::GpuPaused { .. })))
}

fn n_told(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::GpuPaused { .. }))
}

#[test]
fn nobody_goes_for_what_is_not_started_and_what_computes_on_the_processor_is() {
    let mut w = world();
    w.idles("a");
    pause(&mut w, 60 * SECOND);
    let b = [w.acquire("b"), w.acquire("b")];
    w.check_all();
    assert!(b.iter().all(|id| is_paused(&w, *id)) && n_told(&w) == 1, "once for all who wait");
    assert_eq!((w.serving("a"), w.denials.len()), (vec![0], 0));
    let Some(Outcome::Refused(refusal)) = w.outcome(b[0]) else { panic!("refused") };
    let told = "the graphics driver panicked at 2026-01-02 03:04:05 (AGXG14); engine llama-server:b:0 is not started on it for 1 min more";
    assert_eq!(refusal.to_string(), told);
    let cpu = w.acquire("cpu");
    w.obey();
    assert!(w.is_granted(cpu));
    w.pass_reading(60);
    let b = w.acquire("b");
    w.obey();
    assert!(w.is_granted(b), "the pause ends by time alone");
}

#[test]
fn a_panic_while_a_build_waits_for_its_turn_to_load_is_seen_in_the_slot() {
    let models = [("a", 2048, "gpu_layers = 99"), ("b", 2048, "gpu_layers = 99\nhome = true")];
    let mut w = World::on(host(SizedBy::Machine, &[12]), catalog(&models));
    w.read_cards();
    w.check_all();
    let a = w.acquire("a");
    w.check_all();
    assert_eq!(w.committed(), Bytes::gib(4), "both have their lines");
    pause(&mut w, 60 * SECOND);
    w.ready("b");
    assert!(is_paused(&w, a) && w.children.values().all(|(_, child)| *child == Child::Serving));
    assert_eq!(w.committed(), Bytes::gib(2));
}

#[test]
fn what_nobody_waits_for_is_put_off() {
    let mut w = World::on(host(SizedBy::Machine, &[12]), catalog(&[("h", 2048, "gpu_layers = 99\nhome = true")]));
    pause(&mut w, 60 * SECOND);
    w.read_cards();
    w.check_all();
    assert_eq!((w.children.len(), n_told(&w)), (0, 0));
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Deferred { .. })), 1);
    for _ in 0..7 {
        w.pass_reading(10);
        w.obey();
    }
    assert_eq!(w.serving("h"), [0]);
}

#[test]
fn nobody_goes_for_an_operators_wish_either() {
    let mut w = world();
    w.idles("a");
    pause(&mut w, 60 * SECOND);
    let targets = [(ModelId::new("b").expect("an id"), 1)].into();
    w.admin(|id| Input::Reconcile { id, targets });
    w.obey();
    assert_eq!(w.serving("a"), [0]);
}
