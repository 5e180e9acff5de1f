use super::*;
use crate::scan::Scan;
use proptest::prelude::*;
use serde_json::{Value, json};

fn stream(chunks: &[Value]) -> String {
    chunks.iter().fold(String::new(), |text, c| text + "data: " + &c.to_string() + "\n\n") + "data: [DONE]\n\n"
}

fn feed_all(kind: Kind, text: &str, size: usize) -> Option<Assembled> {
    let mut assembler = Assembler::new(kind);
    text.as_bytes().chunks(size).find_map(|c| assembler.feed(c).expect("a stream of chunks"))
}

fn reply_of(kind: Kind, chunks: &[Value]) -> Value {
    let Some(Assembled::Reply(body)) = feed_all(kind, &stream(chunks), 3) else { panic!("no reply") };
    serde_json::from_slice(&body).expect("JSON")
}

fn chat(index: u32, delta: &Value, finish: Option<&str>) -> Value {
    json!({"choices":[{"finish_reason":finish,"index":index,"delta":delta}],"created":7,"id":"x","model":"m",
           "system_fingerprint":"b1","object":"chat.completion.chunk"})
}

fn usage(n: u32) -> Value {
    json!({"choices":[],"created":9,"id":"x","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk",
           "usage":{"completion_tokens":n},"timings":{"predicted_n":n}})
}

#[test]
fn a_chat_reply_is_the_sum_of_its_deltas() {
    let chunks = [
        chat(0, &json!({"role":"assistant","content":null}), None),
        chat(0, &json!({"reasoning_content":"ähm"}), None),
        chat(0, &json!({"content":"日"}), None),
        chat(0, &json!({"content":"本\n"}), None),
        chat(0, &json!({}), Some("stop")),
        usage(4),
    ];
    assert_eq!(
        reply_of(Kind::Chat, &chunks),
        json!({"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"日本\n",
               "reasoning_content":"ähm"}}],"created":9,"model":"m","system_fingerprint":"b1","object":"chat.completion",
               "usage":{"completion_tokens":4},"id":"x","timings":{"predicted_n":4}})
    );
}

