//! `motorpool model scan` and `up DIR`: models that lie on this machine already are found, entered and left as they are.
use crate::support::{card, projector, shards};
use motorpool_gguf::{
    TensorType,
    write::{Smoke, Writer, smoke_model},
};
use motorpool_testkit::{Behaviour, FakeModel};
use motorpool_tests::e2e::{
    Daemon, House, Outcome,
    talk::{CHAT, chat},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
};

fn put(house: &House, path: &str, content: &[u8]) -> PathBuf {
    let path = house.path(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, content).expect("written");
    path
}

fn model(seed: u64) -> Vec<u8> {
    Smoke { seed, ..Smoke::default() }.writer().finish()
}

/// The files and links below a folder: names, sizes, times; without what the fake engine writes beside its models.
fn state(folder: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path()) {
            let meta = fs::symlink_metadata(&path).expect("there");
            if meta.is_dir() {
                folders.push(path);
            } else if !path.to_string_lossy().contains(".fake.") {
                found.insert(path, (meta.len(), meta.mtime(), meta.mtime_nsec()));
            }
        }
    }
    found
}

fn names(scan: &Outcome) -> Vec<String> {
    assert_eq!(scan.code, Some(0), "{scan:?}");
    let models = scan.json()["models"].as_array().cloned().unwrap_or_default();
    models.iter().map(|model| model["name"].as_str().expect("text").to_owned()).collect()
}

