//! What may be done: drawn here, performed by the world.
use crate::dice::Dice;
use motorpool_testkit::{
    Behaviour, Bind, Deaf, End, Environment, Exit, Flood, Grandchild, GraphicsClaim, LineEnd, Load, Moment, Session,
    State, Stop, Switch, Tokens,
};
use motorpool_vocab::{GIB, MIB};

/// One step. Models are meant by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Load(usize),
    Stream(usize),
    Ask(usize),
    /// A client that goes away at once, or after the first bytes.
    Leave(usize),
    Unload(usize, How),
    /// From its next start on an engine behaves otherwise.
    Behave(usize, Mood),
    KillEngine(usize),
    KillKeeper(usize),
    /// The keeper performs nothing until the end of the cycle.
    FreezeKeeper(usize),
    LoseCard(usize),
    KillSupervisor,
    StopSupervisor,
    /// So many milliseconds.
    Wait(u8),
}

/// How an engine is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    AfterWork,
    IfIdle,
    AtOnce,
}

/// How a fake engine behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Slow,
    ExitsAtStart,
    CrashesWhileLoading,
    CrashesWhileServing,
    CannotBind,
    NeverReady,
    HangsWhileServing,
    Floods,
    Deaf,
    LeavesAStray,
    LosesItsStray,
    /// Never done with writing what a slot holds.
    WritesForEver,
    DiesOfWhatItReadsBack,
}

const MOODS: [Mood; 14] = [
    Mood::Well,
    Mood::Slow,
    Mood::ExitsAtStart,
    Mood::CrashesWhileLoading,
    Mood::CrashesWhileServing,
    Mood::CannotBind,
    Mood::NeverReady,
    Mood::HangsWhileServing,
    Mood::Floods,
    Mood::Deaf,
    Mood::LeavesAStray,
    Mood::LosesItsStray,
    Mood::WritesForEver,
    Mood::DiesOfWhatItReadsBack,
];

/// The steps of one cycle over so many models, of which the first `n_fake` are fake engines' and are taken mostly.
pub(crate) fn draw(dice: &mut Dice, n_models: usize, n_fake: usize) -> Vec<Step> {
    let n_steps = 3 + dice.below(8);
    (0..n_steps).map(|_| step(dice, n_models, n_fake)).collect()
}

fn step(dice: &mut Dice, n_models: usize, n_fake: usize) -> Step {
    // Real engines take seconds to load.
    let model = if dice.below(12) == 0 { dice.below(n_models) } else { dice.below(n_fake) };
    match dice.below(100) {
        0..12 => Step::Load(model),
        12..32 => Step::Stream(model),
        32..40 => Step::Ask(model),
        40..48 => Step::Leave(model),
        48..56 => Step::Unload(model, dice.pick(&[How::AfterWork, How::IfIdle, How::AtOnce])),
        56..70 => Step::Behave(dice.below(n_fake), dice.pick(&MOODS)),
        70..77 => Step::KillEngine(model),
        77..83 => Step::KillKeeper(model),
        83..85 => Step::FreezeKeeper(model),
        85 => Step::LoseCard(dice.below(2)),
        86..89 => Step::KillSupervisor,
        89 => Step::StopSupervisor,
        _ => Step::Wait(u8::try_from(dice.below(80)).unwrap_or(80)),
    }
}

impl Mood {
    /// Of an engine that takes so many MiB of a card.
    pub(crate) fn behaviour(self, card_mib: Option<u64>) -> Behaviour {
        let claim = card_mib.map(|mib| GraphicsClaim { bytes: mib * MIB, ..GraphicsClaim::default() });
        let state = State { bytes: MIB, ..State::default() };
        let well = Behaviour { graphics: claim.into_iter().collect(), state: state.clone(), ..Behaviour::default() };
        let exit = |at, how| Some(Exit { at, how, log: vec![], first_starts: None });
        let stray = |environment| Some(Grandchild { session: Session::Own, environment, memory: MIB });
        match self {
            Self::Well => well,
            Self::Slow => Behaviour {
                load: Load { ms: 150, steps: 3, ..Load::default() },
                tokens: Tokens { count: 20, prefill_ms: 20, pace_ms: 5, ..Tokens::default() },
                ..well
            },
            Self::ExitsAtStart => Behaviour { exit: exit(Moment::Start, End::Code(1)), ..well },
            Self::CrashesWhileLoading => {
                Behaviour { exit: exit(Moment::Loading, End::Signal("SIGABRT".into())), ..well }
            }
            Self::CrashesWhileServing => {
                Behaviour { exit: exit(Moment::Token(4), End::Signal("SIGSEGV".into())), ..well }
            }
            Self::CannotBind => Behaviour { bind: Bind::Refused, ..well },
            Self::NeverReady => Behaviour { bind: Bind::Never, ..well },
            Self::HangsWhileServing => {
                Behaviour { tokens: Tokens { gates: vec![never(3)], ..Tokens::default() }, ..well }
            }
            Self::Floods => Behaviour {
                flood: Some(Flood { bytes: Some(GIB), bytes_per_second: None, line_end: LineEnd::Lf }),
                ..well
            },
            Self::Deaf => Behaviour { stop: deaf(), ..well },
            Self::LeavesAStray => Behaviour { grandchild: stray(Environment::Inherited), stop: deaf(), ..well },
            Self::LosesItsStray => Behaviour { grandchild: stray(Environment::Cleared), ..well },
            Self::WritesForEver => Behaviour { state: State { write_hangs: Switch::ON, ..state }, ..well },
            Self::DiesOfWhatItReadsBack => Behaviour { state: State { read_dies: Switch::ON, ..state }, ..well },
        }
    }
}

/// A token that is never made.
fn never(before: u32) -> motorpool_testkit::TokenGate {
    motorpool_testkit::TokenGate { before, file: std::env::temp_dir().join("motorpool-a-gate-that-nobody-opens") }
}

fn deaf() -> Stop {
    Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand, Deaf::EndOfStdin], ..Stop::default() }
}
