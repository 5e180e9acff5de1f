//! What one load teaches the next one.
use crate::world::{Child, Outcome, World, catalog, facts, key};
use motorpool_gguf::{read_header, write};
use motorpool_pool::{
    Becomes, Calibration, Card, Exit, Experience, Facts, Host, HostShape, Input, Lesson, Lessons, Marks, Measured,
    MemorySight, ModelShape, News, Prospect, Refusal, Reported, Source, copies,
};
use motorpool_vocab::{Bytes, EventKind, FailureClass, Now, Spawn};
use std::{io::Cursor, sync::Arc, time::Duration};

/// A model that is estimated by its header, with whatever its catalog says.
fn world(budget_mib: u64, catalog_says: &str) -> World {
    World::with(budget_mib, catalog(&[("m", 0, catalog_says), ("other", 1024, "")]))
}

fn with_header(learned: Lessons) -> Facts {
    let bytes = write::Smoke { context: 1 << 20, ..write::Smoke::default() }.writer().finish();
    let length = u64::try_from(bytes.len()).expect("small");
    let header = read_header(Cursor::new(bytes), length).expect("whole");
    Facts { context_length: Some(1 << 20), shape: ModelShape::of(&[header]).ok().map(Arc::new), learned, ..facts() }
}

/// What the shell would give back of all that was taught.
fn lessons(taught: &[Experience]) -> Lessons {
    let mut lessons: Vec<Lesson> = vec![];
    for experience in taught {
        let n = lessons.iter().position(|lesson| lesson.key == experience.key).unwrap_or_else(|| {
            lessons.push(Lesson::new(experience.key.clone()));
            lessons.len() - 1
        });
        lessons[n].take(experience);
    }
    Lessons { about: "m".into(), lessons: lessons.into() }
}

impl World {
    /// `m` is asked for, with what was taught so far.
    fn begin(&mut self) -> motorpool_pool::RequestId {
        let id = self.acquire("m");
        self.look();
        id
    }

    /// Its files are looked at, with what was taught so far.
    fn look(&mut self) {
        let facts = with_header(lessons(&self.learned));
        for (build, _) in std::mem::take(&mut self.checks) {
            self.feed(Input::Checked { build, result: Ok(facts.clone()) });
        }
    }

    /// `m` loads, is ready and idle; its child and what was planned for it.
    fn load(&mut self) -> (Spawn, Bytes) {
        let id = self.begin();
        let spawn = self.ready("m");
        self.leave(id);
        (spawn, self.planned())
    }

    fn planned(&self) -> Bytes {
        let entries = self.pool.snapshot(self.now).entries;
        entries.into_iter().find(|entry| entry.key == key("m")).expect("an entry").planned
    }

    fn see(&mut self, spawn: Spawn, measured: &Measured) {
        self.feed(Input::Measured { spawn, measured: measured.clone() });
    }

    fn unload(&mut self, spawn: Spawn) {
        self.admin(|id| Input::UnloadIdle { id, key: key("m") });
        self.gone(spawn);
    }

    /// A whole life in which it held so much.
    fn life(&mut self, measured: &Measured) -> Bytes {
        let (spawn, planned) = self.load();
        self.see(spawn, measured);
        self.see(spawn, measured);
        self.unload(spawn);
        planned
    }

    fn die_loading(&mut self, class: FailureClass) {
        let spawn = self.child("m", Child::Loading);
        self.feed(Input::Memory(MemorySight { foreign: Some(Bytes::ZERO), ..MemorySight::default() }));
        self.die(spawn, class);
    }

    fn die(&mut self, spawn: Spawn, class: FailureClass) {
        self.children.remove(&spawn);
        self.machine.gone(self.now, spawn);
        self.feed(Input::Gone { spawn, exit: Exit { class: Some(class), ..Exit::default() } });
    }

    fn denied(&self, id: motorpool_pool::RequestId) -> String {
        let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = self.outcome(id) else {
            panic!("denied, not {:?}", self.outcome(id))
        };
        denial.to_string()
    }
}

/// The first number of a denial's arithmetic.
fn would_commit(line: &str) -> Bytes {
    let number = line.split_once("would commit ").and_then(|(_, rest)| rest.split(' ').next());
    Bytes::new(number.and_then(|n| n.parse().ok()).expect("a number"))
}

fn holds(private: Bytes) -> Measured {
    Measured {
        private: Some(private),
        files: Some([(facts().files[0].0, Bytes::mib(1))].into()),
        ..Measured::default()
    }
}

/// With a report of so many MiB of buffers.
fn reports(mib: u64) -> Measured {
    let mut reported = Reported::default();
    reported.on_line(&format!("x: CPU compute buffer size = {mib}.00 MiB"));
    Measured { reported: Some(reported), ..holds(Bytes::mib(1)) }
}

/// A claim of one file that is mapped.
fn with_file(private: Bytes) -> Bytes {
    private.saturating_add(Bytes::mib(1))
}

fn private(experience: &Experience) -> Option<Bytes> {
    match &experience.news {
        News::Saw(Marks { private, .. }) | News::Died(Marks { private, .. }) => *private,
    }
}

