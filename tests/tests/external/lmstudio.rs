//! What becomes of requests on an LM Studio that others use too.
use crate::{
    fakes::{chat, hasty, protecting, target, visit},
    support::Visit,
};
use motorpool_external::{Key, News, Next, Refusal, Target, TargetLock, Told};
use motorpool_residency::{Kind, NoticeKind};
use motorpool_testkit::{
    eventually,
    servers::{FakeLmStudio, Fault, Tier},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

async fn server() -> FakeLmStudio {
    FakeLmStudio::open(Tier::V1, &["a", "b", "c"]).await.expect("a free port")
}

fn studio(server: &FakeLmStudio) -> Target {
    target(Kind::LmStudio, server.port())
}

/// With loads of our own.
fn loading(server: &FakeLmStudio) -> Target {
    let Value::Object(load) = json!({"context_length": 200_000, "flash_attention": true}) else { unreachable!() };
    Target { load, ..studio(server) }
}

fn resident(server: &FakeLmStudio) -> Vec<String> {
    server.residents().into_iter().map(|(id, _)| id).collect()
}

/// Every way in which it says that it is full.
const FULL: [(u16, &str); 8] = [
    (507, "no"),
    (400, "Insufficient system resources"),
    (500, "insufficient memory to load the model"),
    (400, "not enough resources"),
    (500, "not enough memory"),
    (422, "Not enough VRAM"),
    (500, "CUDA error: out of memory"),
    (400, "blocked by the model loading guardrail"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_load_has_only_what_is_configured_and_the_instance_that_it_names_is_ours() {
    let server = server().await;
    let visit = visit(loading(&server));
    let mut stay = visit.guest.prepare("a").await.expect("it loads");
    let sent = server.asked("/api/v1/models/load");
    let body = json!({"model": "a", "context_length": 200_000, "flash_attention": true, "echo_load_config": true});
    assert_eq!(sent.iter().map(|asked| asked.body.clone()).collect::<Vec<_>>(), [body]);
    assert_eq!((visit.told(), visit.owned()), (vec!["Load a".to_owned()], vec!["a".to_owned()]));
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    drop(stay);
    visit.guest.leave(Duration::from_secs(20)).await;
    assert_eq!(server.asked("/api/v1/models/unload")[0].body, json!({"instance_id": "a"}));
    assert!(server.residents().is_empty() && visit.owned().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_whose_answer_names_no_instance_leaves_nothing_that_is_ours() {
    let server = server().await;
    server.be_silent();
    let visit = visit(loading(&server));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert!(visit.owned().is_empty());
    visit.guest.leave(Duration::from_secs(20)).await;
    assert_eq!(resident(&server), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_configured_loads_the_request_loads_and_its_first_result_makes_it_ours() {
    let server = server().await;
    server.load("b");
    let visit = visit(studio(&server));
    let mut stay = visit.guest.prepare("a").await.expect("it is sent");
    assert_eq!((resident(&server), visit.owned()), (vec!["b".to_owned()], vec![]), "not loaded yet");
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    assert_eq!((visit.told(), visit.owned()), (vec!["Load a".to_owned()], vec!["a".to_owned()]));
    assert!(server.asked("/api/v1/models/load").is_empty());
    let mut theirs = visit.guest.prepare("b").await.expect("it is there");
    chat(&mut theirs).await.expect("it answers");
    assert_eq!(visit.owned(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_model_is_asked_by_its_instance_and_no_second_copy_is_made() {
    let server = server().await;
    for key in ["a", "a", "b"] {
        server.load(key);
    }
    server.unload("a");
    let visit = visit(Target { default_model: Some("b:7".into()), ..loading(&server) });
    let mut stay = visit.guest.prepare("a").await.expect("it is there");
    assert_eq!(stay.wire_model(), "a:2");
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    assert_eq!(visit.guest.prepare("a").await.expect("trusted").wire_model(), "a:2");
    assert_eq!((resident(&server), visit.owned()), (vec!["a:2".to_owned(), "b".to_owned()], vec![]));
    let refused = visit.guest.prepare("A").await.expect_err("no such model");
    assert!(matches!(&refused, Refusal::Unknown(there) if there == &["a:2", "b"]), "{refused:?}");
    assert!(server.asked("/v1/chat/completions").len() == 1 && server.asked("/api/v1/models/load").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_one_of_us_changes_the_server_a_loaded_model_is_asked_by_its_instance_too() {
    let server = server().await;
    let visit = Visit::impatient(vec![loading(&server)]);
    let held = TargetLock::take(&visit.run(), visit.guest.key(), Duration::ZERO).await.expect("free");
    let refused = visit.guest.prepare("a").await.expect_err("nothing is loaded without the lock");
    assert!(matches!(refused, Refusal::Lock(_)), "{refused:?}");
    server.load("a");
    server.load("a");
    server.unload("a");
    assert_eq!(visit.guest.prepare("a").await.expect("it is there").wire_model(), "a:2");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_notice_is_told_by_a_guest() {
    let server = server().await;
    let visit = Visit::at::<5>(vec![Target { context: 9, ..protecting(loading(&server), &["a"]) }]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    drop(visit.guest.prepare("b").await.expect("it loads"));
    visit.guest.distrust();
    let mut stay = visit.guest.prepare("a").await.expect("beside the other");
    visit.later(Duration::from_secs(31));
    stay.on_tokens(1);
    drop(stay);
    // Neither goes back in: what was displaced for it stays away.
    server.fits(0, FULL[0]);
    drop(visit.guest.prepare("c").await.expect_err("no room"));
    server.fits(1, FULL[0]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    server.fits(1, FULL[0]);
    drop(visit.guest.prepare("c").await.expect("ours goes"));
    let kind = |news: News| match news.what {
        Told::Notice(notice) => Some(notice.kind),
        Told::Mutation(_) => None,
    };
    let kinds: BTreeSet<NoticeKind> = visit.news().into_iter().filter_map(kind).collect();
    assert_eq!(kinds, BTreeSet::from(NoticeKind::ALL));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hosts_the_instance_that_only_one_has_is_taken_and_the_same_on_both_is_told() {
    let (one, two) = (server().await, server().await);
    for (host, n) in [(&one, 2), (&two, 3)] {
        (0..n).for_each(|_| host.load("a"));
        host.unload("a");
    }
    let targets = vec![studio(&one), Target { id: "other".into(), ..studio(&two) }];
    let visit = Visit::at::<0>(targets);
    drop(visit.guest.prepare("a").await.expect("it is there"));
    let other = visit.guests.get("other").expect("a target");
    assert_eq!(other.prepare("a").await.expect("it is there").wire_model(), "a:3");
    two.unload("a:3");
    other.distrust();
    visit.told();
    assert_eq!(other.prepare("a").await.expect("it is there").wire_model(), "a:2");
    assert_eq!(visit.told(), ["co-resident"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_says_that_there_is_no_room_has_ours_go_one_at_a_time_until_it_fits() {
    for full in FULL {
        let server = server().await;
        let visit = visit(protecting(loading(&server), &["a"]));
        for model in ["a", "b"] {
            drop(visit.guest.prepare(model).await.expect("it loads"));
        }
        visit.told();
        server.fits(1, full);
        drop(visit.guest.prepare("c").await.expect("ours go"));
        let told = visit.told().join(", ");
        assert!(told.ends_with("about-to-evict, Evict b, about-to-evict, Evict a, Load c, swap"), "{full:?}: {told}");
        assert_eq!((resident(&server), visit.owned()), (vec!["c".to_owned()], vec!["c".to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_want_of_room_evicts_nothing_and_is_said_as_it_is() {
    let server = server().await;
    let visit = visit(hasty(loading(&server)));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    visit.told();
    for fault in [
        Fault::Status(500, "insufficient quota".into()),
        Fault::Status(400, "the file is broken".into()),
        Fault::Malformed,
        Fault::Slow,
        Fault::HangUp,
    ] {
        let shown = format!("{fault:?}");
        server.fail("/api/v1/models/load", fault, 1);
        drop(visit.guest.prepare("b").await.expect_err(&shown));
        let evicted = visit.told().iter().any(|one| one.starts_with("Evict"));
        assert!(!evicted && resident(&server) == ["a"], "{shown}");
    }
    server.fail("/api/v1/models/load", Fault::Forgets, 1);
    let refused = visit.guest.prepare("b").await.expect_err("it is gone again");
    assert!(refused.to_string().contains("has it no more"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_last_try_is_refused_all_come_back_and_the_first_refusal_is_said() {
    let server = server().await;
    let visit = visit(loading(&server));
    for model in ["a", "b"] {
        drop(visit.guest.prepare(model).await.expect("it loads"));
    }
    let before = server.residents();
    visit.told();
    for (n, why) in ["not enough VRAM, one", "not enough VRAM, two", "not enough VRAM, three"].iter().enumerate() {
        let status = 500 + u16::try_from(n).expect("small");
        server.fail("/api/v1/models/load", Fault::Status(status, (*why).to_owned()), 1);
    }
    let refused = visit.guest.prepare("c").await.expect_err("never room");
    assert!(refused.to_string().ends_with("not enough VRAM, one"), "{refused}");
    assert_eq!(
        (resident(&server), visit.owned()),
        (vec!["a".into(), "b".into()], vec!["a".to_owned(), "b".to_owned()])
    );
    let told = visit.told();
    assert_eq!(told[told.len() - 3..], ["Restore a", "Restore b", "swap"]);
    assert_eq!(server.residents(), before, "with the context that each had");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_went_although_its_unload_was_not_answered_is_told_and_back() {
    let server = server().await;
    let visit = visit(loading(&server));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    visit.told();
    server.fits(1, FULL[0]);
    server.fail("/api/v1/models/unload", Fault::ActsAndHangsUp, 1);
    drop(visit.guest.prepare("b").await.expect_err("nobody knows"));
    let told = visit.told();
    assert_eq!(told[told.len() - 4..], ["about-to-evict", "Evict a", "Restore a", "swap"]);
    assert_eq!((resident(&server), visit.owned()), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

/// What a server without room for it says to a request.
const NO_ROOM: &[u8] = br#"{"error": {"message": "not enough VRAM"}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waited_for_another_that_loaded_the_same_has_nothing_go_for_it() {
    let server = server().await;
    let visit = visit(studio(&server));
    for model in ["a", "b"] {
        let mut stay = visit.guest.prepare(model).await.expect("it is sent");
        chat(&mut stay).await.expect("it answers");
    }
    let in_use = visit.guest.prepare("a").await.expect("it is there");
    let mut second = visit.guest.prepare("c").await.expect("it is sent");
    drop(in_use);
    let mut first = visit.guest.prepare("c").await.expect("it is sent");
    server.fits(2, FULL[0]);
    chat(&mut first).await.expect("it answers");
    assert_eq!(resident(&server), ["b", "c"]);
    visit.told();
    assert_eq!(second.on_refused(507, NO_ROOM).await.expect("it may be sent again"), Next::Again);
    assert_eq!(chat(&mut second).await.expect("it answers").0, 200);
    assert_eq!((resident(&server), server.asked("/api/v1/models/unload").len()), (vec!["b".into(), "c".to_owned()], 1));
    assert!(visit.told().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_loaded_while_a_request_found_no_room_is_theirs() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut stay = visit.guest.prepare("a").await.expect("it is sent");
    chat(&mut stay).await.expect("it answers");
    drop(stay);
    let mut stay = visit.guest.prepare("c").await.expect("it is sent");
    server.load("c");
    assert_eq!(stay.on_refused(507, NO_ROOM).await.expect("it may be sent again"), Next::Again);
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    assert_eq!((resident(&server), visit.owned()), (vec!["a".into(), "c".into()], vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_try_was_told_is_the_callers_whatever_the_next_ones_were() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut stay = visit.guest.prepare("a").await.expect("it is sent");
    chat(&mut stay).await.expect("it answers");
    drop(stay);
    server.fail("/v1/chat/completions", Fault::Status(507, "no room".into()), 1);
    server.fail("/v1/chat/completions", Fault::Status(500, "broken".into()), 1);
    let mut stay = visit.guest.prepare("c").await.expect("it is sent");
    let (status, said) = chat(&mut stay).await.expect("an answer");
    assert_eq!((status, &said["error"]["message"]), (507, &json!("no room")));
    assert_eq!(resident(&server), ["a"], "what went in vain is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_for_two_requests_at_once_is_told_once() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut first = visit.guest.prepare("a").await.expect("it is sent");
    let mut second = visit.guest.prepare("a").await.expect("it is sent");
    for stay in [&mut first, &mut second] {
        assert_eq!(chat(stay).await.expect("it answers").0, 200);
    }
    assert_eq!(visit.told(), ["Load a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_finds_no_room_is_sent_again_once_ours_went_and_what_went_in_vain_is_back() {
    for full in FULL {
        let server = server().await;
        let visit = visit(studio(&server));
        let mut first = visit.guest.prepare("a").await.expect("it is sent");
        chat(&mut first).await.expect("it answers");
        server.fits(1, full);
        let mut second = visit.guest.prepare("b").await.expect("it is sent");
        assert_eq!(chat(&mut second).await.expect("an answer").0, full.0, "ours is in use: {full:?}");
        drop((first, second));
        let mut third = visit.guest.prepare("b").await.expect("it is sent");
        assert_eq!(chat(&mut third).await.expect("it answers").0, 200, "{full:?}");
        assert_eq!((resident(&server), visit.owned()), (vec!["b".to_owned()], vec!["b".to_owned()]));
        drop(third);
        for _ in 0..2 {
            server.fail("/v1/chat/completions", Fault::Status(full.0, full.1.to_owned()), 1);
        }
        let mut fourth = visit.guest.prepare("c").await.expect("it is sent");
        assert_eq!(chat(&mut fourth).await.expect("an answer").0, full.0);
        assert_eq!((resident(&server), visit.owned()), (vec!["b".to_owned()], vec!["b".to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_or_somebody_elses_when_it_would_go_stays() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut first = visit.guest.prepare("a").await.expect("it is sent");
    chat(&mut first).await.expect("it answers");
    drop(first);
    server.fits(1, FULL[0]);
    let mut late = visit.guest.prepare("b").await.expect("it is sent");
    let used = visit.guest.prepare("a").await.expect("it is there");
    assert_eq!(chat(&mut late).await.expect("an answer").0, 507, "ours came into use since the decision");
    assert_eq!((resident(&server), visit.owned()), (vec!["a".to_owned()], vec!["a".to_owned()]));
    drop(used);
    let mut late = visit.guest.prepare("c").await.expect("it is sent");
    server.unload("a");
    visit.guest.look().await.expect("a look");
    server.load("a");
    assert_eq!(chat(&mut late).await.expect("an answer").0, 507, "it is theirs now");
    assert_eq!((resident(&server), visit.owned()), (vec!["a".to_owned()], vec![]));
    assert!(server.asked("/api/v1/models/unload").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_for_a_request_that_goes_away_is_put_back() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut first = visit.guest.prepare("a").await.expect("it is sent");
    chat(&mut first).await.expect("it answers");
    drop(first);
    let mut second = visit.guest.prepare("b").await.expect("it is sent");
    let refusal = br#"{"error": {"message": "not enough VRAM"}}"#;
    second.on_refused(500, refusal).await.expect("it may be sent again");
    assert!(resident(&server).is_empty());
    drop(second);
    eventually("it is back and ours", async || (visit.owned() == ["a"]).then_some(())).await;
    assert_eq!(resident(&server), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_back_while_its_request_goes_away_is_put_back_once() {
    let server = server().await;
    let visit = visit(studio(&server));
    let mut first = visit.guest.prepare("a").await.expect("it is sent");
    chat(&mut first).await.expect("it answers");
    drop(first);
    let mut second = visit.guest.prepare("b").await.expect("it is sent");
    let refusal = br#"{"error": {"message": "not enough VRAM"}}"#;
    second.on_refused(500, refusal).await.expect("it may be sent again");
    // Asked once, it has begun; then nobody waits for it.
    drop(tokio::time::timeout(Duration::ZERO, second.on_refused(500, refusal)).await);
    drop(second);
    eventually("it is back and ours", async || (visit.owned() == ["a"]).then_some(())).await;
    drop(TargetLock::take(&visit.run(), visit.guest.key(), Duration::from_mins(1)).await.expect("all is done"));
    assert_eq!((resident(&server), server.asked("/api/v1/models/load").len()), (vec!["a".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn context_is_cut_only_beside_other_models_and_that_is_told() {
    let server = server().await;
    let visit = visit(Target { context: 100_000, ..loading(&server) });
    drop(visit.guest.prepare("a").await.expect("it loads"));
    drop(visit.guest.prepare("b").await.expect("it loads"));
    assert_eq!(server.residents(), [("a".to_owned(), 200_000), ("b".to_owned(), 100_000)]);
    assert_eq!(visit.told(), ["Load a", "stress", "Load b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tier_serves_and_only_the_newest_loads_and_unloads() {
    for tier in [Tier::V0, Tier::OpenAi] {
        let server = FakeLmStudio::open(tier, &["a", "b"]).await.expect("a free port");
        let visit = visit(loading(&server));
        let mut stay = visit.guest.prepare("a").await.expect("it is sent");
        assert_eq!(chat(&mut stay).await.expect("it answers").0, 200, "{tier:?}");
        drop(stay);
        let is_told = visit.told().iter().any(|one| one.starts_with("Load"));
        assert_eq!(is_told, tier == Tier::V0, "{tier:?} tells what is loaded, or not");
        server.fits(1, FULL[0]);
        let mut other = visit.guest.prepare("b").await.expect("it is sent");
        assert_eq!(chat(&mut other).await.expect("an answer").0, 507, "{tier:?}");
        visit.guest.leave(Duration::from_secs(20)).await;
        let posts = [server.asked("/api/v1/models/load"), server.asked("/api/v1/models/unload")].concat();
        assert!(posts.is_empty() && resident(&server) == ["a"], "{tier:?}: {posts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_fails_for_once_takes_nothing_from_what_is_ours() {
    let server = server().await;
    let visit = visit(loading(&server));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    for (status, is_shown) in [(500, false), (503, false), (429, false), (404, true), (405, true)] {
        let failing = if is_shown { &["/api/v1/models", "/api/v0/models"][..] } else { &["/api/v1/models"] };
        for path in failing {
            server.fail(path, Fault::Status(status, "no".into()), 1);
        }
        assert_eq!(visit.guest.look().await.is_ok(), is_shown, "{status}");
        assert_eq!(visit.owned(), ["a"], "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_taken_stops_the_search_and_the_right_one_is_on_every_call() {
    let server = server().await;
    server.lock("sesame");
    let wrong = visit(loading(&server));
    drop(wrong.guest.prepare("a").await.expect("unlisted, so it is sent as it is"));
    assert!(server.asked("/api/v0/models").is_empty() && server.asked("/v1/models").is_empty());
    let key = Key::new("sesame");
    let headers = [(http::header::USER_AGENT, "ops".parse().expect("a header"))].into_iter().collect();
    let right = visit(Target { key, headers, ..loading(&server) });
    let mut stay = right.guest.prepare("a").await.expect("it loads");
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    for path in ["/api/v1/models", "/api/v1/models/load", "/v1/chat/completions"] {
        let asked = server.asked(path).pop().expect("asked");
        assert_eq!(
            (&asked.headers["authorization"], &asked.headers["user-agent"]),
            (&"Bearer sesame".parse().expect("a header"), &"ops".parse().expect("a header")),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_catalogue_nothing_is_changed_nor_trusted() {
    let server = server().await;
    let visit = visit(hasty(loading(&server)));
    for fault in [Fault::Slow, Fault::HangUp] {
        server.fail("/api/v1/models", fault, 1);
        drop(visit.guest.prepare("a").await.expect("it is sent as it is"));
    }
    for path in ["/api/v1/models", "/api/v0/models", "/v1/models"] {
        server.fail(path, Fault::Malformed, 1);
    }
    drop(visit.guest.prepare("a").await.expect("it is sent as it is"));
    assert!(server.asked("/api/v1/models/load").is_empty());
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!(server.asked("/api/v1/models/load").len(), 1);
}
