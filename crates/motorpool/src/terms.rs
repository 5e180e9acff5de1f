//! What the configuration says about time, queues and memory, in the pool's terms: at the start, and at each reload.
use crate::{exit::Failure, host, settings};
use motorpool_catalog::Config;
use motorpool_pool::{
    BreakerTerms, HealthTerms, Host, NotKept, OnAbandon, OnDeadline, PoolConfig, QueueTerms, ScaleTerms, SessionsKept,
};
use motorpool_vocab::Bytes;

/// What the pool is told about time and memory.
pub(crate) fn pool_config(config: &Config, host: Host) -> Result<PoolConfig, Failure> {
    Ok(PoolConfig {
        host,
        policy: host::policy(config.pool.policy),
        max_wait: config.pool.max_wait,
        min_residency: config.pool.min_residency,
        drain_wait: config.pool.drain_wait,
        queue_wait: config.pool.queue_wait,
        stall_within: config.load.stall,
        load_within: config.load.cap,
        polite_within: config.stop.polite,
        kill_within: config.stop.kill,
        queue: QueueTerms {
            per_model: config.limits.queue_model as usize,
            in_all: config.limits.queue as usize,
            quiet: config.pool.quiet,
            ..QueueTerms::default()
        },
        scale: ScaleTerms { fan_out_after: config.pool.fan_out_after, scale_down_after: config.pool.scale_down_after },
        on_deadline: match config.evict.on_deadline {
            motorpool_catalog::OnDeadline::Refuse => OnDeadline::Refuse,
            motorpool_catalog::OnDeadline::Cut => OnDeadline::Cut,
        },
        on_abandon: match config.load.abandon {
            motorpool_catalog::Abandon::Finish => OnAbandon::Finish,
            motorpool_catalog::Abandon::Abort => OnAbandon::Abort,
        },
        // Two daemons that fail together do not come back together.
        seed: std::process::id().into(),
        load_slots: settings::load_slots(config.load.parallel)?,
        on_cpu_fallback: host::on_cpu_fallback(config.capacity.on_cpu_fallback),
        reclaim_within: config.capacity.reclaim_within,
        sessions_kept: match config.session_state.disk {
            Bytes::ZERO => SessionsKept::No(NotKept::SwitchedOff),
            _ => SessionsKept::Yes,
        },
        breaker: BreakerTerms {
            failures: config.breaker.failures,
            within: config.breaker.within,
            pause: config.breaker.pause,
        },
        health: HealthTerms {
            every: config.health.every,
            misses: config.health.misses,
            silent: config.health.silent,
            failures: config.health.failures,
        },
        ..PoolConfig::default()
    })
}
