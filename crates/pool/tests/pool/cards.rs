//! What the drivers of graphics cards say: others' use, cards that cannot be read, cards that are lost.
use crate::{
    machine::{Health, Tells, card},
    world::{Child, Outcome, World, catalog, key},
};
use motorpool_pool::{Card, Host, HostShape, Refusal, SizedBy};
use motorpool_vocab::{Bytes, DeviceId, EventKind, PhaseView};
use std::time::Duration;

/// Models that lie on one card, whatever happens.
pub(crate) const MODELS: [(&str, u64, &str); 4] = [
    ("a", 7168, "gpu_layers = 99"),
    ("b", 7168, "gpu_layers = 99"),
    ("c", 3072, "gpu_layers = 99"),
    ("huge", 12_288, "gpu_layers = 99"),
];

pub(crate) fn host(sized: SizedBy, gib: &[u64]) -> Host {
    let card = |(n, gib): (usize, &u64)| Card { sized, ..Card::new(&card(n).0, Bytes::gib(*gib)) };
    let cards = gib.iter().enumerate().map(card).collect();
    Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() }
}

/// Cards of so many GiB that were read once.
pub(crate) fn world(gib: &[u64]) -> World {
    let mut w = World::on(host(SizedBy::Machine, gib), catalog(&MODELS));
    w.read_cards();
    w
}

impl World {
    pub(crate) fn use_card(&mut self, n: usize, foreign: Bytes) {
        self.machine.foreign.insert(card(n), foreign);
    }

    pub(crate) fn health(&mut self, n: usize, health: Health) {
        self.machine.health.insert(card(n), health);
        self.read_cards();
    }

    /// Time passes, and the cards are read every 5 s.
    pub(crate) fn pass_reading(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.pass(Duration::from_secs(5));
            self.read_cards();
        }
    }

    /// What others use of a card, and what may be reserved there.
    pub(crate) fn card(&self, n: usize) -> (Option<Bytes>, Bytes) {
        let snapshot = self.pool.snapshot(self.now);
        (snapshot.pool.memory[n].foreign, snapshot.pool.memory[n].share_now)
    }

    /// `model` serves and nobody uses it.
    pub(crate) fn idles(&mut self, model: &str) -> motorpool_vocab::Spawn {
        let id = self.resident(model);
        self.leave(id);
        self.child(model, Child::Serving)
    }
}

const SHARE: Bytes = Bytes::gib(8).per_mille(950);

#[test]
fn what_others_use_of_a_card_is_what_is_used_there_without_our_trees() {
    let mut w = world(&[8]);
    w.use_card(0, Bytes::gib(3));
    w.read_cards();
    assert_eq!(w.card(0), (Some(Bytes::gib(3)), Bytes::gib(5)));
    w.idles("c");
    w.read_cards();
    assert_eq!(w.card(0), (Some(Bytes::gib(3)), Bytes::gib(5)), "ours is not others'");
}

#[test]
fn without_figures_by_process_a_half_loaded_engine_is_not_counted_twice() {
    let mut w = world(&[8]);
    w.machine.tells = Tells::TotalsOnly;
    w.machine.takes = 500;
    w.use_card(0, Bytes::gib(1));
    w.read_cards();
    assert_eq!(w.card(0).0, Some(Bytes::gib(1)));
    w.acquire("c");
    w.check_all();
    w.read_cards();
    assert_eq!(w.card(0).0, Some(Bytes::ZERO), "1.5 GiB of it and 1 GiB of others are less than its line");
    w.ready("c");
    w.machine.held.clear();
    w.use_card(0, Bytes::gib(4));
    w.read_cards();
    assert_eq!(w.card(0).0, Some(Bytes::gib(1)));
}

#[test]
fn a_size_that_the_driver_does_not_show_is_the_operators_word_less_what_is_not_there() {
    let mut w = World::on(host(SizedBy::Operator, &[8]), catalog(&MODELS));
    let seen = |total, free| {
        let figures = motorpool_pool::CardFigures {
            total: Bytes::gib(total),
            free: Bytes::gib(free),
            by_spawn: Some([].into()),
            tenants: vec![],
        };
        [(card(0), motorpool_pool::CardSight::Seen(figures))].into()
    };
    let mut read = |total, free| {
        w.feed(motorpool_pool::Input::Cards { begun_at: w.now, cards: seen(total, free) });
        w.card(0)
    };
    assert_eq!(read(24, 20), (Some(Bytes::ZERO), SHARE), "others are in what is not ours anyway");
    assert_eq!(read(24, 4), (Some(Bytes::gib(4)), Bytes::gib(4)));
    assert_eq!(read(6, 5), (Some(Bytes::gib(3)), Bytes::gib(5)), "2 GiB are not there");
}

