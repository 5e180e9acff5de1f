//! [`Dice`]: settings and steps drawn at random, the same ones for the same seed.
use super::trace::{Edit, Parent, Place, Setting, SettingModel, Sickness, Step, Telling, Trace, Which, Wish};
use super::world::{Child, World};
use crate::{Direction, Force, RequestId};
use motorpool_vocab::{EngineKey, FailureClass, Lane};

/// How often each kind of step is drawn.
const WEIGHTS: [(Kind, u64); 29] = [
    (Kind::Acquire, 16),
    (Kind::Load, 2),
    (Kind::Enter, 6),
    (Kind::Leave, 15),
    (Kind::Tell, 5),
    (Kind::Cancel, 3),
    (Kind::Check, 13),
    (Kind::CheckBad, 1),
    (Kind::Progress, 1),
    (Kind::Ready, 13),
    (Kind::Gone, 9),
    (Kind::Crash, 1),
    (Kind::Fail, 2),
    (Kind::Sick, 1),
    (Kind::Fails, 1),
    (Kind::Written, 6),
    (Kind::Reset, 1),
    (Kind::UnloadIdle, 2),
    (Kind::Evict, 2),
    (Kind::Force, 1),
    (Kind::ReleaseIdle, 1),
    (Kind::Reconcile, 1),
    (Kind::Reload, 3),
    (Kind::Drain, 1),
    (Kind::Withdraw, 1),
    (Kind::Move, 2),
    (Kind::Pass, 10),
    (Kind::OldNews, 1),
    (Kind::Obey, 1),
];
/// Milliseconds that pass at once: around every time that the pool knows.
const TIMES: [u64; 12] = [1, 250, 1_000, 2_000, 3_000, 5_000, 10_000, 16_000, 40_000, 121_000, 181_000, 700_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    Load,
    Enter,
    Leave,
    Tell,
    Cancel,
    Check,
    CheckBad,
    Progress,
    Ready,
    Gone,
    Crash,
    Fail,
    Sick,
    Fails,
    Written,
    Reset,
    UnloadIdle,
    Evict,
    Force,
    ReleaseIdle,
    Reconcile,
    Reload,
    Drain,
    Withdraw,
    Move,
    Pass,
    OldNews,
    Obey,
}

/// Numbers at random, from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
    next_request: u64,
}

