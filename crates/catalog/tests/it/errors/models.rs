//! Mistakes in a model.
use super::{model, shows};

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
        &model("id = \"a\"\nwarmth = \"5m\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:1: unknown key `warmth`; known here: `id`, `aliases`, `engine`, `source`, `context`, `context_min`, `context_target`, `profile`, `slots`, `kv_type`, `gpu_layers`, `n_cpu_moe`, `devices`, `cpu_tensors`, `projector`, `draft`, `adapters`, `declared`, `prompt_cache`, `checkpoints`, `priority`, `pinned`, `home`, `idle_ttl`, `session_state`, `replicas`, `tags`, `capabilities`, `parameters`, `extra_args`, `license`
  |
2 | warmth = "5m"
  | ^^^^^^
"#,
    );
}
