//! Whether an engine that is ready still serves (supervisor.md §3).
//!
//! ```text
//!            three misses · all slots taken and nothing moved for 120 s · three failures in a row, or a silence
//!   Well ──────────────────────────────────────────────────────────────────────────────► Suspect: its gate is closed,
//!    ▲                                                                                        │   but for failures (H2)
//!    ├── it moves again (unless it failed requests) ──────────────────────────────────────────┤
//!    └── an inference, asked when a slot is free, succeeds ───────────────────────────────────┤
//!                                                                                             │ the inference fails, or
//!                          Condemned: its gate is closed, ◄───────────────────────────────────┤ is late with nobody
//!                          what it serves comes to its end                                    │ served meanwhile (H5)
//!                               │                                                             │
//!            the last lease left, or nothing moved for 120 s         nothing moved for 120 s with all slots taken, or
//!                               ▼                                             since an inference was late
//!                        stopped: health ◄────────────────────────────────────────────────────┘
//! ```
//!
//! * **H1** progress is health: what produced something in the last 15 s is not asked and not stopped, whatever a probe
//!   said before. What its slots show of prompts being evaluated is progress, too.
//! * **H2** no inference is asked of an engine all of whose slots are taken. Until the verdict nobody new enters, so that
//!   one that is free stays free; but failed requests may be their senders' own fault, and cost the others nothing yet.
//! * **H3** one question at a time. Whoever performs it ends it in time, answered or not.
//! * **H4** nothing is judged while the pool closes: everything ends anyway.
//! * **H5** a verdict is of the suspicion it was asked for: what moved meanwhile, or recovered, is not condemned by it. Nor
//!   is one by an inference that is merely late while it serves others: they share its steps, and it is asked again.
//! * **H7** where no inference can be asked, to live is no proof: failures that are forgiven for it once are not forgiven
//!   again before it answers somebody.
//!
//! Time in which nothing ran is no silence (H6, `asleep.rs`).
//!
//! Signs are read off the engine's gate at every input, so at least once a second; here is no clock of its own.
use crate::{
    Action, Pool, StartFault,
    entry::{EntryId, Serving},
};
use motorpool_vocab::{EventKind, FailureClass, Now, Signs, Spawn, StopReason};
use std::time::Duration;

/// When an engine is asked, and when it is believed to be of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthTerms {
    /// One that showed no progress for so long is asked whether it lives, and again after so long (15 s).
    pub every: Duration,
    /// So many questions without an answer in a row make it suspect (3).
    pub misses: u32,
    /// With all slots taken and no progress for so long it is suspect, and after as long again it is stopped (2 min).
    pub silent: Duration,
    /// So many failed requests in a row make it suspect (3); 0: none do.
    pub failures: u32,
}

impl Default for HealthTerms {
    fn default() -> Self {
        Self { every: Duration::from_secs(15), misses: 3, silent: Duration::from_mins(2), failures: 3 }
    }
}

/// What an engine is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Whether it lives: its health, and what its slots do.
    Liveness,
    /// One real inference.
    Inference,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// As it should be; what its slots have done so far as one number, where they tell.
    Well(Option<u64>),
    /// It answers; whether it infers is not known: there is nothing that it can be asked.
    Lives,
    /// Nothing in time.
    Missed,
    /// It said that it fails, or the connection was refused or broke.
    Failed,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Health {
    seen: Signs,
    /// What its slots showed last.
    figure: Option<u64>,
    /// When it last showed progress, or became ready.
    moved_at: Now,
    /// Since when all slots are taken.
    full_since: Option<Now>,
    /// When it was last seen to serve somebody.
    held_at: Option<Now>,
    asked: Option<Probe>,
    asked_at: Now,
    misses: u32,
    /// How many it had answered when its failures were forgiven because it lives (H7).
    forgiven_at: Option<u64>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Well,
    Suspect { since: Now, why: Why, late: Option<Late> },
    Condemned { since: Now },
}

/// Inferences asked of a suspect engine that were late while it served others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Late {
    since: Now,
    last_at: Now,
}

/// How many of its slots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    None,
    Some,
    All,
}

/// What speaks against an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It does not answer.
    Mute,
    /// All its slots are taken and nothing moves.
    Still,
    /// It fails requests.
    Fails,
}

impl Why {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Mute => "it does not answer",
            Self::Still => "all its slots are taken and nothing moves",
            Self::Fails => "it fails one request after the other",
        }
    }
}

/// What is to be done about an engine now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ask(Probe),
    Suspect(Why),
    Recover,
    Stop,
    Nothing,
}

