//! What clients get through the daemon from the real engine.
use motorpool_testkit::Answer;
use motorpool_tests::e2e::{
    Daemon,
    installed::{MODEL, engine_itself, engine_pid, house, model_file},
    processes::is_alive,
    talk::{CHAT, Said},
};
use serde_json::{Value, json};

/// A chat that says the same each time.
fn chat(model: &str, n_tokens: u32, more: &Value) -> Value {
    let mut body = json!({
        "model": model, "max_tokens": n_tokens, "temperature": 0, "seed": 1, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Count from one to twenty."}],
    });
    let more = more.as_object().expect("members").clone();
    body.as_object_mut().expect("an object").extend(more);
    body
}

async fn post(daemon: &Daemon<'_>, path: &str, body: &Value) -> Answer {
    let answer = daemon.http().post(path, body).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Names of all members, at every depth: what a reply looks like, whatever it says.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

/// What differs from one call to the next.
fn without_accidents(mut reply: Value) -> Value {
    for name in ["id", "created", "timings"] {
        reply.as_object_mut().expect("an object").remove(name);
    }
    // How much of the prompt was cached depends on what came before.
    reply["usage"].as_object_mut().expect("usage").remove("prompt_tokens_details");
    reply
}

#[tokio::test]
async fn a_reply_put_together_here_is_the_engines_own() {
    let house = house().await;
    let daemon = house.start().await;
    let chats = [json!({}), json!({"stop": ["5"]}), json!({"n_predict": 3})];
    let mut cases: Vec<(&str, Value)> = chats.iter().map(|more| (CHAT, chat(MODEL, 12, more))).collect();
    let completion =
        json!({"model": MODEL, "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0, "seed": 1});
    cases.push(("/v1/completions", completion));
    for (path, body) in cases {
        let ours = post(&daemon, path, &body).await.json();
        let engine = engine_itself(&house);
        let theirs = engine.post(path, &body).await.expect("an answer").json();
        assert_eq!(shape(&ours), shape(&theirs), "{path} {body}: {ours:#} {theirs:#}");
        assert_eq!(without_accidents(ours), without_accidents(theirs), "{path} {body}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_says_what_the_reply_in_one_piece_says() {
    let house = house().await;
    let daemon = house.start().await;
    let whole = post(&daemon, CHAT, &chat(MODEL, 12, &json!({}))).await.json();
    let content = whole["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let answer = post(&daemon, CHAT, &chat(MODEL, 12, &json!({"stream": true}))).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let said = Said::read(&answer.text());
    assert!(!content.is_empty());
    assert_eq!((said.text, said.is_done, said.error), (content, true, None));
    assert!(!answer.text().contains("\"usage\""), "usage was not asked for");
    let asked = chat(MODEL, 4, &json!({"stream": true, "stream_options": {"include_usage": true}}));
    assert!(post(&daemon, CHAT, &asked).await.text().contains("\"completion_tokens\":4"));
    let prompt = json!({"model": MODEL, "prompt": "One, two,", "max_tokens": 8, "temperature": 0, "stream": true});
    let streamed = Said::read(&post(&daemon, "/v1/completions", &prompt).await.text());
    assert!(streamed.is_done && !streamed.text.is_empty(), "{streamed:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn four_streams_share_two_slots_and_all_come_whole() {
    let house = house().await;
    let daemon = house.start().await;
    let mut streams = tokio::task::JoinSet::new();
    for n in 0..4_u32 {
        let http = daemon.http();
        streams.spawn(async move {
            let more =
                json!({"stream": true, "messages": [{"role": "user", "content": format!("Tell me about {n}.")}]});
            let answer = http.post(CHAT, &chat(MODEL, 16, &more)).await.expect("an answer");
            let said = Said::read(&answer.text());
            assert!(said.is_done && said.error.is_none() && !said.text.is_empty(), "{said:?}");
        });
    }
    while let Some(done) = streams.join_next().await {
        done.expect("no panic");
    }
    daemon.until_quiet().await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_embedding_model_embeds_and_the_list_names_all() {
    let mut house = house().await;
    // It computes a row of its vocabulary for every token of a batch: with more context it is no small model.
    let entry = "slots = 1\nprompt_cache = \"0MiB\"\ncapabilities = [\"embeddings\"]\n";
    house.add_model("embedder", &model_file(), &format!("{entry}extra_args = [\"--pooling\", \"mean\"]\n"));
    house.add_model("unpooled", &model_file(), entry);
    let daemon = house.start().await;
    let load = daemon.cli(&["load", "unpooled"]).await;
    assert!(load.code == Some(10) && load.stderr.contains("Pooling type 'none'"), "{load:?}");
    let body = json!({"model": "embedder", "input": ["one", "two"]});
    let reply = post(&daemon, "/v1/embeddings", &body).await.json();
    let rows = reply["data"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{reply}");
    assert!(rows.iter().all(|row| row["embedding"].as_array().is_some_and(|numbers| numbers.len() == 640)));
    let list = daemon.http().get("/v1/models").await.expect("an answer").json();
    let ids: Vec<_> = list["data"].as_array().expect("rows").iter().filter_map(|row| row["id"].as_str()).collect();
    assert!(ids.contains(&MODEL) && ids.contains(&"embedder"), "{ids:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_is_undisturbed_when_another_model_needs_its_room() {
    let mut house = house().await;
    for id in ["one", "two"] {
        house.add_model(id, &model_file(), "declared = \"600MiB\"\nslots = 1\nprompt_cache = \"0MiB\"\n");
    }
    let daemon = house.start().await;
    let body = |model: &str| {
        json!({"model": model, "prompt": "One, two, three,", "max_tokens": 40, "temperature": 0, "seed": 1,
               "ignore_eos": true, "stream": true})
    };
    let alone = Said::read(&post(&daemon, "/v1/completions", &body("one")).await.text());
    let first = engine_pid(&daemon, "one").await;
    let mut stream = daemon.http().open("/v1/completions", &body("one")).await.expect("a head");
    let mut events = stream.until("\n\n").await.expect("it goes on");
    let other = tokio::spawn({
        let (http, body) = (daemon.http(), body("two"));
        async move { http.post("/v1/completions", &body).await.expect("an answer") }
    });
    events += &stream.whole().await.expect("its end").text();
    assert_eq!(Said::read(&events), alone);
    let answer = other.await.expect("no panic");
    assert_eq!(Said::read(&answer.text()), alone, "the same file says the same");
    assert!(!is_alive(first), "its room was taken");
    assert!(daemon.status().await.pool.committed_bytes <= 1 << 30);
    daemon.stop().await;
}
