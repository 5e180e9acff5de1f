//! What becomes of files as people have them.
use super::*;

fn entry(found: &Found, id: &str) -> (String, Vec<String>) {
    let draft = found.drafts.iter().find(|draft| draft.id == id).expect("an entry");
    let text = draft.text("f");
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    (lines, draft.remarks.iter().map(|remark| format!("{}: {}", remark.line, remark.text)).collect())
}

const SWAP: &str = r#"healthCheckTimeout: 500
macros:
  bin: /opt/llama/llama-server
  base: >
    ${bin} --port ${PORT}
    -ngl 99
models:
  "qwen3":
    macros:
      ctx: 16384
    cmd: |
      # the program
      ${base}
      --model ${env.HOME}/models/qwen3.gguf
      -c ${ctx} -np 2 -fa on
      --temp 0.7 --jinja -ctk q8_0 -ctv q8_0
    aliases:
      - coder
      - id: gpt-4o-mini
    ttl: 60
    filters:
      stripParams: "temperature, model, top_p"
      setParams:
        top_k: 20
    proxy: http://127.0.0.1:9999
  embed:
    cmd: llama-server --port ${PORT} -m /m/bge.gguf --embeddings -ub 8192 --pooling mean
  box:
    cmd: docker run --init image --model /models/x.gguf
groups:
  always:
    persistent: true
    members: [embed]
hooks:
  on_startup:
    preload: [qwen3]
"#;

#[test]
fn models_of_llama_swap_become_entries_and_what_has_no_place_is_said_with_its_line() {
    let found = swap::read(SWAP).expect("read");
    let (text, remarks) = entry(&found, "qwen3");
    assert_eq!(
        text,
        "id = \"qwen3\"\naliases = [\"coder\", \"gpt-4o-mini\"]\ngpu_layers = 99\nslots = 2\ncontext = 8192\nkv_type = \"q8_0\"\n\
         parameters = { set = { top_k = 20 }, strip = [\"temperature\", \"top_p\"] }\nhome = true\nidle_ttl = \"60s\"\n\
         extra_args = [\"--temp\", \"0.7\", \"--jinja\"]\nsource = { file = \"${HOME}/models/qwen3.gguf\" }"
    );
    assert!(
        remarks.iter().any(|r| r.contains("`/opt/llama/llama-server`") && r.contains("[engine.llama-server]")),
        "{remarks:#?}"
    );
    assert!(remarks.iter().any(|r| r.contains("`--port PORT`") && r.contains("`listen`")), "{remarks:#?}");
    assert!(remarks.iter().any(|r| r.contains("`-fa on`") && r.contains("kv_type")), "{remarks:#?}");
    assert!(remarks.iter().any(|r| r.starts_with("25: `proxy`")), "{remarks:#?}");
    assert_eq!(fault_of(&found.drafts[0].text("f")), None);

    let (text, remarks) = entry(&found, "embed");
    assert!(
        text.contains(
            "capabilities = [\"embeddings\"]\npinned = true\nidle_ttl = \"0s\"\nextra_args = [\"--pooling\", \"mean\"]"
        ),
        "{text}"
    );
    assert!(remarks.iter().any(|r| r.starts_with("27: `-ub 8192`")), "{remarks:#?}");
    assert_eq!(fault_of(&found.drafts[1].text("f")), None);

    let (_, remarks) = entry(&found, "box");
    assert!(remarks[0].starts_with("29: `docker` is not taken over: no engine's manifest"), "{remarks:#?}");
    assert_eq!(fault_of(&found.drafts[2].text("f")).as_deref(), Some("the key `source` is missing"));
    let told: Vec<_> = found.remarks.iter().map(|r| format!("{}: {}", r.line, r.text)).collect();
    assert!(told[0].starts_with("1: `healthCheckTimeout`") && told[1].contains("the group `always`"), "{told:#?}");
}

