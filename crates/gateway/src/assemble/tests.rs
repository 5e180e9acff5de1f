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
