//! Calls of Ollama's translated, and streams recast.
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn asked(call: Call, body: &Value) -> (&'static str, Value, Delivery) {
    match translate(call, body.to_string().as_bytes(), "m").expect("it can be asked") {
        Asked::Engine(request) => {
            (request.path, serde_json::from_slice(&request.body).expect("a JSON object"), request.delivery)
        }
        Asked::Presence(delivery) => ("", Value::Null, delivery),
    }
}

fn streaming(more: &Value) -> Value {
    let mut body = json!({"model":"m","stream":true,"stream_options":{"include_usage":true}});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
    body
}

#[test]
fn a_chat_is_asked_in_the_words_of_openais_api() {
    let schema = json!({"type":"object","properties":{"a":{"type":"integer"}}});
    let tools = json!([{"type":"function","function":{"name":"f","parameters":{}}}]);
    let body = json!({
        "model":"x","messages":[{"role":"system","content":"be"},{"role":"user","content":"hé"}],"tools":tools,
        "format":schema,"think":false,"keep_alive":"5m","unknown":1,
        "options":{"temperature":0.5,"num_predict":7,"num_ctx":99,"num_keep":3,"stop":["a"],"seed":null,"top_k":1},
    });
    let want = streaming(&json!({
        "messages":[{"role":"system","content":"be"},{"role":"user","content":"hé"}],"tools":tools,
        "response_format":{"type":"json_schema","json_schema":{"name":"format","schema":schema}},
        "chat_template_kwargs":{"enable_thinking":false},
        "temperature":0.5,"max_tokens":7,"n_keep":3,"stop":["a"],"top_k":1,
    }));
    assert_eq!(asked(Call::Chat, &body), ("/v1/chat/completions", want, Delivery::Lines));
}

