//! Replies that are put together here are the real engine's own, whatever was asked for and by whichever API.
//!
//! The model is small, so that it does what it was shown: calls of tools follow others in the conversation, and a template
//! of ours makes it think.
use motorpool_tests::e2e::{
    Daemon, House,
    installed::{engine_itself, house, model_file},
    talk::CHAT,
};
use serde_json::{Value, json};

/// Conversations with tools.
const TEMPLATE: &str = include_str!("templated.jinja");
/// What makes a model think that it thinks.
const THINKS: &str = "        {%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}\n";

async fn templated(text: &str) -> House {
    let mut house = house().await;
    let template = house.path("templated.jinja");
    std::fs::write(&template, text).expect("written");
    let arguments = format!("extra_args = [\"--chat-template-file\", \"{}\"]\n", template.display());
    house.add_model("a", &model_file(), &format!("slots = 2\nprompt_cache = \"0MiB\"\n{arguments}"));
    house
}

fn with(base: &Value, more: &Value) -> Value {
    let mut body = base.clone();
    body.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
    body
}

/// What differs from one call to the next, at any depth: ids, times, and how much was in the cache.
fn without_accidents(value: &Value) -> Value {
    const ACCIDENTS: [&str; 11] = [
        "id",
        "created",
        "created_at",
        "completed_at",
        "timings",
        "call_id",
        "prompt_tokens_details",
        "input_tokens_details",
        "cache_read_input_tokens",
        "id_slot",
        "tokens_cached",
    ];
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| !ACCIDENTS.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), without_accidents(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_accidents).collect(),
        other => other.clone(),
    }
}

/// Of Anthropic's counts, the prompt's is less what was in the cache.
fn comparable(path: &str, reply: &Value) -> Value {
    let mut reply = without_accidents(reply);
    if path == "/v1/messages" {
        reply["usage"].as_object_mut().expect("usage").remove("input_tokens");
    }
    reply
}

/// Asks the daemon and the engine itself; their replies are one. `holds` must be in it. It was asked once before: what the
/// engine says can turn on how much of the prompt lies in its cache, and so both find the same there.
async fn assert_same(house: &House, daemon: &Daemon<'_>, (path, body, holds): (&str, &Value, &str)) {
    daemon.http().post(path, body).await.expect("an answer");
    let ours = daemon.http().post(path, body).await.expect("an answer");
    let theirs = engine_itself(house).post(path, body).await.unwrap_or_else(|error| panic!("{path} {body}: {error}"));
    assert_eq!((ours.status, theirs.status.as_u16()), (theirs.status, 200), "{path} {body}: {}", ours.text());
    let (ours, theirs) = (ours.json(), theirs.json());
    assert!(ours.to_string().contains(holds), "{path} {body} shows no {holds}: {ours}");
    assert_eq!(comparable(path, &ours), comparable(path, &theirs), "{path} {body}");
}

/// A conversation in which numbers are counted.
fn counted() -> Value {
    let says = |role: &str, content: &str| json!({"role": role, "content": content});
    let count = "one two three four five six seven eight nine ten";
    json!([says("user", "1"), says("assistant", count), says("user", "2"), says("assistant", count), says("user", "3")])
}

