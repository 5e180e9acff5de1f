//! `--json` against a daemon that serves: every command that the help shows, and one document from each that succeeds.
use crate::support::{gate, pausing};
use motorpool_testkit::eventually;
use motorpool_tests::e2e::{
    Daemon, House,
    house::outcome,
    talk::{CHAT, ask},
};
use serde_json::Value;

/// They serve, build or measure until they are told to stop or for minutes, or draw.
const OTHERWISE: &[&str] = &["bench", "engine install", "model pull", "serve", "top"];

/// What the others are asked for. `WAITS` is the number of a request that waits.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("cancel", &["WAITS"]),
    ("completions", &["bash"]),
    ("config import", &["swap.yaml"]),
    ("denials", &["log"]),
    ("drain", &["a"]),
    ("engine remove", &["llama-server"]),
    ("explain", &["a"]),
    ("key new", &["name"]),
    ("key revoke", &["name"]),
    ("load", &["a"]),
    ("logs", &["a"]),
    ("model rm", &["a"]),
    ("model scan", &["."]),
    ("model show", &["a"]),
    ("plan", &["a"]),
    ("queue cancel", &["WAITS"]),
    ("queue move", &["WAITS", "up"]),
    ("reset", &["a"]),
    ("residency adopt", &["m", "--target", "desk"]),
    ("residency plan", &["m"]),
    ("restart", &["a"]),
    ("run", &["b", "hello"]),
    ("sim", &["trace"]),
    ("unload", &["a"]),
];

/// What happened and what an engine said has no end: a document for each, as with `--follow`.
const LINES: &[&str] = &["events", "logs"];

/// Nothing of what they are asked for is in this house: an engine and a model that were fetched, a server of the user's.
const IN_VAIN: &[&str] = &["engine remove", "model rm", "residency adopt", "residency plan"];

/// The commands below `path`, as its help lists them.
async fn leaves(house: &House) -> Vec<String> {
    let (mut found, mut paths) = (vec![], vec![vec![]]);
    while let Some(path) = paths.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = house.run(&words).await.stdout;
        let Some((_, rest)) = help.split_once("\nCommands:\n") else {
            found.push(path.join(" "));
            continue;
        };
        let lines = rest.lines().take_while(|line| !line.is_empty());
        let commands = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        paths.extend(names.map(|name| [&path[..], &[name.to_owned()]].concat()));
    }
    found.sort();
    found
}

/// The number of a request that waits behind the one that `a` serves.
async fn somebody_waits(daemon: &Daemon<'_>) -> String {
    for _ in 0..2 {
        let http = daemon.http();
        tokio::spawn(async move { http.post(CHAT, &ask("a", "hello")).await });
    }
    let number = eventually("somebody waits", async || {
        let queue = daemon.cli(&["queue", "--json"]).await.json();
        queue["engines"].as_array()?.iter().find_map(|engine| engine["pending"][0]["id"].as_u64())
    });
    number.await.to_string()
}

#[tokio::test]
async fn every_command_that_succeeds_beside_a_daemon_prints_one_document_when_it_is_asked_to() {
    let mut house = House::new();
    house.set("capacity.budget", "4GiB");
    let go_on = gate(&house, "go-on");
    house.fake_with("a", &pausing(20, 5, &go_on), "declared = \"600MiB\"\nslots = 1\n");
    house.fake("b", &motorpool_testkit::Behaviour::default());
    std::fs::write(house.path("swap.yaml"), "models: {}\n").expect("written");
    std::fs::write(house.path("log"), "").expect("written");
    std::fs::write(house.path("trace"), "budget 1200\nmodel a 600\nacquire r1 a\n").expect("written");
    let daemon = house.start().await;
    let all = leaves(&house).await;
    assert!(all.len() > 40, "{all:?}");
    let (mut without, mut in_vain) = (vec![], vec![]);
    for name in all.iter().filter(|name| !OTHERWISE.contains(&name.as_str())) {
        let arguments = ARGUMENTS.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, arguments)| arguments);
        let waits = if arguments.contains(&"WAITS") { somebody_waits(&daemon).await } else { String::new() };
        let arguments = arguments.iter().map(|word| if *word == "WAITS" { waits.as_str() } else { word });
        let words: Vec<&str> = name.split(' ').chain(arguments).chain(["--json"]).collect();
        // What ends or moves what is served waits for it otherwise.
        let is_ready = matches!(name.as_str(), "drain" | "restart" | "unload" | "load");
        if is_ready {
            daemon.cli(&["unload", "a", "--force"]).await;
            daemon.cli(&["load", "a"]).await;
        }
        let told = daemon.cli(&words).await;
        let documents: Vec<_> = serde_json::Deserializer::from_str(&told.stdout).into_iter::<Value>().collect();
        match told.code {
            Some(0) if matches!(&documents[..], [Ok(_)]) => {}
            Some(0) if LINES.contains(&name.as_str()) && documents.iter().all(Result::is_ok) => {
                assert!(documents.len() > 1, "{told:?}");
            }
            Some(0) => without.push((name, told)),
            // It has found something, and says so.
            _ if name == "doctor" => assert!(matches!(&documents[..], [Ok(_)]), "{told:?}"),
            _ => in_vain.push((name, told)),
        }
    }
    assert!(without.is_empty(), "commands without --json: {}: {without:?}", without.len());
    let names: Vec<&str> = in_vain.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, IN_VAIN, "{in_vain:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_conversation_on_a_terminal_is_refused_to_programs() {
    let house = House::new();
    house.write_config();
    for (args, code) in [(&["run", "a", "--json"][..], 2), (&["run", "a"], 0)] {
        // Its standard input is a terminal, and at its end.
        let told =
            outcome(house.command_through("exec script --quiet --return --command \"$*\" /dev/null", args)).await;
        assert_eq!(told.code, Some(code), "{told:?}");
        assert_eq!(told.stdout.contains("give one question"), code == 2, "{told:?}");
    }
}
