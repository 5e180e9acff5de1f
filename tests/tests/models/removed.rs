//! `motorpool model rm`: what is removed, what is refused, and what stays.
use crate::support::{REPO, home_of, house_at, hub, pull, said};
use motorpool_gguf::write::smoke_model;
use motorpool_testkit::{Behaviour, eventually, servers::hub::Trouble};
use motorpool_tests::e2e::{
    House,
    talk::{CHAT, chat},
};
use serde_json::json;
use std::fs;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixListener,
};

const ID: &str = "tiny-Q4_K_M";

#[tokio::test]
async fn a_model_that_the_pool_uses_is_not_removed_and_one_that_it_does_not_is() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, "").await.code, Some(0));
    assert_eq!(pull(&house, ":Q8_0").await.code, Some(0));
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat(ID, "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let used = daemon.cli(&["model", "rm", ID]).await;
    assert!(
        said(&used, 9).contains("is in use") && used.stderr.contains(&format!("motorpool unload {ID}")),
        "{used:?}"
    );
    let other = daemon.cli(&["model", "rm", "tiny-Q8_0", "--json"]).await;
    assert_eq!(other.json(), json!({ "id": "tiny-Q8_0", "removed": home_of(&house, "tiny-Q8_0"), "kept": null }));
    assert!(!home_of(&house, "tiny-Q8_0").exists());
    assert_eq!(daemon.cli(&["unload", ID]).await.code, Some(0));
    assert_eq!(daemon.cli(&["model", "rm", ID]).await.code, Some(0));
    assert!(!home_of(&house, ID).exists() && !house.data().join("motorpool/models/.removed").exists());
    let gone = daemon.http().post(CHAT, &chat(ID, "hello")).await.expect("an answer");
    assert!(gone.text().contains("there is no "), "it is told what is missing: {}", gone.text());
    daemon.stop().await;
}

#[tokio::test]
async fn half_a_pull_is_removed_by_its_name_but_not_while_it_goes_on() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble("tiny-Q4_K_M.gguf", Trouble::HeldAt(1000));
    let mut pulling = house.command(&["model", "pull", &format!("hf:{REPO}")]).spawn().expect("it runs");
    let partial = home_of(&house, ID).join("tiny-Q4_K_M.gguf.partial");
    eventually("some of it is on disk", async || partial.exists().then_some(())).await;
    let busy = house.run(&["model", "rm", ID]).await;
    assert!(said(&busy, 9).contains("is being pulled"), "{busy:?}");
    pulling.kill().await.expect("it is killed");
    assert_eq!(house.run(&["model", "rm", ID]).await.code, Some(0));
    assert!(!home_of(&house, ID).exists());
    assert!(said(&house.run(&["model", "rm", ID]).await, 4).contains("no model is called"));
}

#[tokio::test]
async fn what_an_interrupted_removal_left_goes_with_the_next_one() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, "").await.code, Some(0));
    let left = house.data().join("motorpool/models/.removed/old");
    fs::create_dir_all(&left).expect("made");
    fs::write(left.join("old.gguf"), "x").expect("written");
    assert_eq!(house.run(&["model", "rm", ID]).await.code, Some(0));
    assert!(!left.exists());
}

/// The folder of all models on a file system of its own: shared memory is one on every Linux.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_model_goes_though_the_folder_of_models_is_another_file_system() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let hub = hub().await;
    let house = house_at(&hub);
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let data = house.data().join("motorpool");
    fs::create_dir_all(&data).expect("made");
    let device = |path: &std::path::Path| fs::metadata(path).expect("there").dev();
    assert_ne!(device(&data), device(elsewhere.path()), "temporary files lie in shared memory: nothing is tested");
    symlink(elsewhere.path(), data.join("models")).expect("made");
    assert_eq!(pull(&house, "").await.code, Some(0));
    let removed = house.run(&["model", "rm", ID]).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).expect("there").count(), 0);
}

