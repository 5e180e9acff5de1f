//! The command line as a program sees it: what it prints, where, and how it ends.
#[path = "cli/config.rs"]
mod config;
#[path = "cli/every_command.rs"]
mod every_command;

use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    thread,
};

/// A home of its own for one test.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// `motorpool <args>`, with nothing of the tester's own directories.
    fn motorpool(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_motorpool"));
        for name in ["XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "MOTORPOOL_STATE_DIR"] {
            command.env_remove(name);
        }
        command.env("HOME", self.path()).current_dir(self.path()).args(args);
        command
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.motorpool(args).arg("--json").output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("one JSON document on stdout")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("below home")).expect("made");
        fs::write(path, content).expect("written");
    }
}

/// `motorpool serve` under way.
struct Serving {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Home {
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "a daemon is started and signalled by its test"
    )]
    fn serve(&self) -> Serving {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_motorpool"))
            .args(["serve", "--config", "free.toml"])
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Serving { child, lines }
    }
}

impl Serving {
    fn address(&mut self) -> String {
        let line = self.lines.next().expect("a line").expect("text");
        line.strip_prefix("listening on ").expect("the address").to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "a daemon is started and signalled by its test")]
    fn terminate(&mut self) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it lives");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers each connection with the next of `answers`; gives back the address and, at the end, the request heads.
fn serve(answers: Vec<Vec<u8>>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let server = thread::spawn(move || {
        let answer = |answer: Vec<u8>| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            let head: Vec<_> = lines.map(|line| line.expect("text")).take_while(|line| !line.is_empty()).collect();
            stream.write_all(&answer).expect("taken");
            head.join("\n").to_ascii_lowercase()
        };
        answers.into_iter().map(answer).collect()
    });
    (address, server)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn the_doctor_says_where_a_missing_file_of_the_users_belongs() {
    let home = Home::new();
    home.write(".config/motorpool/catalog/x.toml", "id = \"x\"\nsource = { file = \"/no/such.gguf\" }\n");
    let findings = home.json(&["doctor"]);
    let of_it = |f: &&Value| f["found"].as_str().is_some_and(|found| found.starts_with("x is absent"));
    let finding = findings.as_array().into_iter().flatten().find(of_it).expect("told");
    assert_eq!(finding["cure"], "put /no/such.gguf there, or correct `source` in its catalog entry");
}

#[test]
fn the_doctor_notes_a_model_that_is_larger_than_the_budget() {
    let home = Home::new();
    home.write("big.gguf", motorpool::gguf::write::smoke_model());
    let file = fs::File::options().write(true).open(home.path().join("big.gguf")).expect("ours");
    file.set_len(2 << 30).expect("sparse");
    home.write(".config/motorpool/motorpool.toml", "[capacity]\nbudget = \"1GiB\"\n");
    home.write(".config/motorpool/catalog/b.toml", "id = \"big\"\nsource = { file = \"${HOME}/big.gguf\" }\n");
    let findings = home.json(&["doctor"]);
    let of_it = |f: &&Value| f["found"].as_str().is_some_and(|found| found.starts_with("big: its file of 2.0 GiB"));
    let finding = findings.as_array().into_iter().flatten().find(of_it).expect("told");
    assert_eq!(finding["state"], "note");
}

#[test]
fn help_documents_every_exit_code() {
    let home = Home::new();
    home.motorpool(&["--help"])
        .assert()
        .success()
        .stdout(predicate::str::contains("Exit codes:").and(predicate::str::contains("  8  no daemon answers")));
    home.motorpool(&["--no-such-flag"]).assert().code(2);
}

#[test]
fn without_a_daemon_the_commands_that_need_one_say_what_to_do() {
    let home = Home::new();
    for args in [&["ps"][..], &["models"], &["load", "m"], &["unload", "--idle"], &["run", "m", "hello"]] {
        let two_lines =
            predicate::function(|text: &str| text.lines().filter(|line| !line.starts_with("loading")).count() == 2);
        let assert = home.motorpool(args).assert().code(8).stdout("");
        assert.stderr(
            predicate::str::contains("no daemon is running")
                .and(predicate::str::contains("motorpool up"))
                .and(two_lines),
        );
    }
}

#[test]
fn a_wrong_configuration_is_shown_with_its_place() {
    let home = Home::new();
    home.write("motorpool.toml", "[server]\nlisen = [\"127.0.0.1:1\"]\n");
    let place =
        predicate::str::contains("./motorpool.toml:2:1").and(predicate::str::contains("did you mean `listen`?"));
    home.motorpool(&["model", "list"]).assert().code(3).stderr(place.and(predicate::str::contains("^^^^^")));
    home.motorpool(&["model", "list", "--config", "/no/such.toml"]).assert().code(3);
}

