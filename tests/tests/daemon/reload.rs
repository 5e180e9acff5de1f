//! What a reload changes while requests run, and what it must not: by the route, the command, SIGHUP and watched files.
use crate::{
    support::{Blockade, assert_refused, assert_serves, gate, n_starts, pausing, stream_until, whole_stream},
    systemd::Manager,
};
use motorpool_testkit::{Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, Said, ask, chat},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{fs, io::Write as _};

const RELOAD: &str = "/api/motorpool/v1/reload";

/// The catalog entry of a model as `house` writes it, with these slots and lines.
fn enter(house: &House, model: &FakeModel, (id, slots, lines): (&str, u32, &str)) {
    let file = model.path().display();
    let text = format!(
        "id = \"{id}\"\ncontext = 512\ndeclared = \"600MiB\"\nslots = {slots}\n{lines}\n[source]\nfile = \"{file}\"\n"
    );
    house.write_beside(&format!("catalog/{id}.toml"), &text);
}

/// A house with room for several models.
fn roomy() -> House {
    let mut house = House::new();
    house.set("capacity.budget", "64GiB");
    house
}

/// The report of a reload that must be done.
async fn reload(daemon: &Daemon<'_>) -> Value {
    let answer = daemon.control().post(RELOAD, &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Name, outcome and change of every item that is not unchanged.
fn changed(report: &Value) -> Vec<[String; 3]> {
    let items = report["items"].as_array().expect("items");
    let of = |item: &Value, key: &str| item[key].as_str().expect("a text").to_owned();
    let changed = items.iter().filter(|item| item["outcome"] != "unchanged");
    changed.map(|item| ["name", "outcome", "what"].map(|key| of(item, key))).collect()
}

fn rows(expected: &[[&str; 3]]) -> Vec<[String; 3]> {
    expected.iter().map(|row| row.map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_stream_is_unbroken_while_another_model_changes_and_a_third_is_removed() {
    let mut house = roomy();
    let last = gate(&house, "last");
    let a = house.fake("a", &pausing(20, 10, &last));
    let b = house.fake("b", &pausing(20, 10, &last));
    let c = house.fake("c", &pausing(20, 10, &last));
    let daemon = house.start().await;
    let (on_a, seen_a) = stream_until(&daemon, ("a", "one"), 9).await;
    let (on_b, seen_b) = stream_until(&daemon, ("b", "two"), 9).await;
    let (on_c, seen_c) = stream_until(&daemon, ("c", "three"), 9).await;
    enter(&house, &b, ("b", 3, ""));
    fs::remove_file(house.path("config/catalog/c.toml")).expect("ours");
    let report = reload(&daemon).await;
    assert_eq!(changed(&report), rows(&[["b", "draining", "slots"], ["c", "draining", "removed"]]));
    assert_eq!(report["draining"], json!(["llama-server:b:0", "llama-server:c:0"]));
    let gone = daemon.http().post(CHAT, &ask("c", "hello")).await.expect("an answer");
    assert_refused(&gone, 404, "model_not_found");
    let waits = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &chat("b", "four")).await.expect("an answer") }
    });
    eventually("it waits for the old one", async || {
        daemon.status().await.engine("b").is_some_and(|engine| engine.queue == 1).then_some(())
    })
    .await;
    assert_eq!((n_starts(&a), n_starts(&b), n_starts(&c)), (1, 1, 1), "nothing was cut or begun");
    last.open().expect("ours");
    for (stream, seen) in [(on_a, seen_a), (on_b, seen_b), (on_c, seen_c)] {
        let rest = stream.whole().await.expect("whole");
        let said = Said::read(&(seen + &rest.text()));
        assert!(said.is_done && said.error.is_none(), "{said:?}");
    }
    let answer = waits.await.expect("no panic");
    assert!(Said::read(&answer.text()).is_done, "{}", answer.text());
    daemon.until_quiet().await;
    assert_eq!((n_starts(&a), n_starts(&b), n_starts(&c)), (1, 2, 1));
    eventually("nothing is left of c", async || daemon.status().await.engine("c").is_none().then_some(())).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_shown_with_its_place_and_the_nearest_key() {
    let mut house = roomy();
    let a = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let good = fs::read_to_string(house.path("config/catalog/a.toml")).expect("written");
    // What is right beside it is not taken over either.
    let new = FakeModel::write(&house.path("models"), "new", &Behaviour::default()).expect("written");
    enter(&house, &new, ("new", 2, ""));
    house.write_beside("catalog/a.toml", &format!("slotz = \"hunter2\"\n{good}"));
    let answer = daemon.http().post(RELOAD, &json!({})).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.json()["error"]["code"].as_str()), (400, Some("invalid_configuration")));
    let document = answer.json();
    let place = &document["place"];
    assert_eq!((&place["line"], &place["column"], &place["nearest"]), (&json!(1), &json!(1), &json!("slots")));
    assert!(place["file"].as_str().is_some_and(|file| file.ends_with("catalog/a.toml")), "{document}");
    let message = document["error"]["message"].as_str().expect("a text");
    assert!(message.contains("a.toml:1:1: unknown key `slotz`, did you mean `slots`?"), "{message}");
    let told = daemon.cli(&["reload"]).await;
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(told.stderr.contains("a.toml:1:1") && told.stderr.contains("nothing was changed"), "{told:?}");
    daemon.signal(Signal::SIGHUP);
    eventually("the log tells it as a start would", async || {
        (daemon.log().matches("nothing was reloaded").count() >= 3).then_some(())
    })
    .await;
    let said = [message, &told.stderr, &daemon.log()].concat();
    assert!(!said.contains("hunter2"), "lines of files go nowhere: {said}");
    assert_eq!(daemon.http().post(CHAT, &ask("new", "hello")).await.expect("an answer").status, 404);
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&a), 1);
    house.write_beside("catalog/a.toml", &good);
    assert_eq!(changed(&reload(&daemon).await), rows(&[["new", "live", "added"]]));
    assert_serves(&daemon, "new").await;
    daemon.stop().await;
}