impl Health {
    pub(crate) fn new(now: Now) -> Self {
        Self {
            seen: Signs::default(),
            figure: None,
            moved_at: now,
            full_since: None,
            held_at: None,
            asked: None,
            asked_at: now,
            misses: 0,
            forgiven_at: None,
            standing: Standing::Well,
        }
    }

    /// Whether it must prove that it serves.
    pub(crate) fn is_doubted(&self) -> bool {
        self.standing != Standing::Well
    }

    /// Whether nobody new may enter before it proved that.
    pub(crate) fn is_barred(&self) -> bool {
        !matches!(self.standing, Standing::Well | Standing::Suspect { why: Why::Fails, .. })
    }

    /// Takes in what its gate counted.
    fn look(&mut self, now: Now, signs: Signs, taken: Taken) {
        if signs.moves != self.seen.moves {
            self.moves(now);
        }
        self.seen = signs;
        self.full_since = if taken == Taken::All { self.full_since.or(Some(now)) } else { None };
        if taken != Taken::None {
            self.held_at = Some(now);
        }
    }

    fn moves(&mut self, now: Now) {
        self.moved_at = now;
        self.misses = 0;
    }

    /// For so long nothing ran (H6).
    pub(crate) fn skip(&mut self, gap: Duration) {
        let later = |at: &mut Now| *at = at.after(gap);
        [&mut self.moved_at, &mut self.asked_at].into_iter().for_each(later);
        self.full_since.iter_mut().chain(&mut self.held_at).for_each(later);
        match &mut self.standing {
            Standing::Well => {}
            Standing::Condemned { since } => later(since),
            Standing::Suspect { since, late, .. } => {
                later(since);
                late.iter_mut().flat_map(|late| [&mut late.since, &mut late.last_at]).for_each(later);
            }
        }
    }

    /// Takes in what came of the question that is out. Whether it was out at all.
    fn hear(&mut self, now: Now, probe: Probe, probed: Probed) -> bool {
        if self.asked != Some(probe) {
            return false;
        }
        self.asked = None;
        match (probe, probed) {
            (Probe::Liveness, Probed::Missed | Probed::Failed) => self.misses = self.misses.saturating_add(1),
            (Probe::Liveness, Probed::Lives) => self.misses = 0,
            (Probe::Liveness, Probed::Well(figure)) => {
                self.misses = 0;
                if figure.is_some() && self.figure.is_some() && figure != self.figure {
                    self.moves(now);
                }
                self.figure = figure.or(self.figure);
            }
            (Probe::Inference, Probed::Well(_)) => {
                self.moves(now);
                self.standing = Standing::Well;
            }
            (Probe::Inference, Probed::Lives) if self.fails_again() => self.judge(now, Probed::Failed),
            (Probe::Inference, Probed::Lives) => {
                if matches!(self.standing, Standing::Suspect { why: Why::Fails, .. }) {
                    self.forgiven_at = Some(self.seen.answers);
                }
                self.moves(now);
                self.standing = Standing::Well;
            }
            (Probe::Inference, Probed::Missed | Probed::Failed) => self.judge(now, probed),
        }
        true
    }

    /// Whether it failed as often as makes it suspect, was forgiven, and has answered nobody since (H7).
    fn fails_again(&self) -> bool {
        let fails = matches!(self.standing, Standing::Suspect { why: Why::Fails, .. });
        fails && self.forgiven_at == Some(self.seen.answers)
    }

    /// An inference came to nothing (H5).
    fn judge(&mut self, now: Now, probed: Probed) {
        let Standing::Suspect { since, why, late } = &mut self.standing else { return };
        let moved = self.moved_at > self.asked_at && *why != Why::Fails;
        if moved || self.asked_at < *since {
            return;
        }
        let served = self.held_at.is_some_and(|at| at >= self.asked_at);
        if probed == Probed::Missed && served {
            *late = Some(Late { since: late.map_or(now, |late| late.since), last_at: now });
        } else {
            self.standing = Standing::Condemned { since: now };
        }
    }

    /// When it is asked next whether it lives.
    fn ask_at(&self, terms: &HealthTerms) -> Option<Now> {
        self.asked.is_none().then(|| self.moved_at.max(self.asked_at).after(terms.every))
    }

    /// When it is asked next for an inference.
    fn ask_inference_at(&self, terms: &HealthTerms) -> Option<Now> {
        match self.standing {
            Standing::Suspect { since, late, .. } if self.full_since.is_none() && self.asked.is_none() => {
                Some(late.map_or(since, |late| late.last_at.after(terms.every)))
            }
            Standing::Well | Standing::Suspect { .. } | Standing::Condemned { .. } => None,
        }
    }