#[test]
fn a_configuration_that_others_can_write_to_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.write("motorpool.toml", "nonsense");
    fs::set_permissions(home.path().join("motorpool.toml"), fs::Permissions::from_mode(0o666)).expect("ours");
    let assert = home.motorpool(&["model", "list"]).assert().success();
    assert.stderr(predicate::str::contains("ignoring ./motorpool.toml: others can write to it"));
}

#[test]
fn an_unknown_model_is_not_found_and_its_neighbours_are_named() {
    let home = Home::new();
    let near = predicate::str::contains("did you mean `gemma3-270m`?");
    home.motorpool(&["model", "show", "gemma3-270"]).assert().code(4).stderr(near);
    for command in ["show", "pull", "rm", "verify"] {
        let assert = home.motorpool(&["model", command, "nope"]).assert().code(4);
        assert.stderr(predicate::str::contains("`motorpool model list`"));
    }
    home.motorpool(&["model", "pull", "hf:org/repo"]).assert().code(4);
}

#[test]
fn a_pulled_model_is_continued_listed_verified_and_removed() {
    let home = Home::new();
    let model = motorpool::gguf::write::smoke_model();
    let (first, rest) = model.split_at(1000);
    let ok = format!("200 OK\r\netag: \"1\"\r\ncontent-length: {}", model.len());
    let partial = format!(
        "206 Partial Content\r\ncontent-range: bytes 1000-{}/{}\r\ncontent-length: {}",
        model.len() - 1,
        model.len(),
        rest.len()
    );
    let (address, server) = serve(vec![answer(&ok, first), answer(&partial, rest)]);
    let url = format!("{address}/models/tiny.gguf");
    home.motorpool(&["model", "pull", &url]).assert().success().stdout(predicate::str::contains("tiny is ready"));
    assert!(server.join().expect("served")[1].contains("range: bytes=1000-"));

    home.motorpool(&["model", "pull", "tiny"]).assert().success();
    let list = home.json(&["model", "list"]);
    let tiny = list.as_array().into_iter().flatten().find(|row| row["id"] == "tiny").expect("listed");
    assert_eq!((tiny["state"].as_str(), tiny["bytes"].as_u64()), (Some("ready"), Some(model.len() as u64)));
    assert_eq!(home.json(&["model", "show", "tiny"])["architecture"].as_str().map(str::is_empty), Some(false));
    home.motorpool(&["model", "verify", "tiny"]).assert().success();

    let file = tiny["file"].as_str().expect("a path");
    let mut damaged = model.clone();
    *damaged.last_mut().expect("not empty") ^= 1;
    fs::write(file, damaged).expect("written");
    home.motorpool(&["model", "verify", "tiny"]).assert().code(6).stderr(predicate::str::contains("SHA-256"));
    home.motorpool(&["model", "rm", "tiny"]).assert().success();
    home.motorpool(&["model", "show", "tiny"]).assert().code(4);
    assert!(!Path::new(file).exists());
}

#[test]
fn what_is_no_model_is_not_kept() {
    let home = Home::new();
    let (address, server) = serve(vec![answer("200 OK\r\ncontent-length: 5", b"<html")]);
    home.motorpool(&["model", "pull", &format!("{address}/m.gguf")]).assert().code(7);
    server.join().expect("served");
    assert!(!home.path().join(".local/share/motorpool/models/m").exists());
    home.motorpool(&["model", "pull", "http://example.com/m.gguf"])
        .assert()
        .code(6)
        .stderr(predicate::str::contains("not encrypted").and(predicate::str::contains("give an https address")));
    let (address, server) = serve(vec![answer("404 Not Found\r\ncontent-length: 0", b"")]);
    let missing = home.motorpool(&["model", "pull", &format!("{address}/n.gguf")]).assert().code(6);
    missing.stderr(predicate::str::contains("404").and(predicate::str::contains("check the address")));
    server.join().expect("served");
    let left = fs::read_dir(home.path().join(".local/share/motorpool/models")).expect("there");
    assert_eq!(left.count(), 0, "what failed leaves nothing");
}

#[test]
fn a_file_of_the_users_is_entered_and_never_removed() {
    let home = Home::new();
    home.write("mine.gguf", motorpool::gguf::write::smoke_model());
    home.motorpool(&["model", "pull", "./mine.gguf"]).assert().success();
    home.motorpool(&["model", "verify"]).assert().success().stdout("mine whole\n");
    home.write(".config/motorpool/catalog/x.toml", "id = \"x\"\nsource = { file = \"${HOME}/x.gguf\" }\n");
    home.write("x.gguf", "GGUF but no more");
    let verify = home.motorpool(&["model", "verify"]).assert().code(7).stdout("mine whole\n");
    verify.stderr(predicate::str::contains("x.gguf is no usable GGUF file"));
    home.write("x.gguf", motorpool::gguf::write::smoke_model());
    home.motorpool(&["model", "verify"]).assert().success().stdout("mine, x whole\n");
    home.motorpool(&["model", "rm", "mine"]).assert().success();
    assert!(home.path().join("mine.gguf").exists());
    home.motorpool(&["model", "pull", "file:/no/such.gguf"]).assert().code(4);
}