/// Conversations in which every question is answered by calls of a tool.
fn shown() -> Value {
    let mut messages = Vec::new();
    for city in ["Rome", "Oslo", "Bern"] {
        let arguments = json!({"c": city}).to_string();
        let call = json!({"id": "c0", "type": "function", "function": {"name": "w", "arguments": arguments}});
        messages.push(json!({"role": "user", "content": format!("Weather in {city}?")}));
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": "c0", "content": "sun"}));
    }
    messages.push(json!({"role": "user", "content": "Weather in Rome?"}));
    messages.into()
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]});
    let function = json!({"name": "w", "description": "The weather.", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}

#[tokio::test]
async fn chats_are_put_together_as_the_engine_would() {
    let house = templated(TEMPLATE).await;
    let daemon = house.start().await;
    let messages = counted();
    let chat = json!({"model": "a", "messages": messages, "max_tokens": 5, "temperature": 0, "seed": 1});
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let calls = json!({"messages": shown(), "tools": tools()});
    for (path, body, holds) in [
        (CHAT, chat.clone(), "\"length\""),
        (CHAT, with(&chat, &json!({"max_tokens": 1})), "\"length\""),
        (CHAT, with(&chat, &json!({"stop": ["<", "e", "o", "1", "2"]})), "\"stop\""),
        (CHAT, with(&chat, &json!({"stop": ["ne", "two"]})), "\"message\""),
        (CHAT, with(&chat, &json!({"n": 2})), "\"index\":1"),
        (CHAT, with(&chat, &json!({"logprobs": true, "top_logprobs": 2})), "top_logprobs"),
        (CHAT, with(&chat, &json!({"response_format": format, "max_tokens": 24})), "n\\\""),
        (CHAT, with(&with(&chat, &calls), &json!({"max_tokens": 40})), "\"tool_calls\":["),
    ] {
        assert_same(&house, &daemon, (path, &body, holds)).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn completions_are_put_together_as_the_engine_would() {
    let house = templated(TEMPLATE).await;
    let daemon = house.start().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let text = json!({"model": "a", "prompt": "One, two, three,", "max_tokens": 6, "temperature": 0, "seed": 1});
    let native = json!({"model": "a", "prompt": "One, two, three,", "n_predict": 6, "temperature": 0, "seed": 1});
    for (path, body, holds) in [
        ("/v1/completions", text.clone(), "\"length\""),
        ("/v1/completions", with(&text, &json!({"logprobs": 2})), "top_logprobs"),
        ("/v1/completions", with(&text, &json!({"stop": ","})), "\"stop\""),
        ("/v1/completions", with(&text, &json!({"prompt": "東京、大阪、東京、大阪、東京、"})), "阪"),
        ("/v1/completions", with(&text, &json!({"prompt": ["One,", "Two,"]})), "\"index\":1"),
        ("/completion", native.clone(), "\"limit\""),
        ("/completion", with(&native, &json!({"stop": [","]})), "\"word\""),
        ("/completion", with(&native, &json!({"json_schema": schema, "n_predict": 24})), "n\\\""),
        ("/completion", with(&native, &json!({"n_probs": 2})), "completion_probabilities"),
        ("/completions", with(&native, &json!({"prompt": "東京、大阪、東京、大阪、東京、"})), "阪"),
    ] {
        assert_same(&house, &daemon, (path, &body, holds)).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn messages_and_responses_are_put_together_as_the_engine_would() {
    let house = templated(TEMPLATE).await;
    let daemon = house.start().await;
    let messages = counted();
    let message = json!({"model": "a", "messages": messages, "max_tokens": 5, "temperature": 0, "seed": 1});
    let (mut asked, mut input) = (Vec::new(), Vec::new());
    for city in ["Rome", "Oslo", "Bern"] {
        let question = json!({"role": "user", "content": format!("Weather in {city}?")});
        let called = json!({"type": "tool_use", "id": "c", "name": "get_weather", "input": {"city": city}});
        let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "sun"});
        asked.extend([question.clone(), json!({"role": "assistant", "content": [called]})]);
        asked.push(json!({"role": "user", "content": [result]}));
        let arguments = json!({"city": city}).to_string();
        input.push(question);
        input.push(json!({"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": arguments}));
        input.push(json!({"type": "function_call_output", "call_id": "c", "output": "sun"}));
    }
    let last = json!({"role": "user", "content": "Weather in Rome?"});
    asked.push(last.clone());
    input.push(last);
    let anthropic = json!([{"name": "get_weather", "description": "The weather.", "input_schema": parameters()}]);
    let flat =
        json!([{"type": "function", "name": "get_weather", "description": "The weather.", "parameters": parameters()}]);
    let response =
        json!({"model": "a", "input": "one two three four five six seven", "max_output_tokens": 5, "temperature": 0});
    for (path, body, holds) in [
        ("/v1/messages", message.clone(), "\"max_tokens\""),
        ("/v1/messages", with(&message, &json!({"stop_sequences": ["<", "e", "o", "1", "2"]})), "\"stop_sequence\":\""),
        ("/v1/messages", with(&message, &json!({"stop_sequences": ["ne", "two"]})), "\"message\""),
        (
            "/v1/messages",
            with(&message, &json!({"messages": asked, "tools": anthropic, "max_tokens": 40})),
            "\"tool_use\"",
        ),
        (
            "/v1/messages",
            with(&message, &json!({"thinking": {"type": "enabled", "budget_tokens": 1024}})),
            "\"message\"",
        ),
        ("/v1/responses", response.clone(), "output_text"),
        ("/v1/responses", with(&response, &json!({"max_output_tokens": 1})), "output_text"),
        (
            "/v1/responses",
            with(&response, &json!({"input": input, "tools": flat, "max_output_tokens": 40})),
            "\"function_call\"",
        ),
        ("/responses", response.clone(), "output_text"),
    ] {
        assert_same(&house, &daemon, (path, &body, holds)).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn thoughts_are_put_together_as_the_engine_would() {
    let (before, begins) = ("        {%- if message.content %}", "{%- if add_generation_prompt %}");
    let template = TEMPLATE.replace(before, &(THINKS.to_owned() + before));
    let (history, _) = template.split_once(begins).expect("it is there");
    let template = format!("{history}{begins}{{{{- '<|im_start|>assistant\\n<think>\\n' }}}}{{%- endif %}}\n");
    let house = templated(&template).await;
    let daemon = house.start().await;
    let chat = json!({"model": "a", "messages": counted(), "max_tokens": 5, "temperature": 0, "seed": 1});
    let response = json!({"model": "a", "input": "one two three four five", "max_output_tokens": 5, "temperature": 0});
    for (path, body, holds) in [
        (CHAT, &chat, "\"reasoning_content\":\""),
        ("/v1/messages", &chat, "\"thinking\":\""),
        ("/v1/responses", &response, "\"reasoning\""),
    ] {
        assert_same(&house, &daemon, (path, body, holds)).await;
    }
    daemon.stop().await;
}
