//! What the gateway is told at its start, and by reloads.
use crate::{keys::KeysNeeded, origin::Allowed, outside::Outside, retain::BodyLimits};
use motorpool_catalog::{Config, Defaults, Limits, Loading};
use std::{path::PathBuf, time::Duration};

/// What the gateway is told at its start.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Names and origins that are allowed beside those that always are.
    pub allowed: Allowed,
    /// Sizes and times.
    pub limits: Limits,
    /// When a waiting stream is told that it waits.
    pub loading: Loading,
    /// The model of requests that name none.
    pub defaults: Defaults,
    /// A directory of ours for long bodies.
    pub spool_dir: PathBuf,
    /// The file of access keys; `None`: there are none.
    pub keys: Option<PathBuf>,
    /// When a key is needed on addresses that other machines can reach.
    pub keys_from_afar: KeysNeeded,
    /// Model servers that somebody else runs, in the order of the configuration.
    pub outside: Vec<Outside>,
    /// How long a request waits there for others of ours to finish.
    pub drain_wait: Duration,
    /// The addresses served, for people.
    pub listen: Vec<String>,
    /// A host name of this machine that requests may be addressed to.
    pub machine_name: Option<String>,
}

impl GatewaySettings {
    /// Of the configuration. `machine_name` is a host name that requests may be addressed to.
    pub fn new(config: &Config, machine_name: Option<String>, spool_dir: PathBuf) -> Self {
        Self {
            allowed: allowed(config, machine_name.as_deref()),
            limits: config.limits.clone(),
            loading: config.loading.clone(),
            defaults: config.defaults.clone(),
            spool_dir,
            keys: None,
            keys_from_afar: KeysNeeded::Always,
            outside: Vec::new(),
            drain_wait: config.pool.drain_wait,
            listen: Vec::new(),
            machine_name,
        }
    }

    /// What the configuration says now, as far as that can change while the server runs; the rest as `before`.
    pub(crate) fn reloaded(before: &Self, config: &Config) -> Self {
        let (was, limits) = (before.limits.clone(), &config.limits);
        Self {
            allowed: allowed(config, before.machine_name.as_deref()),
            limits: Limits {
                queue_model: limits.queue_model,
                queue: limits.queue,
                write_stall: limits.write_stall,
                first_result: limits.first_result,
                between_frames: limits.between_frames,
                body: was.body,
                body_memory: was.body_memory,
                bodies_memory: was.bodies_memory,
                spool: was.spool,
                connections: was.connections,
                header: was.header,
                connect: was.connect,
            },
            loading: config.loading.clone(),
            defaults: config.defaults.clone(),
            drain_wait: config.pool.drain_wait,
            ..before.clone()
        }
    }

    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            body: self.limits.body.get(),
            body_memory: self.limits.body_memory.get(),
            bodies_memory: self.limits.bodies_memory.get(),
            spool: self.limits.spool.get(),
            spool_dir: self.spool_dir.clone(),
        }
    }
}

fn allowed(config: &Config, machine_name: Option<&str>) -> Allowed {
    let lower = |names: &[String]| names.iter().map(|n| n.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut hosts = lower(&config.server.hosts);
    hosts.extend(machine_name.map(str::to_ascii_lowercase));
    Allowed { hosts, origins: lower(&config.server.origins) }
}

/// Between two comments of a stream that waits.
pub(crate) const COMMENT_EVERY: Duration = Duration::from_secs(5);
/// How long a dead engine's last words are waited for.
pub(crate) const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);
