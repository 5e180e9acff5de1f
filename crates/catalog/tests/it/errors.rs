//! Every kind of mistake, and exactly what is shown for it.
use motorpool_catalog::{Source, parse_config, parse_manifest, parse_model};

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
motorpool.toml:1:1: unknown key `zzz`; known here: `server`, `capacity`, `pool`, `load`, `stop`, `shutdown`, `loading`, `limits`, `defaults`, `log`, `engine`
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

#[test]
fn a_bad_size_or_duration_is_shown_with_a_good_one() {
    shows(
        &config("[limits]\nbody = \"256\""),
        r#"
motorpool.toml:2:8: the size `256` has no unit: `256GiB` is 256 × 2^30 bytes
  |
2 | body = "256"
  |        ^^^^^
  = example: body = "256MiB"
"#,
    );
    shows(
        &config("[limits]\nbody = \"8 apples\""),
        r#"
motorpool.toml:2:8: `8 apples` is no size: a number and B, KiB, MiB, GiB or TiB, such as `24GiB`
  |
2 | body = "8 apples"
  |        ^^^^^^^^^^
  = example: body = "256MiB"
"#,
    );
    shows(
        &config("[limits]\nbody = \"0\""),
        r#"
motorpool.toml:2:8: this size must be above zero
  |
2 | body = "0"
  |        ^^^
  = example: body = "256MiB"
"#,
    );
    shows(
        &config("[capacity]\nbudget = \"atuo\""),
        r#"
motorpool.toml:2:10: `atuo` is no size: a number and B, KiB, MiB, GiB or TiB, such as `24GiB`, or `auto`
  |
2 | budget = "atuo"
  |          ^^^^^^
  = example: budget = "24GiB"
"#,
    );
    shows(
        &config("[pool]\nmax_wait = \"5 apples\""),
        r#"
motorpool.toml:2:12: `5 apples` is no duration: hours, minutes, seconds, such as `1h30m`, `5m`, `90s`, `250ms`
  |
2 | max_wait = "5 apples"
  |            ^^^^^^^^^^
  = example: max_wait = "60s"
"#,
    );
    shows(
        &config("[pool]\nmax_wait = \"-5m\""),
        r#"
motorpool.toml:2:12: the duration `-5m` is negative
  |
2 | max_wait = "-5m"
  |            ^^^^^
  = example: max_wait = "60s"
"#,
    );
    shows(
        &config("[load]\nstall = \"0s\""),
        r#"
motorpool.toml:2:9: this duration must be above zero
  |
2 | stall = "0s"
  |         ^^^^
  = example: stall = "60s"
"#,
    );
}

#[test]
fn a_bad_value_is_shown_with_the_possible_ones() {
    shows(
        &config("[log]\nformat = \"jsn\""),
        r#"
motorpool.toml:2:10: `jsn` is not possible here, did you mean `json`?
  |
2 | format = "jsn"
  |          ^^^^^
  = example: format = "text"
"#,
    );
    shows(
        &config("[log]\nlevel = \"verbose\""),
        r#"
motorpool.toml:2:9: `verbose` is not possible here; known here: `error`, `warn`, `info`, `debug`, `trace`
  |
2 | level = "verbose"
  |         ^^^^^^^^^
  = example: level = "info"
"#,
    );
    shows(
        &config("[limits]\nconnections = 0"),
        r"
motorpool.toml:2:15: `0` is not between 1 and 1000000
  |
2 | connections = 0
  |               ^
  = example: connections = 4096
",
    );
    shows(
        &config("[limits]\nconnections = 99999999999999999999"),
        r"
motorpool.toml:2:15: `99999999999999999999` is not between 1 and 1000000
  |
2 | connections = 99999999999999999999
  |               ^^^^^^^^^^^^^^^^^^^^
  = example: connections = 4096
",
    );
    shows(
        &config("[server]\nhosts = [\"ok.example.org\", \"größe\", \"https://x\"]"),
        r#"
motorpool.toml:2:28: `größe` is no host name: no scheme, port or path
  |
2 | hosts = ["ok.example.org", "größe", "https://x"]
  |                            ^^^^^^^
  = example: hosts = ["pool.example.org"]
"#,
    );
    shows(
        &config("[server]\norigins = [\"chat.example.org\"]"),
        r#"
motorpool.toml:2:12: `chat.example.org` is no origin: `http://` or `https://`, a host, perhaps a port, and no path
  |
2 | origins = ["chat.example.org"]
  |            ^^^^^^^^^^^^^^^^^^
  = example: origins = ["https://chat.example.org"]
"#,
    );
    shows(
        &config("[engine.llama-server]\nprogram = \"llama\""),
        r#"
motorpool.toml:2:11: the path `llama` must begin with `/`
  |
2 | program = "llama"
  |           ^^^^^^^
  = example: program = "/opt/llama.cpp/bin/llama-server"
"#,
    );
}

