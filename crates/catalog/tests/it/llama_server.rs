//! The shipped manifest of llama-server: what it makes of a launch, and what it reads in what the server says.
use motorpool_catalog::{
    Batch, Capability, DraftModel, FlashAttention, Heard, LaunchValues, Manifest, Model, ModelSource, Slots, shipped,
};
use motorpool_vocab::{Bytes, Endpoint, FailureClass, ModelId};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf, sync::LazyLock};

mod environment;

static SHIPPED: LazyLock<(Vec<Manifest>, Vec<Model>)> = LazyLock::new(shipped);

fn manifest() -> &'static Manifest {
    &SHIPPED.0[0]
}

fn values() -> LaunchValues {
    LaunchValues {
        model_path: "/models/gemma.gguf".into(),
        model_id: "gemma3-270m".into(),
        endpoint: Endpoint::Unix("/run/e.sock".into()),
        context_per_slot: 8192,
        slots: 2,
        kv_type: "f16".into(),
        flash_attention: FlashAttention::On,
        gpu_layers: None,
        n_cpu_moe: 0,
        devices: vec![],
        visible: None,
        tensor_split: vec![],
        projector: None,
        draft: None,
        adapters: vec![],
        cpu_tensors: vec![],
        batch: Batch { logical: 2048, physical: 512 },
        prompt_cache: Bytes::mib(64),
        checkpoints: 4,
        empty_config_dir: "/run/empty".into(),
        sessions_dir: None,
        whole_windows: false,
        capabilities: vec![Capability::Chat],
        extra_args: vec![],
    }
}

fn command(values: &LaunchValues) -> Vec<String> {
    manifest().command(values).into_iter().map(|arg| arg.into_string().expect("UTF-8")).collect()
}

/// What follows `flag`, which is there exactly once.
fn after(command: &[String], flag: &str) -> String {
    let places: Vec<usize> = (0..command.len()).filter(|i| command[*i] == flag).collect();
    assert_eq!(places.len(), 1, "{flag} in {command:?}");
    command[places[0] + 1].clone()
}

#[test]
fn a_launch_says_everything_that_takes_memory() {
    let expected = "--host /run/e.sock --cors-origins localhost --model /models/gemma.gguf --alias gemma3-270m \
        --load-mode mmap --ctx-size 16384 --parallel 2 --no-kv-unified --batch-size 2048 --ubatch-size 512 \
        --cache-type-k f16 --cache-type-v f16 --flash-attn on --fit off --cache-ram 64 --ctx-checkpoints 4 \
        --sleep-idle-seconds -1 --offline --no-ui --slots --metrics --verbosity 4 --log-colors off";
    assert_eq!(command(&values()).join(" "), expected);
}

#[test]
fn values_that_are_there_add_their_arguments() {
    let all = command(&LaunchValues { gpu_layers: Some(99), extra_args: vec!["--jinja".into()], ..values() });
    assert_eq!(after(&all, "--gpu-layers"), "99");
    assert_eq!(all.last().map(String::as_str), Some("--jinja"), "the model's own arguments come last");
    let (devices, tensor_split) = (vec!["CUDA0".into(), "CUDA1".into()], vec![20, 12]);
    let placed = command(&LaunchValues { n_cpu_moe: 3, devices, tensor_split, ..values() });
    assert_eq!(after(&placed, "--n-cpu-moe"), "3");
    assert_eq!(
        (after(&placed, "--device").as_str(), after(&placed, "--tensor-split").as_str()),
        ("CUDA0,CUDA1", "20,12")
    );
    let tcp = command(&LaunchValues { endpoint: Endpoint::Tcp(4711), ..values() });
    assert_eq!((after(&tcp, "--host").as_str(), after(&tcp, "--port").as_str()), ("127.0.0.1", "4711"));
}