#[test]
fn a_missing_prerequisite_is_named_with_the_line_that_brings_it() {
    let home = Home::new();
    let assert = home.motorpool(&["engine", "install"]).env("PATH", "/nonexistent").env_remove("CXX").assert().code(5);
    assert.stderr(predicate::str::contains("C++ compiler").and(predicate::str::contains("make are missing")));
    home.motorpool(&["engine", "install", "sd-server"]).assert().code(4);
    home.motorpool(&["engine", "verify"]).assert().code(4).stderr(predicate::str::contains("motorpool engine install"));
    home.motorpool(&["engine", "remove", "../.."]).assert().code(4).stderr(predicate::str::contains("engine list"));
    let assert = home.motorpool(&["engine", "verify", "llama-sever"]).assert().code(4);
    assert.stderr(predicate::str::contains("no engine is called `llama-sever`; there are: llama-server"));
}

#[test]
fn a_program_of_the_users_is_verified_too() {
    let home = Home::new();
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../engines/custom.toml.example"));
    home.write(".config/motorpool/engines/custom.toml", manifest.expect("shipped"));
    let verify = || home.motorpool(&["engine", "verify", "custom"]);
    verify().assert().code(4).stderr(predicate::str::contains("`program` in [engine.custom]"));
    home.write(".config/motorpool/motorpool.toml", "[engine.custom]\nprogram = \"${HOME}/custom\"\n");
    verify().assert().code(3).stderr(predicate::str::contains("custom is no program"));
    let program = |text: &str| {
        use std::os::unix::fs::PermissionsExt;
        home.write("custom", text);
        fs::set_permissions(home.path().join("custom"), fs::Permissions::from_mode(0o755)).expect("ours");
    };
    program("#!/bin/sh\necho custom-server 1.2\n");
    verify().assert().success().stdout(predicate::str::contains("custom 1.2 works"));
    program("#!/bin/sh\nexit 3\n");
    let broken = verify().assert().code(7);
    broken.stderr(predicate::str::contains("ended with code 3").and(predicate::str::contains("correct `program`")));
}

#[test]
fn without_a_daemon_a_log_is_read_where_the_last_one_left_it() {
    let home = Home::new();
    let logs = || home.motorpool(&["logs", "default"]);
    let none = logs().assert().code(4);
    none.stderr(predicate::str::contains("there is no log of llama-server:gemma3-270m:0"));
    home.motorpool(&["logs", "nope"]).assert().code(4).stderr(predicate::str::contains("motorpool model list"));
    home.write(".local/state/motorpool/logs/llama-server:gemma3-270m:0.log", "one\ntwo\n");
    logs().assert().success().stdout("one\ntwo\n");
    home.motorpool(&["logs", "-f", "default"]).assert().success().stderr(predicate::str::contains("no daemon"));
}

#[test]
fn a_python_that_will_not_do_is_told_with_what_is_wrong() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let program = |name: &str, text: &str| {
        home.write(&format!("bin/{name}"), text);
        fs::set_permissions(home.path().join("bin").join(name), fs::Permissions::from_mode(0o755)).expect("ours");
    };
    let install = || {
        let mut install = home.motorpool(&["engine", "install"]);
        install.env("PATH", home.path().join("bin")).env_remove("CXX").assert().code(5)
    };
    program("c++", "");
    program("make", "");
    install().stderr(predicate::str::contains("there is no python3"));
    program("python3", "#!/bin/sh\necho 3.9\n");
    install().stderr(predicate::str::contains("is version 3.9, too old"));
    program("python3", "#!/bin/sh\necho 3.12 ensurepip\n");
    install().stderr(predicate::str::contains("has no ensurepip module"));
}

#[test]
fn the_doctor_names_each_fault_with_its_cure() {
    let home = Home::new();
    home.write("free.toml", "[server]\nlisten = [\"127.0.0.1:0\"]\n");
    let mut doctor = home.motorpool(&["doctor", "--json", "--config", "free.toml"]);
    let output = doctor.env("PATH", "/nonexistent").output().expect("it runs");
    assert_eq!(output.status.code(), Some(12));
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let faults: Vec<_> = findings.as_array().into_iter().flatten().filter(|f| f["state"] == "fault").collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let budget = findings.as_array().into_iter().flatten().find(|f| f["what"] == "budget").expect("told");
    assert!(budget["found"].as_str().is_some_and(|found| found.contains("iB (a share of")), "{budget}");
    assert_eq!(faults[0]["what"], "engine");
    assert!(faults[0]["cure"].as_str().is_some_and(|cure| cure.contains("motorpool engine install llama-server")));
    assert!(!home.path().join(".local").exists(), "it changes nothing");
}

