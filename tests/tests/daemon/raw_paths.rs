//! `/m/{model}/…`: the engine's own paths, byte for byte, as far as its manifest lets them pass.
use crate::support::header;
use motorpool_testkit::{Answer, Behaviour};
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
