//! What a long life leaves behind in the daemon: nothing.
use motorpool_testkit::{Behaviour, Bind, End, Exit, Moment, eventually};
use motorpool_tests::e2e::{
    Daemon, House, journal,
    processes::{left_of, n_descriptors, zombies_of},
};
use serde_json::{Value, json};

const N: usize = 200;
/// So many starts of each kind before the baseline: every pool and cache has what it keeps.
const WARM_UP: usize = 10;

async fn load(daemon: &Daemon<'_>, model: &str) -> (u16, Value) {
    let answer = daemon.control().post(&format!("/api/motorpool/v1/models/{model}/load"), &json!({})).await;
    let answer = answer.expect("an answer");
    (answer.status.as_u16(), answer.json())
}

/// One start and its end: every fourth fails, each time in another way.
async fn cycle(daemon: &Daemon<'_>, n: usize) {
    let model = match n % 12 {
        3 => "exits",
        7 => "cannot-bind",
        11 => "aborts",
        _ => "works",
    };
    let (status, document) = load(daemon, model).await;
    if model == "works" {
        assert_eq!(status, 200, "{document}\n{}", daemon.log());
        let path = format!("/api/motorpool/v1/models/{model}/unload");
        let answer = daemon.control().post(&path, &json!({})).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    } else {
        assert_eq!((status, &document["error"]["code"]), (502, &json!("engine_start_failed")), "{model}: {document}");
    }
}

#[tokio::test]
async fn after_two_hundred_starts_and_stops_no_descriptor_no_zombie_and_no_process_is_left_of_them() {
    let mut house = House::new();
    // What fails so often would be given up for a while.
    house.set("breaker.failures", 0);
    let exit =
        |at, how| Behaviour { exit: Some(Exit { at, how, log: vec![], first_starts: None }), ..Behaviour::default() };
    house.fake("works", &Behaviour::default());
    house.fake("exits", &exit(Moment::Loading, End::Code(1)));
    house.fake("aborts", &exit(Moment::Start, End::Signal("SIGABRT".into())));
    house.fake("cannot-bind", &Behaviour { bind: Bind::Refused, ..Behaviour::default() });
    let daemon = house.start().await;
    for n in 0..WARM_UP + 2 {
        cycle(&daemon, n).await;
    }
    // One connection of ours more or less is all that may differ.
    let at_rest = async || {
        daemon.until_quiet().await;
        n_descriptors(daemon.pid())
    };
    let before = at_rest().await;
    for n in 0..N {
        cycle(&daemon, n).await;
    }
    eventually(&format!("{before} descriptors"), async || (at_rest().await <= before).then_some(())).await;
    assert_eq!(zombies_of(daemon.pid()), []);
    assert_eq!(left_of(&house, Some(daemon.pid())), []);
    // Who cannot bind is started thrice more.
    let n_starts = N + WARM_UP + 2 + 3 * (0..WARM_UP + 2).chain(0..N).filter(|n| n % 12 == 7).count();
    let path = house.state("journal.jsonl");
    assert_eq!(journal::count(&path, "intent"), n_starts, "{}", daemon.log());
    assert_eq!(journal::count(&path, "gone"), n_starts);
    daemon.stop().await;
}
