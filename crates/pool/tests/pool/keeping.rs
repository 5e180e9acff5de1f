//! What engines hold of sessions and outlives them: when it is written, and when it is read back (K1 to K3).
use crate::world::{Child, World, Writes, catalog, host, key, of_session};
use motorpool_pool::{
    Ask, Force, Grant, Input, KeepAlive, NotKept, OnDeadline, PoolConfig, Probed, RequestId, SessionsKept,
};
use motorpool_vocab::Spawn;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Model a, with two slots, whose engine writes when it is told to.
fn one(more: &str) -> World {
    let mut w = World::with(4096, catalog(&[("a", 600, more), ("b", 3900, "")]));
    (w.width, w.writes) = (2, Writes::WhenTold);
    w
}

/// A lease of session `s` on `a`, and what it is.
fn enter(w: &mut World, s: &str) -> (RequestId, Grant) {
    let id = w.ask(of_session("a", s));
    w.obey();
    (id, w.leases[&id].clone())
}

/// A request of session `s` on `a` came and went. Which child it had, which slot, and what was read back for it.
fn serve(w: &mut World, s: &str) -> (Spawn, Option<u32>, Option<String>) {
    let (id, grant) = enter(w, s);
    w.leave(id);
    (grant.spawn, grant.slot, grant.returning.map(|session| session.to_string()))
}

fn writings(w: &World) -> Vec<(u32, &str)> {
    w.writings.iter().map(|write| (write.slot, write.session.as_str())).collect()
}

#[test]
fn a_slot_is_written_half_the_idle_ttl_after_its_sessions_last_lease_and_once() {
    let mut w = one("");
    let (_, slot, _) = serve(&mut w, "s");
    assert_eq!(slot, Some(0));
    w.pass(299 * SECOND);
    assert_eq!(writings(&w), []);
    w.pass(SECOND);
    assert_eq!(writings(&w), [(0, "s")]);
    w.write_all();
    w.pass(200 * SECOND);
    assert_eq!(writings(&w), [], "K1: nothing of it is new");
    let (_, slot, returning) = serve(&mut w, "s");
    assert_eq!((slot, returning), (Some(0), None), "K3: it is there");
    w.pass(5 * MINUTE);
    assert_eq!(writings(&w), [(0, "s")], "K1: after each lease");
}

#[test]
fn a_slot_is_written_while_its_engine_serves_others_and_never_under_a_lease() {
    let mut w = one("");
    serve(&mut w, "s");
    let (held, grant) = enter(&mut w, "t");
    assert_eq!(grant.slot, Some(1));
    w.pass(20 * MINUTE);
    assert_eq!(writings(&w), [(0, "s")]);
    w.leave(held);
    w.pass(5 * MINUTE);
    assert_eq!(writings(&w), [(0, "s"), (1, "t")]);
}

#[test]
fn the_word_of_the_last_request_says_when_and_who_stays_for_ever_is_written_by_its_models_time() {
    for (keep, due) in [(KeepAlive::For(8 * SECOND), 4), (KeepAlive::Always, 300)] {
        let mut w = one("");
        let id = w.ask(Ask { keep_alive: Some(keep), ..of_session("a", "s") });
        w.obey();
        w.leave(id);
        w.pass((due - 1) * SECOND);
        assert_eq!(writings(&w), [], "{keep:?}");
        w.pass(SECOND);
        assert_eq!(writings(&w), [(0, "s")], "{keep:?}");
    }
    let mut w = one("idle_ttl = \"0s\"");
    serve(&mut w, "s");
    w.pass(600 * MINUTE);
    assert_eq!(writings(&w), [], "there is no half of for ever");
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    assert_eq!(writings(&w), [(0, "s")], "but an end");
}

#[test]
fn an_idle_engine_is_asked_to_end_once_everything_is_written() {
    let mut w = one("");
    let (spawn, ..) = serve(&mut w, "s");
    serve(&mut w, "t");
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    assert_eq!(writings(&w), [(0, "s"), (1, "t")]);
    let (first, second) = (w.writings.remove(0).writing, w.writings[0].writing);
    w.feed(Input::SlotWritten { spawn, writing: first });
    w.feed(Input::SlotWritten { spawn, writing: first });
    assert_eq!(w.child("a", Child::Serving), spawn, "K2: one is left");
    w.write_all();
    assert_eq!(w.child("a", Child::Asked), spawn);
    w.feed(Input::SlotWritten { spawn, writing: first });
    w.ended("a", Child::Asked);
    w.feed(Input::SlotWritten { spawn, writing: second });
    assert_eq!(w.children.len(), 0);
}

#[test]
fn a_stop_waits_for_a_writing_that_is_under_way_and_no_longer_than_for_a_polite_stop() {
    let mut w = one("");
    let (spawn, ..) = serve(&mut w, "s");
    w.pass(5 * MINUTE);
    assert_eq!(writings(&w), [(0, "s")]);
    let evicted = w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    assert_eq!(w.writings.len(), 1, "K1: it is asked for already");
    w.pass(4999 * Duration::from_millis(1));
    assert_eq!(w.child("a", Child::Serving), spawn);
    w.pass(Duration::from_millis(1));
    assert_eq!(w.child("a", Child::Asked), spawn, "K2");
    w.pass(5 * SECOND);
    assert_eq!(w.child("a", Child::Killed), spawn, "the time to end is its own");
    w.ended("a", Child::Killed);
    assert!(w.outcome(evicted).is_some());
}

