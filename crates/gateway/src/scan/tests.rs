use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value};

const LISTED: &[&str] = &["messages", "temperature"];

fn scan_chunks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Findings, ScanError> {
    let mut scan = Scan::new(LISTED);
    for chunk in chunks {
        scan.feed(chunk)?;
    }
    scan.finish()
}

fn scan(body: &str) -> Result<Findings, ScanError> {
    let whole = scan_chunks([body.as_bytes()]);
    assert_eq!(whole, scan_chunks(body.as_bytes().chunks(1)), "one byte at a time: {body}");
    whole
}

fn at<'a>(body: &'a str, range: &Range<u64>) -> &'a str {
    let place = |n| usize::try_from(n).expect("a short body");
    &body[place(range.start)..place(range.end)]
}

#[test]
fn members_are_found_where_they_stand() {
    let body = r#" { "messages":[{"role":"user","content":"}{\"model\":\"no\""}], "model" : "a/b" ,"stream":true,"id_slot":-1}"#;
    let found = scan(body).expect("an object");
    assert_eq!(found.model(), Some("a/b"));
    assert!(!found.has_strangers && found.n_members > 0);
    assert_eq!(found.open_end, 2);
    for (key, name, value) in
        [(Key::Model, "\"model\"", "\"a/b\""), (Key::Stream, "\"stream\"", "true"), (Key::IdSlot, "\"id_slot\"", "-1")]
    {
        let field = found.field(key).expect("it is there");
        assert_eq!((at(body, &field.name), at(body, &field.value)), (name, value));
        assert_eq!(found.raw(key), Some(value.as_bytes()));
    }
    assert_eq!(found.field(Key::KeepAlive), None);
}

