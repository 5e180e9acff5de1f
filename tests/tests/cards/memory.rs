//! Memory that comes back late, or that somebody else took: who waits, who goes, who is told what.
use crate::support::{assert_serves, model, taking, until_card};
use motorpool_testkit::{eventually, servers::FakeOllama};
use motorpool_tests::e2e::{
    Daemon, House, Outcome,
    cards::{CARDS, Cards},
    talk::{CHAT, chat},
};
use motorpool_vocab::{GIB, MIB};

/// One card that counts.
const TOTALS: [u64; 2] = [24 * GIB, 64 * MIB];
/// Memory comes back when the test says so.
const NEVER: &str = "lag-ms 3600000\n";
const DENIED: &str = "capacity broker denied";

/// Two models of which the card holds one.
fn two(house: &mut House) {
    for id in ["a", "b"] {
        model(house, id, 20 << 10);
    }
}

/// The engine of `model` has gone for room, and nothing of it runs any more.
async fn until_gone(daemon: &Daemon<'_>, model: &str) {
    let what = format!("llama-server:{model}:0");
    eventually(&format!("{model} is gone"), async || {
        daemon.log().lines().any(|line| line.contains("] exit {") && line.contains(&what)).then_some(())
    })
    .await;
}

fn assert_done(outcome: &Outcome, daemon: &Daemon<'_>) {
    assert_eq!(outcome.code, Some(0), "{outcome:?}\n{}", daemon.log());
}