#[test]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test closes the program's stdout itself")]
fn a_closed_reader_ends_it_quietly() {
    let home = Home::new();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_motorpool"))
        .args(["model", "list"])
        .env("HOME", home.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_daemon_serves_until_it_is_told_to_stop_and_leaves_no_socket() {
    let home = Home::new();
    home.write("free.toml", "[server]\nlisten = [\"127.0.0.1:0\"]\n");
    let mut serving = home.serve();
    assert!(serving.address().starts_with("http://127.0.0.1:"));
    let run = home.path().join(".local/state/motorpool/run");
    assert!(run.join("control.sock").exists());
    home.motorpool(&["serve", "--config", "free.toml"]).assert().code(9).stderr(
        predicate::str::contains(format!("another supervisor (process {})", serving.child.id()))
            .and(predicate::str::contains("--state-dir")),
    );
    assert_eq!(serving.terminate(), Some(0));
    assert!(!run.join("control.sock").exists());
}

#[test]
fn an_address_in_use_is_named_and_nothing_is_left() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    home.write("taken.toml", format!("[server]\nlisten = [\"{address}\"]\n"));
    let assert = home.motorpool(&["serve", "--config", "taken.toml"]).assert().code(9).stdout("");
    assert.stderr(
        predicate::str::contains(format!("the address {address} is in use")).and(predicate::str::contains("[server]")),
    );
    let findings = home.motorpool(&["doctor", "--config", "taken.toml"]).assert().code(12);
    findings.stdout(predicate::str::contains(format!("the address {address} is in use")));
}

#[test]
fn a_state_directory_too_long_for_sockets_is_refused_before_it_is_made() {
    let home = Home::new();
    let long = format!("state/{}", "x".repeat(120));
    let assert = home.motorpool(&["serve", "--state-dir", &long]).assert().code(3);
    assert.stderr(predicate::str::contains("too long for a unix socket").and(predicate::str::contains("--state-dir")));
    assert!(!home.path().join("state").exists());
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    home.write("file", "");
    home.motorpool(&["serve", "--state-dir", "file/state"])
        .assert()
        .code(11)
        .stderr(predicate::str::contains("file/state"));
}

#[test]
fn a_budget_that_is_no_number_is_refused() {
    let home = Home::new();
    home.write("free.toml", "[server]\nlisten = [\"127.0.0.1:0\"]\n");
    let mut serve = home.motorpool(&["serve", "--config", "free.toml"]);
    serve.env("MOTORPOOL_CAPACITY_BUDGET_GB", "24GiB").assert().code(3).stderr(predicate::str::contains("such as 24"));
}

#[test]
fn the_refusals_of_a_log_are_counted_from_a_file_or_standard_input() {
    const SENTENCE: &str =
        "capacity broker denied llama-server:a:0: budget exhausted: would commit 2147483648 against 1073741824";
    let (home, log) = (Home::new(), format!("2026-01-02T03:04:05Z ERROR [provider-pool] {SENTENCE}\nother\n"));
    home.write("daemon.log", &log);
    let of_file = home.json(&["denials", "daemon.log"]);
    assert_eq!([&of_file["denied"], &of_file["lines"]], [1, 2], "{of_file}");
    let of_stdin = home.motorpool(&["denials", "-", "--json"]).write_stdin(log).output().expect("it runs");
    assert_eq!(serde_json::from_slice::<Value>(&of_stdin.stdout).expect("one document"), of_file);
    let table = home.motorpool(&["denials", "daemon.log"]).assert().success();
    table.stdout(predicate::str::contains("2.0 GiB against 1.0 GiB (budget)"));
    home.write("quiet.log", [0xff, b'\n', 0]);
    let none = home.motorpool(&["denials", "quiet.log"]).assert().success().stderr("");
    none.stdout("0 denied, 0 deferred; 2 lines read\n");
}

#[test]
fn a_log_that_cannot_be_read_is_named_with_the_reason() {
    let home = Home::new();
    let missing = home.motorpool(&["denials", "no.log"]).assert().code(4).stdout("");
    missing.stderr(predicate::str::contains("cannot read no.log: No such file"));
    home.motorpool(&["denials", "."]).assert().code(2).stderr(predicate::str::contains("name a file in it"));
    home.motorpool(&["denials"]).assert().code(2);
}