/// Everything that a user of all four programs has, in their homes.
fn fill(house: &House) {
    let blob = |sum: &str, content: &[u8]| {
        put(house, &format!("home/.cache/huggingface/hub/models--org--tiny-GGUF/blobs/{sum}"), content)
    };
    let link = |name: &str, to: &Path| {
        let path = house.path(&format!("home/.cache/huggingface/hub/models--org--tiny-GGUF/snapshots/0abc/{name}"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        symlink(to, path).expect("made");
    };
    let [first, second] = shards();
    link("tiny-Q4_0.gguf", &blob(&"1".repeat(64), &model(1)));
    link("tiny-BF16-00001-of-00002.gguf", &blob(&"2".repeat(64), &first));
    link("tiny-BF16-00002-of-00002.gguf", &blob(&"3".repeat(64), &second));
    link("mmproj-F16.gguf", &blob(&"4".repeat(64), &projector()));
    put(house, "home/.cache/llama.cpp/org_flat_flat-Q8_0.gguf", &model(5));
    put(
        house,
        "home/.cache/llama.cpp/manifest=org=flat=Q8_0.json",
        br#"{"ggufFile": {"rfilename": "flat-Q8_0.gguf"}}"#,
    );
    put(house, "home/.lmstudio/models/pub/studio/studio-Q4_K_M.gguf", &model(6));
    let (sum, lora) = ("a".repeat(64), "b".repeat(64));
    put(house, &format!("home/.ollama/models/blobs/sha256-{sum}"), &model(7));
    let manifest = |kind: &str| {
        let kinds = ["model", kind].map(|kind| json!({ "mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": format!("sha256:{}", if kind == "adapter" { &lora } else { &sum }) }));
        json!({ "schemaVersion": 2, "layers": kinds }).to_string()
    };
    let at = "home/.ollama/models/manifests/registry.ollama.ai/library";
    put(house, &format!("{at}/llama/1b"), manifest("params").as_bytes());
    put(house, &format!("{at}/llama/latest"), manifest("license").as_bytes());
    put(house, &format!("{at}/mine/latest"), manifest("adapter").as_bytes());
    put(house, &format!("{at}/broken/latest"), b"{");
}

#[tokio::test]
async fn the_caches_of_four_programs_are_found_entered_by_path_and_served_and_nothing_there_is_touched() {
    let house = House::new();
    house.write_config();
    fill(&house);
    let before = state(&house.path("home"));
    let found = house.run(&["model", "scan", "--json"]).await;
    assert_eq!(names(&found), ["flat-Q8_0", "llama-1b", "studio-Q4_K_M", "tiny-BF16", "tiny-Q4_0"]);
    let models = found.json()["models"].clone();
    let one =
        |name: &str| models.as_array().expect("rows").iter().find(|row| row["name"] == name).expect("found").clone();
    assert_eq!((one("tiny-BF16")["files"].as_u64(), &one("tiny-BF16")["id"]), (Some(2), &Value::Null));
    assert!(one("tiny-Q4_0")["projector"].as_str().is_some_and(|path| path.ends_with("0abc/mmproj-F16.gguf")));
    assert_eq!(one("flat-Q8_0")["aliases"], json!(["org/flat:Q8_0"]));
    assert_eq!(one("llama-1b")["aliases"], json!(["llama:1b", "llama:latest"]), "one file is one model");
    let why = found.json()["passed"].to_string();
    assert!(why.contains("an adapter") && why.contains("it is no manifest"), "{why}");
    assert_eq!(
        house.run(&["model", "list", "--json"]).await.json().as_array().map(Vec::len),
        Some(1),
        "only looked at"
    );

    let added = house.run(&["model", "scan", "--add", "--json"]).await;
    assert_eq!(names(&added).len(), 5);
    assert!(added.json()["models"].as_array().expect("rows").iter().all(|row| row["id"] == row["name"]), "{added:?}");
    let shown = card(&house, "tiny-BF16").await;
    assert!(shown["file"].as_str().is_some_and(|file| file.ends_with("0abc/tiny-BF16-00001-of-00002.gguf")), "{shown}");
    assert_eq!(shown["state"], "ready");
    let again = house.run(&["model", "scan", "--add", "--json"]).await;
    assert_eq!(again.json(), added.json(), "what is entered is not entered again");
    let daemon = house.start().await;
    for name in ["llama:1b", "org/tiny-GGUF:Q4_0", "studio-Q4_K_M"] {
        let answer = daemon.http().post(CHAT, &chat(name, "hello")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.log());
    }
    daemon.stop().await;
    let removed = house.run(&["model", "rm", "llama-1b", "--json"]).await;
    assert!(removed.json()["kept"].as_str().is_some_and(|kept| kept.contains(".ollama")), "{removed:?}");
    assert_eq!(state(&house.path("home")), before);
}

#[tokio::test]
async fn a_hash_that_a_cache_tells_is_checked_by_verify() {
    let house = House::new();
    house.write_config();
    fill(&house);
    house.run(&["model", "scan", "--add"]).await;
    let wrong = house.run(&["model", "verify", "llama-1b"]).await;
    assert_eq!(wrong.code, Some(6), "the blob is not called by its hash: {wrong:?}");
    assert_eq!(house.run(&["model", "verify", "studio-Q4_K_M"]).await.code, Some(0), "its header is right");
}

#[tokio::test]
async fn what_is_no_model_is_told_and_is_no_error() {
    let house = House::new();
    house.write_config();
    put(&house, "m/a.gguf", &smoke_model());
    put(&house, "m/page.gguf", b"<html>");
    put(&house, "m/torn-00001-of-00002.gguf", &shards()[0]);
    let adapter = Writer::new().set("general.type", "adapter").tensor("x", TensorType::F32, &[4], vec![0; 16]);
    put(&house, "m/lora.gguf", &adapter.finish());
    put(&house, "m/vocab.gguf", &Writer::new().set("general.architecture", "llama").finish());
    put(&house, "m/readme.md", b"hello");
    let folder = house.path("m");
    let found = house.run(&["model", "scan", folder.to_str().expect("UTF-8")]).await;
    assert_eq!(found.code, Some(0), "{found:?}");
    assert!(found.stdout.contains("\na ") && found.stdout.lines().count() == 2, "{found:?}");
    for why in ["page.gguf: ", "are missing", "`adapter`", "no weights"] {
        assert!(found.stderr.contains(why), "{why} in {found:?}");
    }
    let none = house.run(&["model", "scan", "/no/such/folder"]).await;
    assert_eq!(none.code, Some(4), "{none:?}");
    fs::create_dir(house.path("empty")).expect("made");
    let empty = house.run(&["model", "scan", house.path("empty").to_str().expect("UTF-8")]).await;
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(0), "no model was found\n"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_is_not_utf8_or_steers_the_terminal_is_passed_over_and_shown_harmlessly() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let house = House::new();
    house.write_config();
    put(&house, "m/a.gguf", &smoke_model());
    put(&house, "m/\u{1b}[2Jpage.gguf", b"<html>");
    let odd = house.path("m").join(OsStr::from_bytes(b"odd-\xff.gguf"));
    fs::write(odd, smoke_model()).expect("written");
    let folder = house.path("m");
    let folder = folder.to_str().expect("UTF-8");
    let found = house.run(&["model", "scan", folder, "--json"]).await;
    assert_eq!(names(&found), ["a"]);
    let passed = found.json()["passed"].clone();
    let odd = passed.as_array().expect("rows").iter().find(|row| row["why"].to_string().contains("is not UTF-8"));
    assert!(odd.is_some_and(|row| row["file"].to_string().contains("odd-\u{fffd}.gguf")), "{passed}");
    let shown = house.run(&["model", "scan", folder, "--add"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stderr.contains("[2Jpage.gguf") && !shown.stderr.contains('\u{1b}'), "{shown:?}");
}

#[tokio::test]
async fn a_folder_is_entered_and_one_of_its_models_asked() {
    let house = House::new();
    let folder = house.path("mine");
    fs::create_dir_all(&folder).expect("made");
    let [one, two] = ["one", "two"].map(|id| FakeModel::write(&folder, id, &Behaviour::default()).expect("written"));
    house.write_config();
    let folder = folder.to_str().expect("UTF-8");
    let daemon = Daemon::start_as(&house, &["up", folder], "serving on http://").await;
    assert!(daemon.log().contains("found   one  ") && daemon.log().contains("found   two  "), "{}", daemon.log());
    assert_eq!((one.starts().len(), two.starts().len()), (1, 0));
    let answer = daemon.http().post(CHAT, &chat("two", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let again = daemon.cli(&["up"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("already running") && again.stdout.contains(daemon.address()), "{again:?}");
    let entered = daemon.cli(&["up", folder]).await;
    assert!(entered.code == Some(0) && entered.stderr.contains("is loaded there as `one`"), "{entered:?}");
    daemon.stop().await;
    fs::create_dir(house.path("empty")).expect("made");
    let empty = house.run(&["up", house.path("empty").to_str().expect("UTF-8")]).await;
    assert!(empty.code == Some(4) && empty.stderr.contains("there is no model in"), "{empty:?}");
}

#[tokio::test]
async fn up_names_what_other_programs_have_before_it_fetches_and_enters_nothing() {
    let mut house = House::new();
    fill(&house);
    // Fetching needs one, and stops there.
    house.set_env("PATH", "/nonexistent");
    house.write_config();
    let up = house.run(&["up"]).await;
    assert_eq!(up.code, Some(5), "{up:?}");
    for text in ["fetching it", "here already: llama-1b (", "of Ollama", "of LM Studio", "`motorpool up '"] {
        assert!(up.stderr.contains(text), "{text} in {up:?}");
    }
    assert_eq!(house.run(&["model", "list", "--json"]).await.json().as_array().map(Vec::len), Some(1));
}
