//! Values that cannot be, and variables that are not set.
use super::{config, model, shows};

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
motorpool.toml:2:11: what `127.0.0.1:${PORT}` stands for cannot be used here
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
fn encryption_needs_a_certificate_and_a_certificate_an_address() {
    shows(
        &config("[server]\nlisten = [\"https://0.0.0.0:8443\"]"),
        r#"
motorpool.toml:2:10: an address with `https://` needs a certificate: `tls` in [server] names it
  |
2 | listen = ["https://0.0.0.0:8443"]
  |          ^^^^^^^^^^^^^^^^^^^^^^^^
  = example: listen = ["127.0.0.1:8790"]
"#,
    );
    shows(
        &config("[server]\ntls = { certificate = \"/c.pem\", key = \"/k.pem\" }"),
        r#"
motorpool.toml:2:7: no address is served with this: write one in `listen` with `https://`
  |
2 | tls = { certificate = "/c.pem", key = "/k.pem" }
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = example: [server.tls]
"#,
    );
    shows(
        &config("[server]\nlisten = [\"https://0.0.0.0:8443\"]\ntls = { certificate = \"c.pem\", key = \"/k.pem\" }"),
        r#"
motorpool.toml:3:23: the path `c.pem` must begin with `/`
  |
3 | tls = { certificate = "c.pem", key = "/k.pem" }
  |                       ^^^^^^^
  = example: certificate = "/etc/motorpool/cert.pem"
"#,
    );
}
