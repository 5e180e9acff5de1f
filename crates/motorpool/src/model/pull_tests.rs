use super::*;
use crate::settings::Settings;
use std::fs;

fn dirs(top: &Path) -> Dirs {
    Dirs { data: top.join("data"), state: top.join("state"), run: top.join("run"), config: top.join("config") }
}

fn catalog(dirs: &Dirs) -> std::sync::Arc<Catalog> {
    Settings::load(dirs, None).expect("the shipped catalog").catalog
}

async fn pull_file(dirs: &Dirs, path: &Path) -> Result<Pulled, ModelError> {
    let catalog = catalog(dirs);
    let wanted = Wanted::file(path, (&Store::new(dirs), &catalog))?;
    pull(dirs, &catalog, wanted).await
}

#[test]
fn names_addresses_and_paths_are_told_apart() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let (store, catalog) = (Store::new(&dirs), catalog(&dirs));
    let parse = |text: &str| Wanted::parse(text, (&store, &catalog));
    assert!(matches!(parse("default"), Ok(Wanted::Known(model)) if model.id.as_str() == "gemma3-270m"));
    assert!(
        matches!(parse("https://h/a/My%20Model.gguf?x"), Ok(Wanted::Url { id, .. }) if id.as_str() == "My_20Model")
    );
    assert!(matches!(parse("hf:org/repo:Q4_K_M"), Ok(Wanted::Hub(reference)) if reference.repo == "org/repo"));
    assert!(matches!(parse("hf:org"), Err(ModelError::Hub(HubError::Reference(_)))));
    assert!(matches!(parse("pypi:x"), Err(ModelError::Packages(_))));
    assert!(matches!(parse("pypi:x==1"), Ok(Wanted::Packages(packages)) if packages.id().as_str() == "x"));
    assert!(matches!(parse("gemma"), Err(ModelError::Unknown(_))));
    assert!(matches!(parse("/no/such.gguf"), Err(ModelError::NoFile(_))));
    let path = top.path().join("a b:c.gguf");
    fs::write(&path, "x").expect("written");
    let text = format!("file:{}", path.display());
    assert!(matches!(parse(&text), Ok(Wanted::File { id, .. }) if id.as_str() == "a-b-c"));
}

#[tokio::test]
async fn a_file_of_the_user_is_checked_entered_and_left_where_it_is() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let path = top.path().join("mine \"x\".gguf");
    fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
    let pulled = pull_file(&dirs, &path).await.expect("adopted");
    assert_eq!(pulled.first.file, path.canonicalize().expect("there"));
    let catalog = catalog(&dirs);
    let model = catalog.resolve(&pulled.id).expect("entered");
    assert_eq!(model.source, ModelSource::File(pulled.first.file.clone()));
    assert_eq!(pull_file(&dirs, &path).await.expect("adopted again").id, pulled.id);
}

#[tokio::test]
async fn what_is_no_model_is_refused_and_leaves_nothing() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let path = top.path().join("bad.gguf");
    fs::write(&path, "GGUF but no more").expect("written");
    assert!(matches!(pull_file(&dirs, &path).await, Err(ModelError::Gguf { .. })));
    assert!(catalog(&dirs).resolve("bad").is_err());
    assert_eq!(fs::read_dir(dirs.data.join("models")).expect("there").count(), 0);
}

#[tokio::test]
async fn a_name_keeps_its_meaning_while_its_file_is_there() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let file = |path: &str| {
        let path = top.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
        path
    };
    let (first, second) = (file("a/m.gguf"), file("b/m.gguf"));
    for (path, id) in [(&first, "m"), (&second, "m-2"), (&first, "m"), (&second, "m-2")] {
        assert_eq!(pull_file(&dirs, path).await.expect("adopted").id, id);
    }
    assert_eq!(pull_file(&dirs, &file("gemma3-270m.gguf")).await.expect("adopted").id, "gemma3-270m-2");
    let (store, catalog) = (Store::new(&dirs), catalog(&dirs));
    let url = || Wanted::parse("https://h/m.gguf", (&store, &catalog)).expect("an address");
    let refused = pull(&dirs, &catalog, url()).await.expect_err("the name is taken");
    assert_eq!(refused.to_string(), format!("the name `m` belongs to {}", first.display()));
    let moved = top.path().join("m.gguf");
    fs::rename(&first, &moved).expect("moved");
    let pulled = pull_file(&dirs, &moved).await.expect("adopted");
    assert_eq!((pulled.id.as_str(), pulled.first.file), ("m", moved.canonicalize().expect("there")));
}

