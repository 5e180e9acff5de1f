//! A conversation goes on in the slot that holds it, on the real engine.
use http::{Request, header};
use motorpool_tests::e2e::{
    Daemon,
    installed::{house, model_file},
    talk::CHAT,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A conversation, with its whole past.
struct Talk {
    session: &'static str,
    messages: Vec<Value>,
}

impl Talk {
    /// Some hundred tokens that no other conversation begins with.
    fn begin(session: &'static str) -> Self {
        let text = (0..40).fold(format!("I am {session}."), |mut text, n| {
            let _ = write!(text, " {session} has seen {n} birds.");
            text
        });
        Self { session, messages: vec![json!({"role": "user", "content": text})] }
    }

    /// The next turn; the reply becomes part of the conversation. Its tokens that were evaluated, and that were there.
    async fn turn(&mut self, daemon: &Daemon<'_>) -> (u64, u64) {
        let body = json!({"model": "two", "max_tokens": 8, "temperature": 0, "seed": 1, "messages": self.messages});
        let request = Request::post(CHAT)
            .header(header::HOST, "localhost")
            .header("x-motorpool-session", self.session)
            .body(body.to_string().into())
            .expect("a request");
        let answer = daemon.http().send(request).await.expect("a head").whole().await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reply = answer.json();
        self.messages.push(reply["choices"][0]["message"].clone());
        self.messages.push(json!({"role": "user", "content": "And then?"}));
        let tokens = |name: &str| reply["timings"][name].as_u64().expect("a count");
        (tokens("prompt_n"), tokens("cache_n"))
    }
}

#[tokio::test]
async fn conversations_in_turns_evaluate_only_what_is_new() {
    let house = house().await;
    let file = model_file();
    house.write_beside("catalog/two.toml", &format!("id = \"two\"\nslots = 2\nsource = {{ file = {file:?} }}\n"));
    let daemon = house.start().await;
    let (mut ann, mut bob) = (Talk::begin("ann"), Talk::begin("bob"));
    let (first, _) = ann.turn(&daemon).await;
    bob.turn(&daemon).await;
    assert!(first > 200, "a long beginning: {first}");
    for _ in 0..3 {
        for talk in [&mut ann, &mut bob] {
            let (evaluated, there) = talk.turn(&daemon).await;
            assert!(evaluated < 64 && there + 64 > first, "{}: {evaluated} evaluated, {there} there", talk.session);
        }
    }
    daemon.stop().await;
}
