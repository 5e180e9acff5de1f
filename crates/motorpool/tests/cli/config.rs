//! `motorpool config`: what it finds wrong, shows, describes and makes.
use super::Home;
use predicates::prelude::*;
use serde_json::Value;
use std::fs;

#[test]
fn a_check_shows_every_fault_of_every_file_and_what_only_shows_when_all_are_read() {
    let home = Home::new();
    home.write("set/motorpool.toml", "[pool]\nmax_wait = 5\n[sever]\n");
    home.write("set/catalog/a.toml", "id = \"a\"\nsource = { file = \"m.gguf\" }\n");
    home.write("set/engines/e.toml", "name = \"e\"\n");
    let checked = home.motorpool(&["config", "check", "set", "--json"]).assert().code(3);
    let report: Value = serde_json::from_slice(&checked.get_output().stdout).expect("JSON");
    let rows = report["troubles"].as_array().expect("rows");
    let told: Vec<_> = rows
        .iter()
        .map(|row| format!("{}:{}:{}", row["file"].as_str().expect("a file"), row["line"], row["column"]))
        .collect();
    assert_eq!(
        told,
        [
            "set/motorpool.toml:2:12",
            "set/motorpool.toml:3:2",
            "set/engines/e.toml:null:null",
            "set/catalog/a.toml:2:19"
        ]
    );
    assert_eq!((&rows[1]["nearest"], &rows[1]["example"]), (&"server".into(), &"[server]".into()));
    let said = String::from_utf8_lossy(&checked.get_output().stderr).into_owned();
    assert!(said.contains("2 | max_wait = 5\n  |            ^\n  = example: max_wait = \"60s\""), "{said}");
    assert!(said.contains("error: 4 faults in 3 files"), "{said}");

    // Each is right for itself now; together they are not.
    home.write("set/motorpool.toml", "[defaults]\nmodel = \"nobody\"\n[engine.nothing]\n");
    home.write("set/catalog/a.toml", "id = \"a\"\naliases = [\"x\"]\nsource = { file = \"/m.gguf\" }\n");
    home.write(
        "set/catalog/b.toml",
        "id = \"b\"\naliases = [\"x\"]\nengine = \"vlm\"\nsource = { file = \"/m.gguf\" }\n",
    );
    fs::remove_file(home.path().join("set/engines/e.toml")).expect("there");
    home.motorpool(&["config", "check", "set"]).assert().code(3).stderr(
        predicate::str::contains("did you mean `vllm`?").and(predicate::str::contains("error: 2 faults in 3 files")),
    );
    home.write("set/catalog/b.toml", "id = \"b\"\nsource = { file = \"/m.gguf\" }\n");
    let both = predicate::str::contains("defaults.model names no model").and(predicate::str::contains("`nothing`"));
    home.motorpool(&["config", "check", "set"]).assert().code(3).stderr(both);
    home.write("set/motorpool.toml", "[defaults]\nmodel = \"x\"\n");
    home.motorpool(&["config", "check", "set"]).assert().success().stdout(predicate::str::contains("nothing is wrong"));
    home.motorpool(&["config", "check"]).assert().success().stdout(predicate::str::contains("the defaults serve"));
}

#[test]
fn what_needs_no_model_is_told_although_a_models_file_is_wrong() {
    let home = Home::new();
    let server = |id: &str| {
        format!(
            "[[external]]\nid = \"{id}\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:11434\"\nkey_env = \"NOWHERE_SET\"\n"
        )
    };
    let config = |model: &str| format!("[defaults]\nmodel = \"{model}\"\n{}{}", server("a"), server("b"));
    home.write("set/catalog/a.toml", "id = \"a\"\nslotz = 1\naliases = [\"x\"]\nsource = { file = \"/m.gguf\" }\n");
    let said = |config: &str| {
        home.write("set/motorpool.toml", config);
        let out = home.motorpool(&["config", "check", "set"]).assert().code(3).get_output().stderr.clone();
        String::from_utf8(out).expect("text")
    };
    let all = said(&config("nobody"));
    for part in ["did you mean `slots`?", "defaults.model names no model", "NOWHERE_SET, which is not set"] {
        assert!(all.contains(part), "{part} in {all}");
    }
    // That of the file that is wrong, and what only follows from it, is no fault.
    for name in ["a", "x"] {
        let said = said(&config(name));
        assert!(!said.contains("defaults.model") && said.contains("NOWHERE_SET, which is not set"), "{said}");
    }
    home.write("set/catalog/a.toml", "id = \n");
    assert!(!said(&config("nobody")).contains("defaults.model"), "nobody can say what it is called");
}

