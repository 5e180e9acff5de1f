//! `/m/{model}/…`: the engine's own paths, byte for byte, as far as its manifest lets them pass.
use crate::support::{gate, header, pausing, stream_until};
use motorpool_testkit::{Answer, Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{PROBES, chat, peek},
};

async fn post(daemon: &Daemon<'_>, path: &str) -> Answer {
    daemon.http().post(path, &chat("org/model", "hello")).await.expect("an answer")
}

#[tokio::test]
async fn the_path_behind_the_model_reaches_the_engine_as_it_is() {
    let mut house = House::new();
    let model =
        motorpool_testkit::FakeModel::write(&house.path("models"), "m", &Behaviour::default()).expect("written");
    house.add_model("org/model", model.path(), "declared = \"100MiB\"\naliases = [\"short\"]\n");
    let daemon = house.start().await;
    for (path, target) in [
        ("/m/org/model/v1/chat/completions", "/v1/chat/completions"),
        ("/m/org%2Fmodel/v1/chat/completions", "/v1/chat/completions"),
        ("/m/short/v1/chat/completions?a=%2F&b=%41", "/v1/chat/completions?a=%2F&b=%41"),
    ] {
        let answer = post(&daemon, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["last"]["target"], target, "{path}");
    }
    let reached = PROBES + 3;
    for path in
        ["/m/short/slots/0?action=erase", "/m/short/props", "/m/short/v1/chat%2Fcompletions", "/m/short/../health"]
    {
        let answer = post(&daemon, path).await;
        assert!(
            answer.status.is_client_error() && !header(&answer, "x-motorpool-code").is_empty(),
            "{path}: {}",
            answer.text()
        );
    }
    let unknown = post(&daemon, "/m/shirt/v1/chat/completions").await;
    assert_eq!((unknown.status.as_u16(), header(&unknown, "x-motorpool-code")), (404, "model_not_found"));
    assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["received"], reached);
    daemon.stop().await;
}

#[tokio::test]
async fn a_path_behind_a_model_of_another_pool_reaches_that_pool() {
    let mut far = House::new();
    far.fake("a", &Behaviour::default());
    let there = far.start().await;
    let mut near = House::new();
    let url = format!("http://{}", there.address());
    near.add("external", [("id", "far".into()), ("kind", "ollama".into()), ("url", url.into())]);
    near.add_to_last("external", "lifecycle", "user-managed".into());
    near.fake("b", &Behaviour::default());
    let here = near.start().await;
    let ask = async |path: &str, model: &str| here.http().post(path, &chat(model, "hello")).await.expect("an answer");
    for path in ["/m/far/a/v1/chat/completions", "/upstream/far%2Fa/v1/chat/completions"] {
        let served = async || Some(ask(path, "whatever").await).filter(|answer| answer.status == 200);
        let text = eventually("it is served", served).await.text();
        assert!(text.contains("[DONE]"), "{path}: {text}");
    }
    let other = ask("/m/far/a/v1/chat/completions", "b").await;
    assert_eq!((other.status.as_u16(), header(&other, "x-motorpool-code")), (400, "model_conflict"), "{other:?}");
    for path in ["/m/far/a/api/pull", "/m/far/a/slots/0", "/m/near/a/v1/chat/completions"] {
        let refused = ask(path, "a").await;
        assert!(refused.status.is_client_error(), "{path}: {refused:?}");
    }
    here.stop().await;
    there.stop().await;
}

#[tokio::test]
async fn who_asks_about_a_reply_waits_for_no_slot() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = house.fake_with("a", &pausing(20, 10, &go_on), "declared = \"600MiB\"\nslots = 1\n");
    let daemon = house.start().await;
    let control = "/v1/chat/completions/control";
    let about = serde_json::json!({"model": "a", "id": "x", "action": "reasoning_end"});
    let none = daemon.http().post(control, &about).await.expect("an answer");
    assert_eq!((none.status.as_u16(), header(&none, "x-motorpool-code")), (400, "invalid_request"), "{none:?}");
    assert!(model.starts().is_empty(), "nothing is loaded for that");
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    // The fake engine has no such path, and says so in its own words.
    let told = daemon.http().post(control, &about).await.expect("an answer");
    assert_eq!((told.status.as_u16(), header(&told, "x-motorpool-code")), (404, ""), "{told:?}");
    assert!(told.text().contains("File Not Found"), "{}", told.text());
    assert_eq!(daemon.status().await.engine("a").expect("it runs").queue, 0);
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    daemon.stop().await;
}