#[test]
fn news_of_an_earlier_writing_ends_no_later_one() {
    let mut w = one("");
    let (spawn, ..) = serve(&mut w, "s");
    w.pass(5 * MINUTE);
    serve(&mut w, "s");
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    let asked: Vec<_> = w.writings.iter().map(|write| write.writing).collect();
    assert_eq!((writings(&w), asked[0] == asked[1]), (vec![(0, "s"), (0, "s")], false));
    w.feed(Input::SlotWritten { spawn, writing: asked[0] });
    assert_eq!(w.child("a", Child::Serving), spawn, "K2: what came since is being written");
    w.feed(Input::SlotWritten { spawn, writing: asked[1] });
    assert_eq!(w.child("a", Child::Asked), spawn);
}

#[test]
fn what_needs_the_room_of_an_engine_waits_for_its_contexts_to_be_written() {
    let mut w = one("");
    serve(&mut w, "s");
    w.pass(MINUTE);
    let b = w.acquire("b");
    w.check_all();
    assert_eq!((writings(&w), w.is_granted(b)), (vec![(0, "s")], false));
    w.write_all();
    w.obey();
    assert!(w.is_granted(b));
}

#[test]
fn who_is_killed_or_does_not_serve_is_asked_for_nothing() {
    let mut w = one("");
    serve(&mut w, "s");
    let (held, _) = enter(&mut w, "t");
    w.admin(|id| Input::KillAll { id });
    assert_eq!(writings(&w), [], "nothing is waited for");
    w.ended("a", Child::Killed);
    w.leave(held);

    let mut w = one("");
    let (spawn, ..) = serve(&mut w, "s");
    for _ in 0..3 {
        w.pass(15 * SECOND);
        for (spawn, probe) in std::mem::take(&mut w.probes) {
            w.feed(Input::Probed { spawn, probe, probed: Probed::Missed });
        }
    }
    w.pass(5 * MINUTE);
    assert_eq!(writings(&w), [], "it is suspect");
    w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    assert_eq!((writings(&w), w.child("a", Child::Asked)), (vec![], spawn), "K2");
}

#[test]
fn whoever_is_cut_loses_nothing_of_the_sessions_beside_it() {
    let cuts: [fn(RequestId) -> Input; 2] =
        [|id| Input::Evict { id, key: key("a"), force: Force::Yes }, |id| Input::Shutdown { id }];
    for cut in cuts {
        let mut w = one("");
        let (spawn, ..) = serve(&mut w, "s");
        let (held, _) = enter(&mut w, "t");
        w.admin(cut);
        assert_eq!((writings(&w), w.child("a", Child::Serving)), (vec![(0, "s")], spawn), "K1, K2");
        w.write_all();
        w.ended("a", Child::Killed);
        w.leave(held);

        let mut w = one("");
        serve(&mut w, "s");
        enter(&mut w, "t");
        w.admin(cut);
        w.pass(5 * SECOND);
        assert_eq!(w.child("a", Child::Killed), spawn, "K2: no longer than for a polite stop");
        w.write_all();
        w.ended("a", Child::Killed);
    }
}

#[test]
fn a_drain_that_is_cut_at_its_deadline_saves_the_sessions_beside_it() {
    let config = PoolConfig { host: host(4096), on_deadline: OnDeadline::Cut, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, ""), ("b", 3900, "")]));
    (w.width, w.writes) = (2, Writes::WhenTold);
    serve(&mut w, "s");
    enter(&mut w, "t");
    w.pass(11 * SECOND);
    w.acquire("b");
    w.check_all();
    w.pass(30 * SECOND);
    assert_eq!(writings(&w), [(0, "s")]);
    w.write_all();
    w.child("a", Child::Killed);
}

#[test]
fn a_session_is_read_back_into_another_engine_and_where_another_was_meanwhile() {
    let mut w = one("");
    let (first, slot, returning) = serve(&mut w, "s");
    assert_eq!((slot, returning), (Some(0), Some("s".to_owned())), "it may have been there in an earlier run");
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    w.write_all();
    w.ended("a", Child::Asked);
    let (second, slot, returning) = serve(&mut w, "s");
    assert_ne!(first, second);
    assert_eq!((slot, returning), (Some(0), Some("s".to_owned())), "K3");
    assert_eq!(serve(&mut w, "s").2, None, "it is there now");
    w.pass(SECOND);
    assert_eq!(serve(&mut w, "t"), (second, Some(1), Some("t".to_owned())));
    w.pass(SECOND);
    assert_eq!(serve(&mut w, "u"), (second, Some(0), Some("u".to_owned())), "the oldest slot");
    assert_eq!(serve(&mut w, "s"), (second, Some(1), Some("s".to_owned())), "another is in its own");
}

#[test]
fn nothing_is_kept_of_requests_without_a_session_nor_where_nobody_wants_it() {
    let mut w = one("");
    let plain = w.acquire("a");
    w.obey();
    w.leave(plain);
    w.pass(6 * MINUTE);
    assert_eq!(writings(&w), []);
    let off =
        PoolConfig { host: host(4096), sessions_kept: SessionsKept::No(NotKept::SwitchedOff), ..PoolConfig::default() };
    let switched_off = World::configured(off, catalog(&[("a", 600, "")]));
    for mut w in [one("session_state = \"off\""), one("capabilities = [\"embeddings\"]"), switched_off] {
        w.writes = Writes::WhenTold;
        assert_eq!(serve(&mut w, "s").2, None);
        w.pass(6 * MINUTE);
        w.admin(|id| Input::UnloadIdle { id, key: key("a") });
        assert_eq!(writings(&w), []);
    }
}

#[test]
fn the_end_of_all_waits_for_what_is_written_too() {
    let mut w = one("");
    let (spawn, ..) = serve(&mut w, "s");
    let end = w.admin(|id| Input::Retire { id });
    assert_eq!((writings(&w), w.child("a", Child::Serving)), (vec![(0, "s")], spawn));
    w.write_all();
    w.obey();
    assert!(w.outcome(end).is_some());
}
