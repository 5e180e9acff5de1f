//! The way out: all servers at once, and one that is dead costs the others nothing.
use crate::support::{setting, target_at, target_within};
use motorpool_external::{Guest, Guests, LEAVE_WITHIN, Limits, Target};
use motorpool_residency::Kind;
use motorpool_testkit::eventually;
use motorpool_tests::e2e::Router;
use std::{sync::Arc, time::Duration};

/// Longer than any test runs: what waits for this waits for ever.
const FOR_EVER: Duration = Duration::from_hours(1);

#[tokio::test(flavor = "multi_thread")]
async fn of_three_servers_the_dead_one_keeps_no_other_from_being_left_nor_us_from_leaving() {
    let houses = [Router::open(1).await, Router::open(1).await, Router::open(1).await];
    // Whichever comes first in a walk over all, a dead one is before a live one.
    for n_dead in 0..houses.len() {
        let limits = Limits { look: FOR_EVER, ..Limits::of(Kind::Router) };
        let target = |(n, house): (usize, &Router)| Target { id: n.to_string(), ..target_within(house, limits) };
        let targets = houses.iter().enumerate().map(target).collect();
        let guests = Guests::open(targets, setting(houses[0].folder(), &Arc::default())).expect("no journal");
        let all: Vec<&Guest> = guests.iter().collect();
        for guest in &all {
            drop(guest.prepare("a").await.expect("it fits"));
            assert_eq!(guest.owned().len(), 1);
        }
        let dead = &houses[n_dead];
        dead.freeze();
        let live = all.iter().enumerate().filter(|(n, _)| *n != n_dead).map(|(_, guest)| guest);
        let left = async || live.clone().all(|guest| guest.owned().is_empty()).then_some(());
        tokio::select! {
            () = guests.leave_all(FOR_EVER) => panic!("the dead one answered"),
            () = eventually("the live ones are left", left) => {}
        }
        guests.leave_all(LEAVE_WITHIN).await;
        assert_eq!(all[n_dead].owned().len(), 1, "nobody said that it went");
        dead.thaw();
        all[n_dead].leave(FOR_EVER).await;
        for house in &houses {
            assert!(house.residents().await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_targets_on_one_server_share_what_is_ours_there() {
    let house = Router::open(1).await;
    let targets = ["one", "two"].map(|id| Target { id: id.to_owned(), ..target_at(house.port(), &[]) });
    let guests = Guests::open(targets.to_vec(), setting(house.folder(), &Arc::default())).expect("no journal");
    drop(guests.get("one").expect("opened").prepare("a").await.expect("it fits"));
    let second = guests.get("two").expect("opened");
    drop(second.prepare("b").await.expect("what the first target loaded is ours, so it goes"));
    assert_eq!(house.residents().await, ["b"]);
}