#[tokio::test]
async fn a_name_that_only_a_star_takes_in_removes_nothing() {
    let mut house = House::new();
    house.fake_with("any", &Behaviour::default(), "aliases = [\"gpt-*\"]");
    house.write_config();
    let file = house.path("mine.gguf");
    fs::write(&file, smoke_model()).expect("written");
    assert_eq!(house.run(&["model", "pull", file.to_str().expect("UTF-8")]).await.code, Some(0));
    let entry = home_of(&house, "mine").join("model.toml");
    let text = fs::read_to_string(&entry).expect("there");
    fs::write(&entry, text.replacen("id = \"mine\"", "id = \"mine\"\naliases = [\"m*\"]", 1)).expect("ours");
    let refused = house.run(&["model", "rm", "mixtral"]).await;
    assert!(said(&refused, 4).contains("no model is called `mixtral`; did you mean `mine`?"), "{refused:?}");
    assert!(entry.exists());
    assert_eq!(house.run(&["model", "rm", "mine"]).await.code, Some(0));
    assert!(!entry.exists());
}

#[tokio::test]
async fn a_model_of_whose_files_another_entry_makes_use_is_not_removed() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, "").await.code, Some(0));
    let file = |name: &str| home_of(&house, ID).join(name).display().to_string();
    let (model, projector) = (file("tiny-Q4_K_M.gguf"), file("mmproj-F16.gguf"));
    for (lines, path) in [
        (String::new(), model.clone()),
        (format!("projector = {{ file = \"{projector}\" }}"), "/mine.gguf".into()),
        (format!("draft = {{ file = \"{model}\" }}"), "/mine.gguf".into()),
        (format!("adapters = [{{ file = \"{projector}\" }}]"), "/mine.gguf".into()),
    ] {
        let text = format!("id = \"mine\"\n{lines}\n[source]\nfile = \"{path}\"\n");
        house.write_beside("catalog/mine.toml", &text);
        let refused = house.run(&["model", "rm", ID]).await;
        let why = said(&refused, 9);
        assert!(why.contains("`mine` uses a file in the folder of `tiny-Q4_K_M`"), "{text}: {refused:?}");
    }
    assert_eq!(house.run(&["model", "verify", ID]).await.code, Some(0), "all of it is there");
    house.write_beside("catalog/mine.toml", "id = \"mine\"\n[source]\nfile = \"/mine.gguf\"\n");
    assert_eq!(house.run(&["model", "rm", ID]).await.code, Some(0));
}

/// A pool that says of itself, one after the other, what is in `views`, and takes what it is told.
fn pool_that_says(house: &House, views: Vec<serde_json::Value>) -> tokio::task::JoinHandle<Vec<String>> {
    let socket = house.control_socket();
    fs::create_dir_all(socket.parent().expect("a folder")).expect("made");
    let listener = UnixListener::bind(socket).expect("bound");
    tokio::spawn(async move {
        let (mut asked, mut views) = (Vec::new(), views.into_iter());
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            assert_ne!(stream.read_line(&mut line).await.expect("a request"), 0, "whoever connects asks");
            let is_question = line.starts_with("GET ");
            asked.push(line.trim_end().to_owned());
            let mut n_left = 0;
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).await.expect("its head");
                let head = line.to_ascii_lowercase();
                let length = head.strip_prefix("content-length:").map(|length| length.trim().parse());
                n_left = length.map_or(n_left, |length| length.expect("a number"));
            }
            stream.read_exact(&mut vec![0; n_left]).await.expect("its body");
            let body =
                if is_question { views.next().expect("no more questions") } else { json!({ "reset": [] }) }.to_string();
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.expect("sent");
            if is_question && views.len() == 0 {
                break;
            }
        }
        asked
    })
}

#[tokio::test]
async fn a_start_between_the_question_and_the_removal_is_seen_and_the_folder_put_back() {
    let hub = hub().await;
    let house = house_at(&hub);
    assert_eq!(pull(&house, "").await.code, Some(0));
    let view = |engines: serde_json::Value| json!({ "pool": { "budgetBytes": null, "committedBytes": 0 }, "engines": engines });
    let starting = json!([{ "key": format!("llama-server:{ID}:0"), "phase": "starting" }]);
    let pool = pool_that_says(&house, vec![view(json!([])), view(starting)]);
    let refused = house.run(&["model", "rm", ID]).await;
    assert!(said(&refused, 9).contains("is in use"), "{refused:?}");
    let asked = pool.await.expect("no panic");
    let methods: Vec<_> = asked.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(methods, ["GET", "POST", "GET"], "the pool takes a turn between the questions");
    assert_eq!(house.run(&["model", "verify", ID]).await.code, Some(0), "it is where it was");
}
