//! Every command of the tree that `--help` shows: each takes `--json`, and what it prints then is JSON.
use super::Home;
use serde_json::Value;

/// Commands that fetch, build or serve until they are told to stop: what they print is tested where they are.
const LONG: &[&str] = &["bench", "engine install", "model pull", "serve", "up"];

/// What the others need to be asked something that makes sense.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("cancel", &["1"]),
    ("completions", &["bash"]),
    ("config import", &["swap.yaml"]),
    ("denials", &["log"]),
    ("drain", &["m"]),
    ("explain", &["gemma3-270m"]),
    ("key new", &["name"]),
    ("key revoke", &["name"]),
    ("load", &["m"]),
    ("logs", &["m"]),
    ("model rm", &["gemma3-270m"]),
    ("model scan", &["."]),
    ("model show", &["gemma3-270m"]),
    ("plan", &["gemma3-270m"]),
    ("queue cancel", &["1"]),
    ("queue move", &["1", "up"]),
    ("residency adopt", &["m", "--target", "desk"]),
    ("residency plan", &["m"]),
    ("restart", &["m"]),
    ("run", &["m", "hello"]),
    ("sim", &["trace"]),
    ("unload", &["m"]),
];

/// The commands below `path`, as its help lists them.
fn below(home: &Home, path: &[String]) -> Vec<String> {
    let output = home.motorpool(&[]).args(path).arg("--help").output().expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return vec![] };
    let named = rest
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command that has none below it.
fn leaves(home: &Home, path: &[String]) -> Vec<Vec<String>> {
    let names = below(home, path);
    if names.is_empty() {
        return vec![path.to_vec()];
    }
    names.into_iter().flat_map(|name| leaves(home, &[path, &[name]].concat())).collect()
}

#[test]
fn every_command_that_prints_data_prints_json_when_it_is_asked_to() {
    let home = Home::new();
    home.write("swap.yaml", "models: {}\n");
    home.write("log", "");
    home.write("trace", "budget 1200\nmodel a 600\nacquire r1 a\n");
    let all = leaves(&home, &[]);
    assert!(all.len() > 30, "{all:?}");
    let mut without = Vec::new();
    for path in all.iter().filter(|path| !LONG.contains(&path.join(" ").as_str())) {
        let name = path.join(" ");
        let arguments = ARGUMENTS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, arguments)| arguments);
        let output = home.motorpool(&[]).args(path).args(arguments).arg("--json").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Usage:"), "{name}: give it arguments in the table above: {said}");
        let stdout = String::from_utf8(output.stdout).expect("text");
        let documents = serde_json::Deserializer::from_str(&stdout).into_iter::<Value>();
        if documents.into_iter().any(|document| document.is_err()) {
            without.push(name);
        }
    }
    assert!(without.is_empty(), "commands without --json: {}: {without:?}", without.len());
}
