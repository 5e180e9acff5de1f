//! What becomes of requests on a router that others use too.
use crate::support::visit;
use motorpool_external::Refusal;
use motorpool_residency::Decline;
use motorpool_tests::e2e::Router;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_free_slot_is_filled_beside_others_and_a_second_request_changes_nothing() {
    let house = Router::open(2).await;
    house.load_by_others("a").await;
    let visit = visit(&house, &[]);
    visit.guest.prepare("b").await.expect("it fits");
    assert_eq!(visit.told(), ["co-resident", "Load b"]);
    assert_eq!((house.residents().await, visit.owned()), (vec!["a".into(), "b".into()], vec!["b".to_owned()]));
    visit.guest.prepare("b").await.expect("it is there");
    assert!(visit.told().is_empty(), "trusted: nobody is told again");
    visit.guest.prepare("a").await.expect("it is there");
    assert_eq!((visit.told(), visit.owned()), (vec!["co-resident".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_router_one_of_ours_goes_and_what_others_loaded_stays() {
    let house = Router::open(2).await;
    house.load_by_others("a").await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("b").await.expect("it fits"));
    visit.told();
    let stay = visit.guest.prepare("c").await.expect("ours goes");
    assert_eq!(visit.told(), ["about-to-evict", "Evict b", "Load c"]);
    assert_eq!((house.residents().await, visit.owned()), (vec!["a".into(), "c".into()], vec!["c".to_owned()]));
    let refused = visit.guest.prepare("b").await.expect_err("ours is in use");
    assert!(matches!(&refused, Refusal::InUse(busy) if busy == &["c"]), "{refused:?}");
    drop(stay);
    visit.guest.prepare("b").await.expect("it is idle now");
    assert_eq!(house.residents().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_full_of_others_models_or_of_pinned_ones_is_left_alone() {
    let house = Router::open(1).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("p").await.expect("it fits"));
    assert_eq!(visit.owned(), ["p"]);
    visit.told();
    let refused = visit.guest.prepare("a").await.expect_err("pinned by its owner");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    assert_eq!((visit.told(), house.residents().await), (vec!["will-not-fit".to_owned()], vec!["p".to_owned()]));
    house.unload_by_others("p").await;
    house.load_by_others("b").await;
    let refused = visit.guest.prepare("a").await.expect_err("somebody else's");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    assert_eq!((house.residents().await, visit.owned()), (vec!["b".to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_model_costs_nobody_their_place_and_an_unknown_one_touches_nothing() {
    let house = Router::open(1).await;
    let visit = visit(&house, &["a"]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    visit.told();
    let refused = visit.guest.prepare("bad").await.expect_err("half a file");
    assert_eq!(refused.to_string(), "the load failed: its process ended with exit code 1");
    assert_eq!(visit.told(), ["about-to-evict", "Evict a", "Restore a", "swap"]);
    assert_eq!((house.residents().await, visit.owned()), (vec!["a".to_owned()], vec!["a".to_owned()]));
    let refused = visit.guest.prepare("nowhere").await.expect_err("no such model");
    assert!(matches!(refused, Refusal::Declined(Decline::NoSuchModel)), "{refused:?}");
    assert_eq!((visit.told(), house.residents().await), (vec!["will-not-fit".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_without_limit_takes_all() {
    let house = Router::open(0).await;
    let visit = visit(&house, &[]);
    for model in ["a", "b", "c"] {
        visit.guest.prepare(model).await.expect("it fits");
    }
    assert_eq!(house.residents().await, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_loaded_again_behind_our_back_is_not_ours_any_more() {
    let house = Router::open(1).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    house.unload_by_others("a").await;
    house.load_by_others("a").await;
    let refused = visit.guest.prepare("b").await.expect_err("theirs now");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    visit.guest.leave(Duration::from_secs(20)).await;
    assert_eq!(house.residents().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_whose_request_goes_away_is_let_finish_and_is_ours() {
    let house = Router::open(1).await;
    let visit = visit(&house, &[]);
    drop(visit.guest.prepare("a").await.expect("it fits"));
    let guest = visit.guest.clone();
    let request = tokio::spawn(async move { guest.prepare("b").await.map(drop) });
    let gone = async || (!house.residents().await.contains(&"a".to_owned())).then_some(());
    motorpool_testkit::eventually("the first mutation", gone).await;
    request.abort();
    house.until("b", "loaded").await;
    let ours = async || (visit.owned() == ["b"]).then_some(());
    motorpool_testkit::eventually("the load is written down as ours", ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_us_never_take_each_others_place_and_each_gives_back_its_own() {
    let house = Router::open(1).await;
    let (one, two) = (visit(&house, &[]), visit(&house, &[]));
    let (first, second) = tokio::join!(one.guest.prepare("a"), two.guest.prepare("b"));
    let refused = [first.err(), second.err()].into_iter().flatten().collect::<Vec<_>>();
    assert!(matches!(&refused[..], [Refusal::Declined(Decline::Full { .. })]), "one of both: {refused:?}");
    assert_eq!(house.residents().await, [one.owned(), two.owned()].concat());
    one.guest.leave(Duration::from_secs(20)).await;
    two.guest.leave(Duration::from_secs(20)).await;
    assert!(house.residents().await.is_empty() && one.owned().is_empty() && two.owned().is_empty());
}