#[test]
fn presets_of_a_router_become_entries_and_sections_win_over_what_is_for_all() {
    let text = "version = 1\n[*]\nctx-size = 4096\nngl = 99\n[small]\n; a remark\nmodel = /m/small.gguf\nLLAMA_ARG_CTX_SIZE = 0\n\
                load-on-startup = true\nstop-timeout = 3\nmmproj = /m/p.gguf\njinja = true\n[big]\nhf-repo = org/big\nmmap = false\n";
    let found = preset::read(text).expect("read");
    let (text, remarks) = entry(&found, "small");
    assert_eq!(
        text,
        "id = \"small\"\nhome = true\ngpu_layers = 99\nprojector = { file = \"/m/p.gguf\" }\ncontext = \"max\"\nidle_ttl = \"0s\"\nextra_args = [\"--jinja\"]\n\
         source = { file = \"/m/small.gguf\" }"
    );
    assert_eq!(
        remarks,
        [
            "10: `stop-timeout` is not taken over: `polite` of [stop] in motorpool.toml says how long engines have to end"
        ]
    );
    assert_eq!(fault_of(&found.drafts[0].text("f")), None);
    let (text, remarks) = entry(&found, "big");
    assert!(text.contains("context = 4096"), "{text}");
    assert!(remarks.iter().any(|r| r.starts_with("15: `mmap = false`")), "{remarks:#?}");
    assert!(fault_of(&found.drafts[1].text("f")).is_some());
}

#[test]
fn what_is_no_such_file_is_said_with_its_line() {
    assert_eq!(swap::read("models: [a\nb: {").map_err(|r| r.text.contains("no valid YAML")), Err(true));
    assert!(swap::read("just words").expect_err("no mapping").text.contains("no configuration"));
    assert_eq!(preset::read("[a]\nnonsense").expect_err("no key").line, 2);
    let mut bomb = "macros:\n  a: xxxxxxxxxx\n".to_owned();
    for pair in ('a'..='p').collect::<Vec<_>>().windows(2) {
        bomb += &"  NEW: ${OLD}${OLD}${OLD}${OLD}\n"
            .replace("NEW", &pair[1].to_string())
            .replace("OLD", &pair[0].to_string());
    }
    bomb += "models:\n  m:\n    cmd: ${p}\n  n:\n    macros:\n      x: ${y}\n      y: ${x}\n    cmd: ${x}\n";
    let found = swap::read(&bomb).expect("read");
    for draft in &found.drafts {
        assert_eq!(draft.remarks[0].text, "`cmd` is not taken over: its macros never end");
    }
}

#[test]
fn flags_that_are_given_again_add_to_their_list() {
    let cmd =
        "llama-server -m /m --lora /a.gguf --lora /b.gguf,/c.gguf -ot exps=CPU --override-tensor up=CPU -c 1 -c 512";
    let found = swap::read(&format!("models:\n  m:\n    cmd: {cmd}\n")).expect("read");
    let (text, remarks) = entry(&found, "m");
    assert_eq!(
        text,
        "id = \"m\"\nadapters = [{ file = \"/a.gguf\" }, { file = \"/b.gguf\" }, { file = \"/c.gguf\" }]\n\
         cpu_tensors = [\"exps\", \"up\"]\ncontext = 512\nidle_ttl = \"0s\"\nsource = { file = \"/m\" }"
    );
    assert!(remarks.is_empty(), "{remarks:#?}");
}

#[test]
fn a_file_that_is_nested_without_end_is_refused_and_one_at_the_bound_is_read() {
    let flat = |n: usize| format!("models:\n{}x\n", "- ".repeat(n));
    let keys = |n: usize| format!("{}x\n", "? ".repeat(n));
    let stairs = |n: usize| (0..n).fold(String::new(), |text, n| text + &" ".repeat(n) + "a:\n");
    let both =
        |n: usize| (0..n).fold(String::new(), |text, n| text + &" ".repeat(n) + "a:\n" + &" ".repeat(n) + "- b:\n");
    for text in [flat(200_000), keys(200_000), stairs(2000), both(500)] {
        let refused = swap::read(&text).expect_err("too deep");
        assert!(refused.text.contains("levels deep"), "{refused:?}");
    }
    assert_eq!(swap::read(&flat(200_000)).expect_err("too deep").line, 2);
    assert!(swap::read(&"#".repeat(5 << 20)).expect_err("too long").text.contains("longer than 4 MiB"));
    let brackets = format!("models: {}", "[".repeat(200_000));
    assert!(swap::read(&brackets).is_err());
    // The deepest that passes, with as much again on its last line and in brackets behind that.
    let deepest =
        format!("{}{}{}{}{}", stairs(128), " ".repeat(128), "- ".repeat(127), "[".repeat(200), "]".repeat(200));
    assert!(swap::read(&deepest).is_ok());
}