#[test]
fn escapes_in_names_and_in_the_model_are_decoded() {
    let found = scan(r#"{"mod\u0065l":"x\/\"\\\n\u00e9\ud83d\ude80é","\u0073tream_options":{}}"#).expect("an object");
    assert_eq!(found.model(), Some("x/\"\\\n\u{e9}\u{1F680}é"));
    assert!(found.field(Key::StreamOptions).is_some());
}

#[test]
fn the_model_is_known_with_its_last_byte() {
    let mut scan = Scan::new(LISTED);
    scan.feed(br#"{"model":"m"#).expect("so far");
    assert_eq!(scan.model(), None);
    scan.feed(br#"","messages":["#).expect("so far");
    assert_eq!(scan.model(), Some("m"));
}

#[test]
fn routed_members_may_stand_once_whichever_escapes_spell_them() {
    for key in Key::ALL {
        let name = key.as_str();
        let (head, tail) = name.split_at(1);
        let code = u32::from(head.as_bytes()[0]);
        let body = format!(r#"{{"{name}":null,"x":{{"{name}":1,"{name}":2}},"\u{code:04X}{tail}":null}}"#);
        let result = scan(&body);
        if key.is_routed() {
            assert_eq!(result, Err(ScanError::Twice(key)));
        } else {
            assert!(result.expect("an object").has_strangers);
        }
    }
}

#[test]
fn what_is_no_object_is_refused_with_its_place() {
    let syntax = |at, expected| Err(ScanError::Syntax { at, expected });
    for (body, error) in [
        ("", Err(ScanError::NotAnObject)),
        ("  ", Err(ScanError::NotAnObject)),
        ("[]", Err(ScanError::NotAnObject)),
        ("\u{feff}{}", Err(ScanError::NotAnObject)),
        ("\"{}\"", Err(ScanError::NotAnObject)),
        ("{} {}", syntax(3, "the end of the body")),
        ("{}\0", syntax(2, "the end of the body")),
        ("{,}", syntax(1, "a name or `}`")),
        (r#"{"a":1,}"#, syntax(7, "a name")),
        (r#"{"a" 1}"#, syntax(5, "`:`")),
        (r#"{"a":}"#, syntax(5, "a value")),
        (r#"{"a":1 2}"#, syntax(7, "`,` or `}`")),
        (r#"{"a":[}]}"#, syntax(6, "the bracket that closes the last one")),
        (r#"{"a":[{]}"#, syntax(7, "the bracket that closes the last one")),
        (r#"{"a\u00g0":1}"#, syntax(1, "a name without broken escapes")),
        (r#"{"\ud800":1}"#, syntax(1, "a name without broken escapes")),
        (r#"{"a":[1"#, Err(ScanError::Truncated)),
        (r#"{"a":"\"#, Err(ScanError::Truncated)),
        (r#"{"a":1"#, Err(ScanError::Truncated)),
        (r#"{"model":7}"#, Err(ScanError::Model)),
        (r#"{"model":["a"]}"#, Err(ScanError::Model)),
        (r#"{"model":"\ud800"}"#, Err(ScanError::Model)),
        ("{\"model\":\"a\nb\"}", Err(ScanError::Model)),
    ] {
        assert_eq!(scan(body).map(|_| ()), error, "{body}");
    }
    assert_eq!(scan(&format!(r#"{{"model":"{}"}}"#, "a".repeat(5000))), Err(ScanError::Model));
}

#[test]
fn long_names_and_values_cost_no_memory_and_are_strange_or_uncaptured() {
    let body = format!(r#"{{"{}":1,"stop":["{}"]}}"#, "\\\"".repeat(300), "s".repeat(5000));
    let found = scan(&body).expect("an object");
    assert!(found.has_strangers);
    assert_eq!(found.field(Key::Stop).map(|f| f.raw.clone()), Some(None));
}

#[test]
fn depth_costs_nothing() {
    let deep = |open: &str, close: &str| format!(r#"{{"a":{}{}}}"#, open.repeat(100_000), close.repeat(100_000));
    assert!(scan_chunks([deep("[", "]").as_bytes()]).is_ok());
    assert!(scan_chunks([deep("{\"a\":[", "]}").as_bytes()]).is_ok());
    assert_eq!(
        scan_chunks([deep("[", "}").as_bytes()]).map(|_| ()),
        Err(ScanError::Syntax { at: 5 + 100_000 + 100_000 - 128, expected: "the bracket that closes the last one" })
    );
}

#[test]
fn broken_utf8_is_refused_at_its_first_byte_however_it_is_cut() {
    for (tail, n) in
        [(&b"\xff"[..], 0), (b"ab\xc3\x28", 2), (b"\xed\xa0\x80", 0), (b"\xf0\x9f\x9a", 0), (b"\xc0\xaf", 0)]
    {
        let body = [br#"{"a":""#, tail, br#""}"#].concat();
        for cut in 0..=body.len() {
            let (head, rest) = body.split_at(cut);
            assert_eq!(scan_chunks([head, rest]).map(|_| ()), Err(ScanError::NotUtf8 { at: 6 + n }), "{cut} {tail:?}");
        }
    }
    assert_eq!(scan_chunks([&b"{\"a\":\"\xe2\x82"[..]]).map(|_| ()), Err(ScanError::NotUtf8 { at: 6 }));
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![".*", "[\\\\\"{}\\[\\] é🚀]{0,12}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any_name(), inner, 0..6).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(Key::ALL.to_vec()).prop_map(|k| k.as_str().to_owned()),
        prop::sample::select(LISTED.to_vec()).prop_map(str::to_owned),
        ".{0,8}",
    ]
}

fn any_object() -> impl Strategy<Value = Map<String, Value>> {
    (prop::collection::btree_map(any_name(), any_value(), 0..8), prop::option::of(".{0,12}")).prop_map(
        |(map, model)| {
            let mut object: Map<String, Value> = map.into_iter().filter(|(k, _)| k != "model").collect();
            if let Some(name) = model {
                object.insert("model".into(), name.into());
            }
            object
        },
    )
}

/// The object as text: compact or spread, its names plain or with every character escaped.
pub(crate) fn render(object: &Map<String, Value>, spread: bool, escape: bool) -> String {
    let members: Vec<String> = object
        .iter()
        .map(|(name, value)| {
            let name = if escape {
                name.encode_utf16().fold(String::new(), |text, unit| format!("{text}\\u{unit:04x}"))
            } else {
                let quoted = Value::from(name.as_str()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            };
            if spread { format!("\n\t \"{name}\" :\r{value:#} ") } else { format!("\"{name}\":{value}") }
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn cut<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|c| c.index(body.len() + 1)).chain([0, body.len()]).collect();
    places.sort_unstable();
    places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn a_scan_agrees_with_a_parser(object in any_object(), spread: bool, escape: bool, cuts: Vec<prop::sample::Index>) {
        let body = render(&object, spread, escape);
        let found = scan_chunks(cut(body.as_bytes(), &cuts)).expect("a valid object");
        prop_assert_eq!(found.n_members, object.len() as u64);
        prop_assert_eq!(found.model(), object.get("model").and_then(Value::as_str));
        for key in Key::ALL {
            let field = found.field(key);
            prop_assert_eq!(field.is_some(), object.contains_key(key.as_str()));
            if let Some(field) = field {
                let name: String = serde_json::from_str(at(&body, &field.name)).expect("a name");
                prop_assert_eq!(name, key.as_str());
                let value: Value = serde_json::from_str(at(&body, &field.value)).expect("a value");
                prop_assert_eq!(&value, &object[key.as_str()]);
                prop_assert!(field.raw.as_deref().is_none_or(|raw| raw == at(&body, &field.value).as_bytes()));
            }
        }
        let is_known = |name: &String| LISTED.contains(&name.as_str()) || Key::from_name(name).is_some();
        prop_assert_eq!(found.has_strangers, !object.keys().all(is_known));
    }

    #[test]
    fn nothing_a_parser_takes_is_refused_and_cuts_change_nothing(
        object in any_object(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        end in any::<prop::sample::Index>(), cuts: Vec<prop::sample::Index>,
    ) {
        let mut body = render(&object, false, false).into_bytes();
        for (place, byte) in &edits {
            let place = place.index(body.len());
            body[place] = *byte;
        }
        if edits.is_empty() {
            body.truncate(end.index(body.len() + 1));
        }
        let whole = scan_chunks([&body[..]]);
        prop_assert_eq!(whole.clone().ok(), scan_chunks(cut(&body, &cuts)).ok());
        let parsed = serde_json::from_slice::<Map<String, Value>>(&body).is_ok();
        let excused = matches!(whole, Err(ScanError::Twice(_) | ScanError::Model));
        prop_assert!(!parsed || whole.is_ok() || excused, "refused: {:?}", whole);
    }

    #[test]
    fn any_bytes_end_in_an_answer(bytes: Vec<u8>, cuts: Vec<prop::sample::Index>) {
        prop_assert_eq!(scan_chunks([&bytes[..]]).ok(), scan_chunks(cut(&bytes, &cuts)).ok());
    }
}
