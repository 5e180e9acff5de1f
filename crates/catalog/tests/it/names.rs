//! Which model a name means, and which names cannot stand side by side.
use motorpool_catalog::{
    Catalog, Instead, Manifest, Model, Source, overlay_manifests, overlay_models, parse_manifest, parse_model, shipped,
};
use motorpool_vocab::ModelId;
use proptest::prelude::*;
use std::sync::LazyLock;

fn model(file: &str, text: &str) -> Model {
    let text = format!("{text}\nsource = {{ file = \"/x.gguf\" }}\n");
    parse_model(Source { file, text: &text }, &|_| None).expect("a valid model")
}

fn named(id: &str, aliases: &[&str]) -> Model {
    let mut model = model("x.toml", &format!("id = \"{id}\""));
    model.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    model
}

fn engines() -> Vec<Manifest> {
    static SHIPPED: LazyLock<Vec<Manifest>> = LazyLock::new(|| shipped().0);
    SHIPPED.clone()
}

fn catalog(models: Vec<Model>) -> Catalog {
    Catalog::new(engines(), models).expect("no name is taken twice")
}

fn refusal(models: Vec<Model>) -> String {
    Catalog::new(engines(), models).expect_err("a name is taken twice").to_string()
}

fn meant(catalog: &Catalog, name: &str) -> Option<String> {
    catalog.resolve(name).ok().map(|model| model.id.to_string())
}

#[test]
fn an_id_goes_before_an_alias_and_an_alias_before_a_glob() {
    let catalog = catalog(vec![
        named("small", &["gpt-4o", "claude-*"]),
        named("large", &["gpt-*", "claude-opus-*", "*"]),
        named("gpt-5", &[]),
    ]);
    for (name, id) in [
        ("small", "small"),
        ("gpt-4o", "small"),
        ("gpt-5", "gpt-5"),
        ("gpt-3.5", "large"),
        ("gpt-", "large"),
        ("claude-haiku", "small"),
        ("claude-opus-4", "large"),
        ("anything:latest", "large"),
    ] {
        assert_eq!(meant(&catalog, name).as_deref(), Some(id), "{name}");
    }
}

#[test]
fn globs_stand_for_any_characters() {
    let catalog = catalog(vec![named("a", &["x*y*z", "q*", "*é"])]);
    for name in ["xyz", "x-y-z", "xyyzz", "xzyz", "q", "qq", "é", "caffé"] {
        assert_eq!(meant(&catalog, name).as_deref(), Some("a"), "{name}");
    }
    for name in ["xy", "xz", "xzy", "yxyz", "Q", "éa", ""] {
        assert_eq!(meant(&catalog, name), None, "{name}");
    }
}

#[test]
fn of_two_globs_that_fit_alike_the_first_id_wins() {
    let catalog = catalog(vec![named("b", &["*-x"]), named("a", &["y-*"])]);
    assert_eq!(meant(&catalog, "y-x").as_deref(), Some("a"));
}

#[test]
fn an_unknown_name_is_answered_with_names_like_it() {
    let catalog =
        catalog(vec![named("gemma3-270m", &["fast"]), named("gemma3-4b", &[]), named("qwen3-8b", &["coder"])]);
    let unknown = catalog.resolve("gemma3-27m").expect_err("nobody has that name");
    assert_eq!(unknown.nearest, ["gemma3-270m", "gemma3-4b"]);
    assert_eq!(unknown.to_string(), "no model is called `gemma3-27m`; did you mean `gemma3-270m`, `gemma3-4b`?");
    assert_eq!(catalog.resolve("qwen3").expect_err("part of a name").nearest, ["qwen3-8b"]);
    let stranger = catalog.resolve("llava").expect_err("nobody has that name");
    assert_eq!(stranger.to_string(), "no model is called `llava`");
}

