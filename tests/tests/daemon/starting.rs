//! What an engine is started with, and when it counts as ready.
use crate::support::{assert_refused, assert_serves, gate, header, loading_until, n_starts};
use motorpool_testkit::{Behaviour, Bind, End, Exit, FakeModel, Health, Inference, Load, Moment, Switch, eventually};
use motorpool_tests::e2e::{
    House,
    processes::{is_alive, memory_kib, one},
    talk::{CHAT, chat, peek},
};
use serde_json::json;
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path};

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
    assert_given_up_after("1s", behaviour, class).await;
}

/// The same, with another time without a sign of life.
async fn assert_given_up_after(stall: &str, behaviour: &Behaviour, class: &str) {
    let mut house = House::new();
    let model = house.fake("a", behaviour);
    house.set("load.stall", stall);
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

/// Answering our probes costs it a clock tick between any two looks, which is several times what it costs llama-server.
#[tokio::test]
async fn an_engine_that_stops_loading_is_given_up_however_busy_our_probes_keep_it() {
    let stuck = Load { gates: vec![std::env::temp_dir().join("a-gate-that-nobody-opens")], ..Load::default() };
    for health in [
        Health { work_us: 3000, ..Health::default() },
        // As engines do that write an access log.
        Health { logs: Switch::ON, ..Health::default() },
    ] {
        let behaviour = Behaviour { load: stuck.clone(), health, ..Behaviour::default() };
        assert_given_up_after("3s", &behaviour, "load-stalled").await;
    }
}

#[tokio::test]
async fn a_load_that_does_not_tell_how_far_it_is_is_shown_by_what_it_has_mapped_and_never_as_done() {
    let mut house = House::new();
    let load = gate(&house, "load");
    let silent = Load { progress: false, gates: vec![load.file()], ..Load::default() };
    house.fake("a", &Behaviour { load: silent, ..Behaviour::default() });
    let daemon = house.start().await;
    let http = daemon.http();
    let asks = tokio::spawn(async move { http.post(CHAT, &chat("a", "hello")).await });
    let share = eventually("a share is shown", async || {
        daemon.status().await.engine("a").and_then(|engine| engine.progress).filter(|share| *share > 0)
    })
    .await;
    assert!(share <= 990, "{share}");
    load.open().expect("opened");
    assert_eq!(asks.await.expect("no panic").expect("an answer").status, 200);
    daemon.stop().await;
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

#[tokio::test]
async fn the_line_of_a_launch_has_exactly_the_members_that_harnesses_read() {
    let mut house = House::new();
    house.fake_with("a", &Behaviour::default(), "declared = \"100MiB\"\nslots = 2\nkv_type = \"q8_0\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let log = daemon.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("[llama-server] launch ")).collect();
    let [line] = lines[..] else { panic!("one launch: {log}") };
    assert!(line.contains(" INFO "), "{line}");
    let json = &line[line.find("launch {").expect("an object") + "launch ".len()..];
    let told: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let program = motorpool_testkit::binary("motorpool-fake-engine");
    let expected = json!({
        "pid": daemon.until_phase("a", &["ready"]).await.pid,
        "key": "llama-server:a:0",
        "program": program,
        "model": "a",
        "backend": "cpu",
        "contextPerSlot": 512,
        "contextTotal": 1024,
        "slots": 2,
        "kvCacheType": "q8_0",
        "devices": [],
    });
    assert_eq!(told, expected);
    daemon.stop().await;
}

/// The binary that people run, not a program of these tests. All of its memory is judged only where the program is built
/// for release, which continuous integration does not do: there only what is its own is. `cargo test --release -p
/// motorpool-tests --test daemon a_keeper_is_small`, after a build of the programs with `--release`, judges both.
#[tokio::test]
async fn a_keeper_is_small() {
    const MOST_KIB: u64 = 3 << 10;
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let engine = one(model.starts()[0].pid).expect("it runs");
    let keeper = one(engine.parent).expect("it keeps it");
    assert_eq!(keeper.parent, daemon.pid());
    // Pages of the program's file are shared with the daemon, and more of them with debugging information.
    let own = memory_kib(keeper.pid, "RssAnon");
    assert!(own <= MOST_KIB, "{own} KiB of its own");
    let all = memory_kib(keeper.pid, "VmRSS");
    assert!(cfg!(debug_assertions) || all <= MOST_KIB, "{all} KiB");
    daemon.stop().await;
}

/// An engine that goes for the control socket: what it may do is what its fence and the daemon let it.
const INTRUDER: &str = r#"import os, socket, sys
run, to, engine = sys.argv[1:4]
said = open(to, "a")
def tried(what, how):
    try:
        said.write("%s %s\n" % (what, how()))
    except OSError as error:
        said.write("%s no\n" % what)
def ask():
    control = socket.socket(socket.AF_UNIX)
    control.connect(run + "/control.sock")
    control.sendall(b"GET /api/motorpool/v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    return "answered" if control.recv(9) else "no"
if "--version" not in sys.argv and "--model" in sys.argv:
    tried("asks", ask)
    tried("moves", lambda: os.rename(run + "/control.sock", run + "/x") or "done")
    tried("makes", lambda: os.mkdir(run + "/mine") or "done")
    tried("own", lambda: os.mkdir("mine") or "done")
said.close()
os.execv(engine, [engine] + sys.argv[4:])
"#;

#[tokio::test]
async fn an_engine_cannot_control_the_pool_that_started_it() {
    let mut house = House::new();
    // Its fence lets engines write below /tmp, where houses are, and where these sources may lie.
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_open = ["/tmp", "/var/tmp"].iter().any(|open| here.starts_with(open));
    let home = std::env::home_dir().filter(|_| is_open);
    let state = tempfile::tempdir_in(home.as_deref().unwrap_or(here)).expect("a temporary directory");
    house.use_state(state.path());
    let (program, intruder, said) = (house.path("wrapper"), house.path("intruder.py"), house.path("said"));
    let run = house.control_socket().parent().expect("a folder").to_owned();
    let engine = motorpool_testkit::binary("motorpool-fake-engine");
    let words = [&intruder, &run, &said, &engine].map(|path| format!("'{}'", path.display())).join(" ");
    fs::write(&intruder, INTRUDER).expect("written");
    fs::write(&said, "").expect("written");
    fs::write(&program, format!("#!/bin/sh\nexec python3 {words} \"$@\"\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    house.set("engine.llama-server.program", program.to_str().expect("UTF-8"));
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert_eq!(
        fs::read_to_string(&said).expect("there"),
        "asks no\nmoves no\nmakes no\nown done\n",
        "{}",
        daemon.log()
    );
    assert!(daemon.log().contains("a process of an engine was refused on the control socket"), "{}", daemon.log());
    assert_eq!(daemon.cli(&["ps"]).await.code, Some(0), "others are not");
    daemon.stop().await;
}