#[test]
fn formats_levels_of_thought_and_limits_without_end_are_told_as_the_engine_knows_them() {
    let told = |more: Value| {
        let mut body = json!({"messages":[{"role":"user","content":"x"}],"stream":false});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        let (_, mut told, delivery) = asked(Call::Chat, &body);
        assert_eq!(delivery, Delivery::Whole);
        let told = told.as_object_mut().expect("an object");
        told.retain(|name, _| !["model", "stream", "stream_options", "messages"].contains(&name.as_str()));
        Value::from(told.clone())
    };
    assert_eq!(told(json!({"format":"json"})), json!({"response_format":{"type":"json_object"}}));
    assert_eq!(told(json!({"format":"","think":null,"options":null,"tools":null})), json!({}));
    let high = json!({"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"high"}});
    assert_eq!(told(json!({"think":"high"})), high);
    assert_eq!(told(json!({"think":true})), json!({"chat_template_kwargs":{"enable_thinking":true}}));
    assert_eq!(told(json!({"options":{"num_predict":-1}})), json!({}));
}

#[test]
fn pictures_thoughts_and_calls_of_tools_find_their_place_in_messages() {
    let call = |name: &str| json!({"function":{"name":name,"arguments":{"city":"Rome"}}});
    let (_, told, _) = asked(
        Call::Chat,
        &json!({"messages":[
            {"role":"user","content":"look","images":["/9j/4A","iVBOR"]},
            {"role":"assistant","content":"","thinking":"hm","tool_calls":[call("a"),call("b")]},
            {"role":"tool","content":"rain","tool_name":"b"},
            {"role":"tool","content":"sun"},
            {"role":"tool","content":"?","tool_call_id":"theirs"},
        ]}),
    );
    let picture = |url: &str| json!({"type":"image_url","image_url":{"url":url}});
    let written = |id: &str, name: &str| json!({"id":id,"type":"function","function":{"name":name,"arguments":"{\"city\":\"Rome\"}"}});
    let want = json!([
        {"role":"user","content":[{"type":"text","text":"look"},picture("data:image/jpeg;base64,/9j/4A"),picture("data:image/png;base64,iVBOR")]},
        {"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[written("call_0","a"),written("call_1","b")]},
        {"role":"tool","content":"rain","tool_call_id":"call_1","name":"b"},
        {"role":"tool","content":"sun","tool_call_id":"call_0"},
        {"role":"tool","content":"?","tool_call_id":"theirs"},
    ]);
    assert_eq!(told["messages"], want);
}

#[test]
fn a_prompt_is_a_chat_of_one_message_unless_it_is_raw_or_has_a_suffix() {
    let (path, told, _) = asked(Call::Generate, &json!({"prompt":"p","system":"s","images":["R0lGOD"]}));
    let picture = json!({"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGOD"}});
    let user = json!({"role":"user","content":[{"type":"text","text":"p"},picture]});
    assert_eq!((path, &told["messages"]), ("/v1/chat/completions", &json!([{"role":"system","content":"s"}, user])));

    let (path, told, _) = asked(Call::Generate, &json!({"prompt":"p","raw":true,"format":"json","options":{"seed":1}}));
    assert_eq!((path, told), ("/v1/completions", streaming(&json!({"prompt":"p","json_schema":{},"seed":1}))));

    let (path, told, _) = asked(Call::Generate, &json!({"prompt":"p","suffix":"s"}));
    assert_eq!((path, told), ("/infill", streaming(&json!({"input_prefix":"p","input_suffix":"s"}))));
}

#[test]
fn inputs_are_embedded_and_what_is_empty_asks_only_that_the_model_be_there() {
    let float = |input: Value| json!({"model":"m","input":input,"encoding_format":"float"});
    for (call, body, want) in [
        (Call::Embed, json!({"input":["a","b"]}), float(json!(["a", "b"]))),
        (Call::Embed, json!({"input":"a","truncate":true}), float(json!("a"))),
        (Call::Embeddings, json!({"prompt":"a"}), float(json!("a"))),
    ] {
        assert_eq!(asked(call, &body), ("/v1/embeddings", want, Delivery::Whole), "{body}");
    }
    for (call, body) in [
        (Call::Chat, json!({})),
        (Call::Chat, json!({"messages":[]})),
        (Call::Generate, json!({"prompt":""})),
        (Call::Embed, json!({"input":[]})),
        (Call::Embeddings, json!({"prompt":""})),
    ] {
        assert_eq!(asked(call, &body).0, "", "{body}");
    }
}

#[test]
fn what_cannot_be_translated_is_refused_in_words() {
    for (call, body, word) in [
        (Call::Chat, json!({"messages":7}), "list of messages"),
        (Call::Chat, json!({"messages":[{"content":"x"}]}), "role"),
        (Call::Chat, json!({"messages":[{"role":"user"}],"format":7}), "`format` is"),
        (Call::Chat, json!({"messages":[{"role":"user"}],"think":"deep"}), "`think` is"),
        (Call::Chat, json!({"messages":[{"role":"user"}],"stream":"yes"}), "boolean"),
        (Call::Generate, json!({"prompt":"x","template":"{{ .Prompt }}"}), "`template`"),
        (Call::Generate, json!({"prompt":"x","context":[1,2]}), "`context`"),
        (Call::Embeddings, json!({"prompt":["a"]}), "`prompt` is"),
        (Call::Embed, json!({"input":{}}), "`input` is"),
    ] {
        let error = translate(call, body.to_string().as_bytes(), "m").expect_err("no call");
        assert!(error.to_string().contains(word), "{body}: {error}");
    }
}

fn recast(style: Style, delivery: Delivery) -> Recast {
    let terms = Terms { model: "x".into(), began: Instant::now(), loaded_within: Duration::from_millis(3) };
    Recast::new(style, delivery, terms)
}

/// The lines, without what differs from one call to the next.
fn lines(text: &[u8]) -> Vec<Value> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut line: Value = serde_json::from_slice(line).expect("JSON");
            let members = line.as_object_mut().expect("an object");
            assert!(members.remove("created_at").is_some_and(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))));
            assert_eq!(members.remove("model"), Some(json!("x")));
            if members["done"] == true {
                assert_eq!(members.remove("load_duration"), Some(json!(3_000_000)));
                assert!(members.remove("total_duration").is_some_and(|n| n.as_u64().is_some()));
            }
            line
        })
        .collect()
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn delta(delta: &Value, reason: &Value) -> String {
    event(&json!({"choices":[{"index":0,"delta":delta,"finish_reason":reason}]}))
}

const LAST: &str = r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7},"timings":{"prompt_ms":1.5,"predicted_ms":2,"prompt_n":1}}

data: [DONE]

"#;

