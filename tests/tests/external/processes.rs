//! Real processes of ours on one router: they compete for its one place, are killed, and report what they loaded.
//!
//! A test that needs another process starts itself again, with a part to play in its environment.
use crate::{
    fakes::chat,
    support::{Visit, target_at},
};
use motorpool_external::{Refusal, Report};
use motorpool_residency::{Adoption, Decline};
use motorpool_testkit::eventually;
use motorpool_tests::e2e::Router;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const PORT: &str = "MOTORPOOL_TEST_PORT";
const FOLDER: &str = "MOTORPOOL_TEST_FOLDER";
const MODEL: &str = "MOTORPOOL_TEST_MODEL";

/// Killed when it is dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Other {
    /// This program again, in the test called `name`, which finds its part by [`part`].
    fn start(name: &str, router: &Router, (folder, model): (&Path, &str)) -> Self {
        let mut command = Command::new(env::current_exe().expect("a running test has a path"));
        command.args(["--exact", name, "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
        command.env(PORT, router.port().to_string()).env(FOLDER, folder).env(MODEL, model);
        Self(command.spawn().expect("it starts"))
    }
}

/// What this process is to do, when another one started it.
fn part() -> Option<(Visit, PathBuf, String)> {
    let folder = PathBuf::from(env::var_os(FOLDER)?);
    let port = env::var(PORT).ok()?.parse().ok()?;
    // The lock is everybody's; the journal is in the folder of each.
    let run = folder.parent()?.to_owned();
    Some((Visit::below_both(&run, &folder, vec![target_at(port, &[])]), folder, env::var(MODEL).ok()?))
}

fn folder(router: &Router, name: &str) -> PathBuf {
    let folder = router.folder().join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// One request for `model`, however often it is declined for the other's sake; its status.
async fn request(visit: &Visit, model: &str) -> u16 {
    loop {
        match visit.guest.prepare(model).await {
            Ok(mut stay) => {
                let status = chat(&mut stay).await.map_or(0, |(status, _)| status);
                drop(stay);
                visit.guest.release(model).await.expect("ours and idle");
                return status;
            }
            Err(Refusal::Declined(Decline::Full { .. }) | Refusal::Lock(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(_) => return 0,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_one_place_and_no_request_is_lost() {
    if let Some((visit, folder, model)) = part() {
        let mut served = 0;
        for _ in 0..3 {
            served += usize::from(request(&visit, &model).await == 200);
        }
        fs::write(folder.join("served"), served.to_string()).expect("written");
        return;
    }
    let house = Router::open(1).await;
    let name = "processes::two_processes_share_one_place_and_no_request_is_lost";
    let folders = ["a", "b"].map(|model| folder(&house, model));
    let _others = ["a", "b"].map(|model| Other::start(name, &house, (&house.folder().join(model), model)));
    for folder in folders {
        let served = async || fs::read_to_string(folder.join("served")).ok().filter(|text| !text.is_empty());
        assert_eq!(eventually("it is done", served).await, "3");
    }
    assert!(house.residents().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_loaded_is_taken_over_by_the_next_start_and_given_back() {
    if let Some((visit, folder, model)) = part() {
        let _stay = visit.guest.prepare(&model).await.expect("it fits");
        fs::write(folder.join("ready"), "").expect("written");
        std::future::pending::<()>().await;
    }
    let house = Router::open(2).await;
    house.load_by_others("b").await;
    let own = folder(&house, "own");
    let name = "processes::what_a_killed_process_loaded_is_taken_over_by_the_next_start_and_given_back";
    let killed = Other::start(name, &house, (&own, "a"));
    eventually("it has loaded", async || own.join("ready").exists().then_some(())).await;
    drop(killed);
    let next = Visit::below_both(house.folder(), &own, vec![target_at(house.port(), &[])]);
    next.guests.take_over().await;
    assert_eq!(next.owned(), ["a"]);
    next.guests.leave_all(Duration::from_secs(20)).await;
    assert_eq!(house.residents().await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_helper_process_loaded_is_adopted_kept_and_given_back_when_we_go() {
    if let Some((visit, folder, model)) = part() {
        drop(visit.guest.prepare(&model).await.expect("it fits"));
        let owned = visit.guest.owned().remove(0);
        fs::write(folder.join("report"), format!("{} {}", owned.model, owned.instance.expect("a port")))
            .expect("written");
        return;
    }
    let house = Router::open(1).await;
    let own = folder(&house, "helper");
    let name = "processes::what_a_helper_process_loaded_is_adopted_kept_and_given_back_when_we_go";
    let _helper = Other::start(name, &house, (&own, "a"));
    let report = async || fs::read_to_string(own.join("report")).ok().filter(|text| !text.is_empty());
    let report = eventually("its report", report).await;
    let (model, instance) = report.split_once(' ').expect("two words");
    let ours = Visit::below_both(house.folder(), &folder(&house, "parent"), vec![target_at(house.port(), &[])]);
    let report = Report {
        kind: "llama-cpp-router".into(),
        url: format!("http://127.0.0.1:{}", house.port()).parse().expect("an address"),
        model: model.to_owned(),
        instance: Some(instance.to_owned()),
    };
    assert_eq!(ours.guests.adopt(&report).await, Adoption::Taken);
    let refused = ours.guest.prepare("b").await.expect_err("a helper's is not evicted");
    assert!(matches!(refused, Refusal::Declined(Decline::Full { .. })), "{refused:?}");
    ours.guests.leave_all(Duration::from_secs(20)).await;
    assert!(house.residents().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helpers_load_that_is_not_there_is_refused_and_another_load_of_it_is_not_ours() {
    let house = Router::open(1).await;
    let journal = folder(&house, "parent");
    let open = || Visit::below_both(house.folder(), &journal, vec![target_at(house.port(), &[])]);
    let ours = open();
    let report = |instance: Option<&str>| Report {
        kind: "llama-cpp-router".into(),
        url: format!("http://127.0.0.1:{}", house.port()).parse().expect("an address"),
        model: "a".into(),
        instance: instance.map(str::to_owned),
    };
    assert_eq!(ours.guests.adopt(&report(None)).await, Adoption::Refused, "nobody loaded it");
    house.load_by_others("a").await;
    assert_eq!(ours.guests.adopt(&report(Some("1"))).await, Adoption::Refused, "that is another load");
    assert_eq!(ours.guests.adopt(&report(None)).await, Adoption::Taken);
    // A crash says nothing to the router: the next start has other books, and the same journal.
    let next = open();
    next.guests.take_over().await;
    assert_eq!(next.owned(), ["a"]);
    house.unload_by_others("a").await;
    house.load_by_others("a").await;
    for visit in [ours, next] {
        visit.guests.leave_all(Duration::from_secs(20)).await;
    }
    assert_eq!(house.residents().await, ["a"], "somebody else's");
}
