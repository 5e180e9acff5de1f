//! `motorpool model pull hf:…` when all goes well: what is fetched, what is shown, what is entered, who is told what.
use crate::support::{REPO, card, home_of, house_at, hub, model, pull, said};
use motorpool_gguf::write::smoke_model;
use motorpool_testkit::servers::hub::{COMMIT, is_store};
use motorpool_tests::e2e::talk::{CHAT, chat};
use serde_json::json;
use std::fs;

#[tokio::test]
async fn the_usual_quantisation_is_fetched_with_its_projector_and_served_by_its_id_and_by_the_hubs_name() {
    let hub = hub().await;
    let house = house_at(&hub);
    let pulled = pull(&house, "").await;
    assert_eq!(pulled.code, Some(0), "{pulled:?}");
    assert!(pulled.stdout.starts_with("tiny-Q4_K_M is ready: "), "{pulled:?}");
    let home = home_of(&house, "tiny-Q4_K_M");
    assert_eq!(fs::read(home.join("tiny-Q4_K_M.gguf")).expect("there"), smoke_model());
    let entry = fs::read_to_string(home.join("model.toml")).expect("there");
    assert!(entry.contains(&format!("file = \"{}\"", home.join("mmproj-F16.gguf").display())), "{entry}");
    let card = card(&house, "tiny-Q4_K_M").await;
    assert_eq!((card["state"].as_str(), &card["aliases"]), (Some("ready"), &json!([format!("{REPO}:Q4_K_M")])));
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.join("model.json")).expect("there")).expect("JSON");
    assert_eq!(record["source"], format!("hf:{REPO}@{COMMIT}:tiny-Q4_K_M.gguf"));
    assert!(!home.join("pieces.json").exists());
    let verified = house.run(&["model", "verify", "--json"]).await;
    assert_eq!((verified.code, verified.json()), (Some(0), json!(["tiny-Q4_K_M"])));
    let daemon = house.start().await;
    for name in ["tiny-Q4_K_M", "org/tiny-GGUF:Q4_K_M"] {
        let answer = daemon.http().post(CHAT, &chat(name, "hello")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.log());
    }
    daemon.stop().await;
}

#[tokio::test]
async fn terms_are_shown_before_the_first_byte_and_kept_and_do_not_steer_the_terminal() {
    let hub = hub().await;
    let house = house_at(&hub);
    let pulled = pull(&house, ":Q8_0").await;
    let at = |text: &str| pulled.stderr.find(text).unwrap_or_else(|| panic!("{text:?} in {pulled:?}"));
    assert!(at("comes under its own terms") < at("Do what you like."), "{pulled:?}");
    assert!(at("own-1.0") < at("https://example.com/own") && at("not everything") < at("Q8_0 (file 1 of 2) ..."));
    assert!(!pulled.stderr.contains('\u{1b}'), "{pulled:?}");
    let kept = fs::read_to_string(home_of(&house, "tiny-Q8_0").join("TERMS.txt")).expect("kept");
    assert!(kept.contains("own-1.0") && kept.contains("But not everything."), "{kept}");
    assert!(card(&house, "tiny-Q8_0").await["terms"].as_str().is_some_and(|terms| terms.contains("own-1.0")));
    let again = pull(&house, ":Q8_0").await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(!again.stderr.contains("terms"), "{again:?}");
    assert_eq!(hub.fetched("tiny-Q8_0.gguf").len(), 1, "it is here already");
}

#[tokio::test]
async fn a_split_model_comes_whole_and_what_came_is_not_fetched_again() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, ":bf16").await.code, Some(0));
    let card = card(&house, "tiny-BF16").await;
    let file = card["file"].as_str().expect("a path");
    assert!(file.ends_with("tiny-BF16-00001-of-00002.gguf"), "{card}");
    assert_eq!(card["state"], "ready");
    let second = home_of(&house, "tiny-BF16").join("tiny-BF16-00002-of-00002.gguf");
    let whole = fs::read(&second).expect("there");
    fs::write(&second, [&whole[..], b"x"].concat()).expect("ours");
    assert_eq!(house.run(&["model", "verify", "tiny-BF16"]).await.code, Some(6), "every file is read");
    fs::remove_file(&second).expect("ours");
    assert_eq!(house.run(&["model", "pull", "tiny-BF16"]).await.code, Some(0), "its record tells where it came from");
    assert_eq!(fs::read(&second).expect("there"), whole);
}