/// A catalog that has these models, and what is said of them.
fn imported(found: Result<Found, Remark>, here: &[(&str, &str, &str, Option<&str>)]) -> Found {
    let mut found = found.expect("read");
    names::settle(&mut found.drafts);
    for draft in &mut found.drafts {
        hub::find(draft, &Here::of(here));
    }
    found
}

#[test]
fn models_of_the_hub_become_files_of_this_machine_and_of_others_it_is_said_how_they_get_here() {
    let here = [
        ("o/see", "see-Q4_K_M.gguf", "/c/see-Q4_K_M.gguf", Some("/c/mmproj-F16.gguf")),
        ("o/see", "see-Q8_0.gguf", "/c/${x}/see-Q8_0.gguf", None),
        ("o/odd", "odd-mxfp4.gguf", "/c/odd.gguf", None),
    ];
    let models = [
        ("a", "-hf o/see -c 512", "projector = { file = \"/c/mmproj-F16.gguf\" }", "/c/see-Q4_K_M.gguf"),
        ("b", "-hfr o/see:q8_0", "", "/c/$${x}/see-Q8_0.gguf"),
        ("c", "--hf-repo o/see --hf-file see-Q8_0.gguf", "", "/c/$${x}/see-Q8_0.gguf"),
        (
            "d",
            "-hf o/odd:latest -hfd o/see:Q4_K_M --draft 4",
            "draft = { file = \"/c/see-Q4_K_M.gguf\", tokens = 4 }",
            "/c/odd.gguf",
        ),
        ("e", "-hf o/see --no-mmproj", "", "/c/see-Q4_K_M.gguf"),
        ("f", "-hf o/see -mm /own.gguf", "projector = { file = \"/own.gguf\" }", "/c/see-Q4_K_M.gguf"),
        ("g", "-hf o/none -m /there.gguf", "", "/there.gguf"),
        ("h", "-mu https://h/m.gguf", "", "/u.gguf"),
        ("i", "-hf o/see:Q6_K", "", ""),
        ("j", "-hf o/none:Q8_0", "", ""),
        ("k", "-hf not-a-repo", "", ""),
        ("l", "-mu https://h/n.gguf", "", ""),
        ("m", "-hff m.gguf", "", ""),
    ];
    let line = |(id, args, ..): &(&str, &str, &str, &str)| format!("  {id}:\n    cmd: llama-server {args}\n");
    let found = imported(swap::read(&format!("models:\n{}", models.iter().map(line).collect::<String>())), &here);
    for (id, _, key, file) in &models {
        let (text, remarks) = entry(&found, id);
        assert!(text.contains(key), "{id}: {text}");
        assert_eq!(text.contains("projector") || text.contains("draft"), !key.is_empty(), "{id}: {text}");
        let draft = found.drafts.iter().find(|draft| draft.id == *id).expect("an entry");
        let source = format!("source = {{ file = \"{file}\" }}");
        assert_eq!(text.contains(&source), !file.is_empty(), "{id}: {text}");
        assert_eq!(fault_of(&draft.text("f")).is_none(), !file.is_empty(), "{id}: {remarks:#?}");
    }
    for (id, said) in [
        ("b", "5: `-hfr o/see:q8_0` is on this machine already: /c/${x}/see-Q8_0.gguf"),
        ("g", "15: `-hf o/none` is not taken over: the file that the model's path names is taken"),
        ("i", "there is no `Q6_K`; there is `Q4_K_M`, `Q8_0`); `motorpool model pull hf:o/see:Q6_K` fetches it"),
        ("j", "it is not on this machine; `motorpool model pull hf:o/none:Q8_0` fetches it, then import again"),
        ("k", "it is no repository of the hub"),
        ("l", "`motorpool model pull https://h/n.gguf` fetches it"),
        ("m", "no repository stands beside it"),
    ] {
        let (_, remarks) = entry(&found, id);
        assert!(remarks.iter().any(|remark| remark.contains(said)), "{id}: {said}: {remarks:#?}");
    }
    // A preset may be of the model that it is called like.
    let found = imported(preset::read("[o/see:Q8_0]\nctx-size = 512\n[x]\nctx-size = 512\n"), &here);
    let (text, _) = entry(&found, "o/see-Q8_0");
    assert!(text.contains("aliases = [\"o/see:Q8_0\"]") && text.contains("see-Q8_0.gguf"), "{text}");
    assert!(fault_of(&found.drafts[1].text("f")).is_some());
}

