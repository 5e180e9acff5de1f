//! What right looks like: an example line for every key, by its path.
//!
//! Items of lists have the path of their list, `*` stands for any one key. A test reads every line with the reader it is
//! an example for, and finds one for every key that the readers know.

/// Path of a key and a line that is right there.
pub(crate) type Examples = &'static [(&'static str, &'static str)];

/// The line for `path`, else for the nearest path above it.
pub(crate) fn of(examples: Examples, path: &str) -> Option<&'static str> {
    let here = examples.iter().find(|(pattern, _)| leads_to(pattern, path)).map(|(_, line)| *line);
    here.or_else(|| path.rsplit_once('.').and_then(|(above, _)| of(examples, above)))
}

fn leads_to(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.split('.'), path.split('.'));
    pattern.clone().count() == path.clone().count() && pattern.zip(path).all(|(p, key)| p == "*" || p == key)
}

pub(crate) const CONFIG: Examples = &[
    ("server", "[server]"),
    ("server.listen", "listen = [\"127.0.0.1:8790\"]"),
    ("server.hosts", "hosts = [\"pool.example.org\"]"),
    ("server.origins", "origins = [\"https://chat.example.org\"]"),
    ("server.watch", "watch = true"),
    ("server.tls", "[server.tls]"),
    ("server.tls.certificate", "certificate = \"/etc/motorpool/cert.pem\""),
    ("server.tls.key", "key = \"/etc/motorpool/key.pem\""),
    ("capacity", "[capacity]"),
    ("capacity.budget", "budget = \"24GiB\""),
    ("capacity.reserve", "reserve = \"4GiB\""),
    ("capacity.shape", "shape = \"discrete-gpu\""),
    ("capacity.allow_ram_spillover", "allow_ram_spillover = \"off\""),
    ("capacity.on_cpu_fallback", "on_cpu_fallback = \"fail\""),
    ("capacity.reclaim_within", "reclaim_within = \"5s\""),
    ("device", "[[device]]"),
    ("device.id", "id = \"GPU-1a2b3c4d\""),
    ("device.total", "total = \"24GiB\""),
    ("device.reserve", "reserve = \"1GiB\""),
    ("pool", "[pool]"),
    ("pool.policy", "policy = \"demand-lru\""),
    ("pool.max_wait", "max_wait = \"60s\""),
    ("pool.min_residency", "min_residency = \"10s\""),
    ("pool.drain_wait", "drain_wait = \"30s\""),
    ("pool.queue_wait", "queue_wait = \"10m\""),
    ("pool.fan_out_after", "fan_out_after = \"2s\""),
    ("pool.scale_down_after", "scale_down_after = \"2m\""),
    ("pool.quiet", "quiet = \"3m\""),
    ("evict", "[evict]"),
    ("load.abandon", "abandon = \"abort\""),
    ("evict.on_deadline", "on_deadline = \"cut\""),
    ("load", "[load]"),
    ("load.stall", "stall = \"60s\""),
    ("load.cap", "cap = \"30m\""),
    ("load.parallel", "parallel = 1"),
    ("breaker", "[breaker]"),
    ("breaker.failures", "failures = 3"),
    ("breaker.within", "within = \"60s\""),
    ("breaker.pause", "pause = \"60s\""),
    ("health", "[health]"),
    ("health.every", "every = \"15s\""),
    ("health.timeout", "timeout = \"5s\""),
    ("health.inference", "inference = \"30s\""),
    ("health.misses", "misses = 3"),
    ("health.silent", "silent = \"2m\""),
    ("health.failures", "failures = 3"),
    ("keys", "[keys]"),
    ("keys.file", "file = \"/etc/motorpool/keys.json\""),
    ("usage", "[usage]"),
    ("usage.keep", "keep = \"2160h\""),
    ("usage.disk", "disk = \"256MiB\""),
    ("session_state", "[session_state]"),
    ("session_state.disk", "disk = \"8GiB\""),
    ("stop", "[stop]"),
    ("stop.polite", "polite = \"5s\""),
    ("stop.kill", "kill = \"10s\""),
    ("shutdown", "[shutdown]"),
    ("shutdown.grace", "grace = \"30s\""),
    ("loading", "[loading]"),
    ("loading.commit_after", "commit_after = \"10s\""),
    ("limits", "[limits]"),
    ("limits.body", "body = \"256MiB\""),
    ("limits.body_memory", "body_memory = \"4MiB\""),
    ("limits.bodies_memory", "bodies_memory = \"128MiB\""),
    ("limits.spool", "spool = \"4GiB\""),
    ("limits.queue_model", "queue_model = 64"),
    ("limits.queue", "queue = 512"),
    ("limits.connections", "connections = 4096"),
    ("limits.header", "header = \"64KiB\""),
    ("limits.write_stall", "write_stall = \"60s\""),
    ("limits.connect", "connect = \"5s\""),
    ("limits.first_result", "first_result = \"10m\""),
    ("limits.between_frames", "between_frames = \"2m\""),
    ("defaults", "[defaults]"),
    ("defaults.model", "model = \"gemma3-270m\""),
    ("log", "[log]"),
    ("log.level", "level = \"info\""),
    ("log.format", "format = \"text\""),
    ("engine", "[engine.llama-server]"),
    ("engine.*", "[engine.llama-server]"),
    ("engine.*.sandbox", "sandbox = \"off\""),
    ("engine.*.on_disconnect", "on_disconnect = \"drain\""),
    ("engine.*.program", "program = \"/opt/llama.cpp/bin/llama-server\""),
    ("external", "[[external]]"),
    ("external.id", "id = \"desk\""),
    ("external.kind", "kind = \"llama-cpp-router\""),
    ("external.url", "url = \"http://127.0.0.1:8080\""),
    ("external.key_file", "key_file = \"/etc/motorpool/desk.key\""),
    ("external.key_env", "key_env = \"DESK_KEY\""),
    ("external.headers", "headers = { x-team = \"lab\" }"),
    ("external.lifecycle", "lifecycle = \"user-managed\""),
    ("external.default_model", "default_model = \"qwen3-8b\""),
    ("external.context", "context = 32768"),
    ("external.keep_alive", "keep_alive = \"5m\""),
    ("external.prefer", "prefer = \"external\""),
    ("external.models", "models = [\"qwen*\"]"),
    ("external.load", "[external.load]"),
    ("external.load.context_length", "context_length = 32768"),
    ("external.load.eval_batch_size", "eval_batch_size = 512"),
    ("external.load.flash_attention", "flash_attention = true"),
    ("external.load.num_experts", "num_experts = 8"),
    ("external.load.offload_kv_cache_to_gpu", "offload_kv_cache_to_gpu = true"),
    ("external.load.context_ceiling", "context_ceiling = 131072"),
    ("external.timeouts", "[external.timeouts]"),
    ("external.timeouts.look", "look = \"1500ms\""),
    ("external.timeouts.load", "load = \"120s\""),
    ("external.timeouts.unload", "unload = \"15s\""),
    ("protect", "[[protect]]"),
    ("protect.model", "model = \"qwen3-8b\""),
    ("protect.role", "role = \"chat\""),
    ("protect.target", "target = \"desk\""),
];