#[test]
fn where_devices_share_system_memory_their_driver_stays_charged_beside_what_is_reported() {
    let line = |shape| {
        let host = Host { shape, ram: Bytes::gib(64), ..Host::default() };
        let mut w = World::on(host, catalog(&[("m", 0, "slots = 1\ncontext = 8192")]));
        let (spawn, _) = w.load();
        w.see(spawn, &reports(100));
        w.committed()
    };
    let driver = Calibration::default().device_overhead;
    assert_eq!(line(HostShape::Unified), line(HostShape::SystemRam).saturating_add(driver));
}

#[test]
fn more_than_was_estimated_is_the_next_estimate() {
    let mut w = world(8192, "");
    let (spawn, planned) = w.load();
    let more = planned.saturating_add(planned.per_mille(500));
    w.see(spawn, &holds(more));
    assert!(w.learned.is_empty(), "a report may still come");
    w.see(spawn, &holds(more));
    assert_eq!(w.learned.iter().map(private).collect::<Vec<_>>(), [Some(more)]);
    w.unload(spawn);
    assert_eq!(w.learned.len(), 1, "told already");
    let (_, again) = w.load();
    assert!(again > more && again < with_file(more.saturating_add(Bytes::mib(100))), "{planned} {more} {again}");
}

#[test]
fn less_than_was_estimated_is_the_next_estimate_when_the_engine_reported_it() {
    let mut w = world(8192, "");
    let (spawn, planned) = w.load();
    w.see(spawn, &reports(3));
    let learned = w.learned.first().and_then(private).expect("at once: it was reported");
    assert!(learned < planned, "{learned} {planned}");
    w.unload(spawn);
    let (_, again) = w.load();
    assert!(again < planned && again >= learned, "{planned} {learned} {again}");
}

#[test]
fn what_rises_is_told_while_it_lives_and_the_rest_at_its_end() {
    let mut w = world(8192, "");
    let (spawn, planned) = w.load();
    let of = |per_mille| holds(planned.saturating_add(planned.per_mille(per_mille)));
    for per_mille in [500, 500, 540, 700, 701] {
        w.see(spawn, &of(per_mille));
    }
    assert_eq!(w.learned.len(), 2, "a twentieth is not worth to be told: {:?}", w.learned);
    w.unload(spawn);
    let last = w.learned.last().and_then(private);
    assert_eq!((w.learned.len(), last), (3, of(701).private), "the most of all");
}

#[test]
fn what_is_far_from_the_estimate_counts_when_two_loads_saw_it() {
    let mut w = world(8192, "");
    let first = w.load();
    let far = first.1.saturating_mul(4);
    w.see(first.0, &holds(far));
    w.see(first.0, &holds(far));
    w.unload(first.0);
    assert_eq!(w.life(&holds(far)), first.1, "seen once");
    assert!(w.load().1 >= far, "seen twice");
}

#[test]
fn a_crash_teaches_as_much_as_an_unload_and_what_loads_teaches_nothing() {
    let mut w = world(8192, "");
    let (spawn, planned) = w.load();
    w.see(spawn, &holds(planned.saturating_mul(2)));
    w.gone(spawn);
    assert_eq!(w.learned.len(), 1);
    w.begin();
    let loading = w.child("m", Child::Loading);
    w.see(loading, &holds(planned.saturating_mul(3)));
    w.gone(loading);
    assert_eq!(w.learned.len(), 1);
}