#[test]
fn parallel_tool_calls_are_put_together_by_index() {
    let call = |v: Value| chat(0, &json!({"tool_calls":[v]}), None);
    let begin = |i: u32, id: &str| json!({"index":i,"id":id,"type":"function","function":{"name":"f","arguments":"{"}});
    let chunks = [
        chat(0, &json!({"role":"assistant","content":null}), None),
        call(begin(0, "a")),
        call(begin(1, "b")),
        call(json!({"index":0,"function":{"arguments":"\"x\":1}"}})),
        call(json!({"index":1,"function":{"arguments":"}"}})),
        chat(0, &json!({}), Some("tool_calls")),
    ];
    let reply = reply_of(Kind::Chat, &chunks);
    assert_eq!(
        reply["choices"][0]["message"],
        json!({"role":"assistant","content":"","tool_calls":[
            {"type":"function","id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"type":"function","id":"b","function":{"name":"f","arguments":"{}"}}]})
    );
    assert_eq!(reply.get("usage"), None);
}

#[test]
fn choices_are_sorted_and_usage_is_the_first_ones() {
    let chunks = [
        chat(1, &json!({"content":"one"}), None),
        chat(0, &json!({"content":"zero"}), None),
        chat(1, &json!({}), Some("length")),
        usage(11),
        chat(0, &json!({}), Some("stop")),
        usage(10),
    ];
    let reply = reply_of(Kind::Chat, &chunks);
    assert_eq!(reply["usage"]["completion_tokens"], 10);
    assert_eq!(reply["timings"]["predicted_n"], 10);
    assert_eq!(reply["choices"][0]["message"]["content"], "zero");
    assert_eq!(reply["choices"][1]["finish_reason"], "length");
}

#[test]
fn text_replies_keep_every_digit_of_their_probabilities() {
    let entry = r#"{"id":1,"token":"é","bytes":[195,169],"logprob":-1.2578167915344238,"top_logprobs":[]}"#;
    let chunk = |text: &str, logprobs: &str, finish: &str| {
        format!(
            r#"data: {{"choices":[{{"text":"{text}","index":0,"logprobs":{logprobs},"finish_reason":{finish}}}],"created":1,"usage":{{"a":1e3}}}}"#
        )
    };
    let body = [
        "data: null".to_owned(),
        chunk("é", &format!(r#"{{"content":[{entry}]}}"#), "null"),
        chunk("", "null", "\"length\""),
        "data: [DONE]\n\n".to_owned(),
    ]
    .join("\n\n");
    let Some(Assembled::Reply(reply)) = feed_all(Kind::Text, &body, 5) else { panic!("no reply") };
    assert_eq!(
        String::from_utf8(reply.to_vec()).expect("text"),
        format!(
            r#"{{"choices":[{{"text":"é","index":0,"logprobs":{{"content":[{entry}]}},"finish_reason":"length"}}],"created":1,"object":"text_completion","usage":{{"a":1e3}}}}"#
        )
    );
}

#[test]
fn an_error_inside_the_stream_becomes_the_answer() {
    let failed =
        |error: &str| feed_all(Kind::Chat, &format!("data: {}\n\ndata: {{\"error\":{error}}}\n\n", usage(1)), 64);
    let refused = |status, body: &str| Some(Assembled::Refused { status, body: Bytes::from(body.to_owned()) });
    let told = r#"{"code":400,"message":"too long","type":"exceed_context_size_error"}"#;
    assert_eq!(failed(told), refused(400, &format!(r#"{{"error":{told}}}"#)));
    assert_eq!(failed(r#""no""#), refused(500, r#"{"error":"no"}"#));
    assert_eq!(failed(r#"{"code":200}"#), refused(500, r#"{"error":{"code":200}}"#));
}

#[test]
fn a_stream_without_a_last_word_is_no_reply() {
    assert_eq!(feed_all(Kind::Chat, &format!("data: {}\n\n", usage(1)), 9), None);
    assert!(matches!(Assembler::new(Kind::Chat).feed(b"data: <html>\n\n"), Err(AssembleError::NotAChunk(_))));
}

#[test]
fn only_requests_that_are_known_through_and_through_are_assembled() {
    for (body, yes) in [
        (r#"{"model":"m","messages":[],"temperature":0}"#, true),
        (r#"{"stream":false,"stream_options":null,"stop":null}"#, true),
        (r#"{"stream":null,"stop":[],"logprobs":false}"#, true),
        (r#"{"stop":"\n","logprobs":false}"#, true),
        (r#"{"stop":["\n","."]}"#, true),
        (r#"{"stream":true}"#, false),
        (r#"{"stream":0}"#, false),
        (r#"{"echo":true}"#, false),
        (r#"{"stop":"\n\n"}"#, false),
        (r#"{"stop":["a","User:"]}"#, false),
        (r#"{"stop":7}"#, false),
        (r#"{"stop":".","logprobs":1}"#, false),
        (r#"{"stop":".","stop":"."}"#, false),
    ] {
        let mut scan = Scan::new(PLAIN_MEMBERS);
        scan.feed(body.as_bytes()).expect("an object");
        let found = scan.finish().expect("whole");
        assert_eq!(can_assemble(Kind::Text, &found), yes, "{body}");
        assert_eq!(can_assemble(Kind::Chat, &found), yes, "{body}");
    }
    let mut scan = Scan::new(PLAIN_MEMBERS);
    scan.feed(br#"{"logprobs":1,"stop":[]}"#).expect("an object");
    let found = scan.finish().expect("whole");
    assert!(can_assemble(Kind::Text, &found) && !can_assemble(Kind::Chat, &found));
}

proptest! {
    #[test]
    fn text_survives_any_cut(parts in prop::collection::vec("\\PC{0,6}", 0..8), size in 1..9_usize) {
        let mut chunks: Vec<_> = parts.iter().map(|p| chat(0, &json!({"content":p}), None)).collect();
        chunks.push(chat(0, &json!({}), Some("stop")));
        let Some(Assembled::Reply(body)) = feed_all(Kind::Chat, &stream(&chunks), size) else { panic!("no reply") };
        let reply: Value = serde_json::from_slice(&body).expect("JSON");
        prop_assert_eq!(&reply["choices"][0]["message"]["content"], &Value::from(parts.concat()));
    }
}

/// Events of an API whose events have names.
fn named(events: &[Value]) -> String {
    events.iter().fold(String::new(), |text, event| {
        text + "event: " + event["type"].as_str().unwrap_or("error") + "\ndata: " + &event.to_string() + "\n\n"
    })
}

fn whole(kind: Kind, text: &str) -> Value {
    let Some(Assembled::Reply(body)) = feed_all(kind, text, 5) else { panic!("no reply") };
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn a_message_is_put_together_block_by_block() {
    let block = |index: u32, block: Value| json!({"type":"content_block_start","index":index,"content_block":block});
    let part = |index: u32, delta: Value| json!({"type":"content_block_delta","index":index,"delta":delta});
    let usage = json!({"cache_read_input_tokens":2,"input_tokens":5,"output_tokens":0});
    let events = [
        json!({"type":"message_start","message":{"id":"x","role":"assistant","content":[],"model":"m","usage":usage}}),
        block(0, json!({"type":"thinking","thinking":""})),
        part(0, json!({"type":"thinking_delta","thinking":"h"})),
        part(0, json!({"type":"thinking_delta","thinking":"m"})),
        block(1, json!({"type":"text","text":""})),
        part(1, json!({"type":"text_delta","text":"日"})),
        block(2, json!({"type":"tool_use","id":"t1","name":"f"})),
        part(2, json!({"type":"input_json_delta","partial_json":"{\"a\":"})),
        part(2, json!({"type":"input_json_delta","partial_json":"1.50}"})),
        block(3, json!({"type":"tool_use","id":"t2","name":"g"})),
        part(3, json!({"type":"input_json_delta","partial_json":"{\"cut"})),
        part(0, json!({"type":"signature_delta","signature":""})),
        json!({"type":"content_block_stop","index":0}),
        json!({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}),
        json!({"type":"message_stop"}),
    ];
    let want = json!({
        "id":"x","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","stop_sequence":null,
        "content":[
            {"type":"thinking","thinking":"hm","signature":""},
            {"type":"text","text":"日"},
            {"type":"tool_use","id":"t1","name":"f","input":{"a":1.5}},
            {"type":"tool_use","id":"t2","name":"g","input":{}},
        ],
        "usage":{"cache_read_input_tokens":2,"input_tokens":5,"output_tokens":9},
    });
    assert_eq!(whole(Kind::Messages, &named(&events)), want);
    assert_eq!(feed_all(Kind::Messages, &named(&events[..14]), 7), None, "it was cut");
    let error = Assembler::new(Kind::Messages).feed(named(&events[14..]).as_bytes());
    assert!(matches!(error, Err(AssembleError::NoBeginning)), "{error:?}");
}

#[test]
fn a_response_is_its_last_event_and_what_is_said_of_whole_ones_only() {
    let item = json!({"type":"reasoning","content":[]});
    let events = [
        json!({"type":"response.created","response":{"id":"r"}}),
        json!({"type":"response.output_text.delta","delta":"a"}),
        json!({"type":"response.completed","timings":{},"response":{"id":"r","created_at":7,"output":[item],"usage":{}}}),
    ];
    let want = json!({"completed_at":7,"created_at":7,"id":"r","usage":{},
                      "output":[{"type":"reasoning","content":[],"status":"completed"}]});
    assert_eq!(whole(Kind::Responses, &named(&events)), want);
    assert_eq!(feed_all(Kind::Responses, &named(&events[..2]), 7), None, "it was cut");
}

#[test]
fn a_completion_is_its_last_event_with_all_of_its_text() {
    let events = r#"data: {"index":0,"content":"é","stop":false}

data: {"index":0,"content":"","stop":true,"tokens":[],"generation_settings":{"a":1.0,"stream":true},"timings":{"x":1e3}}

"#;
    let Some(Assembled::Reply(body)) = feed_all(Kind::Native, events, 5) else { panic!("no reply") };
    let want = r#"{"index":0,"content":"é","stop":true,"tokens":[],"generation_settings":{"a":1.0,"stream":false},"timings":{"x":1e3}}"#;
    assert_eq!(body, want);
}

#[test]
fn an_error_of_any_api_becomes_the_answer() {
    let refused = |status, body: &str| Some(Assembled::Refused { status, body: Bytes::from(body.to_owned()) });
    for kind in [Kind::Messages, Kind::Responses, Kind::Native] {
        let bare = "data: {\"error\":{\"code\":503,\"message\":\"no\"}}\n\n";
        assert_eq!(feed_all(kind, bare, 9), refused(503, r#"{"error":{"code":503,"message":"no"}}"#), "{kind:?}");
    }
    for kind in [Kind::Messages, Kind::Responses] {
        let named = "event: error\ndata: {\"code\":400,\"message\":\"no\"}\n\n";
        assert_eq!(feed_all(kind, named, 9), refused(400, r#"{"error":{"code":400,"message":"no"}}"#), "{kind:?}");
    }
}

#[test]
fn each_api_has_its_own_members_and_its_own_stops() {
    for (kind, body, yes) in [
        (Kind::Messages, r#"{"messages":[],"system":"s","stop_sequences":["a"]}"#, true),
        (Kind::Messages, r#"{"messages":[],"stop_sequences":["ab"]}"#, false),
        (Kind::Messages, r#"{"messages":[],"context_management":{}}"#, false),
        (Kind::Responses, r#"{"input":"x","store":true,"reasoning":{}}"#, true),
        (Kind::Responses, r#"{"input":"x","background":true}"#, false),
        (Kind::Native, r#"{"prompt":"x","n_predict":3}"#, true),
        (Kind::Native, r#"{"prompt":["x","y"]}"#, false),
        (Kind::Native, r#"{"prompt":"x","n":2}"#, false),
        (Kind::Native, r#"{"n_predict":2}"#, false),
        (Kind::Native, r#"{"prompt":"x","n_probs":2}"#, false),
    ] {
        let mut scan = Scan::new(kind.members());
        scan.feed(body.as_bytes()).expect("an object");
        assert_eq!(can_assemble(kind, &scan.finish().expect("whole")), yes, "{kind:?} {body}");
    }
}
