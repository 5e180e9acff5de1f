//! What an engine says while it runs: progress of a load, its slots, and what class a failure was.
//!
//! Standard output and the logs of an engine can hold what a model file says about itself. So nothing here proves
//! readiness: that is what the engine answers on its own socket.
use crate::{Manifest, ReportKind};
use motorpool_vocab::FailureClass;
use serde::Deserialize;

/// What a line of an engine's standard output said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It loads.
    Loading {
        /// How far, 0 to 1000.
        per_mille: u16,
    },
    /// It says that it is ready.
    Ready,
}

/// An engine's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Requests it can serve at a time.
    pub n_all: u32,
    /// Requests it serves now.
    pub n_busy: u32,
}

#[derive(Deserialize)]
struct ChildState {
    state: String,
    payload: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct LoadState {
    #[serde(default)]
    stages: Vec<String>,
    current: Option<String>,
    value: f64,
}

#[derive(Deserialize)]
struct Slot {
    is_processing: bool,
}

impl Manifest {
    /// What `line` of standard output reports; `None` for every other line.
    pub fn progress(&self, line: &str) -> Option<Heard> {
        let progress = self.progress.as_ref()?;
        let report = line.strip_prefix(&progress.prefix)?;
        match progress.kind {
            ReportKind::LlamaServer => child_state(report),
        }
    }

    /// The slots in the answer `body` of the slots path.
    pub fn slots(&self, body: &str) -> Option<Slots> {
        match self.slots.as_ref()?.kind {
            ReportKind::LlamaServer => llama_slots(body),
        }
    }

    /// The class that the last lines of a failed engine prove: the first class, in the manifest's order, that any line
    /// matches. A failure often prints several lines that would fit several classes, in no helpful order.
    pub fn classify(&self, lines: &[String]) -> Option<FailureClass> {
        let proves = |pattern: &regex::Regex| lines.iter().any(|line| pattern.is_match(line));
        self.classes.iter().find(|class| proves(&class.pattern)).map(|class| class.class)
    }
}

/// `{"state":"loading","payload":{"stages":["text_model","mmproj_model"],"current":"text_model","value":0.5}}`
fn child_state(report: &str) -> Option<Heard> {
    let ChildState { state, payload } = serde_json::from_str(report).ok()?;
    match state.as_str() {
        "ready" => Some(Heard::Ready),
        "loading" => Some(Heard::Loading { per_mille: per_mille(&serde_json::from_value(payload?).ok()?) }),
        _ => None,
    }
}

/// Stages count alike; within one, `value` runs from 0 to 1.
fn per_mille(load: &LoadState) -> u16 {
    let n_stages = u16::try_from(load.stages.len()).unwrap_or(u16::MAX).max(1);
    let done = load.stages.iter().position(|stage| load.current.as_ref() == Some(stage)).unwrap_or(0);
    let done = u16::try_from(done).unwrap_or(u16::MAX);
    let part = (f64::from(done) + load.value.clamp(0.0, 1.0)) / f64::from(n_stages);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000; NaN is 0")]
    let per_mille = (part * 1000.0).round().clamp(0.0, 1000.0) as u16;
    per_mille
}

fn llama_slots(body: &str) -> Option<Slots> {
    let slots: Vec<Slot> = serde_json::from_str(body).ok()?;
    let count = |n: usize| u32::try_from(n).ok();
    Some(Slots { n_all: count(slots.len())?, n_busy: count(slots.iter().filter(|s| s.is_processing).count())? })
}