#[test]
fn a_bad_address_is_shown_with_the_reason() {
    shows(
        &config("[server]\nlisten = [\"127.0.0.1:8790\", \"0.0.0.0:80\"]"),
        r#"
motorpool.toml:2:29: `0.0.0.0:80` can be reached from other machines: that needs keys, which are not offered yet
  |
2 | listen = ["127.0.0.1:8790", "0.0.0.0:80"]
  |                             ^^^^^^^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[server]\nlisten = [\"8790\"]"),
        r#"
motorpool.toml:2:11: `8790` is no address: an IP address and a port, or `unix:` and a path
  |
2 | listen = ["8790"]
  |           ^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[server]\nlisten = [\"unix:pool.sock\"]"),
        r#"
motorpool.toml:2:11: the socket path `pool.sock` must begin with `/`
  |
2 | listen = ["unix:pool.sock"]
  |           ^^^^^^^^^^^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
}

#[test]
fn a_variable_that_is_not_set_is_shown_where_it_stands() {
    shows(
        &config("[defaults]\nmodel = \"größe ${NOPE}/x\""),
        r#"
motorpool.toml:2:16: the environment variable `NOPE` is not set; `${NOPE:-value}` would give a default
  |
2 | model = "größe ${NOPE}/x"
  |                ^^^^^^^
  = example: model = "gemma3-270m"
"#,
    );
    shows(
        &config("[defaults]\nmodel = \"\"\"a\nb${NOPE}\"\"\""),
        r#"
motorpool.toml:3:2: the environment variable `NOPE` is not set; `${NOPE:-value}` would give a default
  |
3 | b${NOPE}"""
  |  ^^^^^^^
  = example: model = "gemma3-270m"
"#,
    );
    shows(
        &config("[defaults]\nmodel = \"\\u0024{NOPE}\""),
        r#"
motorpool.toml:2:9: the environment variable `NOPE` is not set; `${NOPE:-value}` would give a default
  |
2 | model = "\u0024{NOPE}"
  |         ^^^^^^^^^^^^^^
  = example: model = "gemma3-270m"
"#,
    );
    shows(
        &config("[defaults]\nmodel = \"${NOPE\""),
        r#"
motorpool.toml:2:10: `${NOPE` is no variable: write `${NAME}`, or `$${` for a plain `${`
  |
2 | model = "${NOPE"
  |          ^^^^^^
  = example: model = "gemma3-270m"
"#,
    );
    shows(
        &config("[server]\nlisten = [\"127.0.0.1:${PORT}\"]"),
        r#"
motorpool.toml:2:11: `127.0.0.1:http` is no address: an IP address and a port, or `unix:` and a path
  |
2 | listen = ["127.0.0.1:${PORT}"]
  |           ^^^^^^^^^^^^^^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
}

#[test]
fn a_missing_key_is_named() {
    shows(
        &model(""),
        r#"
catalog/x.toml: the key `id` is missing
  = example: id = "gemma3-270m"
"#,
    );
    shows(
        &model(r#"id = "a""#),
        r#"
catalog/x.toml: the key `source` is missing
  = example: source = { file = "/srv/models/gemma.gguf" }
"#,
    );
    shows(
        &model("id = \"a\"\n[source.https]\nurl = \"https://x\"\n"),
        r#"
catalog/x.toml:2:1: the key `sha256` is missing
  |
2 | [source.https]
  | ^^^^^^^^^^^^^^
  = example: sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"#,
    );
}

#[test]
fn a_bad_id_is_shown_with_the_reason() {
    shows(
        &model(r#"id = """#),
        r#"
catalog/x.toml:1:6: an id may not be empty
  |
1 | id = ""
  |      ^^
  = example: id = "gemma3-270m"
"#,
    );
    shows(
        &model(r#"id = "a:b""#),
        r#"
catalog/x.toml:1:6: the id `a:b` holds a `:`, which separates the parts of engine keys
  |
1 | id = "a:b"
  |      ^^^^^
  = example: id = "gemma3-270m"
"#,
    );
    shows(
        &model(r#"id = "a b""#),
        r#"
catalog/x.toml:1:6: the id `a b` holds ' '
  |
1 | id = "a b"
  |      ^^^^^
  = example: id = "gemma3-270m"
"#,
    );
    shows(
        &model(r#"id = "größe,é""#),
        r#"
catalog/x.toml:1:6: the id `größe,é` holds ','
  |
1 | id = "größe,é"
  |      ^^^^^^^^^
  = example: id = "gemma3-270m"
"#,
    );
}

#[test]
fn a_bad_source_is_shown_with_a_good_one() {
    shows(
        &model("id = \"a\"\nsource = { file = \"x.gguf\" }"),
        r#"
catalog/x.toml:2:19: the path `x.gguf` must begin with `/`; `${HOME}` can stand in it
  |
2 | source = { file = "x.gguf" }
  |                   ^^^^^^^^
  = example: source = { file = "/srv/models/gemma.gguf" }
"#,
    );
    shows(
        &model("id = \"a\"\nsource = { ftp = \"x.gguf\" }"),
        r#"
catalog/x.toml:2:12: `ftp` is not possible here; known here: `pypi`, `https`, `file`
  |
2 | source = { ftp = "x.gguf" }
  |            ^^^
  = example: source = { file = "/srv/models/gemma.gguf" }
"#,
    );
    shows(
        &model("id = \"a\"\n[source]"),
        r#"
catalog/x.toml:2:1: exactly one key belongs here
  |
2 | [source]
  | ^^^^^^^^
  = example: source = { file = "/srv/models/gemma.gguf" }
"#,
    );
    shows(
        &model("id = \"a\"\n[source]\nfile=\"/x\"\n[source.https]\nurl=\"https://x\""),
        r#"
catalog/x.toml:2:1: exactly one key belongs here
  |
2 | [source]
  | ^^^^^^^^
  = example: source = { file = "/srv/models/gemma.gguf" }
"#,
    );
    shows(
        &model("id = \"a\"\n[source.https]\nurl = \"https://x\"\nsha256 = \"ab\""),
        r#"
catalog/x.toml:4:10: `ab` is no SHA-256: 64 hexadecimal digits, here are 2
  |
4 | sha256 = "ab"
  |          ^^^^
  = example: sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"#,
    );
    shows(
        &model("id = \"a\"\n[source.https]\nulr = \"https://x\"\n"),
        r#"
catalog/x.toml:3:1: unknown key `ulr`, did you mean `url`?
  |
3 | ulr = "https://x"
  | ^^^
  = example: url = "https://example.org/gemma.gguf"
"#,
    );
    shows(
        &model("id = \"a\"\nsource = { https = { url = \"http://x\", sha256 = \"ab\" } }"),
        r#"
catalog/x.toml:2:49: `ab` is no SHA-256: 64 hexadecimal digits, here are 2
  |
2 | source = { https = { url = "http://x", sha256 = "ab" } }
  |                                                 ^^^^
  = example: sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"#,
    );
    shows(
        &model("id = \"a\"\nsource = { pypi = { packages = [], version = \"1\", file = \"a\", sha256 = \"ab\" } }"),
        r#"
catalog/x.toml:2:32: a model needs at least one package
  |
2 | source = { pypi = { packages = [], version = "1", file = "a", sha256 = "ab" } }
  |                                ^^
  = example: packages = ["model-part1", "model-part2"]
"#,
    );
    shows(
        &model("id = \"a\"\n[source.pypi]\npackages = [\"a\"]\nversion = \"1\"\nfile = \"../a\"\nsha256 = \"ab\""),
        r#"
catalog/x.toml:5:8: `../a` is no file name
  |
5 | file = "../a"
  |        ^^^^^^
  = example: file = "gemma.gguf"
"#,
    );
}

#[test]
fn a_bad_value_of_a_model_is_shown() {
    shows(
        &model("id = \"a\"\ncontext = 10\nsource = { file = \"/x\" }"),
        r"
catalog/x.toml:2:11: `10` is not between 256 and 16777216
  |
2 | context = 10
  |           ^^
  = example: context = 8192
",
    );
    shows(
        &model("id = \"a\"\nkv_type = \"q9\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: `q9` is no KV cache type; known are: f16, q8_0, q4_0
  |
2 | kv_type = "q9"
  |           ^^^^
  = example: kv_type = "q8_0"
"#,
    );
    shows(
        &model("id = \"a\"\naliases = [\"b\", \"\"]\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:17: an alias may not be empty
  |
2 | aliases = ["b", ""]
  |                 ^^
  = example: aliases = ["small", "gpt-*"]
"#,
    );
    shows(
        &model("id = \"a\"\ncapabilities = [\"caht\"]\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:17: `caht` is not possible here, did you mean `chat`?
  |
2 | capabilities = ["caht"]
  |                 ^^^^^^
  = example: capabilities = ["chat"]
"#,
    );
    shows(
        &model("id = \"a\"\ncapabilities = [\"chat\", \"embeddings\"]\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:16: an engine is started for `embeddings` or for `rerank` or for anything else, not for several of them
  |
2 | capabilities = ["chat", "embeddings"]
  |                ^^^^^^^^^^^^^^^^^^^^^^
  = example: capabilities = ["chat"]
"#,
    );
    shows(
        &model("id = \"a\"\npinned = \"yes\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:10: wrong type: string "yes", expected true or false
  |
2 | pinned = "yes"
  |          ^^^^^
  = example: pinned = true
"#,
    );
    shows(
        &model("id = \"a\"\nidle_ttl = \"5m\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:1: unknown key `idle_ttl`; known here: `id`, `aliases`, `engine`, `source`, `context`, `slots`, `kv_type`, `gpu_layers`, `declared`, `prompt_cache`, `checkpoints`, `priority`, `pinned`, `tags`, `capabilities`, `extra_args`, `license`
  |
2 | idle_ttl = "5m"
  | ^^^^^^^^
"#,
    );
}

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
engines/x.toml:28:9: unknown failure class `x`; known are: bad-arguments, model-missing, model-corrupt, model-unsupported, engine-missing, cpu-fallback, illegal-instruction, out-of-device-memory, out-of-host-memory, bind-failed, device-error, device-lost, assertion, killed, load-stalled, unknown
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
