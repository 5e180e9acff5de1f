//! What the pool's answers and an engine's end mean to a client.
use crate::{
    errors::{Failure, Retry},
    settings::LAST_WORDS_WITHIN,
};
use motorpool_pool::{Answer, Refusal};
use motorpool_supervisor::PoolHandle;
use motorpool_vocab::{ExitRecord, Spawn, StopReason};

/// The failure that a refusal of the pool is.
pub(crate) fn failure_of(refusal: Refusal) -> Failure {
    let message = refusal.to_string();
    match refusal {
        Refusal::UnknownModel(id) => Failure::UnknownModel { name: id.to_string(), nearest: Vec::new() },
        Refusal::CapacityDenied(denial) => {
            // With nobody to make room, or wanting more than all of it, it never fits.
            let beyond_all = denial.which() == "budget" && denial.requested.total() > denial.bound();
            let retry = if denial.holders.is_empty() || beyond_all { Retry::Never } else { Retry::After(10) };
            match denial.context {
                None => Failure::CapacityDenied { message, retry },
                Some(_) => Failure::ContextDenied { message, retry },
            }
        }
        Refusal::GpuPaused { .. } => Failure::GpuPaused(message),
        Refusal::EngineBusy { .. } => Failure::EngineBusy(message),
        Refusal::QueueFull { .. } => Failure::QueueFull(message),
        Refusal::Cancelled => Failure::Cancelled(message),
        Refusal::QueueTimeout { .. } => Failure::QueueTimeout(message),
        Refusal::StartFailed { fault, .. } => Failure::StartFailed { class: fault.class, message },
        Refusal::BreakerOpen { retry_in, .. } => {
            let seconds = u8::try_from(retry_in.as_secs().max(1)).unwrap_or(u8::MAX);
            Failure::BreakerOpen { message, seconds }
        }
        Refusal::Evicted(_) => Failure::Evicted(message),
        Refusal::Drained(_) => Failure::Drained(message),
        Refusal::Retired | Refusal::ShuttingDown => Failure::ShuttingDown,
    }
}

/// Whether an engine was unloaded; it need not have been there.
pub(crate) fn was_unloaded(answer: Answer) -> Result<bool, Failure> {
    match answer {
        Answer::Unloaded => Ok(true),
        Answer::NotResident
        | Answer::Released(_)
        | Answer::Ended(_)
        | Answer::Outlook(_)
        | Answer::Reconciled(_)
        | Answer::Reloaded(_)
        | Answer::Reset(_)
        | Answer::Requeued
        | Answer::AtTheEnd
        | Answer::NoTicket => Ok(false),
        Answer::Stuck(key) => Err(Failure::EngineStuck(key.to_string())),
        Answer::Busy { key, within } => Err(failure_of(Refusal::EngineBusy { key, within })),
        Answer::Serving(key) => Err(Failure::EngineBusy(format!(
            "engine {key} is currently serving requests and cannot be unloaded yet. Wait for current turns to finish."
        ))),
    }
}

/// Why the engine of a lease stopped answering.
pub(crate) async fn cause_of_death(handle: &PoolHandle, spawn: Spawn) -> Failure {
    match handle.exit_of(spawn, LAST_WORDS_WITHIN).await {
        Some(record) => failure_by(&record),
        None => Failure::EngineCrashed(None),
    }
}

