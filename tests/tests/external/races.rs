//! What happens while something else does: on servers that hold an answer back, or break off, at the moment that counts.
use crate::{
    fakes::{target, visit},
    support::Visit,
};
use motorpool_external::{LEAVE_WITHIN, Limits, Refusal, Report, Target, TargetLock};
use motorpool_residency::{Adoption, By, Decline, Kind, Used};
use motorpool_testkit::{
    eventually,
    servers::{FakeLmStudio, FakeOllama, FakeRouter, Fault, Tier},
};
use std::time::Duration;

const LISTING: &str = "/v1/models";
const LOAD: &str = "/models/load";
const UNLOAD: &str = "/models/unload";
/// Longer than any test runs.
const PATIENCE: Duration = Duration::from_hours(1);

/// A router as a target that waits for whatever is held.
fn router(server: &FakeRouter) -> Target {
    let limits = Limits { look: PATIENCE, load: PATIENCE, unload: PATIENCE };
    Target { limits, ..target(Kind::Router, server.port()) }
}

async fn open(capacity: u32) -> FakeRouter {
    FakeRouter::open(capacity, &["a", "b", "c", "d", "e", "f"]).await.expect("a free port")
}

async fn until_asked(server: &FakeRouter, path: &str, n: usize) {
    eventually("it is asked", async || (server.asked(path).len() >= n).then_some(())).await;
}