#[tokio::test]
async fn memory_that_is_back_at_once_is_given_out_at_once() {
    let mut house = House::new();
    two(&mut house);
    let _cards = Cards::put_in(&mut house, TOTALS, "lag-ms 0\n");
    let daemon = house.start().await;
    for id in ["a", "b", "a"] {
        assert_done(&daemon.cli(&["load", id]).await, &daemon);
    }
    assert!(!daemon.log().contains(DENIED), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn memory_that_comes_back_late_is_waited_for_and_nobody_is_denied() {
    let mut house = House::new();
    two(&mut house);
    let cards = Cards::put_in(&mut house, TOTALS, NEVER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let is_grant = |line: &str| line.contains(" reserved ") && line.contains("llama-server:b:0");
    assert_loads_once_it_is_back(&daemon, &cards, until_gone(&daemon, "a"), is_grant).await;
    daemon.stop().await;
}

/// `b` waits until `a` is `gone` and its driver agrees that the memory is back; no line of the log is `too_early` till then.
async fn assert_loads_once_it_is_back(
    daemon: &Daemon<'_>,
    cards: &Cards,
    gone: impl Future<Output = ()>,
    too_early: impl Fn(&str) -> bool,
) {
    let release = async {
        gone.await;
        cards.after_a_look(NEVER).await;
        let log = daemon.log();
        assert!(!log.contains(DENIED) && !log.lines().any(too_early), "before the driver agrees: {log}");
        cards.set("lag-ms 0\n");
    };
    let (loaded, ()) = tokio::join!(daemon.cli(&["load", "b"]), release);
    assert_done(&loaded, daemon);
    assert!(!daemon.log().contains(DENIED), "{}", daemon.log());
}

/// The driver is late, and nobody lives any more who would have waited for it.
#[tokio::test]
async fn what_a_killed_supervisors_engines_held_is_waited_for_and_nobody_is_denied() {
    let mut house = House::new();
    two(&mut house);
    house.set("capacity.reclaim_within", "10m");
    let cards = Cards::put_in(&mut house, TOTALS, NEVER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.kill().await;
    let daemon = house.start().await;
    // Nothing is admitted before, nor refused.
    assert_loads_once_it_is_back(&daemon, &cards, async {}, |line| line.contains("llama-server:b:0")).await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_killed_supervisors_engines_held_and_does_not_come_back_in_time_is_somebody_elses() {
    let mut house = House::new();
    two(&mut house);
    house.set("capacity.reclaim_within", "1s");
    let cards = Cards::put_in(&mut house, TOTALS, NEVER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.kill().await;
    let daemon = house.start().await;
    until_card(&daemon, CARDS[0], |card| card.foreign_bytes == Some(20 * GIB)).await;
    let told = "what engines of an earlier run held is not back";
    assert!(daemon.log().contains(told) && daemon.log().contains(CARDS[0]), "{}", daemon.log());
    cards.set("lag-ms 0\n");
    until_card(&daemon, CARDS[0], |card| card.foreign_bytes == Some(0)).await;
    assert_done(&daemon.cli(&["load", "b"]).await, &daemon);
    daemon.stop().await;
}

#[tokio::test]
async fn memory_that_does_not_come_back_in_time_is_told_and_given_out_once_it_has() {
    let mut house = House::new();
    two(&mut house);
    let cards = Cards::put_in(&mut house, TOTALS, NEVER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let denied = daemon.cli(&["load", "b"]).await;
    assert_eq!(denied.code, Some(10), "{denied:?}\n{}", daemon.log());
    assert!(daemon.log().contains(DENIED), "{}", daemon.log());
    until_card(&daemon, CARDS[0], |card| card.foreign_bytes == Some(20 * GIB)).await;
    cards.set("lag-ms 0\n");
    until_card(&daemon, CARDS[0], |card| card.foreign_bytes == Some(0)).await;
    assert_done(&daemon.cli(&["load", "b"]).await, &daemon);
    daemon.stop().await;
}

#[tokio::test]
async fn somebody_elses_use_costs_an_idle_engine_its_place_and_no_request_its_answer() {
    let mut house = House::new();
    model(&mut house, "idle", 10 << 10);
    model(&mut house, "next", 12 << 10);
    let mut cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    assert_serves(&daemon, "idle").await;
    daemon.until_quiet().await;
    // Whether this was seen before is all one: it is looked at again before a start.
    cards.set_used(CARDS[0], 8 * GIB, &tenant(8 * GIB));
    assert_serves(&daemon, "next").await;
    until_gone(&daemon, "idle").await;
    assert!(!daemon.log().contains(DENIED), "{}", daemon.log());
    daemon.stop().await;
}

/// A child of this test's own process.
struct Child(std::process::Child);

impl Child {
    fn start() -> Self {
        // It reads what never comes.
        let mut command = std::process::Command::new("cat");
        Self(command.stdin(std::process::Stdio::piped()).spawn().expect("it starts"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test's own process holds memory of the card.
fn tenant(bytes: u64) -> String {
    format!("process uuid={} pid={} bytes={bytes}\n", CARDS[0], std::process::id())
}

#[tokio::test]
async fn who_else_holds_the_memory_is_named_to_whoever_is_denied_for_it() {
    let mut house = House::new();
    // Where that is seen before the start, it would go to system memory.
    house.fake_with("next", &taking(12 << 10), "declared = \"12288MiB\"\ngpu_layers = 99\n");
    let mut cards = Cards::put_in(&mut house, TOTALS, "");
    // This process listens where the configuration has a model server, and a child of it holds memory too.
    let server = FakeOllama::open(&["x:latest"]).await.expect("a free port");
    let child = Child::start();
    let url = format!("http://127.0.0.1:{}", server.port());
    let keys = [("id", "desk"), ("kind", "ollama"), ("url", &url)];
    house.add("external", keys.map(|(key, value)| (key, value.into())));
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("desk/x:latest", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let held = format!("{}process uuid={} pid={} bytes={}\n", tenant(14 * GIB), CARDS[0], child.0.id(), 6 * GIB);
    cards.set_used(CARDS[0], 20 * GIB, &held);
    until_card(&daemon, CARDS[0], |card| card.foreign_bytes == Some(20 * GIB)).await;
    let idle = async || {
        let status = daemon.cli(&["residency", "--json"]).await.json();
        (status["targets"][0]["residents"][0]["inUse"] == false).then_some(())
    };
    eventually("what is ours there is idle", idle).await;
    let denied = daemon.cli(&["load", "next"]).await;
    assert_eq!(denied.code, Some(10), "{denied:?}\n{}", daemon.log());
    let who = format!("external server desk (process {})", std::process::id());
    assert!(denied.stderr.contains(&format!("{who} uses 20.0 GiB")), "{denied:?}");
    let explained = daemon.cli(&["explain", "next"]).await;
    for outcome in [&denied, &explained] {
        assert!(outcome.stderr.contains("ours: desk/x:latest"), "{outcome:?}");
    }
    let log = daemon.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(DENIED)).collect();
    assert!(matches!(lines[..], [line] if line.contains("budget exhausted: would commit ")), "{lines:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn who_takes_the_memory_while_it_is_waited_for_is_not_waited_for() {
    let mut house = House::new();
    two(&mut house);
    let mut cards = Cards::put_in(&mut house, TOTALS, NEVER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let take = async {
        until_gone(&daemon, "a").await;
        cards.set_used(CARDS[0], 12 * GIB, &format!("{}lag-ms 0\n", tenant(12 * GIB)));
    };
    let (denied, ()) = tokio::join!(daemon.cli(&["load", "b"]), take);
    assert_eq!(denied.code, Some(10), "{denied:?}\n{}", daemon.log());
    assert!(denied.stderr.contains(&format!("process {}", std::process::id())), "{denied:?}");
    until_card(&daemon, CARDS[0], |seen| (seen.foreign_bytes, seen.committed_bytes) == (Some(12 * GIB), 0)).await;
    daemon.stop().await;
}