#[test]
fn what_is_there_can_be_asked() {
    let catalog = catalog(vec![named("b", &[]), named("a", &[])]);
    let ids: Vec<&str> = catalog.models().map(|model| model.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert!(catalog.model(&ModelId::new("b").expect("an id")).is_some());
    assert!(catalog.model(&ModelId::new("c").expect("an id")).is_none());
    assert!(catalog.manifest("llama-server").is_some() && catalog.manifest("tabby").is_none());
    assert_eq!(catalog.manifests().count(), engines().len());
}

#[test]
fn two_models_cannot_have_one_id() {
    let twins = vec![model("a.toml", "id = \"größe\""), model("b.toml", "\nid = \"größe\"")];
    let expected = r#"b.toml:2:6: the id `größe` is already taken by a.toml
  |
2 | id = "größe"
  |      ^^^^^^^
  = example: id = "gemma3-270m""#;
    assert_eq!(refusal(twins), expected);
}

#[test]
fn an_alias_belongs_to_one_model() {
    let ours = || model("a.toml", "id = \"a\"\naliases = [\"fast\", \"gpt-*\"]");
    let expected = r#"b.toml:2:17: the alias `fast` is already taken by the model `a`
  |
2 | aliases = ["b", "fast"]
  |                 ^^^^^^
  = example: aliases = ["small", "gpt-*"]"#;
    assert_eq!(refusal(vec![ours(), model("b.toml", "id = \"c\"\naliases = [\"b\", \"fast\"]")]), expected);
    let glob = refusal(vec![ours(), model("b.toml", "id = \"b\"\naliases = [\"gpt-*\"]")]);
    assert!(glob.starts_with("b.toml:2:12: the alias `gpt-*` is already taken by the model `a`\n"), "{glob}");
    let later_id = refusal(vec![model("b.toml", "id = \"b\"\naliases = [\"a\"]"), ours()]);
    assert!(later_id.starts_with("b.toml:2:12: the alias `a` is already taken by the model `a`\n"), "{later_id}");
    let own_id = refusal(vec![model("b.toml", "id = \"b\"\naliases = [\"b\"]")]);
    assert!(own_id.starts_with("b.toml:2:12: the alias `b` is already taken by the model `b`\n"), "{own_id}");
}

#[test]
fn a_model_needs_an_engine_that_is_described() {
    let expected = r#"a.toml:2:10: no manifest describes the engine `lama-server`, did you mean `llama-server`?
  |
2 | engine = "lama-server"
  |          ^^^^^^^^^^^^^
  = example: engine = "llama-server""#;
    assert_eq!(refusal(vec![model("a.toml", "id = \"a\"\nengine = \"lama-server\"")]), expected);
    let stranger = refusal(vec![model("a.toml", "id = \"a\"\nengine = \"tabby\"")]);
    let first = "a.toml:2:10: no manifest describes the engine `tabby`; known here: `llama-server`, `mlx-lm`, `vllm`, `whisper-server`\n";
    assert!(stranger.starts_with(first), "{stranger}");
}

#[test]
fn a_model_cannot_undo_what_was_planned() {
    let expected = r#"a.toml:2:30: `--ctx-size` cannot be given to llama-server here: `context` in the catalog entry says it, so that its memory is counted
  |
2 | extra_args = ["--jinja",     "--ctx-size", "9"]
  |                              ^^^^^^^^^^^^
  = example: extra_args = ["--threads", "8"]"#;
    assert_eq!(
        refusal(vec![model("a.toml", "id = \"a\"\nextra_args = [\"--jinja\",     \"--ctx-size\", \"9\"]")]),
        expected
    );
    for (flag, why) in [
        ("-c", "`context`"),
        ("-np", "`slots`"),
        ("--cache-type-v=q8_0", "`kv_type`"),
        ("-ngl", "`gpu_layers`"),
        ("-cmoe", "`n_cpu_moe`"),
        ("-ncmoe", "`n_cpu_moe`"),
        ("-ot", "`cpu_tensors`"),
        ("--cache-ram", "`prompt_cache`"),
        ("--mmproj", "`projector`"),
        ("-md", "`draft`"),
        ("-ngld", "its `file` and `tokens`"),
        ("--lora", "`adapters`"),
        ("--alias", "`aliases` are more names"),
        ("--hf-token", "named by `source`"),
        ("--embedding", "`capabilities`"),
        ("--main-gpu", "`devices` in the catalog entry says over which"),
        ("-ub", "`capabilities`"),
        ("-nkvo", "`gpu_layers`"),
        ("--mlock", "has the file mapped"),
        ("--load-mode=dio", "has the file mapped"),
        ("--port=1", "`listen` of `[server]`"),
        ("--tools", "no tools"),
        ("-v", "reads its log"),
        ("--rpc", "other machines"),
    ] {
        let shown = refusal(vec![with_argument(flag)]);
        assert!(shown.contains(why), "{why} in {shown}");
    }
    for flag in ["--threads", "--swa-full", "--control-vector", "--no-repack"] {
        assert!(Catalog::new(engines(), vec![with_argument(flag)]).is_ok(), "{flag} is counted, or costs nothing");
    }
}

fn with_argument(flag: &str) -> Model {
    let mut model = named("a", &[]);
    model.extra_args = vec![flag.into()];
    model
}

/// The keys of a catalog entry, as its own error tells them.
fn known_keys() -> Vec<String> {
    let unknown = Source { file: "x.toml", text: "id = \"a\"\nno_such_key = 1" };
    let error = parse_model(unknown, &|_| None).expect_err("unknown").to_string();
    let (_, known) = error.split_once("known here:").expect("all of them");
    let line = known.lines().next().unwrap_or_default();
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_argument_that_is_refused_says_why_and_names_only_what_there_is() {
    let elsewhere = ["[server]", "listen", "origins", "file", "tokens"];
    let known = known_keys();
    assert!(known.iter().any(|key| key == "capabilities"), "{known:?}");
    let engines = engines();
    let refused = engines.iter().flat_map(|engine| engine.refused_args.iter().map(|refused| (&engine.name, refused)));
    for (engine, refused) in refused {
        for flag in &refused.args {
            assert_ne!(refused.instead, Instead::Nothing, "{flag}");
            let mut of_it = with_argument(flag);
            of_it.engine.clone_from(engine);
            let shown = refusal(vec![of_it]);
            let (_, why) = shown.split_once(" here: ").expect("what, and why");
            let why = why.lines().next().unwrap_or_default();
            for word in why.split('`').skip(1).step_by(2) {
                assert!(elsewhere.contains(&word) || known.iter().any(|key| key == word), "{flag}: {word} in {why}");
            }
        }
    }
}

#[test]
fn an_engine_that_would_never_hear_of_a_file_does_not_get_it() {
    let mut deaf = engines().into_iter().next().expect("one is shipped");
    deaf.args.truncate(2);
    for (key, line) in [
        ("projector", "projector = { file = \"/p.gguf\" }"),
        ("draft", "draft = { file = \"/d.gguf\" }"),
        ("adapters", "adapters = [{ file = \"/a.gguf\" }]"),
        ("cpu_tensors", "cpu_tensors = [\"exps\"]"),
    ] {
        let model = model("a.toml", &format!("id = \"a\"\n{line}"));
        let shown = Catalog::new(vec![deaf.clone()], vec![model.clone()]).expect_err(key).to_string();
        assert!(shown.starts_with("a.toml:2:") && shown.contains("its manifest has no argument with `{"), "{shown}");
        assert!(Catalog::new(engines(), vec![model]).is_ok(), "{key}");
    }
}

#[test]
fn a_model_that_no_file_holds_is_refused_without_a_place() {
    let source = motorpool_catalog::ModelSource::File("/x".into());
    let made = Model::new(ModelId::new("a").expect("an id"), "none", source);
    let shown = refusal(vec![made]);
    assert_eq!(
        shown,
        "(not from a file): no manifest describes the engine `none`; known here: `llama-server`, `mlx-lm`, `vllm`, `whisper-server`"
    );
}

#[test]
fn two_manifests_cannot_have_one_name() {
    let twins = engines().into_iter().chain(engines()).collect();
    let shown = Catalog::new(twins, vec![]).expect_err("one name twice").to_string();
    assert!(shown.contains("the engine name `llama-server` is already taken by engines/llama-server.toml"), "{shown}");
}

#[test]
fn files_of_the_user_take_the_place_of_shipped_ones() {
    let (manifests, models) = shipped();
    let text = include_str!("../../../../engines/llama-server.toml")
        .replace("names = [\"llama-server\"]", "names = [\"mine\"]");
    let mine = parse_manifest(Source { file: "mine.toml", text: &text }, &|_| None).expect("valid");
    let models = overlay_models(models, vec![named("gemma3-270m", &["mine"]), named("other", &[])]);
    let catalog = Catalog::new(overlay_manifests(manifests, vec![mine]), models).expect("nothing is there twice");
    assert_eq!(catalog.manifest("llama-server").expect("there").program.names, ["mine"]);
    assert_eq!(meant(&catalog, "mine").as_deref(), Some("gemma3-270m"));
    assert_eq!(catalog.models().count(), 2);
}

#[test]
fn what_is_shipped_fits_together() {
    let (manifests, models) = shipped();
    let catalog = Catalog::new(manifests, models).expect("shipped files fit together");
    assert_eq!(meant(&catalog, "gemma3-270m").as_deref(), Some("gemma3-270m"));
}

proptest! {
    #[test]
    fn a_glob_fits_what_was_made_from_it(parts in prop::collection::vec("[a-zé]{0,4}", 1..5), fill in "[a-zé*]{0,5}") {
        let catalog = catalog(vec![named("model-x", &[&format!("{}*", parts.join("*"))])]);
        let name = parts.join(&fill) + &fill;
        prop_assert!(catalog.resolve(&name).is_ok(), "{}", name);
    }

    #[test]
    fn every_name_is_resolved_or_refused(name in ".{0,30}") {
        let catalog = catalog(vec![named("a", &["b*", "c"])]);
        let resolved = catalog.resolve(&name).is_ok();
        prop_assert_eq!(resolved, name == "a" || name == "c" || name.starts_with('b'));
    }
}

#[test]
fn a_later_layer_takes_an_alias_from_an_earlier_one() {
    let shipped = vec![named("shipped", &["default", "small", "gpt-*"])];
    let over = vec![named("own", &["default", "gpt-*"]), named("small", &[])];
    let catalog = catalog(overlay_models(shipped, over));
    let meant =
        ["default", "small", "gpt-5", "shipped"].map(|name| catalog.resolve(name).expect("known").id.to_string());
    assert_eq!(meant, ["own", "small", "own", "shipped"]);
    assert_eq!(catalog.resolve("shipped").expect("known").aliases, Vec::<String>::new());
}

#[test]
fn the_name_default_moves_unless_it_is_an_id() {
    let id = |text: &str| ModelId::new(text).expect("an id");
    let mut moved = catalog(vec![named("a", &["default", "x"]), named("b", &[])]);
    for _ in 0..2 {
        moved.call_default(&id("b"));
        assert_eq!(moved.resolve("default").expect("known").id, id("b"));
        assert_eq!(moved.resolve("a").expect("known").aliases, ["x"]);
        assert_eq!(moved.resolve("b").expect("known").aliases, ["default"]);
    }
    moved.call_default(&id("nobody"));
    assert_eq!(moved.resolve("default").expect("known").id, id("b"));
    let mut kept = catalog(vec![named("default", &[]), named("b", &[])]);
    kept.call_default(&id("b"));
    assert_eq!(kept.resolve("default").expect("known").id, id("default"));
}