#[test]
fn an_id_that_cannot_stand_in_the_catalog_is_written_otherwise_and_stays_a_name() {
    let text = "models:\n  a-b: &cmd\n    cmd: llama-server -m /m.gguf\n  'a:b': {cmd: llama-server -m /m.gguf, aliases: [x]}\n\
                \x20 a/b: {cmd: llama-server -m /m.gguf}\n  'all *': {cmd: llama-server -m /m.gguf}\n\
                groups:\n  g: {persistent: true, members: ['a:b']}\n";
    let found = imported(swap::read(text), &[]);
    let (mapped, remarks) = entry(&found, "a-b-2");
    assert!(mapped.contains("aliases = [\"a:b\", \"x\"]") && mapped.contains("pinned = true"), "{mapped}");
    assert_eq!(
        remarks,
        ["4: the id `a:b` cannot stand in the catalog: it is `a-b-2` here, and answers to `a:b` as an alias"]
    );
    let (mapped, remarks) = entry(&found, "all--");
    assert!(!mapped.contains("aliases"), "a star stands for other names: {mapped}");
    assert!(remarks[0].contains("nor as an alias"), "{remarks:#?}");
    let files: Vec<_> = found.drafts.iter().map(Draft::file_name).collect();
    assert_eq!(files, ["a-b.toml", "a-b-2.toml", "a-b-3.toml", "all--.toml"].map(str::to_owned));
    let read = |draft: &Draft| parse_model(Source { file: "f", text: &draft.text("f") }, &|_| None).expect("right");
    let models = found.drafts.iter().map(read).collect();
    let catalog = Catalog::new(shipped().0, models).expect("all of them together are a catalog");
    assert_eq!(catalog.resolve("a:b").expect("one").id.as_str(), "a-b-2");
}

#[test]
fn a_model_that_is_never_unloaded_there_is_never_unloaded_here() {
    use std::time::Duration;
    let ttl_of = |global: &str, model: &str, args: &str| {
        let text = format!("{global}\nmodels:\n  m:\n    cmd: llama-server -m /m.gguf {args}\n    {model}\n");
        let found = swap::read(&text).expect("read");
        assert!(found.remarks.is_empty() && found.drafts[0].remarks.is_empty(), "{found:#?}");
        let text = found.drafts[0].text("f");
        parse_model(Source { file: "f", text: &text }, &|_| None).expect("right").idle_ttl
    };
    for (global, model, args, seconds) in [
        ("", "", "", 0),
        ("", "ttl: 0", "", 0),
        ("", "ttl: -1", "", 0),
        ("globalTTL: 0", "", "", 0),
        ("globalTTL: 300", "", "", 300),
        ("globalTTL: 300", "ttl: -1", "", 300),
        ("globalTTL: 300", "ttl: 0", "", 0),
        ("globalTTL: 300", "ttl: 60", "", 60),
        ("", "ttl: 99999999999", "", 0),
        ("", "", "--sleep-idle-seconds -1", 0),
        ("", "", "--sleep-idle-seconds 90", 90),
        ("", "ttl: 60", "--sleep-idle-seconds 90", 60),
    ] {
        assert_eq!(ttl_of(global, model, args), Duration::from_secs(seconds), "{global} {model} {args}");
    }
    let found =
        preset::read("[*]\nsleep-idle-seconds = 90\n[m]\nmodel = /m\n[n]\nmodel = /n\nsleep-idle-seconds = -1\n");
    let found = found.expect("read");
    for (id, ttl) in [("m", "idle_ttl = \"90s\""), ("n", "idle_ttl = \"0s\"")] {
        let (text, _) = entry(&found, id);
        assert!(text.contains(ttl), "{text}");
    }
    let found = swap::read("globalTTL: soon\nmodels:\n  m: {cmd: llama-server -m /m, ttl: later}\n").expect("read");
    for remark in [&found.remarks[0], &found.drafts[0].remarks[0]] {
        assert!(remark.text.contains("no number of seconds"), "{remark:?}");
    }
}

#[test]
fn no_file_that_is_there_is_overwritten() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let draft = || Draft { id: "a/b".into(), source: Some("/m.gguf".into()), ..Draft::default() };
    let outcome = || row(draft(), "f", Some(folder.path())).expect("written").outcome;
    assert_eq!(outcome(), Outcome::Written);
    fs::write(folder.path().join("a-b.toml"), "mine").expect("written");
    assert_eq!(outcome(), Outcome::Stays);
    assert_eq!(fs::read_to_string(folder.path().join("a-b.toml")).expect("there"), "mine");
}