#[tokio::test]
async fn the_file_of_a_shipped_model_is_that_model() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let catalog = catalog(&dirs);
    let file = Store::new(&dirs).path_of(catalog.resolve("default").expect("shipped"));
    fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    fs::write(&file, "x").expect("written");
    let link = top.path().join("link.gguf");
    std::os::unix::fs::symlink(&file, &link).expect("made");
    let wanted = Wanted::file(&link, (&Store::new(&dirs), &catalog));
    assert!(matches!(wanted, Ok(Wanted::Known(model)) if model.id.as_str() == "gemma3-270m"));
}

#[tokio::test]
async fn a_whole_file_whose_record_was_lost_is_recognised() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let whole = top.path().join("whole");
    fs::write(&whole, motorpool_gguf::write::smoke_model()).expect("written");
    let sha256 = Sum::of_file(&whole, |_| {}).expect("read").to_string();
    let source = ModelSource::Https { url: "https://nowhere.invalid/m.gguf".into(), sha256 };
    let model = Model::new(ModelId::new("m").expect("an id"), "llama-server", source);
    let store = Store::new(&dirs);
    fs::create_dir_all(store.home(&model.id)).expect("made");
    fs::rename(&whole, store.path_of(&model)).expect("moved");
    let pulled = pull(&dirs, &catalog(&dirs), Wanted::Known(Box::new(model.clone()))).await.expect("not fetched");
    assert_eq!((store.record(&model.id), store.presence(&model)), (Some(pulled), store::Presence::Ready));
}

#[tokio::test]
async fn a_pull_that_waits_for_another_keeps_nobody_else_waiting() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let path = top.path().join("m.gguf");
    fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
    let first = Work::begin(&dirs, ModelId::new("m").expect("an id"), path.clone()).expect("begun");
    let catalog = catalog(&dirs);
    let wanted = Wanted::file(&path, (&Store::new(&dirs), &catalog)).expect("a file");
    let mut second = std::pin::pin!(pull_apart((dirs.clone(), catalog), wanted));
    tokio::select! {
        biased;
        _ = second.as_mut() => panic!("one at a time"),
        () = std::future::ready(()) => drop(first),
    }
    assert_eq!(second.await, Ok(()));
    assert!(Store::new(&dirs).record(&ModelId::new("m").expect("an id")).is_some());
}

#[tokio::test]
async fn a_star_in_the_alias_of_another_model_takes_no_name() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let entry = "id = \"any\"\naliases = [\"*\"]\nsource = { file = \"/any.gguf\" }\n";
    fs::create_dir_all(dirs.config.join("catalog")).expect("made");
    fs::write(dirs.config.join("catalog/any.toml"), entry).expect("written");
    for (folder, id) in [("a", "m"), ("b", "m-2")] {
        let path = top.path().join(folder).join("m.gguf");
        fs::create_dir(top.path().join(folder)).expect("made");
        fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
        let catalog = catalog(&dirs);
        let wanted = Wanted::parse(path.to_str().expect("UTF-8"), (&Store::new(&dirs), &catalog)).expect("a file");
        assert!(matches!(&wanted, Wanted::File { .. }), "{wanted:?}");
        assert_eq!(pull(&dirs, &catalog, wanted).await.expect("adopted").id, id);
    }
    let catalog = catalog(&dirs);
    let holder = |id: &str| holder_of(&ModelId::new(id).expect("an id"), (&Store::new(&dirs), &catalog));
    assert_eq!((holder("other"), holder("any")), (None, Some("/any.gguf".into())));
}

#[test]
fn a_file_of_the_same_name_in_another_folder_of_a_repository_is_another_model() {
    let source = "hf:o/r@0abc:a/m-Q4_0.gguf";
    assert!(came_of(source, ("o/r", "a/m-Q4_0.gguf")));
    for other in [("o/r", "b/m-Q4_0.gguf"), ("o/r", "m-Q4_0.gguf"), ("o/s", "a/m-Q4_0.gguf")] {
        assert!(!came_of(source, other), "{other:?}");
    }
    assert!(!came_of("file:/m.gguf", ("o/r", "m.gguf")));
}

#[test]
fn a_file_with_another_hash_is_not_kept() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let dirs = dirs(top.path());
    let id = ModelId::new("m").expect("an id");
    let file = Store::new(&dirs).home(&id).join("m.gguf");
    let work = Work::begin(&dirs, id, file.clone()).expect("begun");
    fs::write(work.partial(), motorpool_gguf::write::smoke_model()).expect("written");
    assert!(matches!(work.finish("x", Sum::parse(&"0".repeat(64))), Err(ModelError::Hash { .. })));
    assert!(!work.partial().exists() && !file.exists());
    fs::write(work.partial(), motorpool_gguf::write::smoke_model()).expect("written");
    let pulled = work.finish("x", None).expect("a model");
    assert_eq!(work.already(), Some(pulled));
}
