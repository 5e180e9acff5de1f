//! Engines that nobody uses, and loads that nobody waits for.
use crate::world::{Child, World, catalog, host, key, of_session};
use motorpool_pool::{Ask, Input, KeepAlive, OnAbandon, PoolConfig};
use motorpool_vocab::{EventKind, ModelId, Now, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn one(more: &str) -> World {
    World::with(4096, catalog(&[("a", 600, more)]))
}

fn n_idle(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::Stopping { reason: StopReason::Idle, .. }))
}

fn unload_at(w: &World) -> Option<Now> {
    w.pool.snapshot(w.now).entries.into_iter().find(|e| e.key == key("a")).and_then(|e| e.unload_at)
}

fn keeping(w: &mut World, keep: KeepAlive) {
    let ask = Ask { keep_alive: Some(keep), ..of_session("a", "s") };
    let id = w.ask(ask);
    w.obey();
    w.leave(id);
}

#[test]
fn an_engine_stops_ten_minutes_after_its_last_lease_ended_and_never_under_one() {
    let mut w = one("");
    let a = w.resident("a");
    w.pass(60 * MINUTE);
    assert_eq!((w.serving("a"), unload_at(&w)), (vec![0], None), "a lease is held");
    w.leave(a);
    assert_eq!(unload_at(&w), Some(w.now.after(10 * MINUTE)));
    w.pass(599 * SECOND);
    let warm = w.enter("a").expect("it serves");
    w.pass(2 * MINUTE);
    w.leave(warm);
    w.pass(599 * SECOND);
    assert_eq!(n_idle(&w), 0);
    w.pass(SECOND);
    w.obey();
    assert_eq!((n_idle(&w), w.serving("a")), (1, vec![]));
    let again = w.acquire("a");
    w.obey();
    assert!(w.is_granted(again));
}

#[test]
fn a_model_says_how_long_its_engine_is_kept_and_zero_is_for_ever() {
    let mut w = one("idle_ttl = \"5s\"");
    let a = w.resident("a");
    w.leave(a);
    w.pass(5 * SECOND);
    assert_eq!(n_idle(&w), 1);
    for stays in ["idle_ttl = \"0s\"", "idle_ttl = \"5s\"\npinned = true", "idle_ttl = \"5s\"\nhome = true"] {
        let mut w = one(stays);
        let a = w.acquire("a");
        w.obey();
        w.leave(a);
        w.pass(600 * MINUTE);
        assert_eq!((n_idle(&w), w.serving("a")), (0, vec![0]), "{stays}");
    }
}

#[test]
fn the_last_request_says_how_long_its_engine_is_kept() {
    let mut w = one("");
    keeping(&mut w, KeepAlive::For(SECOND));
    assert_eq!(unload_at(&w), Some(w.now.after(SECOND)));
    let plain = w.enter("a").expect("it serves");
    w.leave(plain);
    assert_eq!(unload_at(&w), Some(w.now.after(10 * MINUTE)), "one that says nothing: as the model says");
    keeping(&mut w, KeepAlive::Always);
    w.pass(600 * MINUTE);
    assert_eq!(w.serving("a"), [0]);
    keeping(&mut w, KeepAlive::For(Duration::ZERO));
    assert_eq!(n_idle(&w), 1, "at once");
}

#[test]
fn as_many_as_an_operator_wants_stay_used_or_not() {
    let mut w = one("replicas = { max = 3 }");
    let targets = [(ModelId::new("a").expect("an id"), 2)].into();
    w.admin(|id| Input::Reconcile { id, targets });
    w.obey();
    w.pass(600 * MINUTE);
    assert_eq!((w.serving("a"), n_idle(&w)), (vec![0, 1], 0));
}

#[test]
fn a_load_that_nobody_waits_for_goes_on_or_is_ended_as_configured() {
    for (on_abandon, ends) in [(OnAbandon::Finish, false), (OnAbandon::Abort, true)] {
        let config = PoolConfig { host: host(4096), on_abandon, ..PoolConfig::default() };
        let mut w = World::configured(config, catalog(&[("a", 600, "")]));
        let (a, b) = (w.acquire("a"), w.acquire("a"));
        w.check_all();
        w.cancel(a);
        assert_eq!(w.child("a", Child::Loading).0, 1, "somebody still waits");
        w.cancel(b);
        let killed = w.children.values().any(|(_, child)| *child == Child::Killed);
        assert_eq!(killed, ends);
        w.obey();
        assert_eq!(w.serving("a").is_empty(), ends);
    }
}

#[test]
fn a_load_that_is_asked_for_counts_as_use() {
    let mut w = one("");
    let a = w.resident("a");
    w.leave(a);
    w.pass(599 * SECOND);
    w.ask(Ask::resident(ModelId::new("a").expect("an id")));
    w.pass(599 * SECOND);
    assert_eq!((n_idle(&w), w.serving("a")), (0, vec![0]));
    w.pass(SECOND);
    assert_eq!(n_idle(&w), 1);
}

#[test]
fn a_lease_that_ended_just_now_is_use_although_the_pool_was_not_told() {
    for (more, long) in [("", 60 * MINUTE), ("idle_ttl = \"0s\"\nreplicas = { max = 2 }", 5 * MINUTE)] {
        let mut w = one(more);
        let held = [w.resident("a"), w.acquire("a")];
        w.pass(2 * SECOND);
        w.obey();
        w.pass(long);
        for id in held.into_iter().filter(|id| w.leases.contains_key(id)).collect::<Vec<_>>() {
            let spawn = w.leave_untold(id);
            w.feed(Input::Tick);
            assert_eq!(w.n_events(|e| matches!(e, EventKind::Stopping { .. })), 0, "{more}");
            w.feed(Input::Left { id, spawn });
        }
    }
}
