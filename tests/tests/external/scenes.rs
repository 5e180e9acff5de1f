//! What a real router does besides: it sleeps, loads, hides its size, is started again; and requests that go away.
use crate::{
    fakes::chat,
    support::{Visit, target_at, target_within, visit, visit_at},
};
use motorpool_external::{LEAVE_WITHIN, Limits, Refusal, TargetLock};
use motorpool_residency::{Action, Decline, Kind};
use motorpool_testkit::eventually;
use motorpool_tests::e2e::{Router, Tap};
use std::{fs, time::Duration};

const MUTATIONS: [&str; 2] = ["POST /models/load", "POST /models/unload"];

fn mutations(tap: &Tap) -> usize {
    tap.lines().iter().filter(|line| MUTATIONS.contains(&line.as_str())).count()
}

/// A load of `c`, which never ends, is under way for a request that went away.
async fn load_stuck_and_left(house: &Router, visit: &Visit) {
    house.stick("c");
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("c").await.map(drop) });
    house.until("c", "loading").await;
    request.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_model_takes_its_place_and_answers_and_goes_like_one_that_is_awake() {
    let house = Router::open_with(1, &["--sleep-idle-seconds", "1"]).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    house.until("a", "sleeping").await;
    visit.guest.distrust();
    let stay = visit.guest.prepare("a").await.expect("it is there");
    assert_eq!((visit.told(), visit.owned()), (vec!["Load a".to_owned()], vec!["a".to_owned()]));
    assert!(matches!(visit.guest.prepare("b").await, Err(Refusal::InUse(_))), "it sleeps, and is in use");
    drop(stay);
    drop(visit.guest.prepare("b").await.expect("ours goes"));
    assert_eq!(house.residents().await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_others_load_takes_its_place_and_is_waited_for_and_its_failure_is_said() {
    let house = Router::open(1).await;
    house.stick("c");
    house.ask_by_others("load", "c").await;
    house.until("c", "loading").await;
    let tap = Tap::open(house.port(), None).await;
    let visit = visit_at(&house, target_at(tap.port(), &[]));
    let refused = visit.guest.prepare("a").await.expect_err("its place is taken");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    assert_eq!(visit.guest.plan("c").await.expect("it answers").action, Action::Await);
    let waits = visit.guest.prepare("c");
    let fails = async {
        // Whoever has not begun to wait would find it failed, and load it anew.
        let waits = async || tap.lines().iter().any(|line| line == "GET /models/sse").then_some(());
        eventually("it is waited for", waits).await;
        house.unstick("c").await;
        house.until("c", "unloaded").await;
    };
    let (waited, ()) = tokio::join!(waits, fails);
    let refused = waited.expect_err("the load failed").to_string();
    assert_eq!(refused, "the load failed: its process ended with exit code 1");
    assert!(visit.owned().is_empty(), "others loaded it");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_others_nothing_is_loaded_while_nobody_knows_how_much_fits_and_an_empty_router_takes_one() {
    let house = Router::open(4).await;
    let tap = Tap::open(house.port(), Some("GET /props")).await;
    let visit = visit_at(&house, target_at(tap.port(), &[]));
    drop(visit.guest.prepare("a").await.expect("it is empty"));
    let refused = visit.guest.prepare("b").await.expect_err("nobody knows");
    assert!(matches!(refused, Refusal::Declined(Decline::CapacityUnknown { n_residents: 1 })), "{refused:?}");
    assert_eq!(visit.told(), ["Load a", "will-not-fit"]);
    assert_eq!((house.residents().await, mutations(&tap)), (vec!["a".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_was_started_again_has_nothing_of_ours_even_when_the_same_model_is_there_again() {
    let mut house = Router::open(1).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    house.restart().await;
    house.load_by_others("a").await;
    visit.guest.distrust();
    drop(visit.guest.prepare("a").await.expect("it is there"));
    assert!(visit.owned().is_empty());
    visit.guest.leave(Duration::from_secs(20)).await;
    assert_eq!(house.residents().await, ["a"]);
    house.restart().await;
    visit.guest.distrust();
    drop(visit.guest.prepare("b").await.expect("it is empty"));
    assert_eq!(visit.owned(), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_goes_away_before_the_first_change_leaves_the_router_as_it_was() {
    let house = Router::open(1).await;
    let tap = Tap::open(house.port(), None).await;
    let visit = visit_at(&house, target_at(tap.port(), &[]));
    let held = TargetLock::take(&house.folder().join("run"), visit.guest.key(), Duration::ZERO).await.expect("free");
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("a").await.map(drop) });
    tokio::task::yield_now().await;
    request.abort();
    assert!(request.await.expect_err("it went").is_cancelled());
    drop(held);
    drop(TargetLock::take(&house.folder().join("run"), visit.guest.key(), Duration::ZERO).await.expect("free at once"));
    assert_eq!((mutations(&tap), house.residents().await), (0, vec![]));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    drop(visit.guest.prepare("b").await.expect("nobody uses the other"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_load_whose_request_goes_away_is_kept_to_its_end_and_what_went_for_it_is_put_back() {
    let house = Router::open(1).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    load_stuck_and_left(&house, &visit).await;
    house.unstick("c").await;
    eventually("what went is ours again", async || (visit.owned() == ["a"]).then_some(())).await;
    assert_eq!(house.residents().await, ["a"]);
    assert_eq!(visit.told(), ["Load a", "about-to-evict", "Evict a", "Restore a", "swap"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_makes_the_router_load_and_a_model_that_is_gone_is_decided_about_once_more() {
    let house = Router::open(1).await;
    let tap = Tap::open(house.port(), None).await;
    let visit = visit_at(&house, target_at(tap.port(), &[]));
    let mut stay = visit.guest.prepare("a").await.expect("it fits");
    assert_eq!(chat(&mut stay).await.expect("an answer").0, 200);
    house.unload_by_others("a").await;
    assert_eq!(chat(&mut stay).await.expect("loaded once more").0, 200);
    house.unload_by_others("a").await;
    assert_eq!(chat(&mut stay).await.expect("an answer").0, 400, "only once");
    assert!(house.residents().await.is_empty());
    house.load_by_others("b").await;
    let mut other = visit.guest.prepare("b").await.expect("it is there");
    house.unload_by_others("b").await;
    house.load_by_others("c").await;
    let refused = chat(&mut other).await.expect_err("no room for it any more");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    let chats: Vec<String> = tap.lines().into_iter().filter(|line| line.contains("/chat/")).collect();
    assert!(chats.len() == 5 && chats.iter().all(|line| line.ends_with("?autoload=0")), "{chats:?}");
    assert!(tap.lines().contains(&"GET /models/sse".to_owned()), "loads are watched by news");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_without_news_is_looked_at_until_the_load_is_done() {
    let house = Router::open(1).await;
    let tap = Tap::open(house.port(), Some("GET /models/sse")).await;
    let visit = visit_at(&house, target_at(tap.port(), &[]));
    drop(visit.guest.prepare("a").await.expect("it fits"));
    assert_eq!(visit.owned(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_stands_still_is_given_up_and_what_went_for_it_is_put_back() {
    let house = Router::open(1).await;
    house.stick("c");
    let hasty = Limits { load: Duration::from_secs(5), ..Limits::of(Kind::Router) };
    let visit = visit_at(&house, target_within(&house, hasty));
    drop(visit.guest.prepare("b").await.expect("it fits"));
    visit.told();
    let refused = visit.guest.prepare("c").await.expect_err("it never ends");
    assert!(refused.to_string().starts_with("nothing happened for"), "{refused}");
    assert_eq!(visit.told(), ["about-to-evict", "Evict b", "Restore b", "swap"]);
    assert_eq!((house.residents().await, visit.owned()), (vec!["b".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_breaks_off_a_load_that_nobody_waits_for_and_gives_back_that_too() {
    let house = Router::open(2).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    load_stuck_and_left(&house, &visit).await;
    visit.guest.leave(LEAVE_WITHIN).await;
    eventually("nothing is left", async || house.residents().await.is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_under_way_is_written_down_as_soon_as_the_router_shows_which_one_it_is() {
    let house = Router::open(1).await;
    house.stick("c");
    let visit = Visit::below(house.folder(), vec![target_at(house.port(), &[])]);
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("c").await.map(drop) });
    let journal = house.folder().join("residency.jsonl");
    let written = async || fs::read_to_string(&journal).ok().filter(|text| text.contains(r#""model":"c""#));
    eventually("it is written down", written).await;
    // A crash says nothing to the router: the next start has other books.
    let next = Visit::below(house.folder(), vec![target_at(house.port(), &[])]);
    next.guests.take_over().await;
    assert_eq!(next.owned(), ["c"]);
    request.abort();
    visit.guest.leave(Duration::from_secs(20)).await;
}
