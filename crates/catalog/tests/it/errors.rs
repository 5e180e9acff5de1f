//! Every kind of mistake, and exactly what is shown for it.
mod capacity;
mod external;
mod manifests;
mod models;
mod values;

use motorpool_catalog::{Source, parse_config, parse_host, parse_manifest, parse_model};

const ENGINE: &str = r#"name = "mini"
transport = "unix"
args = [
    "--socket", "{endpoint.socket}",
    "--model", "{model.path}",
    { when = "rerank", args = ["--reranking"] },
]
env_allow = ["PATH", "HOME"]
paths = ["GET /health", "POST /v1/completions"]

[program]
names = ["mini"]
version_args = ["--version"]
version_pattern = '(?m)^version: (.+)$'

[ready]
path = "/health"
status = 200

[stop]
signal = "SIGTERM"

[probe.embeddings]
path = "/embedding"
body = '{"content":"1"}'

[[log_class]]
class = "bind-failed"
pattern = "couldn't bind"
"#;

fn env(name: &str) -> Option<String> {
    (name == "PORT").then(|| "http".into())
}

fn config(text: &str) -> String {
    parse_config(Source { file: "motorpool.toml", text }, &env).expect_err(text).to_string()
}

fn host(text: &str) -> String {
    parse_host(Source { file: "host.toml", text }, &env).expect_err(text).to_string()
}

fn model(text: &str) -> String {
    parse_model(Source { file: "catalog/x.toml", text }, &env).expect_err(text).to_string()
}

/// What is shown for the manifest above in which the first `from` is `to`.
fn manifest(from: &str, to: &str) -> String {
    assert!(ENGINE.contains(from), "{from}");
    let text = ENGINE.replacen(from, to, 1);
    parse_manifest(Source { file: "engines/x.toml", text: &text }, &env).expect_err(to).to_string()
}

#[track_caller]
fn shows(error: &str, expected: &str) {
    assert_eq!(error, expected.trim_matches('\n'), "\n{error}");
}

#[test]
fn the_manifest_that_is_broken_below_is_whole() {
    assert!(parse_manifest(Source { file: "engines/x.toml", text: ENGINE }, &env).is_ok());
}

#[test]
fn a_text_that_is_no_toml_is_shown_where_it_breaks() {
    shows(
        &config("[server\nlisten = 1"),
        r"
motorpool.toml:1:8: no valid TOML: unclosed table, expected `]`
  |
1 | [server
  |        ^
",
    );
    shows(
        &config("[server]\nlisten = [\"127.0.0.1:8790\"\n"),
        r#"
motorpool.toml:2:27: no valid TOML: unclosed array, expected `]`
  |
2 | listen = ["127.0.0.1:8790"
  |                           ^
"#,
    );
    shows(
        &config("a = 1\na = 2"),
        r"
motorpool.toml:2:1: no valid TOML: duplicate key
  |
2 | a = 2
  | ^
",
    );
    shows(
        &config("model = größe"),
        r"
motorpool.toml:1:9: no valid TOML: string values must be quoted, expected literal string
  |
1 | model = größe
  |         ^^^^^
",
    );
    shows(
        &config("a = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["),
        r"
motorpool.toml:1:85: no valid TOML: cannot recurse further; max recursion depth met
  |
1 | a = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
  |                                                                                     ^
",
    );
}

#[test]
fn an_unknown_key_is_shown_with_the_nearest_known_one() {
    shows(
        &config("[server]\nlisen = [\"127.0.0.1:8790\"]"),
        r#"
motorpool.toml:2:1: unknown key `lisen`, did you mean `listen`?
  |
2 | lisen = ["127.0.0.1:8790"]
  | ^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[sever]\n"),
        r"
motorpool.toml:1:2: unknown key `sever`, did you mean `server`?
  |
1 | [sever]
  |  ^^^^^
  = example: [server]
",
    );
    shows(
        &config("zzz = 1"),
        r"
motorpool.toml:1:1: unknown key `zzz`; known here: `server`, `capacity`, `device`, `pool`, `evict`, `load`, `breaker`, `health`, `session_state`, `stop`, `shutdown`, `loading`, `keys`, `limits`, `defaults`, `log`, `usage`, `engine`, `external`, `protect`
  |
1 | zzz = 1
  | ^^^
",
    );
    shows(
        &config("[engine.llama-server]\nprogam = \"/llama\""),
        r#"
motorpool.toml:2:1: unknown key `progam`, did you mean `program`?
  |
2 | progam = "/llama"
  | ^^^^^^
  = example: program = "/opt/llama.cpp/bin/llama-server"
"#,
    );
    shows(
        &config("\t[pool]\n\tmax_wiat = \"1m\""),
        r#"
motorpool.toml:2:2: unknown key `max_wiat`, did you mean `max_wait`?
  |
2 | 	max_wiat = "1m"
  | 	^^^^^^^^
  = example: max_wait = "60s"
"#,
    );
    shows(
        &config("[pool]\r\nmax_wiat = \"1m\"\r\n"),
        r#"
motorpool.toml:2:1: unknown key `max_wiat`, did you mean `max_wait`?
  |
2 | max_wiat = "1m"
  | ^^^^^^^^
  = example: max_wait = "60s"
"#,
    );
    shows(
        &config("\u{feff}lgo = 1"),
        r"
motorpool.toml:1:1: unknown key `lgo`, did you mean `log`?
  |
1 | lgo = 1
  | ^^^
  = example: [log]
",
    );
}

#[test]
fn a_wrong_type_is_shown_with_the_right_one() {
    shows(
        &config("server = 5"),
        r"
motorpool.toml:1:10: wrong type: integer `5`, expected a table
  |
1 | server = 5
  |          ^
  = example: [server]
",
    );
    shows(
        &config("[server]\nlisten = \"127.0.0.1:8790\""),
        r#"
motorpool.toml:2:10: wrong type: string "127.0.0.1:8790", expected a list
  |
2 | listen = "127.0.0.1:8790"
  |          ^^^^^^^^^^^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[server]\nlisten = [5]"),
        r#"
motorpool.toml:2:11: wrong type: integer `5`, expected an address such as "127.0.0.1:8790"
  |
2 | listen = [5]
  |           ^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[limits]\nbody = 256"),
        r#"
motorpool.toml:2:8: wrong type: integer `256`, expected a size such as "24GiB"
  |
2 | body = 256
  |        ^^^
  = example: body = "256MiB"
"#,
    );
    shows(
        &config("[limits]\nconnections = \"many\""),
        r#"
motorpool.toml:2:15: wrong type: string "many", expected a whole number from 1 to 1000000
  |
2 | connections = "many"
  |               ^^^^^^
  = example: connections = 4096
"#,
    );
    shows(
        &config("[log]\nlevel = 3"),
        r#"
motorpool.toml:2:9: wrong type: expected a string
  |
2 | level = 3
  |         ^
  = example: level = "info"
"#,
    );
    shows(
        &config("[pool]\nmax_wait = 2020-01-01"),
        r#"
motorpool.toml:2:12: wrong type: table or date, expected a duration such as "90s"
  |
2 | max_wait = 2020-01-01
  |            ^^^^^^^^^^
  = example: max_wait = "60s"
"#,
    );
}