/// A request has begun to use `model`, or to wait for it.
async fn until_in_use(visit: &Visit, model: &str) {
    let look = async || {
        let residents = visit.guest.look().await.ok()?.residents;
        residents.into_iter().find(|one| one.seen.is_called(model) && one.used == Used::InUse).map(drop)
    };
    eventually("it is in use", look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_pinned_and_the_server_displaced_is_put_back_and_stays_theirs() {
    let server = open(0).await;
    server.tag("b", "pinned:true");
    server.load("b");
    server.displace("b");
    let visit = visit(router(&server));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    assert_eq!(visit.told(), ["co-resident", "Load a", "Restore b", "swap"]);
    assert_eq!((server.residents(), visit.owned()), (vec!["a".into(), "b".into()], vec!["a".to_owned()]));
    visit.guest.leave(PATIENCE).await;
    assert_eq!(server.residents(), ["b"]);
    assert_eq!(server.asked(UNLOAD).len(), 1, "nobody asked for theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_helper_loaded_and_the_server_displaced_is_put_back_and_stays_the_helpers() {
    let server = open(0).await;
    server.tag("b", "pinned:true");
    server.load("b");
    let visit = visit(router(&server));
    let url = format!("http://localhost:{}", server.port()).parse().expect("an address");
    let report = Report { kind: "llama-cpp-router".into(), url, model: "b".into(), instance: None };
    assert_eq!(visit.guests.adopt(&report).await, Adoption::Taken);
    server.displace("b");
    drop(visit.guest.prepare("a").await.expect("it fits"));
    let owned: Vec<_> = visit.guest.owned().into_iter().map(|owned| (owned.model, owned.by)).collect();
    assert_eq!(owned, [("a".to_owned(), By::Us), ("b".to_owned(), By::Worker)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_victim_comes_into_use_waits_for_it_and_is_served() {
    let server = open(1).await;
    let visit = visit(router(&server));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    visit.guest.distrust();
    // By the first listing it is decided that `a` goes, the second is the look before it does.
    server.fail_after(LISTING, (1, Fault::Held), 1);
    let n = server.asked(LISTING).len();
    let guest = visit.guest.clone();
    let first = tokio::spawn(async move { guest.prepare_within("b", PATIENCE).await.map(drop) });
    until_asked(&server, LISTING, n + 2).await;
    let guest = visit.guest.clone();
    let second = tokio::spawn(async move { guest.prepare("a").await });
    until_in_use(&visit, "a").await;
    server.release();
    let stay = second.await.expect("no panic").expect("it was spared");
    assert_eq!(server.residents(), ["a"]);
    drop(stay);
    first.await.expect("no panic").expect("it waited");
    assert_eq!(server.residents(), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_that_became_somebody_elses_is_spared_and_decided_about_once_more() {
    let server = open(1).await;
    let visit = visit(router(&server));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    server.fail_after(LISTING, (1, Fault::Held), 1);
    let n = server.asked(LISTING).len();
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("b").await.map(drop) });
    until_asked(&server, LISTING, n + 2).await;
    server.unload("a");
    server.load("a");
    server.release();
    let refused = request.await.expect("no panic").expect_err("it is theirs");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    assert_eq!((server.residents(), server.asked(UNLOAD).len()), (vec!["a".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unload_that_is_done_and_not_answered_is_one_that_is_done() {
    let server = open(1).await;
    let visit = visit(router(&server));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    visit.told();
    server.fail(UNLOAD, Fault::ActsAndHangsUp, 1);
    drop(visit.guest.prepare("b").await.expect("there is room"));
    assert_eq!(visit.told(), ["about-to-evict", "Evict a", "Load b"]);
    assert_eq!((server.residents(), visit.owned()), (vec!["b".to_owned()], vec!["b".to_owned()]));
    server.fail(UNLOAD, Fault::Malformed, 1);
    server.fail(UNLOAD, Fault::HangUp, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_done_and_not_answered_is_ours_and_one_that_was_not_heard_is_none() {
    let server = open(1).await;
    let visit = visit(router(&server));
    server.fail(LOAD, Fault::HangUp, 1);
    let lost = visit.guest.prepare("b").await.expect_err("nobody heard us");
    assert!(matches!(lost, Refusal::Failed(_)), "{lost:?}");
    assert_eq!((server.residents(), visit.owned(), visit.told()), (vec![], vec![], vec![]));
    server.fail(LOAD, Fault::ActsAndHangsUp, 1);
    drop(visit.guest.prepare("b").await.expect("it is there"));
    assert_eq!((server.residents(), visit.owned()), (vec!["b".to_owned()], vec!["b".to_owned()]));
    assert_eq!((visit.told(), server.asked(LOAD).len()), (vec!["Load b".to_owned()], 2));
    visit.guest.leave(LEAVE_WITHIN).await;
    assert!(server.residents().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_was_asked_for_before_a_load_ended_takes_nothing_from_us() {
    for path in [LISTING, "/props"] {
        let server = open(0).await;
        let visit = visit(router(&server));
        server.fail(path, Fault::AnswerHeld, 1);
        let guest = visit.guest.clone();
        let look = tokio::spawn(async move { guest.look().await.map(drop) });
        until_asked(&server, path, 1).await;
        drop(visit.guest.prepare("b").await.expect("it fits"));
        server.release();
        look.await.expect("no panic").expect("it answers");
        assert_eq!(visit.owned(), ["b"], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_ours_on_one_server_is_given_back_at_once() {
    let server = open(0).await;
    let visit = visit(router(&server));
    for model in ["a", "b", "c", "d", "e", "f"] {
        drop(visit.guest.prepare(model).await.expect("it fits"));
    }
    server.fail(UNLOAD, Fault::Held, 6);
    let guest = visit.guest.clone();
    let leaving = tokio::spawn(async move { guest.leave(PATIENCE).await });
    until_asked(&server, UNLOAD, 6).await;
    server.release();
    leaving.await.expect("no panic");
    assert!(server.residents().is_empty() && visit.owned().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_gives_back_goes_whatever_becomes_of_the_person() {
    let server = open(0).await;
    let visit = visit(router(&server));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    visit.told();
    server.fail(UNLOAD, Fault::AnswerHeld, 1);
    let guest = visit.guest.clone();
    let person = tokio::spawn(async move { guest.release("a").await });
    until_asked(&server, UNLOAD, 1).await;
    person.abort();
    assert!(person.await.expect_err("it went").is_cancelled());
    let lock = async |within| TargetLock::take(&visit.run(), visit.guest.key(), within).await;
    lock(Duration::ZERO).await.expect_err("nobody else changes the server meanwhile");
    server.release();
    lock(PATIENCE).await.expect("all is done");
    assert_eq!((visit.told(), visit.owned()), (vec!["Evict a".to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_what_is_being_unloaded_waits_and_has_it_loaded_again() {
    let server = FakeOllama::open(&["a", "b"]).await.expect("a free port");
    let visit = Visit::at::<10>(vec![target(Kind::Ollama, server.port())]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    let asked = async |n| (server.asked("/api/generate").len() == n).then_some(());
    eventually("our time is set after its last use", async || asked(2).await).await;
    visit.tomorrow();
    server.fail("/api/generate", Fault::Held, 1);
    let (one, two) = (visit.guest.clone(), visit.guest.clone());
    let other = tokio::spawn(async move { one.prepare("b").await });
    eventually("the straggler is told to go", async || asked(3).await).await;
    let same = tokio::spawn(async move { two.prepare("a").await });
    until_in_use(&visit, "a").await;
    // Were it not waiting, it would have what is there now by the time that a look of another is answered.
    visit.guest.look().await.expect("it answers");
    server.release();
    let _stays = (other.await.expect("no panic").expect("it loads"), same.await.expect("no panic").expect("it loads"));
    assert_eq!(visit.owned(), ["a:latest", "b:latest"]);
    assert_eq!(server.residents().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_is_giving_back_is_not_relied_on_by_a_request_that_comes_meanwhile() {
    let server = FakeLmStudio::open(Tier::V1, &["a"]).await.expect("a free port");
    let load = serde_json::Map::from_iter([("flash_attention".to_owned(), true.into())]);
    let visit = visit(Target { load, ..target(Kind::LmStudio, server.port()) });
    drop(visit.guest.prepare("a").await.expect("it loads"));
    server.fail("/api/v1/models/unload", Fault::Held, 1);
    let (one, two) = (visit.guest.clone(), visit.guest.clone());
    let person = tokio::spawn(async move { one.release("a").await });
    let asked = async || (server.asked("/api/v1/models/unload").len() == 1).then_some(());
    eventually("it is told to go", asked).await;
    let request = tokio::spawn(async move { two.prepare("a").await });
    until_in_use(&visit, "a").await;
    visit.guest.look().await.expect("it answers");
    server.release();
    person.await.expect("no panic").expect("ours, and idle then");
    let _stay = request.await.expect("no panic").expect("it loads again");
    assert_eq!((server.residents().len(), visit.owned()), (1, vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_requests_end_while_the_lock_is_held_one_waits_to_set_our_time() {
    let server = FakeOllama::open(&["a"]).await.expect("a free port");
    let visit = visit(target(Kind::Ollama, server.port()));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    let asked = async |n| (server.asked("/api/generate").len() == n).then_some(());
    eventually("our time is set", async || asked(2).await).await;
    let held = TargetLock::take(&visit.run(), visit.guest.key(), PATIENCE).await.expect("free soon");
    let n_tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = n_tasks();
    for _ in 0..100 {
        drop(visit.guest.prepare("a").await.expect("it is trusted"));
    }
    assert!(n_tasks() < before + 50, "{before} and then {}", n_tasks());
    drop(held);
    eventually("our time is set again", async || asked(3).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_refused_on_the_way_leaves_no_trace_of_being_under_way() {
    let server = open(0).await;
    let visit = visit(router(&server));
    server.fail(LOAD, Fault::Status(500, "no".into()), 1);
    drop(visit.guest.prepare("a").await.expect_err("refused"));
    // Somebody else's now.
    server.load("a");
    visit.guest.leave(PATIENCE).await;
    assert_eq!(server.residents(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_loads_meanwhile_is_not_taken_back_by_who_leaves() {
    let server = open(0).await;
    let visit = visit(router(&server));
    server.fail(LOAD, Fault::Held, 1);
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("a").await });
    until_asked(&server, LOAD, 1).await;
    server.load("a");
    let looks = server.asked(LISTING).len();
    server.fail(LISTING, Fault::Held, 1);
    server.release();
    // Our load was answered that it runs already; we wait for it to be ready.
    until_asked(&server, LISTING, looks + 1).await;
    visit.guest.leave(PATIENCE).await;
    assert_eq!((server.residents(), server.asked(UNLOAD).len()), (vec!["a".to_owned()], 0));
    request.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_ours_that_is_there_waits_for_nobodys_load_only_to_have_our_time_set() {
    let server = FakeOllama::open(&["a"]).await.expect("a free port");
    let visit = visit(target(Kind::Ollama, server.port()));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    let asked = async |n| (server.asked("/api/generate").len() == n).then_some(());
    eventually("our time is set", async || asked(2).await).await;
    visit.guest.distrust();
    let held = TargetLock::take(&visit.run(), visit.guest.key(), PATIENCE).await.expect("free soon");
    drop(visit.guest.prepare("a").await.expect("it is there"));
    assert!(asked(2).await.is_some(), "nothing is set without the lock");
    drop(held);
}
