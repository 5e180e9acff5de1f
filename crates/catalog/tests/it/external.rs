//! Servers that somebody else runs, as files name them.
use motorpool_catalog::{Config, ExternalKind, ExternalLifecycle, KeptFor, Prefer, ProtectRole, Source, parse_config};
use std::time::Duration;

fn config(text: &str) -> Config {
    parse_config(Source { file: "motorpool.toml", text }, &|_| None).expect(text)
}

#[test]
fn every_key_of_a_server_is_taken() {
    let Config { external, protect, .. } = config(
        r#"
        [[external]]
        id = "desk"
        kind = "lmstudio"
        url = "https://Box.lan/v1/"
        key_env = "DESK_KEY"
        headers = { X-Team = "lab 7" }
        lifecycle = "user-managed"
        default_model = "qwen3-8b"
        context = 32768
        prefer = "external"
        models = ["qwen*", "gemma"]
        [external.load]
        context_length = 4096
        flash_attention = true
        [external.timeouts]
        look = "3s"
        [[external]]
        id = "home"
        kind = "ollama"
        url = "http://localhost:11434"
        key_file = "/etc/motorpool/home.key"
        keep_alive = "-1"
        [[protect]]
        model = "qwen3-8b"
        [[protect]]
        model = "nomic"
        role = "memory"
        target = "home"
    "#,
    );
    let [desk, home] = &external[..] else { panic!("two: {external:?}") };
    assert_eq!(
        (desk.kind, desk.lifecycle, desk.prefer),
        (ExternalKind::LmStudio, ExternalLifecycle::UserManaged, Prefer::External)
    );
    assert_eq!((desk.url.base().as_str(), desk.url.key().as_str()), ("https://box.lan/v1", "https://box.lan"));
    let headers: Vec<_> = desk.headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(headers, [("x-team", "lab 7")]);
    assert_eq!((desk.default_model.as_deref(), desk.context), (Some("qwen3-8b"), Some(32768)));
    assert_eq!(
        (desk.load.context_length, desk.load.flash_attention, desk.load.num_experts),
        (Some(4096), Some(true), None)
    );
    assert_eq!((desk.timeouts.look, desk.timeouts.load), (Some(Duration::from_secs(3)), None));
    assert_eq!(
        (home.lifecycle, home.prefer, home.keep_alive),
        (ExternalLifecycle::Managed, Prefer::Own, Some(KeptFor::Ever))
    );
    assert_eq!(home.key_file.as_deref(), Some(std::path::Path::new("/etc/motorpool/home.key")));
    let protect: Vec<_> = protect.iter().map(|one| (one.model.as_str(), one.role, one.target.as_deref())).collect();
    assert_eq!(protect, [("qwen3-8b", ProtectRole::Chat, None), ("nomic", ProtectRole::Memory, Some("home"))]);
}

#[test]
fn only_models_that_fit_are_offered_by_any_of_their_names() {
    let server = |models: &str| {
        let text = format!("[[external]]\nid = \"d\"\nkind = \"ollama\"\nurl = \"http://h\"\nmodels = {models}");
        config(&text).external.remove(0)
    };
    let all = server("[]");
    assert!(all.offers(["x"].into_iter()));
    let some = server("[\"qwen*\", \"gemma\"]");
    assert!(some.offers(["qwen3"].into_iter()) && some.offers(["x", "gemma"].into_iter()));
    assert!(!some.offers(["gemma3", "my-qwen"].into_iter()));
}

#[test]
fn what_may_be_a_secret_is_not_shown() {
    let text = "[[external]]\nid = \"d\"\nkind = \"ollama\"\nurl = \"http://h\"\nheaders = { x = \"hush\" }";
    let shown = format!("{:?}", config(text));
    assert!(shown.contains("HeaderText") && !shown.contains("hush"), "{shown}");
}