#[tokio::test]
async fn ten_quick_edits_end_with_one_process_per_model_that_is_as_the_last_says() {
    let mut house = roomy();
    let a = house.fake("a", &Behaviour::default());
    let b = house.fake("b", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert_serves(&daemon, "b").await;
    for n in 3..13 {
        enter(&house, &a, ("a", n, ""));
        daemon.signal(Signal::SIGHUP);
        drop(reload(&daemon).await);
        assert_serves(&daemon, "b").await;
    }
    assert_serves(&daemon, "a").await;
    let of_a = daemon.status().await;
    let living: Vec<_> =
        of_a.engines.iter().filter(|engine| engine.pid.is_some()).map(|engine| engine.key.clone()).collect();
    assert_eq!(living, ["llama-server:a:0", "llama-server:b:0"]);
    assert_eq!((n_starts(&a), n_starts(&b)), (2, 1), "it restarts at its next use, and nothing else does");
    let pid = a.starts().pop().expect("started").pid;
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs").replace('\0', " ");
    assert!(line.contains("--parallel 12 "), "{line}");
    daemon.stop().await;
}

#[tokio::test]
async fn live_keys_count_without_a_restart() {
    let mut house = roomy();
    let a = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    enter(&house, &a, ("a", 2, "aliases = [\"other\"]\ntags = [\"t\"]\nparameters = { strip = [\"seed\"] }"));
    let config = house.path("config/motorpool.toml");
    let before = fs::read_to_string(&config).expect("written");
    fs::write(
        &config,
        format!("{before}\n[defaults]\nmodel = \"a\"\n[loading]\ncommit_after = \"3s\"\n[log]\nlevel = \"debug\"\n"),
    )
    .expect("ours");
    let report = changed(&reload(&daemon).await);
    assert!(report.contains(&["a", "live", "aliases, tags, parameters"].map(str::to_owned)), "{report:?}");
    assert!(
        report.contains(&["loading.commit_after", "live", "loading.commit_after"].map(str::to_owned)),
        "{report:?}"
    );
    assert!(report.contains(&["log.level", "live", "log.level"].map(str::to_owned)), "{report:?}");
    for name in ["other", "default"] {
        assert!(Said::read(&whole_stream(&daemon, name, "hello").await).is_done, "{name}");
    }
    assert_eq!(n_starts(&a), 1);
    assert!(changed(&reload(&daemon).await).is_empty(), "it says what it said");
    let told = daemon.cli(&["reload"]).await;
    assert!(told.code == Some(0) && told.stdout.starts_with("nothing changed"), "{told:?}");
    let told = daemon.cli(&["reload", "--json"]).await;
    assert_eq!(told.json()["draining"], json!([]), "{told:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn systemd_is_told_when_a_reload_begins_and_when_it_is_done() {
    let mut house = roomy();
    let manager = Manager::at_path(&mut house);
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    manager.until("READY=1").await;
    for right in [true, false] {
        if !right {
            house.write_beside("catalog/bad.toml", "id = 1\n");
        }
        daemon.signal(Signal::SIGHUP);
        let begun = manager.until("RELOADING=1").await.pop().expect("told");
        let at = begun.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("when");
        assert!(at.parse::<u64>().is_ok_and(|at| at > 0), "{begun}");
        manager.until("READY=1").await;
    }
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn files_that_change_are_reloaded_by_themselves_where_that_is_wanted() {
    let mut house = roomy();
    house.fake("a", &Behaviour::default());
    house.set("server.watch", true);
    let daemon = house.start().await;
    let new = FakeModel::write(&house.path("models"), "new", &Behaviour::default()).expect("written");
    enter(&house, &new, ("new", 2, ""));
    eventually("the new model is served", async || {
        (daemon.http().post(CHAT, &ask("new", "hello")).await.expect("an answer").status == 200).then_some(())
    })
    .await;
    // It watches itself, too: from now on nothing is reloaded by itself.
    let config = house.path("config/motorpool.toml");
    let text = fs::read_to_string(&config).expect("written").replace("watch = true", "watch = false");
    fs::write(&config, text).expect("ours");
    eventually("it is not watched any more", async || daemon.log().contains("server.watch: live").then_some(())).await;
    fs::remove_file(house.path("config/catalog/new.toml")).expect("ours");
    assert_serves(&daemon, "new").await;
    assert_eq!(changed(&reload(&daemon).await), rows(&[["new", "draining", "removed"]]));
    daemon.stop().await;
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure for whoever asks for it")]
async fn of_fifty_models_one_change_touches_one_engine() {
    let mut house = roomy();
    let models: Vec<_> = (0..50).map(|n| house.fake(&format!("m{n}"), &Behaviour::default())).collect();
    let daemon = house.start().await;
    for n in 0..4 {
        assert_serves(&daemon, &format!("m{n}")).await;
    }
    let pids = async || -> Vec<_> { daemon.status().await.engines.iter().filter_map(|engine| engine.pid).collect() };
    let before = pids().await;
    enter(&house, &models[2], ("m2", 3, ""));
    let begun = std::time::Instant::now();
    let report = reload(&daemon).await;
    println!("a reload of 50 models with one change: {:?}", begun.elapsed());
    assert_eq!(changed(&report), rows(&[["m2", "draining", "slots"]]));
    assert_eq!(report["draining"], json!(["llama-server:m2:0"]));
    assert_serves(&daemon, "m2").await;
    let after = pids().await;
    assert_eq!(before.iter().filter(|pid| after.contains(pid)).count(), 3, "engines restarted: 1");
    let starts: Vec<_> = models[..5].iter().map(n_starts).collect();
    assert_eq!(starts, [1, 1, 2, 1, 0]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_reload_is_done_to_its_end_also_when_whoever_asked_for_it_is_gone() {
    let mut house = roomy();
    let a = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let text = fs::read_to_string(house.path("config/motorpool.toml")).expect("written");
    let blockade = Blockade::of_configuration(&house);
    let (control, http) = (daemon.control(), daemon.http());
    let asked = tokio::spawn(async move { control.post(RELOAD, &json!({})).await });
    let mut reads = blockade.caught().await;
    asked.abort();
    assert!(asked.await.is_err_and(|why| why.is_cancelled()));
    // Its connection is gone, and the daemon has had time to see it.
    assert_serves(&daemon, "a").await;
    enter(&house, &a, ("a", 2, "aliases = [\"other\"]\n"));
    reads.write_all(text.as_bytes()).expect("it reads");
    drop(reads);
    eventually("everybody goes by the new files", async || {
        (http.post(CHAT, &chat("other", "hello")).await.expect("an answer").status == 200).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn systemd_hears_nothing_of_a_reload_after_it_heard_that_we_stop() {
    let mut house = roomy();
    let manager = Manager::at_path(&mut house);
    let last = gate(&house, "last");
    house.fake("a", &pausing(20, 10, &last));
    let daemon = house.start().await;
    manager.until("READY=1").await;
    let (stream, _) = stream_until(&daemon, ("a", "one"), 9).await;
    let blockade = Blockade::of_configuration(&house);
    daemon.signal(Signal::SIGHUP);
    manager.until("RELOADING=1").await;
    let mut reads = blockade.caught().await;
    daemon.signal(Signal::SIGTERM);
    manager.until("STOPPING=1").await;
    let refused = daemon.control().post(RELOAD, &json!({})).await.expect("an answer");
    assert_refused(&refused, 503, "shutting_down");
    reads.write_all(b"[server]\nlisen = []\n").expect("it reads");
    drop(reads);
    eventually("it came to nothing", async || daemon.log().contains("nothing was reloaded").then_some(())).await;
    last.open().expect("ours");
    assert!(Said::read(&stream.whole().await.expect("whole").text()).is_done);
    daemon.stop().await;
    let rest = manager.rest().await;
    assert!(!rest.iter().any(|text| text.contains("READY=1") || text.contains("RELOADING=1")), "{rest:?}");
}

/// Says something else in the configuration of a daemon that runs.
fn edit(house: &House, from: &str, to: &str) {
    let path = house.path("config/motorpool.toml");
    let text = fs::read_to_string(&path).expect("written");
    assert!(text.contains(from), "{from} in {text}");
    fs::write(path, text.replace(from, to)).expect("ours");
}

#[tokio::test]
async fn a_budget_counts_at_once_stops_nothing_and_what_is_over_it_is_told() {
    let mut house = House::new();
    let last = gate(&house, "last");
    house.set("capacity.budget", "2GiB");
    let a = house.fake_with("a", &pausing(20, 10, &last), "declared = \"1536MiB\"\nslots = 2\n");
    let b = house.fake_with("b", &Behaviour::default(), "declared = \"1536MiB\"\n");
    let daemon = house.start().await;
    let (on_a, seen) = stream_until(&daemon, ("a", "one"), 9).await;

    edit(&house, "budget = \"2GiB\"", "budget = \"1GiB\"");
    let report = reload(&daemon).await;
    let [[name, outcome, what]] = &changed(&report)[..] else { panic!("one item: {report:#}") };
    assert_eq!([name, outcome], ["capacity.budget", "live"]);
    assert!(what.contains("1.5 GiB is reserved of 1.0 GiB: nothing is started until it fits"), "{what}");
    let denied = daemon.http().post(CHAT, &ask("b", "hello")).await.expect("an answer");
    assert_refused(&denied, 503, "capacity_denied");
    assert_eq!((n_starts(&a), n_starts(&b)), (1, 0));

    edit(&house, "budget = \"1GiB\"", "budget = \"4GiB\"");
    assert_eq!(changed(&reload(&daemon).await), rows(&[["capacity.budget", "live", "capacity.budget"]]));
    assert_serves(&daemon, "b").await;
    last.open().expect("ours");
    let said = Said::read(&(seen + &on_a.whole().await.expect("whole").text()));
    assert!(said.is_done && said.error.is_none(), "{said:?}");
    assert_eq!((n_starts(&a), n_starts(&b)), (1, 1), "there is room for both");
    daemon.stop().await;
}

#[tokio::test]
async fn the_level_of_the_log_counts_at_once_and_its_form_at_the_next_start() {
    let mut house = roomy();
    house.fake("a", &Behaviour::default());
    house.set("log.level", "info");
    house.set("log.format", "text");
    let daemon = house.start().await;
    let served = || daemon.log().matches("a request was served").count();
    assert_serves(&daemon, "a").await;
    daemon.until_quiet().await;
    assert_eq!(served(), 0, "it is a detail: {}", daemon.log());
    edit(&house, "\"info\"", "\"debug\"");
    edit(&house, "\"text\"", "\"json\"");
    let expected = [["log.format", "at the next start", "log.format"], ["log.level", "live", "log.level"]];
    assert_eq!(changed(&reload(&daemon).await), rows(&expected));
    assert_serves(&daemon, "a").await;
    eventually("it is written", async || (served() == 1).then_some(())).await;
    edit(&house, "\"debug\"", "\"error\"");
    drop(reload(&daemon).await);
    assert_serves(&daemon, "a").await;
    daemon.until_quiet().await;
    assert_eq!(served(), 1, "{}", daemon.log());
    daemon.stop().await;
}