pub(crate) const HOST: Examples = &[
    ("host", "[host]"),
    ("host.ram", "ram = \"64GiB\""),
    ("capacity", "[capacity]"),
    ("capacity.budget", "budget = \"24GiB\""),
    ("capacity.reserve", "reserve = \"4GiB\""),
    ("capacity.shape", "shape = \"discrete-gpu\""),
    ("capacity.allow_ram_spillover", "allow_ram_spillover = \"off\""),
    ("capacity.on_cpu_fallback", "on_cpu_fallback = \"fail\""),
    ("capacity.reclaim_within", "reclaim_within = \"5s\""),
    ("device", "[[device]]"),
    ("device.id", "id = \"GPU-1a2b3c4d\""),
    ("device.total", "total = \"24GiB\""),
    ("device.reserve", "reserve = \"1GiB\""),
];

pub(crate) const MANIFEST: Examples = &[
    ("name", "name = \"llama-server\""),
    ("transport", "transport = \"unix\""),
    (
        "args",
        "args = [\"--host\", \"{endpoint.socket}\", { when = \"gpu_layers\", args = [\"-ngl\", \"{gpu_layers}\"] }]",
    ),
    ("refused_args", "refused_args = [\"--host\", \"--port\"]"),
    ("env_allow", "env_allow = [\"PATH\", \"HOME\"]"),
    ("env_set", "env_set = { XDG_CONFIG_HOME = \"{empty_config_dir}\" }"),
    ("headers", "headers = [\"x-trace-*\"]"),
    ("paths", "paths = [\"POST /v1/chat/completions\"]"),
    ("program", "[program]"),
    ("program.names", "names = [\"llama-server\"]"),
    ("program.version_args", "version_args = [\"--version\"]"),
    ("program.version_pattern", "version_pattern = '(?m)^version: (.+)$'"),
    ("program.devices_args", "devices_args = [\"--list-devices\"]"),
    ("ready", "[ready]"),
    ("ready.path", "path = \"/health\""),
    ("ready.status", "status = 200"),
    ("session_state", "[session_state]"),
    ("session_state.save", "save = { path = \"/slots/{slot}?action=save\", body = '{\"filename\":\"{file}\"}' }"),
    (
        "session_state.restore",
        "restore = { path = \"/slots/{slot}?action=restore\", body = '{\"filename\":\"{file}\"}' }",
    ),
    ("on_disconnect", "on_disconnect = \"abort\""),
    ("served_as", "served_as = \"default_model\""),
    ("sandbox", "[sandbox]"),
    ("sandbox.write", "write = [\"/var/tmp\", \"~/.cache\"]"),
    ("sandbox.tcp", "tcp = \"own\""),
    ("stop", "[stop]"),
    ("stop.stdin_line", "stdin_line = \"exit\""),
    ("stop.signal", "signal = \"SIGTERM\""),
    ("progress", "[progress]"),
    ("progress.prefix", "prefix = \"cmd_child_to_router:state:\""),
    ("progress.kind", "kind = \"llama-server\""),
    ("slots", "[slots]"),
    ("slots.path", "path = \"/slots\""),
    ("slots.kind", "kind = \"llama-server\""),
    ("metrics", "[metrics]"),
    ("metrics.path", "path = \"/metrics\""),
    ("metrics.kind", "kind = \"prometheus\""),
    ("estimator", "estimator = \"llama-cpp\""),
    ("probe", "[probe.chat]"),
    ("probe.chat", "[probe.chat]"),
    ("probe.embeddings", "[probe.embeddings]"),
    ("probe.rerank", "[probe.rerank]"),
    ("probe.*.path", "path = \"/completion\""),
    ("probe.*.body", "body = '{\"prompt\":\"1\",\"n_predict\":1}'"),
    ("log_class", "[[log_class]]"),
    ("log_class.class", "class = \"bind-failed\""),
    ("log_class.pattern", "pattern = \"couldn't bind\""),
];