#[test]
fn a_stream_becomes_lines_and_the_last_one_counts_in_nanoseconds() {
    let mut recast = recast(Style::Message, Delivery::Lines);
    let null = Value::Null;
    let text = delta(&json!({"role":"assistant","content":null}), &null)
        + &delta(&json!({"reasoning_content":"hm"}), &null)
        + &delta(&json!({"content":"日"}), &null)
        + &delta(&json!({"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\""}}]}), &null)
        + &delta(
            &json!({"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"name":"cut","arguments":"{"}}]}),
            &null,
        )
        + &delta(&json!({}), &json!("tool_calls"))
        + LAST;
    assert_eq!(recast.feed(text.as_bytes()).expect("a stream"), Some(Ended::Whole));
    let message = |more: Value| {
        let mut message = json!({"role":"assistant","content":""});
        message.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        message
    };
    let call = json!({"id":"c","function":{"name":"f","arguments":{"a":1}}});
    assert_eq!(
        lines(&recast.take_out()),
        [
            json!({"message":message(json!({"thinking":"hm"})),"done":false}),
            json!({"message":message(json!({"content":"日"})),"done":false}),
            json!({"message":message(json!({"tool_calls":[call]})),"done":false}),
            json!({"message":message(json!({})),"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":7,
                   "prompt_eval_duration":1_500_000,"eval_duration":2_000_000}),
        ]
    );
}

#[test]
fn arguments_on_several_lines_are_told_in_one() {
    for written in ["{\n  \"a\": \"b\\n\"\r\n}", "{\r\"a\":\"b\\n\"}"] {
        let mut recast = recast(Style::Message, Delivery::Lines);
        let call = json!({"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":written}}]});
        let text = delta(&call, &json!("tool_calls")) + LAST;
        assert_eq!(recast.feed(text.as_bytes()).expect("a stream"), Some(Ended::Whole));
        let out = recast.take_out();
        assert!(!out.contains(&b'\r'), "{written:?}");
        let told = &lines(&out)[0]["message"]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(*told, json!({"a":"b\n"}), "{written:?}");
    }
}

#[test]
fn who_wants_one_document_gets_one() {
    let mut recast = recast(Style::Response, Delivery::Whole);
    let text = delta(&json!({"reasoning_content":"hm"}), &Value::Null)
        + &delta(&json!({"content":"a"}), &Value::Null)
        + &delta(&json!({"content":"b"}), &json!("length"));
    assert_eq!(recast.feed(text.as_bytes()).expect("a stream"), None);
    assert!(recast.take_out().is_empty(), "nothing before the end");
    assert_eq!(recast.feed(LAST.as_bytes()).expect("a stream"), Some(Ended::Whole));
    let want = json!({"response":"ab","thinking":"hm","done":true,"done_reason":"length","prompt_eval_count":5,
                      "eval_count":7,"prompt_eval_duration":1_500_000,"eval_duration":2_000_000});
    assert_eq!(lines(&recast.take_out()), [want]);
}

#[test]
fn a_gap_is_filled_from_events_of_the_engines_own_form() {
    let mut recast = recast(Style::Response, Delivery::Lines);
    let text = event(&json!({"content":"x","stop":false}))
        + &event(&json!({"content":"","stop":true,"stop_type":"limit","tokens_evaluated":2,"tokens_predicted":1}));
    assert_eq!(recast.feed(text.as_bytes()).expect("a stream"), Some(Ended::Whole));
    let end = json!({"response":"","done":true,"done_reason":"length","prompt_eval_count":2,"eval_count":1});
    assert_eq!(lines(&recast.take_out()), [json!({"response":"x","done":false}), end]);
}

#[test]
fn an_engines_error_ends_the_stream_with_its_status() {
    for (error, status) in [(json!({"code":400,"message":"no"}), 400), (json!("no"), 500), (json!({"code":7}), 500)] {
        let mut recast = recast(Style::Message, Delivery::Lines);
        let document = json!({"error":error}).to_string().into_bytes();
        let ended = recast.feed(event(&json!({"error":error})).as_bytes()).expect("a stream");
        assert_eq!(ended, Some(Ended::Refused(status, document)));
    }
    assert!(recast(Style::Message, Delivery::Lines).feed(b"data: <html>\n\n").is_err());
}

proptest! {
    #[test]
    fn text_survives_any_cut(parts in prop::collection::vec("\\PC{1,6}", 0..8), size in 1..9_usize) {
        let text: String = parts.iter().map(|part| delta(&json!({"content":part}), &Value::Null)).collect();
        let text = text + &delta(&json!({}), &json!("stop")) + LAST;
        let mut recast = recast(Style::Message, Delivery::Lines);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            let ended = recast.feed(piece).expect("a stream");
            out.extend(recast.take_out());
            if ended.is_some() {
                break;
            }
        }
        let told = lines(&out);
        let said: String = told.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
        prop_assert_eq!(said, parts.concat());
        prop_assert_eq!(told.len(), parts.len() + 1);
        prop_assert_eq!(&told[parts.len()]["done"], &Value::from(true));
    }
}
