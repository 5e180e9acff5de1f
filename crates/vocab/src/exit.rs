//! How a child ended: [`StopReason`], [`FailureClass`], [`ExitRecord`].
use crate::{Bytes, DeviceId, Now, Spawn};
use std::fmt;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$item_doc])* $item),+ }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$item),+];

            /// The stable name in logs, files and the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$item => $text),+ }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named! {
    /// Why a child was stopped, or that nobody stopped it.
    StopReason {
        /// Its room was needed.
        Evicted = "evicted",
        /// Nobody used it for its idle time to live.
        Idle = "idle",
        /// The machine ran low.
        MemoryPressure = "memory-pressure",
        /// Somebody asked.
        User = "user",
        /// Its configuration changed.
        Reload = "reload",
        /// It no longer served.
        Health = "health",
        /// It did not become ready in time.
        LoadTimeout = "load-timeout",
        /// It ended by itself.
        Crash = "crash",
        /// We are leaving.
        Shutdown = "shutdown",
        /// Fewer replicas are wanted.
        ScaleDown = "scale-down",
        /// A correction showed that it does not fit.
        Overflow = "overflow",
        /// It was planned for graphics devices and computes on the processor.
        CpuFallback = "cpu-fallback",
        /// Nobody waits for its load any more.
        Abandoned = "abandoned",
    }
}

named! {
    /// What kind of failure a start or a service ended with.
    FailureClass {
        /// The engine refused its arguments.
        BadArguments = "bad-arguments",
        /// The model file is not there.
        ModelMissing = "model-missing",
        /// The model file is damaged.
        ModelCorrupt = "model-corrupt",
        /// This build of the engine cannot run the model.
        ModelUnsupported = "model-unsupported",
        /// The engine's program is not there or cannot be executed.
        EngineMissing = "engine-missing",
        /// A load planned for a GPU ended on the CPU.
        CpuFallback = "cpu-fallback",
        /// The program uses instructions this processor lacks.
        IllegalInstruction = "illegal-instruction",
        /// Graphics memory ran out.
        OutOfDeviceMemory = "out-of-device-memory",
        /// System memory ran out.
        OutOfHostMemory = "out-of-host-memory",
        /// Its address could not be bound.
        BindFailed = "bind-failed",
        /// The device reported an error.
        DeviceError = "device-error",
        /// The device is gone.
        DeviceLost = "device-lost",
        /// The engine aborted itself.
        Assertion = "assertion",
        /// Somebody else killed it.
        Killed = "killed",
        /// No progress within the stall limit, or not ready within the cap.
        LoadStalled = "load-stalled",
        /// It served, and then did not answer, move or infer any more: it was stopped for that.
        Unresponsive = "unresponsive",
        /// None of the others.
        Unknown = "unknown",
    }
}

impl FailureClass {
    /// Whether the same start must fail again until an input changes or somebody resets it.
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::BadArguments
                | Self::ModelMissing
                | Self::ModelCorrupt
                | Self::ModelUnsupported
                | Self::EngineMissing
                | Self::CpuFallback
                | Self::IllegalInstruction
        )
    }
}

/// The end of one child, kept as history of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// Which child.
    pub spawn: Spawn,
    /// Its process id, when it ever had one.
    pub pid: Option<u32>,
    /// When its start was asked for.
    pub started_at: Now,
    /// When it was gone.
    pub ended_at: Now,
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal number, when one killed it.
    pub signal: Option<i32>,
    /// Why it was stopped; `Crash` when it ended by itself.
    pub reason: StopReason,
    /// What kind of failure, when it failed.
    pub class: Option<FailureClass>,
    /// Whether it ever served.
    pub ever_ready: bool,
    /// Its last output lines, oldest first.
    pub tail: Vec<String>,
    /// How it was launched; `None` for one that never was.
    pub plan: Option<PlanRecord>,
}

impl StopReason {
    /// Whether somebody wanted the end, or it was a failure.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Crash | Self::Health | Self::LoadTimeout | Self::CpuFallback)
    }
}

/// How a child was launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanRecord {
    /// Tokens per slot.
    pub context_per_slot: u32,
    /// Requests at a time.
    pub slots: u32,
    /// How its KV cache is stored.
    pub kv: &'static str,
    /// The devices that it claimed something of.
    pub devices: Vec<DeviceId>,
    /// What was reserved for it.
    pub reserved: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::from_name(class.as_str()), Some(*class));
        }
        for reason in StopReason::ALL {
            assert_eq!(StopReason::from_name(reason.as_str()), Some(*reason));
        }
        assert_eq!(StopReason::from_name("tired"), None);
    }
}
