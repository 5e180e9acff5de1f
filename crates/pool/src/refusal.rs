//! [`Refusal`]: why a request gets no lease.
use crate::{Denial, StartFault};
use motorpool_vocab::{EngineKey, FailureClass, ModelId};
use std::{fmt, time::Duration};

/// Why not. `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The catalog has no such model any more.
    UnknownModel(ModelId),
    /// It does not fit.
    CapacityDenied(Box<Denial>),
    /// What must go for it did not drain in time.
    EngineBusy {
        /// The engine that is busy.
        key: EngineKey,
        /// How long this caller waited.
        within: Duration,
    },
    /// Too many wait already.
    QueueFull {
        /// Whose queue it is.
        queue: Queue,
        /// How many may.
        limit: usize,
    },
    /// An operator took it out of the queue.
    Cancelled,
    /// It waited too long in all.
    QueueTimeout {
        /// The engine it waited for.
        key: EngineKey,
        /// How long.
        within: Duration,
    },
    /// The engine did not become ready.
    StartFailed {
        /// The engine.
        key: EngineKey,
        /// Why.
        fault: StartFault,
    },
    /// The graphics driver panicked a short time ago.
    GpuPaused {
        /// The engine.
        key: EngineKey,
        /// When it panicked, as people write it.
        happened: String,
        /// What of the driver its report names.
        signature: String,
        /// How long the pause goes on.
        within: Duration,
    },
    /// It failed to start too often: nothing is started for a while.
    BreakerOpen {
        /// The engine.
        key: EngineKey,
        /// How its last start failed.
        fault: StartFault,
        /// When the next one may be tried.
        retry_in: Duration,
    },
    /// Somebody unloaded it by force.
    Evicted(EngineKey),
    /// An operator has drained it.
    Drained(EngineKey),
    /// Nothing new is taken.
    Retired,
    /// Everything is being ended.
    ShuttingDown,
}

/// A queue that is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    /// That of one model.
    Model(ModelId),
    /// All of them together.
    All,
    /// The share of one access key, of either.
    Key,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownModel(model) => write!(f, "model {model} is not in the catalog"),
            Self::CapacityDenied(denial) => f.write_str(&denial.prose()),
            Self::EngineBusy { key, within } => write!(
                f,
                "engine {key} is busy serving requests and did not drain within {}s — not evicting. Retry shortly, or wait for current turns to finish.",
                within.as_secs()
            ),
            Self::QueueFull { queue: Queue::Model(model), limit } => {
                write!(f, "{limit} requests wait for model {model} already; retry later")
            }
            Self::QueueFull { queue: Queue::All, limit } => write!(f, "{limit} requests wait already; retry later"),
            Self::QueueFull { queue: Queue::Key, limit } => {
                write!(f, "{limit} requests of this access key wait already, which is its share; retry later")
            }
            Self::Cancelled => f.write_str("the request was taken out of the queue"),
            Self::QueueTimeout { key, within } => write!(f, "waited {} s for {key}", within.as_secs()),
            Self::StartFailed { key, fault } => {
                write!(f, "engine {key} did not start ({}): {}", fault.class, fault.message)?;
                cure_of(fault.class).map_or(Ok(()), |cure| write!(f, "; {cure}"))
            }
            Self::GpuPaused { key, happened, signature, within } => write!(
                f,
                "the graphics driver panicked at {happened} ({signature}); engine {key} is not started on it for {} min more",
                within.as_secs().div_ceil(60)
            ),
            Self::BreakerOpen { key, fault, retry_in } => write!(
                f,
                "engine {key} failed to start too often, and is not started again for {} s; the last time ({}): {}; \
                 `motorpool reset {}` has it tried at once",
                retry_in.as_secs().max(1),
                fault.class,
                fault.message,
                key.model()
            ),
            Self::Evicted(key) => write!(f, "engine {key} was unloaded by force"),
            Self::Drained(key) => {
                write!(
                    f,
                    "engine {key} was drained and takes no requests until it is loaded: `motorpool load {}`",
                    key.model()
                )
            }
            Self::Retired => f.write_str("pool retired"),
            Self::ShuttingDown => f.write_str("shutting down"),
        }
    }
}

impl std::error::Error for Refusal {}

/// What helps, where the message alone does not say it.
const fn cure_of(class: FailureClass) -> Option<&'static str> {
    Some(match class {
        FailureClass::BadArguments => "correct `extra_args` in its catalog entry",
        FailureClass::ModelCorrupt => "get its file again",
        FailureClass::ModelUnsupported => "it takes another build of the engine, or another model",
        FailureClass::CpuFallback => "see that its engine can use the device",
        FailureClass::IllegalInstruction => "install a build of the engine for this processor",
        FailureClass::OutOfDeviceMemory | FailureClass::OutOfHostMemory => {
            "a smaller `context`, or fewer `slots`, in its catalog entry take less"
        }
        FailureClass::DeviceLost => "reset the device or reboot; others go on without it",
        FailureClass::ModelMissing
        | FailureClass::EngineMissing
        | FailureClass::BindFailed
        | FailureClass::DeviceError
        | FailureClass::Assertion
        | FailureClass::Killed
        | FailureClass::LoadStalled
        | FailureClass::Unresponsive
        | FailureClass::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_engine_is_named_in_the_contracts_words() {
        let key = "llama-server:a:0".parse().expect("a key");
        assert_eq!(
            Refusal::EngineBusy { key, within: Duration::from_secs(30) }.to_string(),
            "engine llama-server:a:0 is busy serving requests and did not drain within 30s — not evicting. Retry shortly, or wait for current turns to finish."
        );
    }
}