    /// When it has been still for too long.
    fn still_at(&self, terms: &HealthTerms) -> Option<Now> {
        let from = match self.standing {
            Standing::Well => self.full_since?,
            Standing::Suspect { since, late, .. } => {
                let unserved = self.full_since.into_iter().chain(late.map(|late| late.since));
                unserved.min()?.max(since)
            }
            Standing::Condemned { since } => since,
        };
        Some(self.moved_at.max(from).after(terms.silent))
    }

    /// When something of this becomes due by time alone.
    fn due_at(&self, terms: &HealthTerms) -> impl Iterator<Item = Now> {
        let asks = self.ask_at(terms).into_iter().chain(self.ask_inference_at(terms));
        asks.chain(self.still_at(terms))
    }

    fn step(&self, now: Now, terms: &HealthTerms) -> Step {
        let is_still = self.still_at(terms).is_some_and(|at| at <= now);
        let ask =
            if self.ask_at(terms).is_some_and(|at| at <= now) { Step::Ask(Probe::Liveness) } else { Step::Nothing };
        match self.standing {
            Standing::Well if terms.failures > 0 && self.seen.failures >= terms.failures => Step::Suspect(Why::Fails),
            Standing::Well if is_still => Step::Suspect(Why::Still),
            Standing::Well if self.misses >= terms.misses.max(1) => Step::Suspect(Why::Mute),
            Standing::Suspect { since, why, .. } if why != Why::Fails && self.moved_at > since => Step::Recover,
            Standing::Suspect { .. } | Standing::Condemned { .. } if is_still => Step::Stop,
            Standing::Suspect { .. } if self.ask_inference_at(terms).is_some_and(|at| at <= now) => {
                Step::Ask(Probe::Inference)
            }
            Standing::Well | Standing::Suspect { .. } | Standing::Condemned { .. } => ask,
        }
    }
}

impl Pool {
    /// Reads the signs of every engine that serves, and does what follows from them.
    pub(crate) fn watch_health(&mut self, now: Now) {
        for entry in self.by_spawn.values().copied().collect::<Vec<_>>() {
            self.watch_one(now, entry);
        }
    }

    pub(crate) fn watch_one(&mut self, now: Now, entry: EntryId) {
        if self.is_closing() {
            return;
        }
        let terms = self.config.health;
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        let taken = look_at(now, serving);
        let is_condemned = matches!(serving.health.standing, Standing::Condemned { .. });
        let step = if is_condemned && taken == Taken::None { Step::Stop } else { serving.health.step(now, &terms) };
        match step {
            Step::Ask(probe) => self.ask_engine(now, entry, probe),
            Step::Suspect(why) => self.suspect(now, entry, why),
            Step::Recover => self.recover(now, entry),
            Step::Stop => self.stop_unwell(now, entry),
            Step::Nothing => {}
        }
    }

    fn ask_engine(&mut self, now: Now, entry: EntryId, probe: Probe) {
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        (serving.health.asked, serving.health.asked_at) = (Some(probe), now);
        let spawn = serving.spawn;
        self.act(Action::Probe { spawn, probe });
    }

    fn suspect(&mut self, now: Now, entry: EntryId, why: Why) {
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        serving.health.standing = Standing::Suspect { since: now, why, late: None };
        let spawn = serving.spawn;
        let key = self.entries[entry].key.clone();
        self.publish(now, EventKind::Suspected { key, spawn, why: why.as_str() });
        self.bar(now, entry);
        // The first question is due at once, where a slot is free.
        self.watch_one(now, entry);
    }

    /// Nobody new enters, if that is what its standing means; tickets wait for the verdict, or go to a sibling.
    fn bar(&mut self, now: Now, entry: EntryId) {
        let Some(serving) = self.entries[entry].serving().filter(|serving| serving.health.is_barred()) else { return };
        serving.gate.close();
        self.move_to_sibling(now, entry);
    }

    /// It serves: its gate opens, unless it is drained for somebody.
    fn recover(&mut self, now: Now, entry: EntryId) {
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        serving.health.standing = Standing::Well;
        serving.health.misses = 0;
        serving.gate.vital().forgive();
        serving.health.seen.failures = 0;
        let spawn = serving.spawn;
        let key = self.entries[entry].key.clone();
        self.publish(now, EventKind::Recovered { key, spawn });
        self.reopen_unless_drained(now, entry);
    }

