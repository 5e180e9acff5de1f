//! What becomes of requests on an Ollama that others use too.
use crate::{
    fakes::{chat, hasty, protecting, target, visit},
    support::Visit,
};
use motorpool_external::{KeepAlive, Refusal, Target};
use motorpool_residency::{Decline, Kind, Lifecycle, MIN_RESIDENCY};
use motorpool_testkit::{
    eventually,
    servers::{FakeOllama, Fault},
};
use std::time::Duration;

async fn server() -> FakeOllama {
    FakeOllama::open(&["a", "b", "c:1b", "d"]).await.expect("a free port")
}

fn ollama(server: &FakeOllama) -> Target {
    Target { keep_alive: KeepAlive::For(Duration::from_secs(77)), ..target(Kind::Ollama, server.port()) }
}

fn resident(server: &FakeOllama) -> Vec<String> {
    server.residents().into_iter().map(|(model, _)| model).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_keep_alive_is_set_before_the_first_request_and_after_the_last_lease() {
    let server = server().await;
    let visit = visit(ollama(&server));
    let mut stay = visit.guest.prepare("a").await.expect("it loads");
    assert_eq!(server.residents(), [("a:latest".to_owned(), 77)]);
    assert_eq!((visit.told(), visit.owned()), (vec!["Load a".to_owned()], vec!["a:latest".to_owned()]));
    chat(&mut stay).await.expect("it answers");
    assert_eq!(server.residents(), [("a:latest".to_owned(), 300)], "a request leaves the server's own time");
    let other = visit.guest.prepare("a").await.expect("it is there");
    drop(stay);
    drop(other);
    let ours = async || (server.residents() == [("a:latest".to_owned(), 77)]).then_some(());
    eventually("our time is set after the last lease", ours).await;
    let sent = server.asked("/api/generate");
    assert!(sent.iter().all(|asked| asked.body.get("prompt").is_none()), "they are empty: {sent:?}");
    visit.guest.leave(Duration::from_secs(20)).await;
    assert!(server.residents().is_empty() && visit.owned().is_empty());
    let unload = server.asked("/api/generate").pop().expect("asked");
    assert_eq!(unload.body["keep_alive"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_for_embeddings_is_loaded_and_kept_and_given_back_like_others() {
    let server = server().await;
    server.only_embeds("a");
    let visit = visit(ollama(&server));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!((server.residents(), visit.owned()), (vec![("a:latest".to_owned(), 77)], vec!["a:latest".to_owned()]));
    // The first is the load, the second the time that begins after the last use.
    let kept = async || (server.asked("/api/embed").len() == 2).then_some(());
    eventually("it is kept after its last use", kept).await;
    visit.guest.leave(Duration::from_secs(20)).await;
    assert!(server.residents().is_empty() && visit.owned().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_given_back_for_a_model_that_is_not_there_or_may_not_be() {
    let server = server().await;
    let visit = Visit::at::<4>(vec![ollama(&server)]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    visit.tomorrow();
    let refused = visit.guest.prepare("nowhere").await.expect_err("no such model");
    assert!(matches!(refused, Refusal::Declined(Decline::NoSuchModel)), "{refused:?}");
    server.fail("/api/tags", Fault::Status(500, "busy".into()), 1);
    let refused = visit.guest.prepare("b").await.expect_err("nobody knows");
    assert!(matches!(&refused, Refusal::Declined(Decline::Unread(why)) if why.contains("busy")), "{refused:?}");
    assert_eq!(resident(&server), ["a:latest"]);
    drop(visit.guest.prepare("b").await.expect("it is there after all"));
    assert_eq!(resident(&server), ["b:latest"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_loaded_anew_with_more_context_is_kept_as_they_have_it() {
    let server = server().await;
    let visit = visit(ollama(&server));
    let stay = visit.guest.prepare("a").await.expect("it loads");
    assert_eq!(stay.loaded_with(), Some(4096));
    server.load_with("a", 16384);
    let n_reloads = server.n_reloads();
    drop(stay);
    let ours = async || (server.residents() == [("a:latest".to_owned(), 77)]).then_some(());
    eventually("our time is set after the last lease", ours).await;
    visit.guest.distrust();
    let stay = visit.guest.prepare("a").await.expect("it is there");
    assert_eq!((stay.loaded_with(), server.n_reloads()), (Some(16384), n_reloads), "and not loaded anew");
    assert_eq!(visit.guest.prepare("a").await.expect("it is trusted").loaded_with(), Some(16384));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_is_theirs_and_keeps_their_time() {
    let server = server().await;
    server.load("a");
    let visit = visit(ollama(&server));
    drop(visit.guest.prepare("a").await.expect("it is there"));
    drop(visit.guest.prepare("b").await.expect("it loads"));
    visit.guest.leave(Duration::from_secs(20)).await;
    assert_eq!(server.residents(), [("a:latest".to_owned(), 300)]);
    let touched: Vec<_> = server.asked("/api/generate").into_iter().filter(|one| one.body["model"] == "a").collect();
    assert!(touched.is_empty(), "{touched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_our_own_idle_stragglers_go_for_another_model() {
    let server = server().await;
    server.load("c:1b");
    let visit = Visit::at::<1>(vec![ollama(&server)]);
    let stay = visit.guest.prepare("a").await.expect("it loads");
    visit.tomorrow();
    drop(visit.guest.prepare("b").await.expect("it loads"));
    assert_eq!(resident(&server), ["c:1b", "a:latest", "b:latest"], "in use, and theirs");
    drop(stay);
    visit.later(MIN_RESIDENCY);
    drop(visit.guest.prepare("b").await.expect("it is there"));
    visit.guest.distrust();
    assert_eq!(resident(&server), ["c:1b", "a:latest", "b:latest"], "nothing goes for what is there");
    visit.tomorrow();
    visit.told();
    drop(visit.guest.prepare("d").await.expect("it loads"));
    assert_eq!(visit.told(), ["Evict a:latest", "Evict b:latest", "Load d"]);
    assert_eq!(resident(&server), ["c:1b", "d:latest"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_straggler_that_went_for_a_load_that_fails_is_back() {
    let server = server().await;
    let visit = Visit::at::<8>(vec![ollama(&server)]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    let kept = async || (server.asked("/api/generate").len() == 2).then_some(());
    eventually("it is kept after its last use", kept).await;
    visit.tomorrow();
    visit.told();
    server.fail_after("/api/generate", (1, Fault::Status(500, "corrupt".into())), 1);
    let refused = visit.guest.prepare("b").await.expect_err("it does not load");
    assert!(refused.to_string().contains("corrupt"), "{refused}");
    assert_eq!(visit.told(), ["Evict a:latest", "Restore a:latest", "swap"]);
    assert_eq!((resident(&server), visit.owned()), (vec!["a:latest".into()], vec!["a:latest".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_protects_is_no_straggler_and_a_user_managed_server_is_left_alone() {
    let server = server().await;
    let visit = Visit::at::<2>(vec![protecting(ollama(&server), &["a"])]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    visit.tomorrow();
    drop(visit.guest.prepare("b").await.expect("it loads"));
    assert_eq!(resident(&server), ["a:latest", "b:latest"]);
    let other = FakeOllama::open(&["a"]).await.expect("a free port");
    let looking = crate::fakes::visit(Target { lifecycle: Lifecycle::UserManaged, ..ollama(&other) });
    let mut stay = looking.guest.prepare("a").await.expect("it is sent as it is");
    assert!(other.residents().is_empty());
    assert_eq!(chat(&mut stay).await.expect("it answers").0, 200);
    drop(stay);
    assert!(looking.owned().is_empty() && other.asked("/api/generate").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fails_in_any_way_is_said_and_nothing_is_ours() {
    let server = server().await;
    let visit = visit(hasty(ollama(&server)));
    let cases = [
        (Fault::Slow, "no answer within"),
        (Fault::Status(500, "llama runner process has terminated".into()), "llama runner process has terminated"),
        (Fault::Status(404, "model 'a' not found".into()), "404"),
        (Fault::Status(401, "unauthorized".into()), "401: unauthorized"),
        (Fault::HangUp, "cannot be reached"),
        (Fault::Forgets, "has it no more"),
    ];
    for (fault, wanted) in cases {
        let shown = format!("{fault:?}");
        server.fail("/api/generate", fault, 1);
        let refused = visit.guest.prepare("a").await.expect_err(&shown);
        assert!(matches!(refused, Refusal::Failed(_)) && refused.to_string().contains(wanted), "{shown}: {refused}");
        assert!(visit.owned().is_empty(), "{shown}");
    }
    drop(visit.guest.prepare("nowhere").await.expect_err("no such model"));
    drop(visit.guest.prepare("a").await.expect("all is well again"));
    assert_eq!(visit.owned(), ["a:latest"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_listing_nothing_is_changed_nor_trusted_and_the_request_goes_its_way() {
    let server = server().await;
    let visit = visit(hasty(ollama(&server)));
    for fault in [Fault::Slow, Fault::Malformed, Fault::Status(503, "no".into()), Fault::HangUp] {
        // A kept connection that dies is no answer: the look is made once more.
        let n = if matches!(fault, Fault::HangUp) { 2 } else { 1 };
        server.fail("/api/ps", fault, n);
        drop(visit.guest.prepare("a").await.expect("it is sent as it is"));
        assert!(server.asked("/api/generate").is_empty());
    }
    let _stay = visit.guest.prepare("a").await.expect("it loads");
    assert_eq!(server.asked("/api/generate").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_partly_in_system_memory_is_told_once_in_a_minute() {
    let server = server().await;
    server.load("a");
    server.spill(40);
    let visit = Visit::at::<3>(vec![ollama(&server)]);
    for n in 0..3 {
        visit.guest.distrust();
        drop(visit.guest.prepare("a").await.expect("it is there"));
        assert_eq!(visit.told().len(), usize::from(n == 0));
    }
    visit.later(motorpool_residency::REPEAT);
    drop(visit.guest.prepare("a").await.expect("it is there"));
    assert_eq!(visit.told(), ["stress"]);
}