#[tokio::test]
async fn a_secret_is_shown_to_the_hub_and_to_nobody_else() {
    let hub = hub().await;
    hub.gate(REPO, "hf_secret");
    let mut house = house_at(&hub);
    let gated = pull(&house, "").await;
    let gated = said(&gated, 11);
    assert!(gated.contains(&format!("accept them at {}/{REPO}", hub.endpoint())) && gated.contains("HF_TOKEN"));
    fs::create_dir_all(house.path("home/.cache/huggingface")).expect("made");
    fs::write(house.path("home/.cache/huggingface/token"), "hf_of_somebody_else\n").expect("written");
    assert!(said(&pull(&house, "").await, 11).contains("is given to those alone who accepted its terms"));
    house.set_env("HF_TOKEN", "hf_secret");
    let pulled = pull(&house, "").await;
    assert_eq!(pulled.code, Some(0), "{pulled:?}");
    let (store, told): (Vec<_>, Vec<_>) = hub.asked().into_iter().partition(is_store);
    assert!(!store.is_empty() && store.iter().all(|asked| !asked.headers.contains_key("authorization")), "{store:?}");
    assert!(told.last().is_some_and(|asked| asked.headers["authorization"] == "Bearer hf_secret"), "{told:?}");
    assert!(!pulled.stderr.contains("hf_secret") && !pulled.stdout.contains("hf_secret"));
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_is() {
    let hub = hub().await;
    let house = house_at(&hub);
    let no_quant = pull(&house, ":Q4_K_S").await;
    let no_quant = said(&no_quant, 4);
    assert!(
        no_quant.contains("there is no `Q4_K_S`; there is `Q4_K_M`, ") && no_quant.contains(":Q4_K_M`"),
        "{no_quant}"
    );
    let no_file = pull(&house, ":tiny-Q4.gguf").await;
    assert!(said(&no_file, 4).contains("there is no `tiny-Q4.gguf`"), "{no_file:?}");
    let no_repo = house.run(&["model", "pull", "hf:org/other"]).await;
    assert!(said(&no_repo, 4).contains("has no repository `org/other`"), "{no_repo:?}");
    let no_revision = house.run(&["model", "pull", &format!("hf:{REPO}@v9")]).await;
    assert!(said(&no_revision, 4).contains("has no revision `v9`"), "{no_revision:?}");
    let no_name = house.run(&["model", "pull", "hf:tiny"]).await;
    assert!(said(&no_name, 4).contains("hf:ORG/NAME:Q4_K_M"), "{no_name:?}");
    hub.put("org/safetensors", "model.safetensors", "x");
    let none = house.run(&["model", "pull", "hf:org/safetensors"]).await;
    assert!(said(&none, 4).contains("there is no GGUF file"), "{none:?}");
    crate::support::assert_no_model(&house);
}

#[tokio::test]
async fn a_newer_version_replaces_the_old_one_and_a_name_keeps_its_meaning() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, "").await.code, Some(0));
    hub.put(REPO, "tiny-Q4_K_M.gguf", model(4));
    assert_eq!(pull(&house, "").await.code, Some(0));
    assert_eq!(fs::read(home_of(&house, "tiny-Q4_K_M").join("tiny-Q4_K_M.gguf")).expect("there"), model(4));
    hub.put("other/tiny", "tiny-Q4_K_M.gguf", smoke_model());
    let taken = house.run(&["model", "pull", "hf:other/tiny"]).await;
    assert!(said(&taken, 9).contains("the name `tiny-Q4_K_M` belongs to"), "{taken:?}");
}

#[tokio::test]
async fn a_file_of_the_same_name_in_another_folder_of_the_repository_replaces_nothing() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.put("org/two", "a/m-Q4_0.gguf", model(1));
    hub.put("org/two", "b/m-Q4_0.gguf", model(2));
    let pull = async |path: &str| house.run(&["model", "pull", &format!("hf:org/two:{path}")]).await;
    assert_eq!(pull("a/m-Q4_0.gguf").await.code, Some(0));
    let taken = pull("b/m-Q4_0.gguf").await;
    assert!(said(&taken, 9).contains("the name `m-Q4_0` belongs to"), "{taken:?}");
    assert_eq!(fs::read(home_of(&house, "m-Q4_0").join("m-Q4_0.gguf")).expect("there"), model(1));
    assert_eq!(pull("a/m-Q4_0.gguf").await.code, Some(0), "it is here already");
}

#[tokio::test]
async fn an_address_of_the_first_of_several_files_brings_them_all() {
    let hub = hub().await;
    let house = house_at(&hub);
    let address = hub.address_of(REPO, "big/tiny-BF16-00001-of-00002.gguf");
    let pulled = house.run(&["model", "pull", &address]).await;
    assert_eq!(pulled.code, Some(0), "{pulled:?}");
    assert!(home_of(&house, "tiny-BF16").join("tiny-BF16-00002-of-00002.gguf").exists());
    assert_eq!(house.run(&["model", "verify", "tiny-BF16"]).await.code, Some(0));
    let second = house.run(&["model", "pull", &address.replace("00001-of", "00002-of")]).await;
    assert!(said(&second, 4).contains("is not the first file of a split model"), "{second:?}");
}
