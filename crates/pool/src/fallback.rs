//! CPU fallback: an engine that was planned for graphics devices and computes on the processor (capacity.md §5).
//!
//! ```text
//!   Starting ── ready ──► Proving ─┬─ a device holds something of it, or nobody can tell ──► Ready: its gate opens
//!                                  └─ nothing is there ─┬─ warn ────────────────────────────► Ready
//!                                                       └─ fail ──► stopped; all who wait are told: cpu-fallback
//! ```
//!
//! It is asked before anybody is served, of engines with a claim on a card only; nobody waits for it longer than 5 s.
//!
//! * What the engine reports of its buffers decides: one on a device, and it is there; a whole report without any, and it
//!   is not.
//! * Without a report the driver decides, in a look that began after it was ready: a tenth of what was claimed, on
//!   whatever card, and it is there. A report may come a moment after what it was printed before, so that a driver that
//!   shows less is believed only 1 s after the engine was ready.
//! * Where neither tells, the engine is taken as it was planned.
use crate::{
    Action, Measured, Pool, StartFault,
    correct::{Account, is_device},
    entry::{EntryId, Phase},
};
use motorpool_vocab::{Bytes, Endpoint, EventKind, FailureClass, Now, Spawn, StopReason};
use std::time::Duration;

/// Nobody waits longer for the proof.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// A report that was printed is read by then.
const REPORT_WITHIN: Duration = Duration::from_secs(1);
/// A device that holds less than this of what was claimed holds next to nothing, in thousandths.
const THERE_FROM: u64 = 100;

/// What becomes of an engine that fell back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCpuFallback {
    /// It is stopped before it serves anybody.
    #[default]
    Fail,
    /// It serves; an event says so.
    Warn,
}

/// A child that is ready and has not been seen on its devices.
#[derive(Debug)]
pub(crate) struct Proving {
    pub(crate) spawn: Spawn,
    pub(crate) pid: Option<u32>,
    pub(crate) ordered_at: Now,
    pub(crate) endpoint: Endpoint,
    pub(crate) width: u32,
    /// Until then it is waited for.
    pub(crate) until: Now,
    ready_at: Now,
    driver: Driver,
    report: Report,
}

/// What the drivers showed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    NotAsked,
    /// Not all of its cards tell.
    TellsNot,
    NextToNothing,
}

/// Whether what it reports was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    NotSeen,
    /// It was looked at, and it reports nothing, or not yet.
    NoneSoFar,
}

impl Proving {
    /// Once nothing more can come but a late report, that alone is waited for.
    fn wait_no_longer_than_needed(&mut self) {
        let is_last = match self.driver {
            Driver::NotAsked => false,
            Driver::TellsNot => self.report == Report::NoneSoFar,
            Driver::NextToNothing => true,
        };
        if is_last {
            self.until = self.until.min(self.ready_at.after(REPORT_WITHIN));
        }
    }
}

impl Pool {
    /// The child of `entry` is ready: it serves once it is seen on the devices that it was planned for.
    pub(crate) fn prove(&mut self, now: Now, entry: EntryId, endpoint: Endpoint, width: u32) {
        let Phase::Starting(loading) = &self.entries[entry].phase else { return };
        let (spawn, pid, ordered_at) = (loading.spawn, loading.pid, loading.ordered_at);
        if self.claimed_on_cards(spawn).is_zero() {
            return self.serve_from_now(now, entry, (spawn, pid, ordered_at), (endpoint, width));
        }
        let (driver, report) = (Driver::NotAsked, Report::NotSeen);
        let until = now.after(PROOF_WITHIN);
        let proving = Proving { spawn, pid, ordered_at, endpoint, width, until, ready_at: now, driver, report };
        self.entries[entry].phase = Phase::Proving(Box::new(proving));
        self.act(Action::Look);
    }

    /// What was planned for cards; its line may follow what is there already.
    fn claimed_on_cards(&self, spawn: Spawn) -> Bytes {
        self.accounts.get(&spawn).map_or(Bytes::ZERO, Account::planned_on_devices)
    }

