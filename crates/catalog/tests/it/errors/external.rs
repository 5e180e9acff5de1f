//! Mistakes about servers that somebody else runs.
use super::{config, shows};
use motorpool_catalog::{FileKind, Source, faults, parse_config};

const SERVER: &str = "[[external]]\nid = \"desk\"\nkind = \"llama-cpp-router\"\nurl = \"http://127.0.0.1:8080/v1\"\n";

/// What is shown for a server with one more line, the fifth.
fn with(line: &str) -> String {
    config(&format!("{SERVER}{line}\n"))
}

#[test]
fn an_unknown_kind_and_a_slip_in_a_key_are_shown_with_the_nearest() {
    shows(
        &config("[[external]]\nid = \"desk\"\nkind = \"olama\""),
        r#"
motorpool.toml:3:8: `olama` is not possible here, did you mean `ollama`?
  |
3 | kind = "olama"
  |        ^^^^^^^
  = example: kind = "llama-cpp-router"
"#,
    );
    shows(
        &with("lifecylce = \"managed\""),
        r#"
motorpool.toml:5:1: unknown key `lifecylce`, did you mean `lifecycle`?
  |
5 | lifecylce = "managed"
  | ^^^^^^^^^
  = example: lifecycle = "user-managed"
"#,
    );
    shows(
        &config("[[external]]\nid = \"desk\"\n"),
        r#"
motorpool.toml:1:1: the key `kind` is missing
  |
1 | [[external]]
  | ^^^^^^^^^^^^
  = example: kind = "llama-cpp-router"
"#,
    );
}

#[test]
fn two_servers_do_not_share_an_id() {
    shows(
        &config(&format!("{SERVER}{SERVER}")),
        r#"
motorpool.toml:6:6: the server id `desk` is already taken by an [[external]] above
  |
6 | id = "desk"
  |      ^^^^^^
  = example: id = "desk"
"#,
    );
    let error = config("[[external]]\nid = \"a/b\"");
    assert!(error.contains("2:6: `a/b` is no server's id"), "{error}");
}

#[test]
fn an_address_that_no_model_server_may_have_is_refused_where_it_is_written() {
    for url in ["http://169.254.169.254/v1", "http://[fe80::1]:8080", "http://metadata.google.internal"] {
        let error = config(&format!("[[external]]\nurl = \"{url}\""));
        assert!(error.contains("2:7: ") && error.contains("no model server is there"), "{error}");
    }
    shows(
        &config("[[external]]\nurl = \"127.0.0.1:8080\""),
        r#"
motorpool.toml:2:7: `127.0.0.1:8080` cannot be used: an address begins with http:// or https://
  |
2 | url = "127.0.0.1:8080"
  |       ^^^^^^^^^^^^^^^^
  = example: url = "http://127.0.0.1:8080"
"#,
    );
}

#[test]
fn a_bad_glob_a_bad_header_and_a_key_in_the_place_of_its_name_are_refused() {
    for (line, wrong) in [
        ("models = [\"qwen?\"]", "5:11: `qwen?` holds `?`: only `*` stands for other characters"),
        ("models = [\"\"]", "5:11: a name may not be empty"),
        ("headers = { \"x y\" = \"a\" }", "`x y` is no header's name"),
        ("headers = { Host = \"a\" }", "`Host` belongs to the request itself"),
        ("headers = { x = \"é\" }", "nothing but visible ASCII"),
        ("key_env = \"sk-secret\"", "5:11: this is the name of a variable such as `DESK_KEY`, not the key"),
        ("key_file = \"desk.key\"", "5:12: the path `desk.key` must begin with `/`"),
        ("key_file = \"/k\"\nkey_env = \"K\"", "6:11: a key comes from `key_file` or from `key_env`, not from both"),
        ("keep_alive = \"5m\"", "5:14: only Ollama is told how long to keep a model, and this is `llama-cpp-router`"),
        ("keep_alive = \"soon\"", "or `-1`: for ever"),
        ("load = { num_experts = 8 }", "5:8: only LM Studio is told what to load with"),
        ("context = 0", "5:11: `0` is not between 1 and 16777216"),
        ("prefer = \"ours\"", "5:10: `ours` is not possible here"),
        ("timeouts = { look = \"0s\" }", "this duration must be above zero"),
    ] {
        let error = with(line);
        assert!(error.contains(wrong), "{line}: {error}");
    }
    assert!(!with("key_env = \"sk-secret\"").lines().next().is_some_and(|line| line.contains("sk-secret")));
}

#[test]
fn what_headers_and_variables_hold_is_not_shown() {
    for (line, wrong) in [
        ("headers = { \"x y\" = \"hunter2\" }", "`x y` is no header's name"),
        ("headers = { x = \"hunter2é\" }", "nothing but visible ASCII"),
        ("headers = \"hunter2\"", "wrong type: expected a table"),
        ("headers = { x = [\"hunter2\"] }", "wrong type: expected what the header says"),
        ("headers = [\"hunter2, expected\"]", "wrong type: expected a table"),
        ("[external.headers]\nx = \"hunter2é\"", "nothing but visible ASCII"),
    ] {
        let error = with(line);
        assert!(error.contains(wrong) && !error.contains("hunter2"), "{line}: {error}");
    }
    let env = |_: &str| Some("hunter2".to_owned());
    for (text, wrong) in [
        ("[server]\nlisten = [\"${KEY}\"]", "2:11: what `${KEY}` stands for cannot be used here"),
        ("[server]\nlisten = [\"\\u0024{KEY}\"]", "2:11: what `${KEY}` stands for cannot be used here"),
        ("[limits]\nbody = \"x${KEY:-1}\"", "2:8: what `x${KEY:-1}` stands for cannot be used here"),
        ("[limits]\nqueue = \"${KEY}\"", "2:9: what `${KEY}` stands for cannot be used here"),
        ("[log]\nlevel = \"${KEY}\"", "2:9: `${KEY}` is not possible here; known here: "),
    ] {
        let source = Source { file: "motorpool.toml", text };
        let mut errors = faults(FileKind::Config, source, &env);
        errors.extend(parse_config(source, &env).err());
        assert_eq!(errors.len(), 2, "{text}");
        for error in errors.iter().map(ToString::to_string) {
            assert!(error.contains(wrong) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}

#[test]
fn protection_is_for_a_server_that_is_there() {
    shows(
        &with("[[protect]]\nmodel = \"a\"\ntarget = \"dest\""),
        r#"
motorpool.toml:7:10: `dest` is not possible here, did you mean `desk`?
  |
7 | target = "dest"
  |          ^^^^^^
  = example: target = "desk"
"#,
    );
    let error = config("[[protect]]\nmodel = \"a\"\nrole = \"target-default\"");
    assert!(error.contains("`target-default` is not possible here"), "{error}");
}