#[test]
fn a_death_by_memory_teaches_what_was_needed_at_least_and_the_second_is_believed() {
    let mut w = world(40_960, "");
    let first = w.begin();
    let (spawn, planned) = (w.child("m", Child::Loading), w.planned());
    w.die_loading(FailureClass::OutOfHostMemory);
    // It is started once more, and smaller.
    w.look();
    w.die_loading(FailureClass::OutOfHostMemory);
    assert!(matches!(w.outcome(first), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
    let [died, _] = w.learned.as_slice() else { panic!("two: {:?}", w.learned) };
    let needed = private(died).expect("of system memory");
    assert!(died.spawn == spawn && matches!(died.news, News::Died(_)));
    let files = planned.saturating_sub(died.estimate.private.expect("estimated"));
    assert_eq!(needed.saturating_add(files), Bytes::gib(64).saturating_add(Bytes::new(1)), "more than the machine has");
    w.pass(Duration::from_mins(1));
    let second = w.begin();
    w.die_loading(FailureClass::OutOfHostMemory);
    assert_eq!(w.learned[0].key, w.learned[2].key, "so far from the estimate, one is not believed");
    w.look();
    assert!(would_commit(&w.denied(second)) > Bytes::gib(63), "as much is lacking in the smallest plan");
}

#[test]
fn after_a_death_on_a_card_as_much_context_is_planned_as_leaves_what_was_lacking() {
    let on = |card| {
        let cards = vec![Card::new("GPU-0", card)];
        let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() };
        World::on(host, catalog(&[("m", 0, "slots = 2\ncontext = 1048576\ncontext_min = 8192")]))
    };
    let died = |w: &mut World| {
        w.begin();
        w.die_loading(FailureClass::OutOfDeviceMemory);
        w.learned.last().expect("it died").clone()
    };
    let first = died(&mut on(Bytes::gib(80)));
    let estimated = *first.estimate.device.values().next().expect("on the card");
    let mut w = on(estimated.per_mille(1200));
    let (before, after) = (died(&mut w), died(&mut w));
    let News::Died(needed) = &before.news else { panic!("it died") };
    assert_eq!(needed.device.values().next(), Some(&estimated.per_mille(1200).saturating_add(Bytes::new(1))));
    let (long, short) = (before.key.plan.context_per_slot, after.key.plan.context_per_slot);
    assert!(long == 1 << 20 && short < long - (long >> 4) && short > long / 2, "{long} {short}");
}

#[test]
fn one_that_served_or_that_died_beside_nobody_knows_what_says_nothing_of_its_load() {
    let mut w = world(8192, "");
    let (spawn, _) = w.load();
    w.feed(Input::Memory(MemorySight { foreign: Some(Bytes::ZERO), ..MemorySight::default() }));
    w.die(spawn, FailureClass::OutOfHostMemory);
    assert!(w.learned.is_empty(), "others took the memory while it served");
    let mut unread = world(8192, "");
    unread.begin();
    let spawn = unread.child("m", Child::Loading);
    unread.die(spawn, FailureClass::OutOfHostMemory);
    assert!(unread.learned.is_empty(), "nobody read what others have");
}

#[test]
fn a_death_beside_others_only_says_that_more_must_be_free() {
    let mut w = world(3000, "slots = 1\ncontext = 8192");
    let other = w.resident("other");
    w.leave(other);
    w.begin();
    w.die_loading(FailureClass::OutOfHostMemory);
    let needed = w.learned.first().and_then(private).expect("of system memory");
    assert!(needed < Bytes::gib(63) && needed > Bytes::gib(62), "all but what the other one has: {needed}");
}

#[test]
fn an_end_for_any_other_reason_teaches_no_bound() {
    for class in [FailureClass::Killed, FailureClass::Assertion, FailureClass::ModelCorrupt] {
        let mut w = world(8192, "");
        w.begin();
        w.die_loading(class);
        assert!(w.learned.is_empty(), "{class}");
    }
}

/// What was believed of a plan with so many slots and tokens.
fn needs(w: &World, (slots, context): (u32, u32), bytes: Bytes) -> Experience {
    let like = w.learned.first().expect("one life").clone();
    let mut key = like.key;
    (key.plan.slots, key.plan.context_per_slot) = (slots, context);
    let marks = Marks { private: Some(bytes), ..Marks::default() };
    Experience { key, estimate: marks.clone(), news: News::Saw(marks), ..like }
}

#[test]
fn where_what_was_learned_no_longer_fits_slots_are_given_up_then_context_and_then_it_is_denied() {
    let too_much = Bytes::gib(31);
    let mut w = world(30 * 1024, "");
    let planned = w.life(&holds(Bytes::mib(500)));
    let plan = w.learned[0].key.plan;
    assert_eq!((plan.slots, plan.context_per_slot), (3, 65_536), "{planned}");
    let launched = |w: &mut World| {
        let (spawn, _) = w.load();
        w.see(spawn, &holds(Bytes::mib(500)));
        w.see(spawn, &holds(Bytes::mib(500)));
        w.unload(spawn);
        w.learned.pop().expect("its life").key.plan
    };
    for slots in [3, 2] {
        w.learned.push(needs(&w, (slots, 65_536), too_much));
        assert_eq!(launched(&mut w).slots, slots - 1);
    }
    w.learned.push(needs(&w, (1, 65_536), too_much));
    let plan = launched(&mut w);
    assert_eq!((plan.slots, plan.context_per_slot), (1, 63 * 1024));
    assert_eq!(w.n_events(|e| matches!(e, EventKind::ContextClamped { wanted: 65_536, .. })), 1);

    let mut strict = world(30 * 1024, "slots = 3\ncontext = 65536");
    strict.life(&holds(Bytes::mib(500)));
    strict.learned.push(needs(&strict, (3, 65_536), too_much));
    let id = strict.begin();
    let commits = too_much.saturating_add(Bytes::mib(200));
    let line = strict.denied(id);
    assert!(would_commit(&line) >= too_much && would_commit(&line) < commits, "{line}");
}

#[test]
fn a_question_says_that_a_figure_was_learned() {
    let mut w = world(8192, "");
    let asked = |w: &World| {
        let models = [w.model("m")];
        let (launch, model) = copies(&models, 1).remove(0);
        let facts = Ok(with_header(lessons(&w.learned)));
        let outlook = w.pool.outlook(Now::ZERO, vec![Prospect { key: launch, model, facts }]).remove(0);
        let Becomes::Fits(placement) = outlook.becomes else { panic!("there is room: {outlook:?}") };
        outlook.draft.expect("planned").source_of(Some(&placement))
    };
    assert_eq!(asked(&w), Source::Estimated);
    w.life(&holds(Bytes::mib(600)));
    assert_eq!(asked(&w), Source::Learned);
}
