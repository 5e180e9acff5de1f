//! Addresses and directories that cannot be used. Root may write everywhere, so nothing here relies on modes.
use crate::support::assert_serves;
use motorpool_testkit::Behaviour;
use motorpool_tests::e2e::House;

#[tokio::test]
async fn a_second_daemon_on_one_state_directory_names_the_first_and_leaves_it_alone() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let second = house.run(&["serve"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (Some(9), ""), "{second:?}");
    let pid = daemon.pid().to_string();
    assert!(second.stderr.contains(&pid) && second.stderr.contains("--state-dir"), "{}", second.stderr);
    assert_serves(&daemon, "a").await;
    assert_eq!(daemon.cli(&["ps"]).await.code, Some(0), "the control socket is still the first one's");
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_daemon_a_command_says_so() {
    let house = House::new();
    house.write_config();
    let outcome = house.run(&["ps"]).await;
    assert_eq!(outcome.code, Some(8), "{outcome:?}");
    assert!(outcome.stderr.contains("motorpool up"), "{}", outcome.stderr);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let mut house = House::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    house.set("server.listen", vec![address.as_str()]);
    house.write_config();
    let outcome = house.start_in_vain().await;
    assert_eq!(outcome.code, Some(9), "{outcome:?}");
    assert!(outcome.stderr.contains(&address) && outcome.stderr.contains("listen"), "{}", outcome.stderr);
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_is_named_with_its_cure() {
    let house = House::new();
    house.write_config();
    // A file where the directory should be.
    std::fs::write(house.path("state"), "").expect("written");
    let outcome = house.start_in_vain().await;
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    let state = house.path("state").display().to_string();
    assert!(outcome.stderr.contains(&state) && outcome.stderr.contains("--state-dir"), "{}", outcome.stderr);
    std::fs::remove_file(house.path("state")).expect("ours");

    // A directory where a file should be.
    for name in ["lock", "journal.jsonl"] {
        std::fs::create_dir_all(house.state(name)).expect("made");
        let outcome = house.start_in_vain().await;
        assert_eq!(outcome.code, Some(11), "{outcome:?}");
        assert!(outcome.stderr.contains(&house.state(name).display().to_string()), "{}", outcome.stderr);
        std::fs::remove_dir(house.state(name)).expect("ours");
    }
    house.start().await.stop().await;
}

#[tokio::test]
async fn a_state_directory_on_a_file_system_that_takes_nothing_is_named() {
    let mut house = House::new();
    house.write_config();
    house.use_state(std::path::Path::new("/proc/motorpool"));
    let outcome = house.start_in_vain().await;
    assert_eq!(outcome.code, Some(11), "{outcome:?}");
    assert!(outcome.stderr.contains("/proc/motorpool"), "{}", outcome.stderr);
}

#[tokio::test]
async fn a_path_too_long_for_sockets_is_refused_before_anything_is_made() {
    let mut house = House::new();
    house.write_config();
    let long = house.path(&"x".repeat(100));
    house.use_state(&long);
    let outcome = house.start_in_vain().await;
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.stderr.contains("too long") && outcome.stderr.contains("--state-dir"), "{}", outcome.stderr);
    assert!(!long.exists());
}

#[tokio::test]
async fn a_journal_of_a_newer_program_is_refused_and_left_as_it_is() {
    let house = House::new();
    house.write_config();
    std::fs::create_dir(house.path("state")).expect("made");
    let newer = "{\"v\":9,\"record\":\"next\",\"spawn\":8}\n";
    std::fs::write(house.state("journal.jsonl"), newer).expect("written");
    let outcome = house.start_in_vain().await;
    assert!(!matches!(outcome.code, Some(0) | None), "{outcome:?}");
    assert!(outcome.stderr.contains("journal.jsonl") && outcome.stderr.contains("version 9"), "{}", outcome.stderr);
    assert_eq!(std::fs::read_to_string(house.state("journal.jsonl")).expect("there"), newer);
}