#[test]
fn what_is_loaded_beside_a_model_goes_where_the_model_goes() {
    let beside = LaunchValues {
        projector: Some("/models/mmproj.gguf".into()),
        draft: Some(DraftModel { file: "/models/small.gguf".into(), tokens: 5 }),
        adapters: vec!["/models/a.gguf".into(), "/models/b.gguf".into()],
        cpu_tensors: vec!["ffn_down".into(), "exps".into()],
        ..values()
    };
    let left = command(&beside);
    assert_eq!(
        (after(&left, "--mmproj"), after(&left, "--lora")),
        ("/models/mmproj.gguf".into(), "/models/a.gguf,/models/b.gguf".into())
    );
    assert_eq!(after(&left, "--override-tensor"), "ffn_down=CPU,exps=CPU");
    let draft =
        ["--spec-draft-model", "--spec-type", "--spec-draft-n-max", "--spec-draft-type-k", "--spec-draft-type-v"];
    assert_eq!(draft.map(|flag| after(&left, flag)), ["/models/small.gguf", "draft-simple", "5", "f16", "f16"]);
    for flag in ["--mmproj-device", "--spec-draft-ngl", "--spec-draft-device"] {
        assert!(!left.contains(&flag.to_owned()), "{flag} is left to the engine");
    }
    let placed = |devices: &[&str], gpu_layers| {
        let devices = devices.iter().map(|id| (*id).to_owned()).collect();
        let all = command(&LaunchValues { devices, gpu_layers, ..beside.clone() });
        ["--mmproj-device", "--spec-draft-device", "--spec-draft-ngl"].map(|flag| after(&all, flag))
    };
    assert_eq!(placed(&["CUDA1", "CUDA0"], Some(30)), ["CUDA1", "CUDA1", "all"], "the first");
    assert_eq!(placed(&["none"], Some(0)), ["none", "none", "0"]);
}

#[test]
fn a_capability_switches_its_mode() {
    let with = |capability| command(&LaunchValues { capabilities: vec![capability], ..values() });
    assert!(with(Capability::Embeddings).contains(&"--embeddings".into()));
    assert!(with(Capability::Rerank).contains(&"--reranking".into()));
    assert!(!with(Capability::Chat).iter().any(|arg| arg == "--embeddings" || arg == "--reranking"));
}

#[test]
fn an_embedding_model_gets_its_whole_input_in_one_batch() {
    let batch = |capability, context| Batch::for_model(&[capability], context);
    assert_eq!(batch(Capability::Chat, 512), Batch { logical: 2048, physical: 512 });
    assert_eq!(batch(Capability::Embeddings, 512), Batch { logical: 512, physical: 512 });
    assert_eq!(batch(Capability::Rerank, 8192), Batch { logical: 2048, physical: 2048 });
}

#[test]
fn context_and_caches_are_counted_as_the_server_counts_them() {
    let command =
        command(&LaunchValues { context_per_slot: u32::MAX, slots: 64, prompt_cache: Bytes::new(3 << 19), ..values() });
    assert_eq!(after(&command, "--ctx-size"), "274877906880", "no sum wraps");
    assert_eq!(after(&command, "--cache-ram"), "1", "never more than was charged");
}

#[test]
fn a_model_says_its_part_of_a_launch() {
    let gemma = &SHIPPED.1[0];
    let values = LaunchValues::new(gemma, "/m.gguf".into(), Endpoint::Tcp(1), "/e".into());
    assert_eq!((values.context_per_slot, values.slots, values.prompt_cache), (8192, 2, Bytes::mib(64)));
    assert_eq!(values.extra_args, gemma.extra_args);
    let least = Model::new(ModelId::new("a").expect("an id"), "llama-server", ModelSource::File("/a".into()));
    let values = LaunchValues::new(&least, "/a".into(), Endpoint::Tcp(1), "/e".into());
    assert_eq!((values.context_per_slot, values.slots, values.kv_type.as_str()), (4096, 1, "f16"));
}

#[test]
fn a_path_that_is_no_text_stays_what_it_is() {
    let raw = OsString::from_vec(b"/models/\xff\xfe.gguf".to_vec());
    let command = manifest().command(&LaunchValues { model_path: PathBuf::from(raw.clone()), ..values() });
    assert!(command.contains(&raw));
}

