//! A program of somebody else's that embeds the pool: what it says in its own types is what `[[external]]` and
//! `[[protect]]` say in a file.
use motorpool::{catalog, external::residency::Protection, servers};
use motorpool_testkit::servers::FakeOllama;
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

type News = Arc<Mutex<Vec<motorpool::external::News>>>;

fn home(port: u16) -> catalog::External {
    let url = format!("http://localhost:{port}").parse().expect("an address");
    let keep_alive = Some(catalog::KeptFor::Time(std::time::Duration::from_mins(7)));
    catalog::External { keep_alive, ..catalog::External::new("home", catalog::ExternalKind::Ollama, url) }
}

fn open(folder: &Path, all: &[catalog::External], news: &News) -> Result<servers::Servers, servers::ServersError> {
    let protect =
        catalog::Protect { model: "a".into(), role: catalog::ProtectRole::Memory, target: Some("home".into()) };
    let place = servers::Place { run: folder.join("run"), journal: Some(folder.join("external.jsonl")) };
    let told = Arc::clone(news);
    servers::Servers::open((all, &[protect]), place, Arc::new(move |one| told.lock().expect("no panic").push(one)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_embeds_the_pool_is_a_guest_by_its_own_types() {
    let (folder, server) = (tempfile::tempdir().expect("a directory"), FakeOllama::open(&["a"]).await.expect("a port"));
    let news = News::default();
    let servers = open(folder.path(), &[home(server.port())], &news).expect("open");
    assert_eq!(servers.outside().len(), 1, "the gateway serves it");
    let guests = servers.guests();
    let guest = guests.get("home").expect("configured");
    drop(guest.prepare("a").await.expect("it loads"));
    assert_eq!(server.residents(), [("a:latest".to_owned(), 420)]);
    let view = guest.look().await.expect("it answers");
    assert!(matches!(view.residents[0].protection, Protection::Config(_)), "{view:?}");
    assert!(!news.lock().expect("no panic").is_empty(), "the program is told");
    assert!(fs::read_to_string(folder.path().join("external.jsonl")).expect("a journal").contains("a:latest"));
    servers.quiet().await;
    servers.leave().await;
    assert!(server.residents().is_empty());
}

#[tokio::test]
async fn what_a_file_could_not_say_a_program_cannot_either() {
    let folder = tempfile::tempdir().expect("a directory");
    let twice = open(folder.path(), &[home(1), home(2)], &News::default()).expect_err("two of one name");
    assert!(matches!(&twice, servers::ServersError::Twice(id) if id == "home"), "{twice}");
    let url = "http://169.254.169.254".parse().expect("an address");
    let metadata = catalog::External::new("cloud", catalog::ExternalKind::Ollama, url);
    let refused = open(folder.path(), &[metadata], &News::default()).expect_err("no model server is there");
    assert!(matches!(refused, servers::ServersError::Open(_)), "{refused}");
}
