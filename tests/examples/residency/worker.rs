//! One of the processes that compete.
use http::Request;
use http_body_util::{BodyExt as _, Full};
use motorpool_external::{Body, Guest, Next, Refusal, Stay};
use motorpool_residency::Decline;
use serde_json::json;
use std::{fs, path::Path, time::Duration};

/// What became of its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u32,
    pub(crate) lost: u32,
    pub(crate) declined: u32,
}

/// What the worker of `file` wrote down.
pub(crate) fn read(file: &Path) -> Tally {
    let text = fs::read_to_string(file).expect("written");
    let n: Vec<u32> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [answered, lost, declined] = n[..] else { panic!("three numbers, not {text:?}") };
    Tally { answered, lost, declined }
}

/// `n_rounds` requests for `model`, each let in at last.
pub(crate) async fn work(guest: &Guest, (folder, model): (&Path, &str), n_rounds: u32) {
    let mut tally = Tally::default();
    for _ in 0..n_rounds {
        let mut stay = let_in(guest, model, &mut tally).await;
        let was_answered = is_answered(&mut stay).await;
        *(if was_answered { &mut tally.answered } else { &mut tally.lost }) += 1;
        drop(stay);
        guest.release(model).await.expect("ours, and idle");
    }
    let text = format!("{} {} {}", tally.answered, tally.lost, tally.declined);
    fs::write(folder.join(model), text).expect("written");
}

async fn let_in(guest: &Guest, model: &str, tally: &mut Tally) -> Stay {
    loop {
        match guest.prepare(model).await {
            Ok(stay) => return stay,
            // The other one's is there: a caller would be told to come again.
            Err(Refusal::Declined(Decline::Full { .. })) => tally.declined += 1,
            Err(why) => panic!("{why:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn is_answered(stay: &mut Stay) -> bool {
    loop {
        let body = json!({"model": stay.wire_model(), "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]});
        let request = || {
            let body: Body = Full::new(body.to_string().into()).map_err(|never| match never {}).boxed_unsync();
            Request::post("/").header("content-type", "application/json").body(body).expect("a request")
        };
        let Ok(answer) = stay.send("/v1/chat/completions", request).await else { return false };
        let status = answer.status().as_u16();
        let Ok(body) = answer.into_body().collect().await else { return false };
        if status == 200 {
            stay.on_first_result().await;
            return true;
        }
        if !matches!(stay.on_refused(status, &body.to_bytes()).await, Ok(Next::Again)) {
            return false;
        }
    }
}