    /// Its leases, if any are left, are cut: nothing of them moves.
    fn stop_unwell(&mut self, now: Now, entry: EntryId) {
        let Some(Serving { spawn, gate, .. }) = self.entries[entry].serving() else { return };
        let (spawn, signs) = (*spawn, gate.vital().look());
        let message = "it was stopped because it did not serve any more".to_owned();
        let fault = StartFault { class: FailureClass::Unresponsive, message, tail: vec![] };
        self.service_broke(now, entry, spawn, (fault, signs));
        self.tear_down(now, entry, StopReason::Health);
    }

    /// What came of a probe.
    pub(crate) fn on_probed(&mut self, now: Now, spawn: Spawn, (probe, probed): (Probe, Probed)) {
        let Some(entry) = self.entry_of(spawn) else { return };
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        look_at(now, serving);
        let before = serving.health.standing;
        if !serving.health.hear(now, probe, probed) {
            return;
        }
        match (before, serving.health.standing) {
            (Standing::Suspect { .. } | Standing::Condemned { .. }, Standing::Well) => self.recover(now, entry),
            (Standing::Suspect { .. }, Standing::Condemned { .. }) => self.bar(now, entry),
            _ => {}
        }
    }

    /// When something of this becomes due by time alone.
    pub(crate) fn health_ends(&self) -> impl Iterator<Item = Now> + '_ {
        let terms = &self.config.health;
        let serving = self.entries.values().filter(|_| !self.is_closing()).filter_map(|entry| entry.serving());
        serving.flat_map(|serving| serving.health.due_at(terms))
    }
}

