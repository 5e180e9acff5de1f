//! Many at once, when nothing is loaded yet.
use crate::support::{gate, loading_until, n_starts};
use motorpool_testkit::{eventually, text};
use motorpool_tests::e2e::{
    House, journal,
    talk::{CHAT, Said, ask, chat},
};
use serde_json::json;

const N: u32 = 64;

#[tokio::test]
async fn sixty_four_first_requests_at_once_start_one_engine_and_are_all_answered() {
    let mut house = House::new();
    let load = gate(&house, "load");
    let model = house.fake("a", &loading_until(&load));
    let daemon = house.start().await;
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..N {
        let http = daemon.http();
        requests.spawn(async move {
            let prompt = format!("request {n}");
            if n % 2 == 0 {
                let answer = http.post(CHAT, &chat("a", &prompt)).await.expect("an answer");
                assert_eq!((answer.status.as_u16(), Said::read(&answer.text())), (200, Said::whole(&prompt, 8)));
            } else {
                let answer = http.post(CHAT, &ask("a", &prompt)).await.expect("an answer");
                let content = &answer.json()["choices"][0]["message"]["content"];
                assert_eq!((answer.status.as_u16(), content), (200, &json!(text(&prompt, 8))));
            }
        });
    }
    eventually("all wait for one engine", async || {
        daemon.status().await.engine("a").filter(|engine| engine.queue == N).map(drop)
    })
    .await;
    load.open().expect("opened");
    while let Some(done) = requests.join_next().await {
        done.expect("no panic");
    }
    assert_eq!((n_starts(&model), journal::count(&house.state("journal.jsonl"), "intent")), (1, 1));
    daemon.until_quiet().await;
    daemon.stop().await;
}