pub(crate) const MODEL: Examples = &[
    ("id", "id = \"gemma3-270m\""),
    ("aliases", "aliases = [\"small\", \"gpt-*\"]"),
    ("engine", "engine = \"llama-server\""),
    ("source", "source = { file = \"/srv/models/gemma.gguf\" }"),
    ("source.file", "source = { file = \"/srv/models/gemma.gguf\" }"),
    ("source.https", "[source.https]"),
    ("source.https.url", "url = \"https://example.org/gemma.gguf\""),
    ("source.https.sha256", "sha256 = \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\""),
    ("source.pypi", "[source.pypi]"),
    ("source.pypi.packages", "packages = [\"model-part1\", \"model-part2\"]"),
    ("source.pypi.version", "version = \"1.0.0\""),
    ("source.pypi.file", "file = \"gemma.gguf\""),
    ("source.pypi.size", "size = \"253113024B\""),
    ("source.pypi.sha256", "sha256 = \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\""),
    ("context", "context = 8192"),
    ("context_min", "context_min = 8192"),
    ("context_target", "context_target = 131072"),
    ("profile", "profile = \"agent\""),
    ("slots", "slots = 2"),
    ("kv_type", "kv_type = \"q8_0\""),
    ("gpu_layers", "gpu_layers = 99"),
    ("n_cpu_moe", "n_cpu_moe = 12"),
    ("devices", "devices = [\"GPU-1a2b3c4d\"]"),
    ("cpu_tensors", "cpu_tensors = [\"ffn_down\"]"),
    ("projector", "projector = { file = \"/srv/models/mmproj.gguf\" }"),
    ("projector.file", "projector = { file = \"/srv/models/mmproj.gguf\" }"),
    ("draft", "draft = { file = \"/srv/models/small.gguf\", tokens = 3 }"),
    ("draft.file", "draft = { file = \"/srv/models/small.gguf\" }"),
    ("draft.tokens", "draft = { file = \"/srv/models/small.gguf\", tokens = 3 }"),
    ("adapters", "adapters = [{ file = \"/srv/models/lora.gguf\" }]"),
    ("adapters.file", "adapters = [{ file = \"/srv/models/lora.gguf\" }]"),
    ("declared", "declared = \"2GiB\""),
    ("prompt_cache", "prompt_cache = \"256MiB\""),
    ("checkpoints", "checkpoints = 4"),
    ("priority", "priority = 10"),
    ("pinned", "pinned = true"),
    ("home", "home = true"),
    ("idle_ttl", "idle_ttl = \"1h\""),
    ("session_state", "session_state = \"on\""),
    ("replicas", "[replicas]"),
    ("replicas.min", "min = 2"),
    ("replicas.max", "max = 3"),
    ("tags", "tags = [\"small\"]"),
    ("capabilities", "capabilities = [\"chat\"]"),
    ("parameters", "[parameters]"),
    ("parameters.strip", "strip = [\"logit_bias\"]"),
    ("parameters.set", "set = { cache_prompt = true }"),
    ("parameters.default", "default = { temperature = 0.7 }"),
    ("extra_args", "extra_args = [\"--threads\", \"8\"]"),
    ("license", "[license]"),
    ("license.name", "name = \"Apache-2.0\""),
    ("license.url", "url = \"https://www.apache.org/licenses/LICENSE-2.0\""),
    ("license.text", "text = \"Read the terms before use.\""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ConfigError, Fault, Source, embedded_manifests, embedded_models, parse_config, parse_host, parse_manifest,
        parse_model,
    };
    use std::collections::BTreeSet;

    type Read = fn(&str) -> Result<(), ConfigError>;

    fn no_env(_: &str) -> Option<String> {
        None
    }

    const READERS: [(&str, Examples, Read); 4] = [
        ("config", CONFIG, |text| parse_config(Source { file: "f", text }, &no_env).map(drop)),
        ("host", HOST, |text| parse_host(Source { file: "f", text }, &no_env).map(drop)),
        ("manifest", MANIFEST, |text| parse_manifest(Source { file: "f", text }, &no_env).map(drop)),
        ("model", MODEL, |text| parse_model(Source { file: "f", text }, &no_env).map(drop)),
    ];

    /// The keys known in the table `path`: what the error about a key that cannot exist lists.
    fn known_in(path: &str, read: Read) -> Vec<String> {
        let table = path.split('.').map(|key| if key == "*" { "chat" } else { key }).collect::<Vec<_>>().join(".");
        let header = match path {
            "" => String::new(),
            "log_class" | "device" | "adapters" | "external" | "protect" => format!("[[{path}]]\n"),
            _ if path.starts_with("external.") => format!("[[external]]\n[{table}]\n"),
            _ => format!("[{table}]\n"),
        };
        match read(&format!("{header}\n\"?\" = 1\n")).map_err(|e| e.fault().clone()) {
            Err(Fault::UnknownKey { known, .. } | Fault::UnknownValue { known, .. }) => known,
            _ => vec![],
        }
    }

    #[test]
    fn there_is_an_example_for_every_key_and_a_key_for_every_example() {
        for (name, examples, read) in READERS {
            let mut known: BTreeSet<String> = known_in("", read).into_iter().collect();
            assert!(!known.is_empty(), "{name}");
            let tables = examples.iter().filter(|(_, line)| line.starts_with('[') || line.contains("{ file"));
            for (table, _) in tables {
                known.extend(known_in(table, read).into_iter().map(|key| format!("{table}.{key}")));
            }
            // Keys of a map are anyone's; each capability has the same table.
            let known = known.into_iter().map(|key| match key.rsplit_once('.') {
                Some(("probe.chat" | "probe.embeddings" | "probe.rerank", key)) => format!("probe.*.{key}"),
                _ => key,
            });
            let known: BTreeSet<String> = known.chain((name == "config").then(|| "engine.*".into())).collect();
            let shown: BTreeSet<String> = examples.iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(shown, known, "{name}");
        }
    }

    /// `text` with every value of the key at `path` replaced by the example.
    fn with_example(path: &str, line: &str) -> String {
        match path.rsplit_once('.') {
            None => format!("{line}\n"),
            Some((table, _)) => format!("[{}]\n{line}\n", table.replace('*', "chat")),
        }
    }

    #[test]
    fn every_example_is_right() {
        for (name, examples, read) in READERS {
            for (path, line) in examples.iter().filter(|(_, line)| !line.starts_with('[') && !line.contains("{ file")) {
                let mut text = with_example(path, line);
                for list in ["log_class", "device", "external", "protect"] {
                    text = text.replace(&format!("[{list}]"), &format!("[[{list}]]"));
                }
                text = text.replace("[external.", "[[external]]\n[external.");
                // Other keys may be missing, but the line itself must be read without a word against it.
                match read(&text) {
                    Ok(()) => {}
                    Err(e) => assert!(matches!(e.fault(), Fault::MissingKey(_)), "{name}: {e}"),
                }
            }
        }
    }

    #[test]
    fn whole_files_are_no_worse_than_their_lines() {
        for (file, text) in embedded_manifests() {
            parse_manifest(Source { file, text }, &no_env).expect(file);
        }
        for (file, text) in embedded_models() {
            parse_model(Source { file, text }, &no_env).expect(file);
        }
    }

    #[test]
    fn a_key_without_a_line_of_its_own_shows_the_one_above() {
        assert_eq!(of(CONFIG, "engine.x.program"), Some("program = \"/opt/llama.cpp/bin/llama-server\""));
        assert_eq!(of(CONFIG, "server.listen.deeper"), Some("listen = [\"127.0.0.1:8790\"]"));
        assert_eq!(of(CONFIG, "nothing"), None);
    }
}