#[test]
fn the_environment_is_what_is_listed_and_what_is_set() {
    let parent = |name: &str| match name {
        "PATH" => Some("/bin".into()),
        "HOME" => Some("/home/ann".into()),
        "LLAMA_ARG_CTX_SIZE" | "XDG_CONFIG_HOME" | "LLAMA_SERVER_ROUTER_PORT" => Some("from us".into()),
        _ => None,
    };
    let environment = manifest().environment(&parent, &values());
    let shown: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("UTF-8"))).collect();
    let expected = [
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("HOME", "/home/ann"),
        ("LLAMA_SERVER_ROUTER_PORT", "1"),
        ("PATH", "/bin"),
        ("XDG_CONFIG_HOME", "/run/empty"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn the_version_is_read_in_old_and_new_forms() {
    let program = &manifest().program;
    let output = "version: 0.6.0-dev (build 0, commit unknown)\nbuilt with GNU 12.2.0 for Linux x86_64\n";
    assert_eq!(program.version(output), Some("0.6.0-dev (build 0, commit unknown)"));
    assert_eq!(program.version("ggml_cuda_init: found 1 device\nversion: 6789 (abcdef0)\r\n"), Some("6789 (abcdef0)"));
    assert_eq!(program.version("usage: other"), None);
}

#[test]
fn progress_is_heard_on_standard_output() {
    let heard = |line: &str| manifest().progress(line);
    let loading = |value: &str, current: &str, stages: &str| {
        heard(&format!(
            "cmd_child_to_router:state:{{\"state\":\"loading\",\"payload\":{{\"stages\":[{stages}],\"current\":\"{current}\",\"value\":{value}}}}}"
        ))
    };
    let at = |per_mille| Some(Heard::Loading { per_mille });
    let one = "\"text_model\"";
    assert_eq!(loading("0.0", "text_model", one), at(0));
    assert_eq!(loading("0.4567", "text_model", one), at(457));
    assert_eq!(loading("1.0", "text_model", one), at(1000));
    let two = "\"text_model\",\"mmproj_model\"";
    assert_eq!(loading("1.0", "text_model", two), at(500));
    assert_eq!(loading("0.5", "mmproj_model", two), at(750));
    assert_eq!(loading("7e300", "text_model", one), at(1000));
    assert_eq!(loading("-1", "elsewhere", ""), at(0));
    assert_eq!(loading("\"x\"", "text_model", one), None);
    let ready = "cmd_child_to_router:state:{\"state\":\"ready\",\"payload\":{\"id\":\"gemma3-270m\",\"meta\":{\"n_ctx\":8192}}}";
    assert_eq!(heard(ready), Some(Heard::Ready));
    assert_eq!(heard("cmd_child_to_router:state:{\"state\":\"ready\",\"payload\":null}"), Some(Heard::Ready));
    assert_eq!(heard("cmd_child_to_router:state:{\"state\":\"sleeping\",\"payload\":null}"), None);
}

#[test]
fn a_report_inside_another_line_is_nobodys_report() {
    let ready = "cmd_child_to_router:state:{\"state\":\"ready\"}";
    for line in
        [format!("general.name str = {ready}"), format!(" {ready}"), "cmd_child_to_router:state:".into(), String::new()]
    {
        assert_eq!(manifest().progress(&line), None, "{line}");
    }
}

#[test]
fn slots_are_counted_from_the_servers_answer() {
    let body = r#"[{"id":0,"n_ctx":8192,"speculative":false,"is_processing":false},
        {"id":1,"n_ctx":8192,"speculative":false,"is_processing":true,"id_task":7}]"#;
    assert_eq!(manifest().slots(body), Some(Slots { n_all: 2, n_busy: 1 }));
    assert_eq!(manifest().slots(r#"{"error":{"code":503,"message":"Loading model"}}"#), None);
}

#[test]
fn inference_may_ask_what_computes_and_nothing_that_changes_or_reveals() {
    let manifest = manifest();
    for (method, path) in [
        ("POST", "/v1/chat/completions"),
        ("POST", "/completion"),
        ("POST", "/v1/embeddings"),
        ("POST", "/reranking"),
        ("POST", "/tokenize"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/health"),
        ("HEAD", "/v1/models"),
    ] {
        assert!(manifest.allows(method, path), "{method} {path}");
    }
    for (method, path) in [
        ("GET", "/cors-proxy"),
        ("POST", "/tools"),
        ("GET", "/slots"),
        ("POST", "/slots/0"),
        ("GET", "/props"),
        ("POST", "/props"),
        ("GET", "/metrics"),
        ("POST", "/lora-adapters"),
        ("POST", "/models/unload"),
        ("POST", "/v1/streams/lookup"),
        ("GET", "/v1/stream"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/health"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1//chat/completions"),
        ("POST", "/v1/chat%2fcompletions"),
        ("POST", "/v1/chat/completions/../../tools"),
        ("post", "/completion"),
    ] {
        assert!(!manifest.allows(method, path), "{method} {path}");
    }
}

#[test]
fn only_harmless_headers_pass() {
    let manifest = manifest();
    for name in
        ["content-type", "accept", "user-agent", "anthropic-version", "openai-beta", "x-stainless-os", "traceparent"]
    {
        assert!(manifest.passes_header(name), "{name}");
    }
    for name in [
        "authorization",
        "x-api-key",
        "api-key",
        "cookie",
        "origin",
        "referer",
        "forwarded",
        "x-forwarded-for",
        "via",
        "x-motorpool-session",
        "x-conversation-id",
        "connection",
        "proxy-authorization",
        "x-anything",
    ] {
        assert!(!manifest.passes_header(name), "{name}");
    }
}

#[test]
fn there_is_a_probe_for_every_capability_and_none_for_none() {
    let manifest = manifest();
    let probe = |capability: Capability| manifest.probe(&[capability]).map(|probe| probe.path.clone());
    assert_eq!(probe(Capability::Chat).as_deref(), Some("/completion"));
    assert_eq!(probe(Capability::Embeddings).as_deref(), Some("/v1/embeddings"));
    assert_eq!(probe(Capability::Rerank).as_deref(), Some("/rerank"));
    assert_eq!(manifest.probe(&[]), None);
    assert_eq!(manifest.stop.stdin_line.as_deref(), Some("cmd_router_to_child:exit"));
}

/// The end of a log as the server really prints it, and what it proves.
const ENDS: &[(&[&str], Option<FailureClass>)] = &[
    (
        &[
            "0.00.006.294 E gguf_init_from_file: failed to open GGUF file '/m/nope.gguf' (No such file or directory)",
            "0.00.006.505 E llama_model_load: error loading model: llama_model_loader: failed to load model from /m/nope.gguf",
            "0.00.006.681 E srv    load_model: failed to load model, '/m/nope.gguf'",
            "0.00.007.139 E srv  llama_server: exiting due to model loading error",
        ],
        Some(FailureClass::ModelMissing),
    ),
    (
        &[
            "0.00.030.109 E gguf_init_from_reader: failed to read magic",
            "0.00.030.329 E llama_model_load: error loading model: llama_model_loader: failed to load model from /m/empty.gguf",
            "0.00.031.040 E srv  llama_server: exiting due to model loading error",
        ],
        Some(FailureClass::ModelCorrupt),
    ),
    (
        &["0.00.022.239 E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'"],
        Some(FailureClass::ModelCorrupt),
    ),
    (&["0.00.009.548 E gguf_init_from_reader: failed to read key-value pairs"], Some(FailureClass::ModelCorrupt)),
    (
        &[
            "0.00.013.479 E gguf_init_from_reader: number of tensors is -1 but must be in [0, 53624256028225440]",
            "0.00.013.486 E gguf_init_from_reader: failed to read header",
        ],
        Some(FailureClass::ModelCorrupt),
    ),
    (
        &[
            "0.00.146.157 E llama_model_load: error loading model: tensor 'blk.4.attn_k.weight' data is not within the file bounds, model is corrupted or incomplete",
            "0.00.147.774 E srv    load_model: failed to load model, '/m/cut.gguf'",
        ],
        Some(FailureClass::ModelCorrupt),
    ),
    (&["error loading model: missing tensor 'output_norm.weight'"], Some(FailureClass::ModelCorrupt)),
    (&["done_getting_tensors: wrong number of tensors; expected 236, got 235"], Some(FailureClass::ModelCorrupt)),
    (&["check_tensor_dims: tensor 'x' has wrong shape; expected 1, 2, got 2, 1"], Some(FailureClass::ModelCorrupt)),
    (&["error loading model: invalid split file name: x.gguf"], Some(FailureClass::ModelCorrupt)),
    (
        &["0.00.528.318 E llama_model_load: error loading model: unknown model architecture: 'gemmaZ'"],
        Some(FailureClass::ModelUnsupported),
    ),
    (
        &[
            "0.00.461.743 E llama_model_load: error loading model: error loading model hyperparameters: key not found in model: gemma3.block_count",
        ],
        Some(FailureClass::ModelUnsupported),
    ),
    (
        &[
            "0.01.374.562 E ggml_aligned_malloc: insufficient memory (attempted to allocate 2931.00 MB)",
            "0.01.374.598 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU buffer of size 3073376256",
            "0.01.377.693 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
            "0.01.377.921 E srv    load_model: failed to create_context with model '/m/gemma.gguf'",
        ],
        Some(FailureClass::OutOfHostMemory),
    ),
    (
        &["0.01.080.030 E llama_model_load: error loading model: mmap failed: Cannot allocate memory"],
        Some(FailureClass::OutOfHostMemory),
    ),
    (
        &["0.01.377.921 E srv    load_model: failed to create_context with model 'x'"],
        Some(FailureClass::OutOfHostMemory),
    ),
    (
        &[
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory",
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        ],
        Some(FailureClass::OutOfDeviceMemory),
    ),
    (
        &[
            "failed to initialize the context: failed to allocate buffer for kv cache",
            "E alloc: failed to allocate Vulkan0 buffer of size 5",
        ],
        Some(FailureClass::OutOfDeviceMemory),
    ),
    (
        &[
            "graph_reserve: failed to allocate compute pp buffers",
            "alloc_tensor_range: failed to allocate CUDA0 buffer of size 7",
        ],
        Some(FailureClass::OutOfDeviceMemory),
    ),
    (&["failed to allocate CUDA_Host buffer of size 7"], Some(FailureClass::OutOfHostMemory)),
    (&["error: invalid argument: --bogus"], Some(FailureClass::BadArguments)),
    (
        &[
            "error while handling argument \"-dev\": invalid device: CUDA7",
            "usage:",
            "-dev,  --device <dev1,dev2,..>          comma-separated list of devices to use for offloading (none = don't",
            "to show complete usage, run with -h",
        ],
        Some(FailureClass::BadArguments),
    ),
    (
        &[
            "0.01.315.679 E llama_init_from_model: quantized V cache requires flash_attn to be enabled",
            "0.01.315.884 E srv    load_model: failed to create_context with model '/m/gemma.gguf'",
        ],
        Some(FailureClass::BadArguments),
    ),
    (
        &[
            "0.00.007.547 E srv         start: couldn't bind HTTP server socket, hostname: /run/f.sock, port: 8080",
            "0.00.011.757 E srv  llama_server: exiting due to HTTP server error",
        ],
        Some(FailureClass::BindFailed),
    ),
    (&["CUDA error: an illegal memory access was encountered"], Some(FailureClass::DeviceError)),
    (&["vk::Queue::submit: ErrorDeviceLost"], Some(FailureClass::DeviceLost)),
    (&["/src/ggml/src/ggml.c:1234: GGML_ASSERT(a->ne[2] == b->ne[0]) failed"], Some(FailureClass::Assertion)),
    (&["failed to reload model after sleeping"], Some(FailureClass::Assertion)),
    (&["Remote RPC server crashed or returned malformed response"], Some(FailureClass::Assertion)),
    // Not failures of the engine: what stopped it, or nothing at all.
    (&["0.03.813.994 I srv    operator(): operator(): cleaning up before exit..."], None),
    (&["Received second interrupt, terminating immediately."], None),
    (&["EOF on stdin detected, forcing shutdown..."], None),
    (&["exit command received, exiting..."], None),
    (&["common_fit_params: encountered an error while trying to fit params to free device memory: x"], None),
    (&["0.00.018.941 W srv  llama_server: security: no API key is set"], None),
    (&[], None),
];

#[test]
fn every_end_of_the_server_is_told_apart_by_its_log() {
    let manifest = manifest();
    for (lines, class) in ENDS {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(manifest.classify(&lines), *class, "{lines:?}");
        let twice: Vec<String> = lines.iter().chain(&lines).cloned().collect();
        assert_eq!(manifest.classify(&twice), *class, "the same, printed twice");
        let backwards: Vec<String> = lines.iter().rev().cloned().collect();
        assert_eq!(manifest.classify(&backwards), *class, "in any order");
    }
}

#[test]
fn a_fit_that_failed_hides_no_other_failure() {
    let fit = "common_fit_params: encountered an error while trying to fit params to free device memory: x".to_owned();
    let bind = "couldn't bind HTTP server socket, hostname: h, port: 1".to_owned();
    assert_eq!(manifest().classify(&[fit, bind]), Some(FailureClass::BindFailed));
}
