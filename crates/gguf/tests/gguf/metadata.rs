//! Keys and values: what is kept, what is passed over, what is refused.
use super::{keys, pair, read, refusal, whole};
use motorpool_gguf::{GgufError, Value, limits, write::Writer};

fn long_text() -> String {
    "x".repeat(usize::try_from(limits::KEPT_TEXT).expect("small") + 1)
}

#[test]
fn values_of_every_type_read_back() {
    let writer = keys().set("a.flag", true).set("a.ratio", 0.5_f32).set("a.flags", [true, false].as_slice());
    let header = read(&writer.finish()).expect("valid");
    let metadata = header.metadata();
    assert_eq!(metadata.bool("a.flag"), Some(true));
    assert_eq!(metadata.f32("a.ratio"), Some(0.5));
    assert_eq!(metadata.bools("a.flags"), Some(vec![true, false]));
    assert_eq!(metadata.u64s("llama.attention.head_count_kv"), Some(vec![4, 8]));
    assert_eq!(metadata.f32s("tokenizer.ggml.scores"), Some(vec![0.0, -1.5]));
    assert_eq!(metadata.str("general.architecture"), Some("llama"));
    assert_eq!(header.context_length(), Some(4096));
    assert_eq!(metadata.keys().count(), 9);
}

#[test]
fn lists_of_texts_long_arrays_and_long_texts_are_known_by_key_only() {
    let elements = vec![0_u8; usize::try_from(limits::KEPT_ELEMENTS).expect("small") + 1];
    let writer = whole().set("a.long", elements.as_slice()).set("a.text", long_text().as_str()).set("a.last", 7_u32);
    let header = read(&writer.finish()).expect("valid");
    let metadata = header.metadata();
    for key in ["a.long", "a.text", "tokenizer.ggml.tokens"] {
        assert!(metadata.has(key) && metadata.value(key).is_none(), "{key}");
    }
    assert_eq!(metadata.u64("a.last"), Some(7));
}

#[test]
fn arrays_and_texts_at_the_limit_are_kept() {
    let elements = vec![1_u8; usize::try_from(limits::KEPT_ELEMENTS).expect("small")];
    let text = &long_text()[1..];
    let header = read(&Writer::new().set("a", elements.as_slice()).set("b", text).finish()).expect("valid");
    assert_eq!(header.metadata().value("a"), Some(&Value::from(elements.as_slice())));
    assert_eq!(header.metadata().str("b"), Some(text));
}

#[test]
fn more_than_eight_mebibytes_of_kept_values_are_refused() {
    let elements = vec![0_u64; usize::try_from(limits::KEPT_ELEMENTS).expect("small")];
    let writer = (0..17).fold(Writer::new(), |writer, n| writer.set(&format!("a.{n}"), elements.as_slice()));
    let refusal = refusal(&writer);
    assert!(matches!(refusal, GgufError::TooMany { what: "bytes of metadata", .. }), "{refusal}");
}

#[test]
fn a_text_longer_than_the_rest_of_the_file_is_refused() {
    let room = read(&whole().finish()).map(|header| header.data_start()).expect("valid");
    for len in [u64::MAX, 1 << 63, 1 << 40, room * 4] {
        let value = pair(b"a", &[&8_u32.to_le_bytes(), &len.to_le_bytes()]);
        let refused = refusal(&whole().raw_pair(value));
        assert!(matches!(refused, GgufError::Truncated { what: "a text", .. }), "{refused}");
        let refused = refusal(&whole().raw_pair(len.to_le_bytes().to_vec()));
        assert!(matches!(refused, GgufError::Truncated { .. }), "{refused}");
    }
}

#[test]
fn an_array_longer_than_the_rest_of_the_file_is_refused_for_every_element_type() {
    for id in [0_u32, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12] {
        for n in [u64::MAX, 1 << 63, 1 << 61, (1 << 61) + 1, 1 << 30, (1 << 30) + 1] {
            let value = pair(b"a", &[&9_u32.to_le_bytes(), &id.to_le_bytes(), &n.to_le_bytes()]);
            let refused = refusal(&whole().raw_pair(value));
            assert!(matches!(refused, GgufError::Truncated { .. }), "{id} {n}: {refused}");
        }
    }
}

#[test]
fn a_list_whose_texts_do_not_fit_is_refused() {
    let start =
        pair(b"a", &[&9_u32.to_le_bytes(), &8_u32.to_le_bytes(), &2_u64.to_le_bytes(), &u64::MAX.to_le_bytes()]);
    let refusal = refusal(&whole().raw_pair([start, vec![0; 8]].concat()));
    assert!(matches!(refusal, GgufError::Truncated { what: "an array of texts", .. }), "{refusal}");
}

#[test]
fn an_array_of_arrays_is_refused_by_its_key() {
    let value = pair(b"a.nest", &[&9_u32.to_le_bytes(), &9_u32.to_le_bytes(), &1_u64.to_le_bytes()]);
    let refusal = refusal(&whole().raw_pair(value));
    assert_eq!(refusal.to_string(), "key `a.nest` is an array of arrays");
}

#[test]
fn an_unknown_value_type_is_refused_by_its_key() {
    for id in [13_u32, 255, u32::MAX] {
        let alone = refusal(&whole().raw_pair(pair(b"a.odd", &[&id.to_le_bytes()])));
        let value = pair(b"a.odd", &[&9_u32.to_le_bytes(), &id.to_le_bytes(), &0_u64.to_le_bytes()]);
        for refused in [alone, refusal(&whole().raw_pair(value))] {
            assert_eq!(refused.to_string(), format!("key `a.odd` has the unknown value type {id}"));
        }
    }
}