    /// Its tree was measured, and with it what it reports.
    pub(crate) fn prove_by_report(&mut self, now: Now, spawn: Spawn, measured: &Measured) {
        let Some(entry) = self.entry_of(spawn) else { return };
        let Phase::Proving(proving) = &mut self.entries[entry].phase else { return };
        let Some(reported) = &measured.reported else {
            proving.report = Report::NoneSoFar;
            return proving.wait_no_longer_than_needed();
        };
        let is_there = reported.iter().any(|(_, place, bytes)| is_device(place) && !bytes.is_zero());
        if is_there { self.open_proven(now, entry) } else { self.fall_back(now, entry) }
    }

    /// A look at the cards came that began at `begun_at`.
    pub(crate) fn prove_by_cards(&mut self, now: Now, begun_at: Now) {
        for entry in self.proving(|proving| proving.ready_at <= begun_at) {
            let Phase::Proving(proving) = &self.entries[entry].phase else { continue };
            let (spawn, claimed) = (proving.spawn, self.claimed_on_cards(proving.spawn));
            let (shown, driver) = self.shown(spawn);
            if shown >= claimed.per_mille(THERE_FROM) {
                self.open_proven(now, entry);
            } else if let Phase::Proving(proving) = &mut self.entries[entry].phase {
                proving.driver = driver;
                proving.wait_no_longer_than_needed();
            }
        }
    }

    /// What the last look shows of `spawn` on all cards, and what less than enough of it means.
    fn shown(&self, spawn: Spawn) -> (Bytes, Driver) {
        let line = self.ledger.line(spawn);
        let by_spawn = |id| self.sights.figures(id).and_then(|figures| figures.by_spawn.as_ref());
        let all_tell = line.into_iter().flat_map(|line| line.device.keys()).all(|id| by_spawn(id).is_some());
        let cards = self.ledger.bounds().cards.iter().filter_map(|card| by_spawn(&card.id)?.get(&spawn).copied());
        (Bytes::sum(cards), if all_tell { Driver::NextToNothing } else { Driver::TellsNot })
    }

    pub(crate) fn on_due_proofs(&mut self, now: Now) {
        for entry in self.proving(|proving| proving.until <= now) {
            let Phase::Proving(proving) = &self.entries[entry].phase else { continue };
            match proving.driver {
                Driver::NextToNothing => self.fall_back(now, entry),
                Driver::NotAsked | Driver::TellsNot => self.open_proven(now, entry),
            }
        }
    }

    fn proving(&self, is_it: impl Fn(&Proving) -> bool) -> Vec<EntryId> {
        let of = |phase: &Phase| matches!(phase, Phase::Proving(proving) if is_it(proving));
        self.entries.iter().filter(|(_, entry)| of(&entry.phase)).map(|(id, _)| id).collect()
    }

    fn open_proven(&mut self, now: Now, entry: EntryId) {
        let Phase::Proving(proving) = &self.entries[entry].phase else { return };
        let of = (proving.spawn, proving.pid, proving.ordered_at);
        let at = (proving.endpoint.clone(), proving.width);
        self.serve_from_now(now, entry, of, at);
    }

    fn fall_back(&mut self, now: Now, entry: EntryId) {
        let Phase::Proving(proving) = &self.entries[entry].phase else { return };
        let (spawn, planned) = (proving.spawn, self.claimed_on_cards(proving.spawn));
        // What it takes on the processor is no lesson for the devices that it was planned for.
        self.studies.remove(&spawn);
        let key = self.entries[entry].key.clone();
        self.publish(now, EventKind::CpuFallback { key, spawn, planned });
        if self.config.on_cpu_fallback == OnCpuFallback::Warn {
            return self.open_proven(now, entry);
        }
        let message = format!("{planned} of it were planned for graphics devices, and it computes on the processor");
        self.tear_down(now, entry, StopReason::CpuFallback);
        let fault = StartFault { class: FailureClass::CpuFallback, message, tail: vec![] };
        self.start_broke(now, entry, spawn, fault);
    }
}
