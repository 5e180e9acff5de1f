//! Ends that nobody wanted, written down: [`ExitLine`] in the log, [`Incidents`] in the state directory.
//!
//! A line of an incident is that of the exit, with its time, its last words and how it was launched. The file is bounded
//! as logs are; what the disk does not take is lost, and so is nothing else. Last words may hold secrets that somebody
//! gave as arguments: whatever looks like one is blotted out.
use crate::{redact::redacted, rotate::LogFile};
use motorpool_vocab::{EngineKey, ExitRecord, FailureClass};
use serde::Serialize;
use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// The line of an exit, as harnesses read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExitLine {
    pid: Option<u32>,
    key: String,
    code: Option<i32>,
    signal: Option<i32>,
    expected: bool,
    reason: &'static str,
    class: Option<&'static str>,
    /// Seconds.
    uptime: f64,
}

impl ExitLine {
    pub(crate) fn of(key: &EngineKey, record: &ExitRecord) -> Self {
        Self {
            pid: record.pid,
            key: key.to_string(),
            code: record.code,
            signal: record.signal,
            expected: !record.reason.is_failure(),
            reason: record.reason.as_str(),
            class: record.class.map(FailureClass::as_str),
            uptime: record.ended_at.since(record.started_at).as_secs_f64(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Incident<'a> {
    /// Milliseconds of the epoch.
    at_ms: u64,
    #[serde(flatten)]
    exit: &'a ExitLine,
    spawn: u64,
    ever_ready: bool,
    plan: Option<Plan<'a>>,
    tail: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan<'a> {
    context_per_slot: u32,
    slots: u32,
    kv_cache_type: &'a str,
    devices: Vec<String>,
    reserved_bytes: u64,
}

/// The file of incidents.
#[derive(Clone, Debug)]
pub(crate) struct Incidents {
    path: PathBuf,
}

impl Incidents {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Appends one, on a thread that may wait for the disk. Lines may change places then, and carry their times.
    pub(crate) fn write(&self, exit: &ExitLine, record: &ExitRecord) {
        let line = line_of(SystemTime::now(), exit, record);
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || {
            let written = LogFile::open_undated(&path).and_then(|mut file| file.append(line.as_bytes()));
            if let Err(error) = written {
                tracing::warn!(path = %path.display(), %error, "an incident is not written down");
            }
        });
    }
}

fn line_of(now: SystemTime, exit: &ExitLine, record: &ExitRecord) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let plan = record.plan.as_ref().map(|plan| Plan {
        context_per_slot: plan.context_per_slot,
        slots: plan.slots,
        kv_cache_type: plan.kv,
        devices: plan.devices.iter().map(ToString::to_string).collect(),
        reserved_bytes: plan.reserved.get(),
    });
    let incident = Incident {
        at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        exit,
        spawn: record.spawn.0,
        ever_ready: record.ever_ready,
        plan,
        tail: record.tail.iter().map(|line| blotted(line)).collect(),
    };
    serde_json::to_string(&incident).expect("plain values are JSON") + "\n"
}

/// `line` without its secrets.
pub(crate) fn blotted(line: &str) -> String {
    String::from_utf8_lossy(&redacted(line.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::{Now, PlanRecord, Spawn, StopReason};
    use serde_json::Value;

    fn record(reason: StopReason) -> ExitRecord {
        ExitRecord {
            spawn: Spawn(7),
            pid: Some(42),
            started_at: Now::ZERO,
            ended_at: Now::from_nanos(1_500_000_000),
            code: Some(1),
            signal: None,
            reason,
            class: Some(FailureClass::Assertion),
            ever_ready: true,
            tail: vec!["started with --api-key hush-hush".into()],
            plan: Some(PlanRecord { context_per_slot: 512, slots: 2, ..PlanRecord::default() }),
        }
    }

    #[test]
    fn an_incident_is_the_exit_with_its_time_its_plan_and_its_last_words_without_secrets() {
        let key = "llama-server:m:0".parse().expect("a key");
        let record = record(StopReason::Crash);
        let line = line_of(UNIX_EPOCH, &ExitLine::of(&key, &record), &record);
        let told: Value = serde_json::from_str(line.strip_suffix('\n').expect("one line")).expect("JSON");
        assert_eq!(told["uptime"], 1.5);
        assert_eq!((&told["expected"], &told["class"]), (&Value::Bool(false), &Value::from("assertion")));
        assert_eq!((&told["plan"]["slots"], &told["atMs"]), (&Value::from(2), &Value::from(0)));
        assert!(!line.contains("hush-hush") && line.contains("[redacted]"), "{line}");
    }

    #[test]
    fn the_line_of_an_exit_has_exactly_the_members_that_harnesses_read() {
        let key = "llama-server:m:0".parse().expect("a key");
        let line = serde_json::to_value(ExitLine::of(&key, &record(StopReason::Health))).expect("JSON");
        let names: Vec<_> = line.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(names, ["class", "code", "expected", "key", "pid", "reason", "signal", "uptime"]);
        assert_eq!(line["expected"], false, "nobody wanted it to be of no use");
        let idle = ExitLine::of(&key, &record(StopReason::Idle));
        assert!(idle.expected);
    }

    #[test]
    fn what_looks_like_a_secret_is_blotted_out_and_the_rest_stands() {
        for (line, blot) in [
            ("--api-key abc", "--api-key [redacted]"),
            ("API_KEY=\"abc\" x", "API_KEY=\"[redacted]\" x"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("from hf_abcdefghij", "from [redacted]"),
            ("loaded 32 tokens", "loaded 32 tokens"),
            ("n_tokens = 12", "n_tokens = 12"),
        ] {
            assert_eq!(blotted(line), blot);
        }
    }
}
