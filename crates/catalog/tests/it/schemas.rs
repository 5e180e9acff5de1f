//! The schemas that are shipped: they are those of the types, they take every file that is shipped, and no other key.
#![expect(clippy::disallowed_methods, reason = "tests read what is shipped, and write it anew when asked")]
use jsonschema::Validator;
use motorpool_catalog::{FileKind, Source, parse_config, parse_host, parse_manifest, parse_model, schema};
use serde_json::Value;
use std::{fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn shipped_path(kind: FileKind) -> PathBuf {
    root().join("catalog/schema").join(format!("{}.json", kind.as_str()))
}

fn validator(kind: FileKind) -> Validator {
    jsonschema::validator_for(&schema(kind)).expect("a schema")
}

fn value_of(text: &str) -> Value {
    toml::from_str(text).expect(text)
}

/// Why the schema does not take it, if it does not.
fn faults(kind: FileKind, text: &str) -> Vec<String> {
    let value = value_of(text);
    validator(kind).iter_errors(&value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

/// Whether the reader takes it.
fn is_read(kind: FileKind, text: &str) -> bool {
    let source = Source { file: "f", text };
    let env = |_: &str| Some("value".to_owned());
    match kind {
        FileKind::Config => parse_config(source, &env).is_ok(),
        FileKind::Model => parse_model(source, &env).is_ok(),
        FileKind::Engine => parse_manifest(source, &env).is_ok(),
        FileKind::Host => parse_host(source, &env).is_ok(),
    }
}

/// Every file of `folder` that has one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(folder)).expect(folder);
    let paths = entries.map(|entry| entry.expect("readable").path());
    let fits = |path: &PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).expect("readable"));
    paths.filter(fits).map(read).collect()
}

/// Every file that is shipped, with its kind.
fn shipped_files() -> Vec<(FileKind, String, String)> {
    let mut all = Vec::new();
    let mut add = |kind, files: Vec<(String, String)>| {
        assert!(!files.is_empty(), "{kind:?}");
        all.extend(files.into_iter().map(|(name, text)| (kind, name, text)));
    };
    add(FileKind::Engine, files("engines", &[".toml", ".toml.example"]));
    let (hosts, models) = files("catalog", &[".toml", ".toml.example"])
        .into_iter()
        .partition(|(name, _)| name.ends_with("host.toml.example"));
    add(FileKind::Model, models);
    add(FileKind::Host, hosts);
    let documentation = fs::read_to_string(root().join("docs/configuration.md")).expect("readable");
    let block = documentation.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("a block").0;
    add(FileKind::Config, vec![("docs/configuration.md".to_owned(), block.to_owned())]);
    all
}

#[test]
fn the_shipped_schemas_are_those_of_the_types() {
    for kind in FileKind::ALL {
        let (path, wanted) = (shipped_path(kind), schema(kind));
        if std::env::var_os("MOTORPOOL_BLESS").is_some() {
            let text = serde_json::to_string_pretty(&wanted).expect("JSON") + "\n";
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, text).expect("written");
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let shipped: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(shipped == wanted, "{} is old: MOTORPOOL_BLESS=1 writes it anew", path.display());
    }
}

#[test]
fn every_file_that_is_shipped_is_taken_and_one_more_key_is_not() {
    for (kind, name, text) in shipped_files() {
        assert_eq!(faults(kind, &text), Vec::<String>::new(), "{name}");
        let more = format!("nobody_knows_this = 1\n{text}");
        assert!(!faults(kind, &more).is_empty(), "{name} with one more key");
    }
}