#[test]
fn a_key_that_appears_twice_is_refused() {
    let refused = refusal(&whole().set("a", 1_u32).set("b", 1_u32).set("a", 1_u32));
    assert!(matches!(&refused, GgufError::DuplicateKey { key, .. } if key == "a"), "{refused}");
    let lists = whole().set("tokenizer.ggml.tokens", Vec::<String>::new());
    assert!(matches!(refusal(&lists), GgufError::DuplicateKey { .. }), "skipped values count");
}

#[test]
fn the_last_of_tens_of_thousands_of_keys_is_found_to_be_a_duplicate() {
    let many = (1..limits::KEYS).fold(Writer::new(), |writer, n| writer.set(&format!("a.{n}"), true));
    assert_eq!(read(&many.finish()).map(|header| header.metadata().keys().count()).ok(), Some(65_535));
    assert!(matches!(refusal(&many.set("a.1", true)), GgufError::DuplicateKey { .. }));
}

#[test]
fn keys_that_are_no_text_are_refused_with_their_place() {
    for key in [b"".as_slice(), b"\xff\xfe", b"a\0b"] {
        let refused = refusal(&Writer::new().raw_pair(pair(key, &[&7_u32.to_le_bytes(), &[1]])).set("padding", 0_u64));
        assert!(matches!(refused, GgufError::Text { what: "a key", at: 24 }), "{key:?}: {refused}");
    }
}

#[test]
fn a_key_longer_than_the_format_allows_is_refused() {
    let longest = usize::try_from(limits::KEY_BYTES).expect("small");
    assert!(read(&Writer::new().set(&"k".repeat(longest), true).finish()).is_ok());
    assert!(matches!(refusal(&Writer::new().set(&"k".repeat(longest + 1), true)), GgufError::TooMany { .. }));
}

#[test]
fn a_text_value_that_is_not_utf8_is_kept_with_replacements() {
    let value = pair(b"a.licence", &[&8_u32.to_le_bytes(), &4_u64.to_le_bytes(), b"\xa9 me"]);
    let header = read(&whole().raw_pair(value).finish()).expect("valid");
    assert_eq!(header.metadata().str("a.licence"), Some("\u{fffd} me"));
}

#[test]
fn an_alignment_that_is_no_power_of_two_or_of_another_type_is_refused() {
    let powers = [Value::from(32_u64), 32_i32.into(), 32_u16.into(), 32_f32.into(), "32".into()];
    let bad = [Value::from(0_u32), 3_u32.into(), 33_u32.into(), u32::MAX.into()].into_iter().chain(powers);
    for alignment in bad {
        let refused = refusal(&whole().set("general.alignment", alignment.clone()));
        assert!(
            matches!(&refused, GgufError::Key { key, .. } if key == "general.alignment"),
            "{alignment:?}: {refused}"
        );
    }
}

#[test]
fn an_alignment_beyond_the_file_leaves_no_room_for_tensors() {
    let refusal = refusal(&whole().set("general.alignment", 1_u32 << 31));
    assert!(matches!(refusal, GgufError::OutOfFile { .. }), "{refusal}");
}

#[test]
fn one_number_for_all_layers_and_one_for_each_read_alike() {
    let per_layer = read(&whole().finish()).expect("valid");
    assert_eq!(per_layer.per_block("attention.head_count_kv").expect("valid"), Some(vec![4, 8]));
    let scalar = read(&whole().set("llama.attention.head_count", 8_u32).finish()).expect("valid");
    assert_eq!(scalar.per_block("attention.head_count").expect("valid"), Some(vec![8, 8]));
    assert_eq!(scalar.per_block("attention.no_such_key").expect("valid"), None);
}

#[test]
fn a_layer_array_that_is_too_short_or_of_another_type_is_refused_when_it_is_asked_for() {
    let values =
        [Value::from([1_u32].as_slice()), [1_f32, 2.0].as_slice().into(), "2".into(), [-1_i32, 1].as_slice().into()];
    for value in values {
        let header = read(&whole().set("llama.x", value.clone()).finish()).expect("valid otherwise");
        let refused = header.per_block("x").expect_err("wrong");
        assert!(matches!(&refused, GgufError::Key { key, .. } if key == "llama.x"), "{value:?}: {refused}");
    }
    let longer = read(&whole().set("llama.x", [1_u32, 2, 3].as_slice()).finish()).expect("valid");
    assert_eq!(longer.per_block("x").expect("valid"), Some(vec![1, 2]));
}

#[test]
fn no_layers_and_billions_of_layers_are_refused_when_they_are_asked_for() {
    let with_blocks = |value: Value| {
        let writer = Writer::new().set("general.architecture", "x").set("x.heads", 1_u32).set("x.block_count", value);
        read(&writer.finish()).expect("valid otherwise").per_block("heads")
    };
    for count in [Value::from(0_u32), 4_000_000_000_u32.into(), u64::MAX.into(), (-1_i32).into(), "2".into()] {
        let refused = with_blocks(count.clone()).expect_err("wrong");
        assert!(matches!(&refused, GgufError::Key { key, .. } if key == "x.block_count"), "{count:?}: {refused}");
    }
    assert_eq!(with_blocks(limits::BLOCKS.into()).expect("valid").map(|each| each.len()), Some(4096));
}