fn failure_by(record: &ExitRecord) -> Failure {
    match record.reason {
        StopReason::Shutdown => Failure::ShuttingDown,
        StopReason::Crash => Failure::EngineCrashed(record.class),
        StopReason::Health | StopReason::LoadTimeout | StopReason::CpuFallback => Failure::EngineUnwell(record.class),
        StopReason::Evicted
        | StopReason::Idle
        | StopReason::MemoryPressure
        | StopReason::User
        | StopReason::Reload
        | StopReason::ScaleDown
        | StopReason::Overflow
        | StopReason::Abandoned => Failure::Evicted(format!("the engine was stopped ({})", record.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{Denial, Excess, Host, Proof, RefusedContext, StartFault, Which};
    use motorpool_vocab::{Bytes, Claim, EngineKey, FailureClass, ModelId, Now};
    use std::time::Duration;

    fn key() -> EngineKey {
        "llama-server:m:0".parse().expect("a key")
    }

    #[test]
    fn every_refusal_has_its_code() {
        let within = Duration::from_secs(3);
        let denial = |gib, holders| {
            let excess = Excess { would_commit: Bytes::gib(9), bound: Bytes::gib(8), which: Which::Total };
            let proof = Proof { claim: Claim::private(Bytes::gib(gib)), excess };
            let denial = Denial::new(key(), proof, &Host::default().bounds()).with_holders(holders);
            Refusal::CapacityDenied(Box::new(denial))
        };
        let context = || {
            let Refusal::CapacityDenied(denial) = denial(8, vec![]) else { panic!("a denial") };
            let context = Some(RefusedContext { asked: 8192, fits: 4096 });
            Refusal::CapacityDenied(Box::new(denial.of_context(context)))
        };
        let start = |class| {
            let fault = StartFault { class, message: "why".into(), tail: vec!["/secret".into()] };
            Refusal::StartFailed { key: key(), fault }
        };
        let tripped = |seconds| {
            let fault = StartFault { class: FailureClass::Killed, message: "why".into(), tail: vec!["/secret".into()] };
            Refusal::BreakerOpen { key: key(), fault, retry_in: Duration::from_secs(seconds) }
        };
        for (refusal, status, code, retry) in [
            (Refusal::UnknownModel(ModelId::new("m").expect("an id")), 404, "model_not_found", Retry::Never),
            (denial(8, vec![]), 503, "capacity_denied", Retry::Never),
            (denial(8, vec![(key(), Bytes::gib(1))]), 503, "capacity_denied", Retry::After(10)),
            (denial(9, vec![(key(), Bytes::gib(1))]), 503, "capacity_denied", Retry::Never),
            (context(), 503, "context_denied", Retry::Never),
            (Refusal::EngineBusy { key: key(), within }, 503, "engine_busy", Retry::After(5)),
            (Refusal::QueueFull { queue: motorpool_pool::Queue::All, limit: 9 }, 429, "queue_full", Retry::After(5)),
            (Refusal::Cancelled, 503, "cancelled", Retry::Never),
            (Refusal::QueueTimeout { key: key(), within }, 504, "queue_timeout", Retry::Now),
            (start(FailureClass::Unknown), 502, "engine_start_failed", Retry::Now),
            (start(FailureClass::BadArguments), 500, "engine_start_failed", Retry::Never),
            (tripped(41), 503, "breaker_open", Retry::After(41)),
            (tripped(0), 503, "breaker_open", Retry::After(1)),
            (Refusal::Evicted(key()), 503, "evicted", Retry::After(1)),
            (Refusal::Drained(key()), 503, "drained", Retry::After(30)),
            (Refusal::Retired, 503, "shutting_down", Retry::After(5)),
            (Refusal::ShuttingDown, 503, "shutting_down", Retry::After(5)),
        ] {
            let failure = failure_of(refusal);
            let verdict = failure.verdict();
            assert_eq!((verdict.status.as_u16(), verdict.code, verdict.retry), (status, code, retry));
            assert!(!failure.to_string().contains("/secret"));
        }
    }

    #[test]
    fn an_unload_that_could_not_be_has_its_code() {
        let code = |answer| was_unloaded(answer).map_err(|failure| failure.verdict().code);
        let within = Duration::from_secs(3);
        for (answer, want) in [
            (Answer::Unloaded, Ok(true)),
            (Answer::NotResident, Ok(false)),
            (Answer::Stuck(key()), Err("engine_stuck")),
            (Answer::Busy { key: key(), within }, Err("engine_busy")),
            (Answer::Serving(key()), Err("engine_busy")),
        ] {
            assert_eq!(code(answer), want);
        }
    }

    fn record(reason: StopReason) -> ExitRecord {
        ExitRecord {
            plan: None,
            spawn: Spawn(1),
            pid: None,
            started_at: Now::ZERO,
            ended_at: Now::ZERO,
            code: None,
            signal: Some(9),
            reason,
            class: Some(FailureClass::Killed),
            ever_ready: true,
            tail: vec![],
        }
    }

    #[test]
    fn only_an_end_that_nobody_wanted_is_one_that_may_be_tried_again() {
        let crashes: Vec<_> = StopReason::ALL
            .iter()
            .filter(|reason| matches!(failure_by(&record(**reason)), Failure::EngineCrashed(_)))
            .collect();
        assert_eq!(crashes, [&StopReason::Crash]);
    }

    #[test]
    fn an_end_is_a_crash_unless_somebody_wanted_it() {
        for reason in StopReason::ALL {
            let code = failure_by(&record(*reason)).verdict().code;
            let want = match reason {
                StopReason::Crash | StopReason::Health | StopReason::LoadTimeout | StopReason::CpuFallback => {
                    "engine_crashed"
                }
                StopReason::Shutdown => "shutting_down",
                _ => "evicted",
            };
            assert_eq!(code, want, "{reason}");
        }
    }
}
