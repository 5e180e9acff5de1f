//! What an engine is started with, and when it counts as ready.
use crate::support::{assert_refused, assert_serves, gate, header, loading_until, n_starts};
use motorpool_testkit::{Behaviour, Bind, End, Exit, FakeModel, Health, Inference, Load, Moment, Switch};
use motorpool_tests::e2e::{
    House,
    processes::{is_alive, one},
    talk::{CHAT, chat, peek},
};
use serde_json::json;
use std::collections::BTreeSet;

/// What the manifest lets pass or sets, and the mark of the keeper.
const ENVIRONMENT: [&str; 12] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "LLAMA_SERVER_ROUTER_PORT",
    "XDG_CONFIG_HOME",
    "CUDA_DEVICE_ORDER",
    "MOTORPOOL_NONCE",
    "CUDA_VISIBLE_DEVICES",
];

/// What files a process has open, as far as they have names.
fn open_files(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.map(|link| link.display().to_string()).filter(|name| name.starts_with('/')).collect()
}

#[tokio::test]
async fn an_engine_gets_the_environment_of_its_manifest_and_no_file_of_ours() {
    let mut house = House::new();
    let secrets = [
        "LLAMA_ARG_CTX_SIZE",
        "LLAMA_API_KEY",
        "HF_TOKEN",
        "AIP_MODE",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "OPENAI_API_KEY",
    ];
    for name in secrets {
        house.set_env(name, "1");
    }
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let process = peek(&model, "/fake/process").await.expect("it runs");
    let environment = process["environment"].as_object().expect("variables");
    for name in environment.keys() {
        assert!(ENVIRONMENT.contains(&name.as_str()), "{name} reached the engine");
    }
    assert_eq!(environment["CUDA_DEVICE_ORDER"], json!("PCI_BUS_ID"));
    let engine = one(model.starts()[0].pid).expect("it runs");
    let ours = |name: &String| ["journal", "lock", "daemon-", "incidents"].iter().any(|part| name.contains(part));
    for pid in [engine.pid, engine.parent] {
        let kept: Vec<_> = open_files(pid).into_iter().filter(ours).collect();
        assert!(kept.is_empty(), "{pid} holds {kept:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_lies_about_its_health_gets_no_request_of_anybody() {
    let mut house = House::new();
    let never = gate(&house, "never");
    let health = Health { lies: Switch::ON, ..Health::default() };
    let model = house.fake("a", &Behaviour { health, ..loading_until(&never) });
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let error = assert_refused(&answer, 502, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("says it is ready, but")), "{error}");
    assert!(!is_alive(model.starts()[0].pid));
    model.behave(&Behaviour::default()).expect("written");
    assert_serves(&daemon, "a").await;
    assert_eq!((n_starts(&model), daemon.until_phase("a", &["ready"]).await.slots), (2, Some(2)));
    daemon.stop().await;
}

/// The request fails with this class, nothing of the engine is left, and its bytes are free.
async fn assert_never_ready(behaviour: &Behaviour, class: &str) {
    let mut house = House::new();
    let model = house.fake("a", behaviour);
    house.set("load.stall", "1s");
    house.set("stop.polite", "500ms");
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let error = assert_refused(&answer, 502, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(class)), "{error}");
    assert_eq!(header(&answer, "x-should-retry"), "true");
    daemon.until_phase("a", &["idle"]).await;
    assert!(!is_alive(model.starts()[0].pid));
    assert_eq!(daemon.status().await.pool.committed_bytes, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_never_listens_is_given_up() {
    assert_never_ready(&Behaviour { bind: Bind::Never, ..Behaviour::default() }, "load-stalled").await;
}

#[tokio::test]
async fn an_engine_that_stops_loading_is_given_up() {
    let stuck = Load { gates: vec![std::env::temp_dir().join("a-gate-that-nobody-opens")], ..Load::default() };
    assert_never_ready(&Behaviour { load: stuck, ..Behaviour::default() }, "load-stalled").await;
}

#[tokio::test]
async fn an_engine_that_cannot_infer_never_becomes_ready() {
    let inference = Inference { fails: Switch::ON, ..Inference::default() };
    assert_never_ready(&Behaviour { inference, ..Behaviour::default() }, "").await;
}

/// As the shipped one, over a port.
const OVER_A_PORT: &str = r#"
name = "over-a-port"
transport = "tcp"
args = ["--model", "{model.path}", "--alias", "{model.id}", "--host", "127.0.0.1", "--port", "{endpoint.port}"]
paths = ["POST /v1/chat/completions"]
env_allow = ["PATH", "HOME"]
[program]
names = ["motorpool-fake-engine"]
version_args = ["--version"]
version_pattern = "version: (.+)"
[ready]
path = "/health"
status = 200
[stop]
signal = "SIGTERM"
[[log_class]]
class = "bind-failed"
pattern = "couldn't bind HTTP server socket"
"#;

impl OverAPort for House {
    fn over_a_port(&mut self) {
        let program = motorpool_testkit::binary("motorpool-fake-engine");
        self.set("engine.over-a-port.program", program.to_str().expect("UTF-8"));
        self.write_beside("engines/over-a-port.toml", OVER_A_PORT);
    }
}

trait OverAPort {
    /// Engines of this kind can be named.
    fn over_a_port(&mut self);
}

#[tokio::test]
async fn an_engine_whose_port_was_taken_is_started_again_with_others_and_its_caller_notices_nothing() {
    let mut house = House::new();
    house.over_a_port();
    house.set("breaker.failures", 1);
    let log = vec!["start: couldn't bind HTTP server socket, hostname: 127.0.0.1".into()];
    let exit = Exit { at: Moment::Start, how: End::Code(1), log, first_starts: Some(3) };
    let lines = "declared = \"100MiB\"\nengine = \"over-a-port\"\n";
    let a = house.fake_with("a", &Behaviour { exit: Some(exit), ..Behaviour::default() }, lines);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let ports: BTreeSet<_> = a.starts().into_iter().map(|start| start.address).collect();
    assert!(a.starts().len() == 4 && ports.len() > 1, "{ports:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_is_held_to_its_sandbox_unless_the_operator_says_otherwise() {
    for (setting, held) in [(None, "1"), (Some("off"), "0")] {
        let mut house = House::new();
        let a = house.fake("a", &Behaviour::default());
        if let Some(setting) = setting {
            house.set("engine.llama-server.sandbox", setting);
        }
        let daemon = house.start().await;
        assert_serves(&daemon, "a").await;
        let status = std::fs::read_to_string(format!("/proc/{}/status", a.starts()[0].pid)).expect("it lives");
        let gains_none = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:")).map(str::trim);
        assert_eq!(gains_none, Some(held), "{setting:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn an_engine_that_knows_only_ports_is_served_over_one() {
    let mut house = House::new();
    house.over_a_port();
    let mut models: Vec<FakeModel> = Vec::new();
    for id in ["a", "b"] {
        let lines = "declared = \"100MiB\"\nengine = \"over-a-port\"\n";
        models.push(house.fake_with(id, &Behaviour::default(), lines));
    }
    let daemon = house.start().await;
    for id in ["a", "b"] {
        assert_serves(&daemon, id).await;
    }
    let addresses: Vec<_> = models.iter().map(|model| model.starts()[0].address.clone()).collect();
    assert!(addresses.iter().all(|address| address.starts_with("127.0.0.1:")) && addresses[0] != addresses[1]);
    assert_eq!(daemon.cli(&["unload", "a"]).await.code, Some(0));
    let exit = daemon.until_phase("a", &["idle"]).await.last_exit.expect("a record");
    assert_eq!(exit["code"], json!(0), "SIGTERM is its polite way: {exit}");
    daemon.stop().await;
}
