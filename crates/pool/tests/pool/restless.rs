//! The properties over random traces on a machine whose cards are restless: memory comes back late, others come and go,
//! drivers fail and tell less. **B4** among them.
use crate::{
    cards::host,
    machine::{Answers, Health, ON_DEVICE, ON_PROCESSOR, Tells, card},
    ops::{Obedience, Op as Asked, any_trace},
    properties::{EAGER, Quiet, Run},
};
use motorpool_pool::{Host, SizedBy};
use motorpool_vocab::{Bytes, EventKind, Spawn};
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

/// What the machine does between two things that are asked.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Lag(u64),
    Foreign(usize, u64),
    Health(usize, Health),
    Tells(Tells),
    Answers(Answers),
    Takes(u64),
    Reports(Option<&'static str>),
    /// MiB of system memory that can be had, and how much stood still for it.
    Memory(Option<u64>, Option<u16>),
    Read,
}

fn any_act() -> impl Strategy<Value = Act> {
    let n = 0usize..2;
    prop_oneof![
        12 => Just(Act::Nothing),
        4 => prop_oneof![Just(0), Just(50), Just(1_000), Just(8_000)].prop_map(Act::Lag),
        3 => (n.clone(), 0u64..1200).prop_map(|(n, mib)| Act::Foreign(n, mib)),
        2 => (n, prop_oneof![Just(Health::Well), Just(Health::Missing), Just(Health::Lost)])
            .prop_map(|(n, health)| Act::Health(n, health)),
        1 => prop_oneof![Just(Tells::ByProcess), Just(Tells::TotalsOnly)].prop_map(Act::Tells),
        1 => prop_oneof![3 => Just(Answers::AtOnce), 1 => Just(Answers::Never)].prop_map(Act::Answers),
        1 => (0u64..1100).prop_map(Act::Takes),
        2 => prop_oneof![Just(None), Just(Some(ON_DEVICE)), Just(Some(ON_PROCESSOR))].prop_map(Act::Reports),
        2 => (prop::option::of(0u64..4000), prop::option::of(0u16..2000)).prop_map(|(mib, n)| Act::Memory(mib, n)),
        6 => Just(Act::Read),
    ]
}

struct Restless {
    run: Run,
    seen_events: usize,
    /// Children with something on a card that were there, and when they were gone.
    ended: BTreeMap<Spawn, motorpool_vocab::Now>,
}

impl Restless {
    fn on(mut run: Run) -> Self {
        run.quiet = Quiet::No;
        run.w.read_cards();
        Self { run, seen_events: 0, ended: BTreeMap::new() }
    }

    fn all(mut self, (ops, obedience): (impl Iterator<Item = Asked>, Obedience), acts: Vec<Act>) {
        let mut acts = acts.into_iter().cycle();
        for op in ops {
            self.act(acts.next().unwrap_or(Act::Nothing));
            self.run.step(op);
            self.run.check();
            self.check_b4();
        }
        self.run.wind_down(obedience);
        self.check_b4();
    }

    fn act(&mut self, act: Act) {
        let w = &mut self.run.w;
        match act {
            Act::Nothing => {}
            Act::Lag(ms) => w.machine.lag = Duration::from_millis(ms),
            Act::Foreign(n, mib) => w.use_card(n, Bytes::mib(mib)),
            Act::Health(n, health) => drop(w.machine.health.insert(card(n), health)),
            Act::Tells(tells) => w.machine.tells = tells,
            Act::Answers(answers) => w.machine.answers = answers,
            Act::Takes(takes) => w.machine.takes = takes,
            Act::Reports(line) => w.machine.reports = line,
            Act::Memory(available, stalled) => w.memory(available, stalled),
            Act::Read => w.read_cards(),
        }
    }

    /// B4: while a child lives, its line is not released; of one that is gone, it is not while a card that is well and
    /// tells whose memory is whose shows some of it, unless 5 s have passed.
    fn check_b4(&mut self) {
        let w = &self.run.w;
        for event in &w.events[self.seen_events..] {
            let EventKind::Released { spawn, .. } = &event.kind else { continue };
            assert!(!w.children.contains_key(spawn), "B4: {spawn} lives");
            let Some((gone_at, cards)) = w.gone_at.get(spawn) else { continue };
            let over = event.at.since(*gone_at) >= Duration::from_secs(5);
            let shown = w.machine.is_shown_on(cards, (event.at, *spawn));
            assert!(over || !shown, "B4: {event:?}, gone at {gone_at:?}");
            self.ended.insert(*spawn, event.at);
        }
        for (spawn, (gone_at, _)) in w.gone_at.iter().filter(|(spawn, _)| !self.ended.contains_key(spawn)) {
            assert!(w.now.since(*gone_at) <= Duration::from_secs(5), "a line is kept past its time: {spawn}");
        }
        self.seen_events = w.events.len();
    }
}

fn any_size() -> impl Strategy<Value = SizedBy> {
    prop_oneof![Just(SizedBy::Machine), Just(SizedBy::Operator)]
}

fn cards(sized: SizedBy) -> Host {
    let mut host = host(sized, &[0, 0]);
    for (card, mib) in host.cards.iter_mut().zip([800, 1100]) {
        card.total = Bytes::mib(mib);
    }
    host.ram = Bytes::gib(3);
    host
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_invariants_on_restless_cards(
        (ops, close, late, obedience) in any_trace(),
        acts in prop::collection::vec(any_act(), 60),
        sized in any_size(),
    ) {
        Restless::on(Run::new(cards(sized))).all((ops.into_iter().chain([close]).chain(late), obedience), acts);
    }

    /// Builds that nobody waits for pass the same checks.
    #[test]
    fn and_so_it_does_where_engines_come_by_themselves(
        (ops, close, late, obedience) in any_trace(),
        acts in prop::collection::vec(any_act(), 60),
        sized in any_size(),
    ) {
        let run = Run::with(cards(sized), EAGER.clone());
        Restless::on(run).all((ops.into_iter().chain([close]).chain(late), obedience), acts);
    }
}