#[test]
fn ten_seconds_without_nvml_are_bridged_and_thirty_are_not() {
    let mut w = world(&[8]);
    w.use_card(0, Bytes::gib(6));
    w.read_cards();
    w.health(0, Health::Missing);
    w.pass_reading(10);
    assert_eq!(w.card(0), (None, SHARE), "the old figure is never used: the ledger alone decides");
    let missing = EventKind::ReadingMissing { device: Some(card(0)) };
    assert_eq!(w.n_events(|e| *e == missing), 1);
    w.pass_reading(20);
    assert_eq!(w.card(0), (None, Bytes::ZERO));
    let c = w.acquire("c");
    w.check_all();
    let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(c) else { panic!("denied") };
    assert_eq!(denial.which(), "device");
    w.use_card(0, Bytes::ZERO);
    w.health(0, Health::Well);
    w.idles("c");
}

#[test]
fn trust_in_a_card_that_is_missing_ends_by_time_alone() {
    let mut w = world(&[8]);
    w.health(0, Health::Missing);
    w.pass(Duration::from_secs(14));
    assert_eq!(w.card(0).1, SHARE);
    w.pass(Duration::from_secs(2));
    assert_eq!(w.card(0).1, Bytes::ZERO, "nobody reads any more");
}

#[test]
fn looks_that_do_not_come_at_all_are_no_figures_and_after_fifteen_seconds_nothing_new_goes_there() {
    let mut w = world(&[8]);
    w.use_card(0, Bytes::gib(3));
    w.read_cards();
    w.pass(Duration::from_millis(14_999));
    assert_eq!(w.card(0), (Some(Bytes::gib(3)), Bytes::gib(5)));
    w.pass(Duration::from_millis(1));
    assert_eq!(w.card(0), (None, Bytes::ZERO), "its figure is too old, and it was not read for 15 s");
    let missing = EventKind::ReadingMissing { device: Some(card(0)) };
    assert_eq!(w.n_events(|e| *e == missing), 1);
    w.pass(Duration::from_mins(1));
    assert_eq!((w.n_events(|e| *e == missing), w.pool.deadline()), (1, None), "told once");
    w.read_cards();
    assert_eq!(w.card(0), (Some(Bytes::gib(3)), Bytes::gib(5)));
}

#[test]
fn cards_that_nobody_ever_looked_at_take_nothing_new_after_fifteen_seconds_unless_their_operator_sized_them() {
    for (sized, expected) in [(SizedBy::Machine, Bytes::ZERO), (SizedBy::Operator, SHARE)] {
        let mut w = World::on(host(sized, &[8]), catalog(&MODELS));
        w.feed(motorpool_pool::Input::Tick);
        w.pass(Duration::from_secs(14));
        assert_eq!(w.card(0), (None, SHARE));
        w.pass(Duration::from_secs(1));
        assert_eq!(w.card(0), (None, expected));
        // The cards of another host are waited for anew.
        w.feed(motorpool_pool::Input::Host(host(SizedBy::Machine, &[8, 8])));
        assert_eq!(w.card(1), (None, SHARE));
        w.pass(Duration::from_secs(15));
        assert_eq!(w.card(1), (None, Bytes::ZERO));
    }
}

#[test]
fn a_card_that_its_operator_sized_may_stay_unread() {
    let mut w = World::on(host(SizedBy::Operator, &[8]), catalog(&MODELS));
    w.health(0, Health::Missing);
    w.pass_reading(60);
    assert_eq!(w.card(0), (None, SHARE));
    w.idles("c");
}

#[test]
fn a_lost_card_takes_nothing_new_whatever_its_size_says_and_the_others_go_on() {
    let mut w = World::on(host(SizedBy::Operator, &[16, 8]), catalog(&MODELS));
    w.read_cards();
    let busy = w.resident("huge");
    w.health(0, Health::Lost);
    w.health(0, Health::Missing);
    assert_eq!((w.card(0).1, w.card(1).1), (Bytes::ZERO, SHARE));
    let lost = |device: DeviceId| EventKind::DeviceLost { device };
    assert_eq!(w.n_events(|e| *e == lost(card(0))), 1, "told once");
    assert_eq!((w.phase("huge"), w.leases.contains_key(&busy)), (Some(PhaseView::Ready), true), "what is there stays");
    w.idles("c");
    w.health(0, Health::Well);
    assert_eq!(w.n_events(|e| *e == EventKind::DeviceBack { device: card(0) }), 1);
    assert!(w.card(0).1 > Bytes::gib(15));
}

#[test]
fn foreign_use_with_an_idle_engine_there_evicts_it_and_denies_nobody() {
    let mut w = world(&[16]);
    w.idles("a");
    w.use_card(0, Bytes::gib(5));
    w.read_cards();
    let b = w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b) && w.denials.is_empty());
    assert_eq!(w.phase("a"), Some(PhaseView::Idle));
    assert!(w.pool.snapshot(w.now).entries.iter().all(|e| e.key != key("b") || e.reserved == Bytes::mib(7168)));
}
