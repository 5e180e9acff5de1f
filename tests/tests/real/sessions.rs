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
        Self::begin_with(session, 40)
    }

    /// The same with so many sentences.
    fn begin_with(session: &'static str, n_sentences: u32) -> Self {
        let text = (0..n_sentences).fold(format!("I am {session}."), |mut text, n| {
            let _ = write!(text, " {session} has seen {n} birds.");
            text
        });
        Self { session, messages: vec![json!({"role": "user", "content": text})] }
    }

    /// The next turn; the reply becomes part of the conversation. Its tokens that were evaluated, and that were there.
    async fn turn(&mut self, daemon: &Daemon<'_>) -> (u64, u64) {
        self.turn_with("two", daemon).await
    }

    async fn turn_with(&mut self, model: &str, daemon: &Daemon<'_>) -> (u64, u64) {
        let body = json!({"model": model, "max_tokens": 8, "temperature": 0, "seed": 1, "messages": self.messages});
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

/// What a conversation of some 1,500 tokens evaluates in each of its turns, when something is done to its engine before
/// each but the first.
async fn evaluated_around(
    daemon: &Daemon<'_>,
    (model, session, n_turns): (&str, &'static str, u32),
    between: &[&str],
) -> Vec<u64> {
    let mut talk = Talk::begin_with(session, 180);
    let (first, _) = talk.turn_with(model, daemon).await;
    let mut evaluated = vec![first];
    for _ in 1..n_turns {
        if !between.is_empty() {
            let done = daemon.cli(between).await;
            assert_eq!(done.code, Some(0), "{done:?}");
        }
        evaluated.push(talk.turn_with(model, daemon).await.0);
    }
    evaluated
}

#[tokio::test]
async fn a_conversation_whose_engine_is_stopped_between_its_turns_evaluates_no_token_more() {
    let house = house().await;
    let file = model_file();
    let entry = |id: &str, more: &str| {
        format!("id = \"{id}\"\ncontext = 4096\nslots = 2\n{more}source = {{ file = {file:?} }}\n")
    };
    house.write_beside("catalog/kept.toml", &entry("kept", "session_state = \"on\"\n"));
    house.write_beside("catalog/plain.toml", &entry("plain", ""));
    let daemon = house.start().await;
    let stays = evaluated_around(&daemon, ("kept", "ann", 4), &[]).await;
    // The same name is as long in tokens.
    let goes = evaluated_around(&daemon, ("kept", "bob", 4), &["unload", "kept"]).await;
    assert!(stays[0] > 1_400, "a long beginning: {stays:?}");
    assert_eq!(goes[1..], stays[1..], "evaluated in each turn after the first");
    let written = daemon.log().matches("the context of a session is written").count();
    let back = daemon.log().matches("the context of a session is read back").count();
    assert_eq!((written, back), (4, 3), "ann's too, when bob's engine stopped first");

    let windowed = evaluated_around(&daemon, ("plain", "ann", 2), &["unload", "plain"]).await;
    assert!(windowed[1..].iter().all(|n| *n > 1_400), "its layers see a window: {windowed:?}");
    assert!(daemon.log().contains("contexts of sessions do not outlive it: layers of the model see a window"));
    for (model, is_told) in [("plain", true), ("kept", false)] {
        let plan = daemon.cli(&["explain", model]).await.stdout;
        assert_eq!(plan.contains("contexts of sessions do not outlive it"), is_told, "{plan}");
    }
    daemon.stop().await;

    let daemon = house.start().await;
    // The same words, so that as many tokens are new.
    let mut talk = Talk { session: "another", ..Talk::begin_with("ann", 180) };
    talk.turn_with("kept", &daemon).await;
    daemon.stop().await;
    let daemon = house.start().await;
    let (evaluated, there) = talk.turn_with("kept", &daemon).await;
    assert_eq!(evaluated, stays[1], "in another run, where {there} were there");
    daemon.stop().await;
}
