//! Mistakes in an engine manifest.
use super::{manifest, shows};

#[test]
fn a_bad_placeholder_is_shown_with_the_nearest_one() {
    shows(
        &manifest("{model.path}", "{modle.path}"),
        r#"
engines/x.toml:5:16: unknown placeholder `{modle.path}`, did you mean `{model.path}`?
  |
5 |     "--model", "{modle.path}",
  |                ^^^^^^^^^^^^^^
  = example: args = ["--host", "{endpoint.socket}", { when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }]
"#,
    );
    shows(
        &manifest("{model.path}", "{model.path"),
        r#"
engines/x.toml:5:16: `{model.path` has a brace without its other half; `{{` is a plain brace
  |
5 |     "--model", "{model.path",
  |                ^^^^^^^^^^^^^
  = example: args = ["--host", "{endpoint.socket}", { when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }]
"#,
    );
    shows(
        &manifest(r#"when = "rerank""#, r#"when = "rerenk""#),
        r#"
engines/x.toml:6:14: unknown placeholder `{rerenk}`, did you mean `{rerank}`?
  |
6 |     { when = "rerenk", args = ["--reranking"] },
  |              ^^^^^^^^
  = example: args = ["--host", "{endpoint.socket}", { when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }]
"#,
    );
    shows(
        &manifest(r#"when = "rerank""#, r#"wen = "rerank""#),
        r#"
engines/x.toml:6:7: unknown key `wen`, did you mean `when`?
  |
6 |     { wen = "rerank", args = ["--reranking"] },
  |       ^^^
  = example: args = ["--host", "{endpoint.socket}", { when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }]
"#,
    );
    shows(
        &manifest(r#""--model","#, "5,"),
        r#"
engines/x.toml:5:5: wrong type: integer `5`, expected a string, or a table with `when` and `args`
  |
5 |     5, "{model.path}",
  |     ^
  = example: args = ["--host", "{endpoint.socket}", { when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }]
"#,
    );
}

#[test]
fn a_place_that_a_sandbox_cannot_name_is_shown() {
    shows(
        &manifest("[stop]\n", "[sandbox]\nwrite = [\"cache\"]\n[stop]\n"),
        r#"
engines/x.toml:21:10: `cache` is neither absolute nor below `~/`
   |
21 | write = ["cache"]
   |          ^^^^^^^
   = example: write = ["/var/tmp", "~/.cache"]
"#,
    );
}

#[test]
fn a_bad_expression_or_class_is_shown() {
    shows(
        &manifest("'(?m)^version: (.+)$'", "'(?m)^version: (.+$'"),
        r"
engines/x.toml:14:19: the expression does not compile: unclosed group
   |
14 | version_pattern = '(?m)^version: (.+$'
   |                   ^^^^^^^^^^^^^^^^^^^^
   = example: version_pattern = '(?m)^version: (.+)$'
",
    );
    shows(
        &manifest(r#""bind-failed""#, r#""bind-faild""#),
        r#"
engines/x.toml:28:9: unknown failure class `bind-faild`, did you mean `bind-failed`?
   |
28 | class = "bind-faild"
   |         ^^^^^^^^^^^^
   = example: class = "bind-failed"
"#,
    );
    shows(
        &manifest(r#""bind-failed""#, r#""x""#),
        r#"
engines/x.toml:28:9: unknown failure class `x`; known are: bad-arguments, model-missing, model-corrupt, model-unsupported, engine-missing, cpu-fallback, illegal-instruction, out-of-device-memory, out-of-host-memory, bind-failed, device-error, device-lost, assertion, killed, load-stalled, unresponsive, unknown
   |
28 | class = "x"
   |         ^^^
   = example: class = "bind-failed"
"#,
    );
    shows(
        &manifest(r#"'{"content":"1"}'"#, r#"'{"content":}'"#),
        r#"
engines/x.toml:25:8: no valid JSON: expected value at line 1 column 12
   |
25 | body = '{"content":}'
   |        ^^^^^^^^^^^^^^
   = example: body = '{"prompt":"1","n_predict":1}'
"#,
    );
}

#[test]
fn a_manifest_that_could_not_work_is_refused() {
    shows(
        &manifest(r#""{endpoint.socket}","#, r#""x","#),
        r#"
engines/x.toml:2:13: no argument mentions `{endpoint.socket}`, so nobody could reach it
  |
2 | transport = "unix"
  |             ^^^^^^
  = example: transport = "unix"
"#,
    );
    shows(
        &manifest(r#"names = ["mini"]"#, "names = []"),
        r#"
engines/x.toml:12:9: a program needs a name to be found by
   |
12 | names = []
   |         ^^
   = example: names = ["llama-server"]
"#,
    );
    shows(
        &manifest(r#"name = "mini""#, ""),
        r#"
engines/x.toml: the key `name` is missing
  = example: name = "llama-server"
"#,
    );
    shows(
        &manifest(r#"name = "mini""#, r#"name = "llama:server""#),
        r#"
engines/x.toml:1:8: `llama:server` is no engine name: ASCII letters, digits, `.`, `_`, `-`
  |
1 | name = "llama:server"
  |        ^^^^^^^^^^^^^^
  = example: name = "llama-server"
"#,
    );
    shows(
        &manifest("status = 200", "status = 20"),
        r"
engines/x.toml:18:10: `20` is not between 100 and 599
   |
18 | status = 20
   |          ^^
   = example: status = 200
",
    );
    shows(
        &manifest(r#"signal = "SIGTERM""#, r#"signal = "SIGKIL""#),
        r#"
engines/x.toml:21:10: `SIGKIL` is not possible here; known here: `SIGTERM`, `SIGINT`
   |
21 | signal = "SIGKIL"
   |          ^^^^^^^^
   = example: signal = "SIGTERM"
"#,
    );
    shows(
        &manifest(r#"transport = "unix""#, r#"transport = "pipe""#),
        r#"
engines/x.toml:2:13: `pipe` is not possible here; known here: `unix`, `tcp`
  |
2 | transport = "pipe"
  |             ^^^^^^
  = example: transport = "unix"
"#,
    );
    shows(
        &manifest("[ready]", "[redy]"),
        r"
engines/x.toml:16:2: unknown key `redy`, did you mean `ready`?
   |
16 | [redy]
   |  ^^^^
   = example: [ready]
",
    );
}

#[test]
fn what_must_not_reach_an_engine_is_refused() {
    shows(
        &manifest(r#""PATH""#, r#""HF_HOME""#),
        r#"
engines/x.toml:8:14: `HF_HOME` is never inherited by an engine; `[env_set]` can give it a value
  |
8 | env_allow = ["HF_HOME", "HOME"]
  |              ^^^^^^^^^
  = example: env_allow = ["PATH", "HOME"]
"#,
    );
    shows(
        &manifest("GET /health", "GET /health?x"),
        r#"
engines/x.toml:9:10: the path `/health?x` is compared as it is: no query, nothing encoded
  |
9 | paths = ["GET /health?x", "POST /v1/completions"]
  |          ^^^^^^^^^^^^^^^
  = example: paths = ["POST /v1/chat/completions"]
"#,
    );
    shows(
        &manifest("GET /health", "GTE /health"),
        r#"
engines/x.toml:9:10: `GTE /health` is no request: one of GET, POST, PUT, PATCH, DELETE, a space, a path
  |
9 | paths = ["GTE /health", "POST /v1/completions"]
  |          ^^^^^^^^^^^^^
  = example: paths = ["POST /v1/chat/completions"]
"#,
    );
    shows(
        &manifest("env_allow", "headers = [\"Cookie\"]\nenv_allow"),
        r#"
engines/x.toml:8:12: `Cookie` is no header name in lower case
  |
8 | headers = ["Cookie"]
  |            ^^^^^^^^
  = example: headers = ["x-trace-*"]
"#,
    );
    shows(
        &manifest("env_allow", "headers = [\"cookie\"]\nenv_allow"),
        r#"
engines/x.toml:8:12: the header `cookie` never reaches an engine
  |
8 | headers = ["cookie"]
  |            ^^^^^^^^
  = example: headers = ["x-trace-*"]
"#,
    );
}