/// Takes in what the gate of an engine shows.
fn look_at(now: Now, serving: &mut Serving) -> Taken {
    let taken = match serving.gate.granted() {
        0 => Taken::None,
        granted if granted < serving.gate.width() => Taken::Some,
        _ => Taken::All,
    };
    serving.health.look(now, serving.gate.vital().look(), taken);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: HealthTerms =
        HealthTerms { every: Duration::from_secs(15), misses: 3, silent: Duration::from_mins(2), failures: 3 };

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    fn moved(n: u64) -> Signs {
        Signs { moves: n, answers: n, failures: 0 }
    }

    fn ready() -> Health {
        Health::new(at(1000))
    }

    #[test]
    fn what_moves_is_not_asked_and_what_is_quiet_is_asked_every_fifteen_seconds() {
        let mut health = ready();
        health.look(at(1014), moved(1), Taken::None);
        assert_eq!(health.step(at(1028), &TERMS), Step::Nothing);
        assert_eq!(health.step(at(1029), &TERMS), Step::Ask(Probe::Liveness));
        (health.asked, health.asked_at) = (Some(Probe::Liveness), at(1029));
        assert_eq!(health.step(at(1100), &TERMS), Step::Nothing, "H3");
        assert!(health.hear(at(1030), Probe::Liveness, Probed::Well(None)));
        assert_eq!(health.step(at(1043), &TERMS), Step::Nothing);
        assert_eq!(health.step(at(1044), &TERMS), Step::Ask(Probe::Liveness));
    }

    /// One that fails requests, which was asked for an inference at 1010.
    fn suspect(since: u64, why: Why) -> Health {
        let standing = Standing::Suspect { since: at(since), why, late: None };
        Health { standing, asked: Some(Probe::Inference), asked_at: at(1010), ..ready() }
    }

    #[test]
    fn an_answer_that_nobody_waits_for_says_nothing() {
        let mut health = suspect(1010, Why::Mute);
        assert!(!health.hear(at(1011), Probe::Liveness, Probed::Missed), "H3");
        assert!(health.hear(at(1012), Probe::Inference, Probed::Missed));
        assert_eq!((health.misses, health.standing), (0, Standing::Condemned { since: at(1012) }));
        assert!(!health.hear(at(1013), Probe::Inference, Probed::Well(None)), "it was answered");
        assert_eq!(health.standing, Standing::Condemned { since: at(1012) });
    }

    #[test]
    fn a_verdict_is_of_the_suspicion_that_it_was_asked_for() {
        // It recovered meanwhile, and came under another one.
        let mut health = suspect(1020, Why::Fails);
        health.hear(at(1025), Probe::Inference, Probed::Failed);
        assert_eq!(health.standing, suspect(1020, Why::Fails).standing, "H5");
        let mut health = suspect(1010, Why::Fails);
        health.hear(at(1025), Probe::Inference, Probed::Failed);
        assert_eq!(health.standing, Standing::Condemned { since: at(1025) });
    }

    #[test]
    fn what_moves_speaks_for_an_engine_that_was_still_and_not_for_one_that_fails() {
        for (why, condemned) in [(Why::Still, false), (Why::Mute, false), (Why::Fails, true)] {
            let mut health = suspect(1010, why);
            health.look(at(1011), moved(1), Taken::Some);
            health.hear(at(1012), Probe::Inference, Probed::Failed);
            assert_eq!(health.standing == Standing::Condemned { since: at(1012) }, condemned, "{why:?}");
        }
    }

    #[test]
    fn three_misses_in_a_row_make_it_suspect_and_progress_between_them_does_not() {
        let mut health = ready();
        let mut miss = |n: u64| {
            health.asked = Some(Probe::Liveness);
            health.hear(at(n), Probe::Liveness, Probed::Missed);
            health.step(at(n), &TERMS)
        };
        assert_ne!(miss(1020), Step::Suspect(Why::Mute));
        assert_ne!(miss(1035), Step::Suspect(Why::Mute));
        assert_eq!(miss(1050), Step::Suspect(Why::Mute));
        health.look(at(1051), moved(1), Taken::None);
        assert_eq!(health.step(at(1051), &TERMS), Step::Nothing, "H1");
    }

    #[test]
    fn all_slots_taken_and_nothing_moved_for_two_minutes_is_suspect_and_as_long_again_is_its_end() {
        let mut health = ready();
        health.look(at(2000), Signs::default(), Taken::All);
        assert_ne!(health.step(at(2119), &TERMS), Step::Suspect(Why::Still), "an idle time before does not count");
        assert_eq!(health.step(at(2120), &TERMS), Step::Suspect(Why::Still));
        health.standing = Standing::Suspect { since: at(2120), why: Why::Still, late: None };
        assert_ne!(health.step(at(2239), &TERMS), Step::Stop);
        assert_eq!(health.step(at(2240), &TERMS), Step::Stop);
        health.look(at(2241), moved(1), Taken::All);
        assert_eq!(health.step(at(2241), &TERMS), Step::Recover, "H1");
    }

    #[test]
    fn a_prompt_that_is_being_evaluated_is_progress() {
        let mut health = ready();
        health.look(at(1000), Signs::default(), Taken::All);
        for (n, figure) in [(1015, 100), (1030, 200), (1110, 300)] {
            health.asked = Some(Probe::Liveness);
            health.hear(at(n), Probe::Liveness, Probed::Well(Some(figure)));
        }
        assert_ne!(health.step(at(1229), &TERMS), Step::Suspect(Why::Still));
        assert_eq!(health.step(at(1230), &TERMS), Step::Suspect(Why::Still));
    }

    #[test]
    fn an_answer_that_does_not_tell_what_slots_do_hides_no_progress() {
        let mut health = ready();
        for (second, figure) in [(1020, Some(7)), (1040, None), (1060, Some(8))] {
            health.asked = Some(Probe::Liveness);
            assert!(health.hear(at(second), Probe::Liveness, Probed::Well(figure)));
        }
        assert_eq!(health.moved_at, at(1060));
    }

    #[test]
    fn no_inference_is_asked_while_all_slots_are_taken() {
        let mut health = ready();
        health.standing = Standing::Suspect { since: at(1000), why: Why::Mute, late: None };
        health.look(at(1001), Signs::default(), Taken::All);
        assert_eq!(health.step(at(1001), &TERMS), Step::Nothing, "H2");
        health.look(at(1002), Signs::default(), Taken::None);
        assert_eq!(health.step(at(1002), &TERMS), Step::Ask(Probe::Inference));
    }

    #[test]
    fn failures_in_a_row_are_answered_for_by_an_inference_alone() {
        let mut health = ready();
        let failed = Signs { moves: 5, answers: 0, failures: 3 };
        health.look(at(1001), failed, Taken::None);
        assert_eq!(health.step(at(1001), &TERMS), Step::Suspect(Why::Fails));
        health.standing = Standing::Suspect { since: at(1001), why: Why::Fails, late: None };
        health.look(at(1002), Signs { moves: 6, ..failed }, Taken::None);
        assert_eq!(health.step(at(1002), &TERMS), Step::Ask(Probe::Inference), "others' tokens prove nothing");
        (health.asked, health.asked_at) = (Some(Probe::Inference), at(1002));
        health.hear(at(1003), Probe::Inference, Probed::Missed);
        assert_eq!(health.standing, Standing::Condemned { since: at(1003) });
    }
}
