//! [`Changes`]: the keys of a model, an engine or the configuration that differ, each with when that counts.
//!
//! Each list names all fields of its type, without `..`.
use crate::{
    Capability, Config, EngineSettings, Manifest, Model,
    capacity::Capacity,
    care::{BreakerSettings, HealthSettings},
    config::{
        Defaults, EvictSettings, KeysSettings, Limits, LoadSettings, Loading, Log, PoolSettings, Server, Shutdown,
        StopSettings,
    },
    difference::Effect,
    manifest::{LogClass, Program},
    state::SessionStateSettings,
    usage::UsageSettings,
};
use regex::Regex;

/// Keys that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<(String, Effect)>);

/// Adds to `$changes` every field of `$kind` in which two values differ, under its name behind `$before`. What stands under
/// `apart` is compared by whoever calls, or is no key.
macro_rules! compare {
    ($changes:ident, $before:literal, ($old:expr, $new:expr): $kind:ident {
        $(live: [$($live:ident),*],)? $(launch: [$($launch:ident),*],)? $(start: [$($start:ident),*],)?
        $(apart: [$($apart:ident),*],)?
    }) => {{
        let $kind { $($($live,)*)? $($($launch,)*)? $($($start,)*)? $($($apart: _,)*)? } = $old;
        $($($changes.differ(concat!($before, stringify!($live)), Effect::Live, ($live, &$new.$live));)*)?
        $($($changes.differ(concat!($before, stringify!($launch)), Effect::Launch, ($launch, &$new.$launch));)*)?
        $($($changes.differ(concat!($before, stringify!($start)), Effect::Start, ($start, &$new.$start));)*)?
    }};
}

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something differs that counts then.
    pub fn has(&self, effect: Effect) -> bool {
        self.0.iter().any(|(_, other)| *other == effect)
    }

    /// The keys, and when each counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Effect)> {
        self.0.iter().map(|(key, effect)| (key.as_str(), *effect))
    }

    pub(super) fn add(&mut self, key: String, effect: Effect) {
        self.0.push((key, effect));
    }

    fn differ<T: PartialEq>(&mut self, key: &str, effect: Effect, (old, new): (&T, &T)) {
        if old != new {
            self.add(key.to_owned(), effect);
        }
    }

    /// Of one model.
    pub fn of_models(old: &Model, new: &Model) -> Self {
        let mut changes = Self::default();
        compare!(changes, "", (old, new): Model {
            live: [aliases, priority, pinned, home, idle_ttl, replicas, tags, parameters, license],
            launch: [
                engine, source, context, context_min, context_target, profile, slots, kv_type, gpu_layers, n_cpu_moe,
                devices, cpu_tensors, projector, draft, adapters, declared, prompt_cache, checkpoints, session_state,
                extra_args
            ],
            apart: [id, capabilities, origin],
        });
        let effect = if started_for(old).eq(started_for(new)) { Effect::Live } else { Effect::Launch };
        changes.differ("capabilities", effect, (&old.capabilities, &new.capabilities));
        changes
    }

    /// Of the manifest of one engine.
    pub fn of_manifests(old: &Manifest, new: &Manifest) -> Self {
        let mut changes = Self::default();
        compare!(changes, "", (old, new): Manifest {
            live: [refused_args, paths, headers, on_disconnect, served_as, metrics],
            launch: [
                transport, args, env_allow, env_set, ready, probes, stop, progress, slots, estimator, session_state,
                sandbox
            ],
            apart: [name, program, classes, origin],
        });
        let (before, after) = (&old.program, &new.program);
        compare!(changes, "program.", (before, after): Program {
            launch: [names, version_args, devices_args, configured],
            apart: [version_pattern],
        });
        let patterns = (text(&before.version_pattern), text(&after.version_pattern));
        changes.differ("program.version_pattern", Effect::Launch, (&patterns.0, &patterns.1));
        changes.differ("log_class", Effect::Launch, (&classes(old), &classes(new)));
        changes
    }

    /// Of the configuration.
    pub fn of_configs(old: &Config, new: &Config) -> Self {
        let mut changes = Self::default();
        compare!(changes, "", (old, new): Config {
            live: [external, protect],
            apart: [
                server, capacity, devices, pool, evict, load, breaker, health, session_state, stop, shutdown, loading,
                keys, limits, defaults, log, usage, engines
            ],
        });
        changes.differ("device", Effect::Live, (&old.devices, &new.devices));
        changes.of_what_is_ours(old, new);
        changes.of_time(old, new);
        changes.of_requests(old, new);
        changes.of_engines(old, new);
        changes
    }

    fn of_what_is_ours(&mut self, old: &Config, new: &Config) {
        compare!(self, "server.", (&old.server, new.server): Server {
            live: [hosts, origins, watch],
            start: [listen, tls],
        });
        compare!(self, "capacity.", (&old.capacity, new.capacity): Capacity {
            live: [budget, reserve, shape, allow_ram_spillover],
            start: [on_cpu_fallback, reclaim_within],
        });
        compare!(self, "session_state.", (&old.session_state, new.session_state): SessionStateSettings {
            start: [disk],
        });
        compare!(self, "keys.", (&old.keys, new.keys): KeysSettings { start: [file], });
        compare!(self, "usage.", (&old.usage, new.usage): UsageSettings { start: [keep, disk], });
        compare!(self, "log.", (&old.log, new.log): Log { live: [level], start: [format], });
    }

    fn of_time(&mut self, old: &Config, new: &Config) {
        compare!(self, "pool.", (&old.pool, new.pool): PoolSettings {
            live: [
                policy, max_wait, min_residency, drain_wait, queue_wait, fan_out_after, scale_down_after, quiet
            ],
        });
        compare!(self, "evict.", (&old.evict, new.evict): EvictSettings { live: [on_deadline], });
        compare!(self, "load.", (&old.load, new.load): LoadSettings { live: [stall, cap, abandon, parallel], });
        compare!(self, "breaker.", (&old.breaker, new.breaker): BreakerSettings { live: [failures, within, pause], });
        compare!(self, "health.", (&old.health, new.health): HealthSettings {
            live: [every, misses, silent, failures],
            start: [timeout, inference],
        });
        compare!(self, "stop.", (&old.stop, new.stop): StopSettings { live: [polite, kill], });
        compare!(self, "shutdown.", (&old.shutdown, new.shutdown): Shutdown { live: [grace], });
    }

    fn of_requests(&mut self, old: &Config, new: &Config) {
        compare!(self, "loading.", (&old.loading, new.loading): Loading { live: [commit_after], });
        compare!(self, "limits.", (&old.limits, new.limits): Limits {
            live: [queue_model, queue, write_stall, first_result, between_frames],
            start: [body, body_memory, bodies_memory, spool, connections, header, connect],
        });
        compare!(self, "defaults.", (&old.defaults, new.defaults): Defaults { live: [model], });
    }

    /// What a machine says about an engine reaches its launches by its manifest.
    fn of_engines(&mut self, old: &Config, new: &Config) {
        let silent = EngineSettings::default();
        let mut names: Vec<&String> = old.engines.keys().chain(new.engines.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let of = |config: &Config| config.engines.get(name).unwrap_or(&silent).clone();
            let (before, after) = (of(old), of(new));
            let mut changes = Self::default();
            compare!(changes, "", (&before, after): EngineSettings {
                live: [on_disconnect],
                launch: [program, sandbox],
                apart: [origin],
            });
            self.0.extend(changes.0.into_iter().map(|(key, effect)| (format!("engine.{name}.{key}"), effect)));
        }
    }
}

/// What an engine is started for, and asked for when it must prove itself: it does all others of the same kind.
fn started_for(model: &Model) -> impl Iterator<Item = &Capability> {
    let is_one = |c: &&Capability| matches!(c, Capability::Chat | Capability::Embeddings | Capability::Rerank);
    model.capabilities.iter().filter(is_one)
}

fn text(pattern: &Regex) -> String {
    pattern.as_str().to_owned()
}

fn classes(manifest: &Manifest) -> Vec<(motorpool_vocab::FailureClass, String)> {
    manifest.classes.iter().map(|LogClass { class, pattern }| (*class, text(pattern))).collect()
}
