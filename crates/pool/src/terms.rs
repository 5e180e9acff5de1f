//! What the pool is told once about queues, replicas and retries.
use std::time::Duration;

/// How long queues may grow, and when ambient work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTerms {
    /// Requests that wait for a lease on one model (64).
    pub per_model: usize,
    /// Requests that wait for a lease in all (512).
    pub in_all: usize,
    /// What of both one access key may take, in thousandths (750): the rest is for others.
    pub of_one_key: usize,
    /// Ambient work begins after so long without other work on its model (180 s); zero: at once.
    pub quiet: Duration,
}

/// When replicas come and go by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleTerms {
    /// Requests that waited so long for a slot have one more started (2 s).
    pub fan_out_after: Duration,
    /// The highest replica stops after so long without a request (120 s).
    pub scale_down_after: Duration,
}

/// What happens when an engine did not drain in time for a build that needs its room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadline {
    /// Who waited is refused; what the engine serves goes on.
    #[default]
    Refuse,
    /// If the room is still needed, what the engine serves is ended.
    Cut,
}

/// What becomes of a load that nobody waits for any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbandon {
    /// It goes on.
    #[default]
    Finish,
    /// Its child is killed.
    Abort,
}

/// How long an engine is kept without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// So long after its last lease.
    For(Duration),
    /// Until somebody or something else ends it.
    Always,
}

impl KeepAlive {
    /// What a model says: zero is for ever.
    pub(crate) fn of_model(idle_ttl: Duration) -> Self {
        if idle_ttl.is_zero() { Self::Always } else { Self::For(idle_ttl) }
    }
}

impl Default for QueueTerms {
    fn default() -> Self {
        Self { per_model: 64, in_all: 512, of_one_key: 750, quiet: Duration::from_mins(3) }
    }
}

impl Default for ScaleTerms {
    fn default() -> Self {
        Self { fan_out_after: Duration::from_secs(2), scale_down_after: Duration::from_mins(2) }
    }
}