#[test]
fn a_check_of_one_file_knows_its_kind_and_the_engines_beside_it() {
    let home = Home::new();
    home.write("set/catalog/a.toml", "id = \"a\"\nengine = \"mine\"\nsource = { file = \"/m.gguf\" }\n");
    let check = |path: &str| home.motorpool(&["config", "check", path]);
    check("set/catalog/a.toml")
        .assert()
        .code(3)
        .stderr(predicate::str::contains("no manifest describes the engine `mine`"));
    let manifest =
        include_str!("../../../../engines/custom.toml.example").replace("name = \"custom\"", "name = \"mine\"");
    home.write("set/engines/mine.toml", manifest);
    check("set/catalog/a.toml").assert().success();
    check("set/engines/mine.toml").assert().success().stdout(predicate::str::contains("engine  set/engines/mine.toml"));
    home.write("far.toml", "[host]\nram = \"64\"\n");
    check("far.toml").assert().code(3).stderr(predicate::str::contains("far.toml:2:7"));
    check("missing.toml").assert().code(3).stderr(predicate::str::contains("cannot read missing.toml"));
}

#[test]
fn what_is_in_force_is_shown_with_where_it_comes_from_and_secrets_are_not_shown() {
    let home = Home::new();
    let server = "[[external]]\nid = \"desk\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:11434\"\n";
    let text = format!("[pool]\nmax_wait = \"${{WAIT:-90s}}\"\n{server}headers = {{ x-key = \"hunter2\" }}\n");
    home.write("m.toml", text);
    let show = |args: &[&str]| {
        let mut command = home.motorpool(&["config", "show", "--config", "m.toml"]);
        let output =
            command.args(args).env("MOTORPOOL_CAPACITY_BUDGET_GB", "2").env_remove("WAIT").output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let people = show(&[]);
    for line in [
        "[pool]\nmax_wait = \"90s\"",
        "# m.toml:2, $WAIT",
        "[[external]]\n",
        "budget = \"2GiB\"",
        "# $MOTORPOOL_CAPACITY_BUDGET_GB",
        "x-key = \"(hidden)\"",
    ] {
        assert!(people.contains(line), "{line}: {people}");
    }
    assert!(!people.contains("hunter2") && !people.contains("drain_wait"), "{people}");
    let all = show(&["--effective"]);
    assert!(all.contains("drain_wait = \"30s\"") && all.contains("# default") && !all.contains("hunter2"), "{all}");
    let shown: Value = serde_json::from_str(&show(&["--effective", "--json"])).expect("JSON");
    let row =
        |key: &str| shown["values"].as_array().expect("rows").iter().find(|row| row["key"] == key).expect(key).clone();
    assert_eq!(
        row("pool.max_wait")["from"],
        serde_json::json!({"kind": "file", "file": "m.toml", "line": 2, "variables": ["WAIT"]})
    );
    assert_eq!(
        row("limits.queue"),
        serde_json::json!({"key": "limits.queue", "value": 512, "from": {"kind": "default"}})
    );
    assert_eq!(row("external[0].headers.x-key")["value"], "(hidden)");
    // What is shown is a file that says the same.
    let values: String = all.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    home.write("again.toml", values);
    home.motorpool(&["config", "check", "again.toml"]).assert().success();
}

#[test]
fn a_budget_of_the_file_is_in_force_whatever_the_environment_says() {
    let home = Home::new();
    for (text, budget, kind) in [("8GiB", "8GiB", "file"), ("auto", "2GiB", "environment")] {
        home.write("m.toml", format!("[capacity]\nbudget = \"{text}\"\n"));
        let mut command = home.motorpool(&["config", "show", "--json", "--config", "m.toml"]);
        let output = command.env("MOTORPOOL_CAPACITY_BUDGET_GB", "2").output().expect("it runs");
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = shown["values"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["key"] == "capacity.budget").expect("a row");
        assert_eq!((&row["value"], &row["from"]["kind"]), (&budget.into(), &kind.into()), "{text}");
    }
}

#[test]
fn schemas_are_printed_for_every_kind_of_file() {
    let home = Home::new();
    for (kind, file) in [("config", "config"), ("model", "model"), ("engine", "engine"), ("host", "host")] {
        let shipped = fs::read_to_string(format!("{}/../../catalog/schema/{file}.json", env!("CARGO_MANIFEST_DIR")));
        let shipped: Value = serde_json::from_str(&shipped.expect("shipped")).expect("JSON");
        assert_eq!(home.json(&["config", "schema", kind]), shipped);
    }
    home.motorpool(&["config", "schema", "catalogue"]).assert().code(2);
}

#[test]
fn entries_are_imported_shown_and_written_only_where_nothing_is() {
    let home = Home::new();
    home.write(
        "swap.yaml",
        "models:\n  a:\n    cmd: llama-server -m /m/a.gguf --port 1\n  b:\n    cmd: docker run x\n",
    );
    let import = |args: &[&str]| home.motorpool(&[&["config", "import", "swap.yaml"], args].concat());
    let printed = predicate::str::contains("id = \"a\"\nidle_ttl = \"0s\"\nsource = { file = \"/m/a.gguf\" }\n");
    let left = predicate::str::contains("swap.yaml:3: a: `--port 1` is not taken over")
        .and(predicate::str::contains("error: `b`: no entry could be made"));
    import(&[]).assert().code(12).stdout(printed).stderr(left);
    assert!(!home.path().join("a.toml").exists());
    import(&["--to", "catalog"]).assert().code(12).stdout("catalog/a.toml: written\ncatalog/b.toml: not written\n");
    home.motorpool(&["config", "check", "catalog/a.toml"]).assert().success();
    let stays = predicate::str::contains("`a` had a file there already");
    import(&["--to", "catalog"]).assert().code(12).stderr(stays.clone());
    home.write("swap.yaml", "models:\n  a:\n    cmd: llama-server -m /m/a.gguf\n");
    import(&["--to", "catalog"]).assert().code(9).stdout("catalog/a.toml: was there already\n").stderr(stays);
    import(&["--to", "other"]).assert().success().stdout("other/a.toml: written\n");
    home.write("p.ini", "[x]\nmodel = /m/x.gguf\n");
    assert_eq!(home.json(&["config", "import", "p.ini"])["entries"][0]["outcome"], "printed");
    home.motorpool(&["config", "import", "none.yaml"]).assert().code(4);
}

#[test]
fn a_model_of_the_hub_is_imported_with_the_file_that_another_program_keeps_and_one_that_is_not_here_is_told() {
    let home = Home::new();
    let snapshot = "hub/models--org--tiny-GGUF/snapshots/0abc";
    home.write(&format!("{snapshot}/tiny-Q4_0.gguf"), motorpool::gguf::write::smoke_model());
    let cmd = "llama-server --port ${PORT} -hf org/tiny-GGUF";
    home.write("swap.yaml", format!("models:\n  'tiny:q4':\n    cmd: {cmd}:Q4_0\n"));
    let import = || {
        let mut command = home.motorpool(&["config", "import", "swap.yaml", "--to", "set/catalog"]);
        command.env("HF_HUB_CACHE", home.path().join("hub")).env("XDG_CACHE_HOME", home.path());
        command.assert()
    };
    import().success().stdout("set/catalog/tiny-q4.toml: written\n");
    let file = home.path().join(snapshot).join("tiny-Q4_0.gguf");
    let entry = fs::read_to_string(home.path().join("set/catalog/tiny-q4.toml")).expect("written");
    assert!(entry.contains(&format!("source = {{ file = \"{}\" }}", file.display())), "{entry}");
    home.write("set/motorpool.toml", "[defaults]\nmodel = \"tiny:q4\"\n");
    home.motorpool(&["config", "check", "set"]).assert().success();

    home.write("swap.yaml", format!("models:\n  there:\n    cmd: {cmd}\n  'far:q8':\n    cmd: {cmd}:Q8_0\n"));
    let pull = predicate::str::contains("`motorpool model pull hf:org/tiny-GGUF:Q8_0` fetches it");
    let written = "set/catalog/there.toml: written\nset/catalog/far-q8.toml: not written\n";
    import().code(12).stdout(written).stderr(pull.and(predicate::str::contains("`far-q8`: no entry could be made")));
}