impl Dice {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, next_request: 1 }
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let n = self.below(u64::try_from(from.len()).ok()?);
        from.get(usize::try_from(n).ok()?).cloned()
    }

    fn some<T: Clone>(&mut self, percent: u64, from: &[T]) -> Option<T> {
        if self.chance(percent) { self.pick(from) } else { None }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// A small machine: models that fit alone or together, one that never fits, one that never goes.
    pub fn setting(&mut self) -> Setting {
        let budget = self.pick(&[1100, 1300, 1900, 2600, 4000]).unwrap_or(1200);
        let model =
            |id: &str, mib, priority, stays, replicas| SettingModel { id: id.into(), mib, priority, stays, replicas };
        let models = vec![
            model("a", 600, 0, [false; 2], (1, 3)),
            model("b", 500, 1, [false; 2], (1, 1)),
            model("c", 300, 0, [false, self.chance(30)], (1, 1)),
            model("d", 9000, 0, [false; 2], (1, 1)),
            model("e", 150, 0, [true, false], (1, 1)),
            model("f", 1000, 0, [false; 2], (1, 2)),
            model("g", 400, 0, [false; 2], (2, 2)),
        ];
        Setting { budget, models }
    }

    /// A trace of `n` steps in a setting of its own.
    pub fn trace(&mut self, n: usize) -> Trace {
        let setting = self.setting();
        let mut world = World::new(&setting);
        let steps = (0..n).map(|_| {
            let step = self.step(&world);
            drop(world.step(&step));
            step
        });
        let steps = steps.collect();
        Trace { setting, steps }
    }

    /// The next step in this world.
    pub fn step(&mut self, world: &World) -> Step {
        let all: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.below(all);
        let kind = WEIGHTS.iter().find(|(_, weight)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        let kind = kind.map_or(Kind::Obey, |(kind, _)| *kind);
        self.of_kind(kind, world).unwrap_or_else(|| {
            let ms = self.pick(&TIMES).unwrap_or(1);
            Step::Pass(ms)
        })
    }

    fn of_kind(&mut self, kind: Kind, world: &World) -> Option<Step> {
        let leases: Vec<_> = world.leases.keys().copied().collect();
        Some(match kind {
            Kind::Acquire => {
                let (id, model, wish) = (self.request(), self.model(world)?, self.wish());
                Step::Acquire(id, model, Box::new(wish))
            }
            Kind::Load => Step::Load(self.request(), self.model(world)?),
            Kind::Enter => Step::Enter(self.request(), self.model(world)?, self.telling()),
            Kind::Leave => Step::Leave(self.pick(&leases)?, self.telling()),
            Kind::Tell => Step::Tell(*world.untold.keys().next()?),
            Kind::Cancel => Step::Cancel(self.pick(&waiting(world))?),
            Kind::Check | Kind::CheckBad => {
                let keys: Vec<_> = world.checks.iter().map(|(_, key)| place_of(key)).collect();
                Step::Check(self.pick(&keys)?, if kind == Kind::Check { Ok(()) } else { Err(()) })
            }
            Kind::Progress => Step::Progress(self.child(world, &[Child::Loading])?),
            Kind::Ready => {
                let width = self.pick(&[1, 1, 2, 3, 4]).unwrap_or(1);
                Step::Ready(self.child(world, &[Child::Loading])?, width)
            }
            Kind::Gone => {
                let which = if self.chance(80) { Which::Oldest } else { Which::Newest };
                Step::Gone(self.child(world, &[Child::Asked, Child::Killed])?, which)
            }
            Kind::Crash => Step::Gone(self.child(world, &[Child::Loading, Child::Serving])?, Which::Newest),
            Kind::Fail => {
                let class = self.pick(FailureClass::ALL)?;
                Step::Fail(self.child(world, &[Child::Loading, Child::Serving])?, class)
            }
            Kind::Sick => {
                let sickness = if self.chance(50) { Sickness::Still } else { Sickness::Deaf };
                Step::Sick(self.child(world, &[Child::Serving])?, sickness)
            }
            Kind::Fails => Step::Fails(self.child(world, &[Child::Serving])?),
            Kind::Written => {
                let spawn = world.kept.children().next()?;
                Step::Written(place_of(&world.children.get(&spawn)?.0))
            }
            Kind::Reset => {
                let model = if self.chance(50) { self.model(world) } else { None };
                Step::Reset(self.request(), model)
            }
            Kind::UnloadIdle => Step::UnloadIdle(self.request(), self.place(world)?),
            Kind::Evict => Step::Evict(self.request(), self.place(world)?, Force::No),
            Kind::Force => Step::Evict(self.request(), self.place(world)?, Force::Yes),
            Kind::ReleaseIdle => Step::ReleaseIdle(self.request()),
            Kind::Reconcile => {
                let n = self.pick(&[0, 1, 2, 3, 65])?;
                Step::Reconcile(self.request(), self.model(world)?, n)
            }
            Kind::Reload => {
                use Edit::{Back, Cut, Gone, Launch, Live, Narrow};
                let edit = self.pick(&[Launch, Launch, Live, Narrow, Gone, Back, Back, Back, Cut])?;
                Step::Reload(self.request(), self.model(world)?, edit)
            }
            Kind::Drain => Step::Drain(self.request(), self.place(world)?),
            Kind::Withdraw => Step::Withdraw(self.request(), self.pick(&waiting(world))?),
            Kind::Move => {
                let direction = if self.chance(50) { Direction::Up } else { Direction::Down };
                Step::Move(self.request(), self.pick(&waiting(world))?, direction)
            }
            Kind::Pass => Step::Pass(self.pick(&TIMES)?),
            Kind::OldNews => Step::OldNews(self.below(40)),
            Kind::Obey => Step::Obey,
        })
    }

    fn model(&mut self, world: &World) -> Option<String> {
        let names: Vec<_> = world.setting.models.iter().map(|model| model.id.clone()).collect();
        // The one with replicas is asked for most.
        if self.chance(35) { names.first().cloned() } else { self.pick(&names) }
    }

    fn wish(&mut self) -> Wish {
        let sessions = ["s1", "s2", "s3", "s4", "s5"].map(str::to_owned);
        let lane = match self.below(10) {
            0..=5 => Lane::Interactive,
            6..=8 => Lane::Background,
            _ => Lane::Ambient,
        };
        Wish {
            lane,
            session: self.some(40, &sessions),
            actor: self.some(20, &sessions[..2]),
            drain: self.some(25, &[0, 1, 5, 60]),
            queue: self.some(25, &[1, 20, 90]),
            priority: self.some(10, &[-1, 1, 2]),
            replica: self.some(4, &[0, 1, 2, 70]),
            parent: if self.chance(10) { Parent::Some } else { Parent::None },
        }
    }

    fn telling(&mut self) -> Telling {
        if self.chance(80) { Telling::Now } else { Telling::Later }
    }

    fn child(&mut self, world: &World, states: &[Child]) -> Option<Place> {
        let of_it = world.children.values().filter(|(_, state)| states.contains(state));
        let places: Vec<_> = of_it.map(|(key, _)| place_of(key)).collect();
        self.pick(&places)
    }

    fn place(&mut self, world: &World) -> Option<Place> {
        let living: Vec<_> = world.children.values().map(|(key, _)| place_of(key)).collect();
        if self.chance(80) { self.pick(&living) } else { Some((self.model(world)?, 0)) }
    }
}

fn place_of(key: &EngineKey) -> Place {
    (key.model().to_string(), key.replica())
}

/// Requests that were not answered yet.
fn waiting(world: &World) -> Vec<RequestId> {
    let open = |id: &&RequestId| !world.outcomes.contains_key(id) && !world.cancelled.contains(id);
    world.asked.iter().filter(|(_, ask)| ask.is_some()).map(|(id, _)| id).filter(open).copied().collect()
}
