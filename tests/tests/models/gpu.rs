//! `up` and `engine install` on a machine with a graphics card: what is built, or why nothing is.
use motorpool_tests::e2e::{Cards, House};
use motorpool_vocab::GIB;
use std::{fs, os::unix::fs::PermissionsExt as _};

/// A house with two cards, no engine, and these programs on the search path, which do nothing.
fn house_with(programs: &[&str]) -> House {
    let mut house = House::without_engine();
    let _cards = Cards::put_in(&mut house, [24 * GIB, 16 * GIB], "");
    fs::create_dir_all(house.path("bin")).expect("made");
    for name in programs {
        let path = house.path("bin").join(name);
        fs::write(&path, "").expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    house.set_env("PATH", house.path("bin").to_str().expect("UTF-8"));
    house.write_config();
    house
}

#[tokio::test]
async fn a_card_without_a_toolkit_stops_the_build_and_names_the_package_and_cpu_goes_on() {
    let house = house_with(&["c++", "make", "apt-get"]);
    for command in [&["up", "--yes"][..], &["engine", "install"]] {
        let stopped = house.run(command).await;
        assert_eq!(stopped.code, Some(5), "{stopped:?}");
        assert!(stopped.stderr.contains("there is a graphics card, and NVIDIA's CUDA toolkit (nvcc) is missing"));
        assert!(stopped.stderr.contains("nvidia-cuda-toolkit") && stopped.stderr.contains("--cpu"), "{stopped:?}");
    }
    for command in [&["up", "--yes", "--cpu"][..], &["engine", "install", "--cpu"]] {
        let went_on = house.run(command).await;
        assert!(went_on.stderr.contains("for the processor"), "{went_on:?}");
        assert!(went_on.code == Some(5) && went_on.stderr.contains("there is no python3"), "{went_on:?}");
    }
}

#[tokio::test]
async fn a_toolkit_that_is_here_is_used() {
    let house = house_with(&["c++", "make", "nvcc"]);
    let went_on = house.run(&["up", "--yes"]).await;
    assert!(went_on.stderr.contains("building it for NVIDIA cards (CUDA) takes more than"), "{went_on:?}");
    assert!(went_on.stderr.contains("there is no python3"), "{went_on:?}");
}

#[tokio::test]
async fn an_engine_that_sees_no_card_is_shown_so() {
    let mut house = House::new();
    house.fake("a", &motorpool_testkit::Behaviour::default());
    let cards = Cards::put_in(&mut house, [24 * GIB, 16 * GIB], "engine CUDA\n");
    house.set("defaults.model", "a");
    house.write_config();
    let blind = motorpool_tests::e2e::Daemon::start_as(&house, &["up"], "serving on http://").await;
    assert!(blind.log().contains("(configured)  CPU only (GPU present)"), "{}", blind.log());
    let doctor = blind.cli(&["doctor"]).await;
    assert!(doctor.stdout.contains("CPU only (GPU present)"), "{doctor:?}");
    blind.stop().await;
    cards.set("");
    let seeing = motorpool_tests::e2e::Daemon::start_as(&house, &["up"], "serving on http://").await;
    assert!(!seeing.log().contains("CPU only"), "{}", seeing.log());
    seeing.stop().await;
}