/// Every key in `schema` with its description; one that makes a choice is described with that.
fn keys<'a>(schema: &'a Value, path: &str, found: &mut Vec<(String, &'a str)>) {
    match schema {
        Value::Object(object) => {
            for (name, part) in object {
                if name == "properties" && part["properties"]["description"].is_null() {
                    for (key, of_key) in part.as_object().expect("keys") {
                        let of_choice = object.get("description").filter(|_| path.ends_with("oneOf"));
                        let words = of_key["description"].as_str().or_else(|| of_choice?.as_str());
                        found.push((format!("{path}.{key}"), words.unwrap_or_default()));
                    }
                }
                keys(part, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| keys(part, path, found)),
        _ => {}
    }
}

#[test]
fn every_key_is_described_in_words_of_files() {
    for kind in FileKind::ALL {
        let schema = schema(kind);
        let mut found = Vec::new();
        keys(&schema, "", &mut found);
        assert!(found.len() > 5, "{kind:?}");
        for (path, words) in found {
            assert!(!words.is_empty(), "{} {path} has no description", kind.as_str());
            assert!(!words.contains("`None`") && !words.contains("[`"), "{} {path}: {words}", kind.as_str());
        }
    }
}

#[test]
fn values_that_are_left_out_have_their_defaults_in_the_schema() {
    let config = schema(FileKind::Config);
    let default = |table: &str, key: &str| config["$defs"][table]["properties"][key]["default"].clone();
    assert_eq!(default("PoolSettings", "max_wait"), "1m");
    assert_eq!(default("Limits", "body"), "256MiB");
    assert_eq!(default("Limits", "queue"), 512);
    assert_eq!(default("Server", "listen"), serde_json::json!(["127.0.0.1:8790"]));
    assert_eq!(default("Log", "level"), "info");
    let model = schema(FileKind::Model);
    assert_eq!(model["properties"]["idle_ttl"]["default"], "10m");
    assert_eq!(model["properties"]["prompt_cache"]["default"], "256MiB");
    assert_eq!(model["properties"]["engine"]["default"], "llama-server");
}

#[test]
fn what_the_readers_refuse_by_type_range_or_word_the_schemas_refuse_and_variables_they_take() {
    for (kind, text, taken) in [
        (FileKind::Config, "[pool]\nmax_wait = \"90s\"", true),
        (FileKind::Config, "[pool]\nmax_wait = 90", false),
        (FileKind::Config, "[pool]\nmax_wait = \"${WAIT:-90s}\"", true),
        (FileKind::Config, "[log]\nlevel = \"loud\"", false),
        (FileKind::Config, "[log]\nlevel = \"${LEVEL:-info}\"", true),
        (FileKind::Config, "[limits]\nqueue = 0", false),
        (FileKind::Config, "[limits]\nbody = \"1.5 GiB\"", true),
        (FileKind::Config, "[limits]\nbody = \"24\"", false),
        (FileKind::Config, "[limits]\nbody = \"1.GiB\"", true),
        (FileKind::Config, "[limits]\nbody = \"\\t.5 GiB\\n\"", true),
        (FileKind::Config, "[pool]\nmax_wait = \"00:01:30\"", true),
        (FileKind::Config, "[pool]\nmax_wait = \"pt5m\"", true),
        (FileKind::Config, "[pool]\nmax_wait = \"1 hour, 2 minutes\"", true),
        (FileKind::Config, "[pool]\nmax_wait = \"90\"", false),
        (FileKind::Config, "[engine.x]\nsandbox = \"off\"", true),
        (FileKind::Config, "[engine.x]\nsandbux = \"off\"", false),
        (
            FileKind::Config,
            "[[external]]\nid = \"a\"\nkind = \"ollama\"\nurl = \"http://h\"\nheaders = { a = \"b\" }",
            true,
        ),
        (FileKind::Config, "[[external]]\nid = \"a\"\nkind = \"ollama\"", false),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\ncontext = \"max\"", true),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\ncontext = 255", false),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\nkv_type = \"q8_0\"", true),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\nkv_type = \"q9\"", false),
        (FileKind::Model, "id = \"a\"\nsource = { flie = \"/m\" }", false),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\nreplicas = { min = 2 }", true),
        (FileKind::Model, "id = \"a\"\nsource = { file = \"/m\" }\nreplicas = { least = 2 }", false),
        (FileKind::Model, "id = \"a\"", false),
        (FileKind::Host, "[host]\nram = \"64GiB\"", true),
        (FileKind::Host, "[host]\nram = 64", false),
    ] {
        assert_eq!(
            is_read(kind, &text.replace("${WAIT:-90s}", "9s").replace("${LEVEL:-info}", "info")),
            taken,
            "{text}"
        );
        assert_eq!(faults(kind, text).is_empty(), taken, "{text}: {:?}", faults(kind, text));
    }
}

/// Whether the schema takes every text that the reader takes, of this key.
fn takes_what_is_read(validator: &Validator, (table, key): (&str, &str), text: &str) -> bool {
    let written = toml::Value::String(text.to_owned());
    let file = format!("[{table}]\n{key} = {written}\n");
    !is_read(FileKind::Config, &file) || validator.is_valid(&value_of(&file))
}

#[test]
fn what_the_readers_take_as_a_size_or_a_duration_the_schemas_take() {
    let validator = validator(FileKind::Config);
    let config = proptest::test_runner::Config { cases: 2000, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let texts = (
        "[ \t\n]{0,2}[0-9]{0,3}\\.?[0-9]{0,2}[ \t]{0,2}([KMGTPEkmgtpe]?[Ii]?[Bb])?[ \n]{0,2}",
        "\\+?([0-9]{1,2}[.,]?[0-9]{0,2} ?(h|hours|m|mins|s|secs|ms|us|µs|ns),? ?){1,3}|[Pp][Tt]([0-9]{1,2}[HhMmSs]){1,3}|([0-9]m )?[0-9]{2}(:[0-9]{2}){1,2}",
    );
    runner
        .run(&texts, |(size, time)| {
            proptest::prop_assert!(takes_what_is_read(&validator, ("limits", "body"), &size), "{size:?}");
            proptest::prop_assert!(takes_what_is_read(&validator, ("pool", "max_wait"), &time), "{time:?}");
            Ok(())
        })
        .expect("every one");
}
