//! `motorpool model pull hf:…` when something goes wrong: what is kept, what is not, and what the next try does.
use crate::support::{REPO, assert_no_model, home_of, house_at, hub, pull, said};
use motorpool_gguf::write::smoke_model;
use motorpool_testkit::{eventually, servers::hub::Trouble};
use motorpool_tests::e2e::{House, house::outcome};
use std::{fs, path::PathBuf, process::Stdio};

const FILE: &str = "tiny-Q4_K_M.gguf";
const HALF: usize = 100_000;
const SOME: usize = 10_000;

fn partial(house: &House) -> PathBuf {
    home_of(house, "tiny-Q4_K_M").join(format!("{FILE}.partial"))
}

fn length(path: &std::path::Path) -> usize {
    fs::metadata(path).map_or(0, |meta| usize::try_from(meta.len()).expect("small"))
}

fn ranges(hub: &motorpool_testkit::servers::hub::FakeHub) -> Vec<Option<String>> {
    let range = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
    hub.fetched(FILE).iter().map(|asked| asked.headers.get("range").map(range)).collect()
}

#[tokio::test]
async fn a_pull_that_was_interrupted_goes_on_where_it_was() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::HeldAt(HALF));
    let mut first = house.command(&["model", "pull", &format!("hf:{REPO}")]).spawn().expect("it runs");
    eventually("half of it is on disk", async || (length(&partial(&house)) == HALF).then_some(())).await;
    first.kill().await.expect("it is killed");
    hub.mend();
    let again = pull(&house, "").await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(ranges(&hub), [None, Some(format!("bytes={HALF}-"))]);
    assert_eq!(fs::read(home_of(&house, "tiny-Q4_K_M").join(FILE)).expect("there"), smoke_model());
    assert!(!partial(&house).exists());
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again_and_ranges_that_are_not_understood_cost_time_only() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::CutAt(SOME));
    assert_eq!(pull(&house, "").await.code, Some(0));
    assert_eq!(ranges(&hub), [None, Some(format!("bytes={SOME}-"))]);
    let other = house_at(&hub);
    hub.trouble(FILE, Trouble::CutAt(SOME));
    hub.trouble(FILE, Trouble::NoRanges);
    assert_eq!(pull(&other, "").await.code, Some(0));
    assert_eq!(fs::read(home_of(&other, "tiny-Q4_K_M").join(FILE)).expect("there"), smoke_model());
}

#[tokio::test]
async fn what_does_not_have_the_hash_that_the_hub_tells_is_not_kept() {
    let hub = hub().await;
    let house = house_at(&hub);
    let mut other = smoke_model();
    *other.last_mut().expect("not empty") ^= 1;
    hub.trouble(FILE, Trouble::OtherContent(other));
    let wrong = pull(&house, "").await;
    assert!(said(&wrong, 6).contains("has SHA-256"), "{wrong:?}");
    assert_no_model(&house);
    hub.mend();
    assert_eq!(pull(&house, "").await.code, Some(0), "the right one is taken");
}

#[tokio::test]
async fn a_file_of_another_size_than_its_list_tells_is_not_kept() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::ToldSize(1000));
    let longer = pull(&house, "").await;
    assert!(said(&longer, 6).contains("instead of 1000"), "{longer:?}");
    assert_no_model(&house);
}

#[tokio::test]
async fn a_model_larger_than_the_disk_is_refused_before_any_of_it_is_asked_for() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::ToldSize(1 << 60));
    let full = pull(&house, "").await;
    assert!(said(&full, 5).contains("too little disk space"), "{full:?}");
    assert!(hub.fetched(FILE).is_empty());
    assert_no_model(&house);
}

#[tokio::test]
async fn a_disk_that_takes_no_more_is_told_and_what_came_is_kept() {
    let hub = hub().await;
    let house = house_at(&hub);
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$@\"";
    let command = house.command_through(script, &["model", "pull", &format!("hf:{REPO}")]);
    let full = outcome(command).await;
    assert!(said(&full, 5).contains("cannot write") && full.stderr.contains("XDG_DATA_HOME"), "{full:?}");
    let kept = length(&partial(&house));
    assert!(kept > 0, "{full:?}");
    assert_eq!(pull(&house, "").await.code, Some(0));
    assert_eq!(ranges(&hub).last(), Some(&Some(format!("bytes={kept}-"))));
}

#[tokio::test]
async fn a_hub_that_leads_in_a_circle_or_refuses_is_left() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::Elsewhere);
    let circle = pull(&house, "").await;
    assert!(said(&circle, 6).contains("more than 10 redirects"), "{circle:?}");
    hub.mend();
    hub.trouble(FILE, Trouble::Refused(404, "EntryNotFound"));
    let moved = pull(&house, "").await;
    assert!(said(&moved, 6).contains("changed while it was looked at"), "{moved:?}");
    assert_no_model(&house);
}

#[tokio::test]
async fn files_whose_names_lead_out_of_the_repository_are_not_there() {
    let hub = hub().await;
    let house = house_at(&hub);
    for path in ["../../evil.gguf", "a/../../evil.gguf", "/evil.gguf"] {
        hub.put("org/evil", path, smoke_model());
        let refused = house.run(&["model", "pull", &format!("hf:org/evil:{path}")]).await;
        assert_eq!(refused.code, Some(4), "{refused:?}");
    }
    assert!(said(&house.run(&["model", "pull", "hf:org/evil"]).await, 4).contains("there is no GGUF file"));
    hub.put("org/odd", "e v;i$l`x`.gguf", smoke_model());
    let odd = house.run(&["model", "pull", "hf:org/odd"]).await;
    assert_eq!(odd.code, Some(0), "{odd:?}");
    let home = home_of(&house, "e-v%3Bi%24l%60x%60");
    assert!(home.join("e_v_i_l_x_.gguf").exists(), "{odd:?}");
}

#[tokio::test]
async fn shards_of_two_models_are_not_kept() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.put(REPO, "big/tiny-BF16-00002-of-00002.gguf", smoke_model());
    let wrong = pull(&house, ":BF16").await;
    assert!(said(&wrong, 7).contains("is no usable GGUF file"), "{wrong:?}");
    assert_no_model(&house);
}

#[tokio::test]
async fn two_who_want_the_same_fetch_it_once() {
    let hub = hub().await;
    let house = house_at(&hub);
    hub.trouble(FILE, Trouble::HeldAt(HALF));
    let start = || {
        let mut command = house.command(&["model", "pull", &format!("hf:{REPO}")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let first = start();
    eventually("half of it is on disk", async || (length(&partial(&house)) == HALF).then_some(())).await;
    let mut second = start();
    let mut told = tokio::io::BufReader::new(second.stderr.take().expect("piped"));
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut told, &mut line).await.expect("it says something");
    assert!(line.contains("waiting for another `model pull`"), "{line}");
    hub.release();
    for child in [first, second] {
        let ended = child.wait_with_output().await.expect("it ends");
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(hub.fetched(FILE).len(), 1);
}
