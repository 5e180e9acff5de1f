//! Edits of a request's body as splices: new bytes for the values of a few members, every other byte as it came.
use crate::scan::{Field, Findings, Key};
use bytes::Bytes;
use motorpool_catalog::Parameters;
use std::ops::Range;

/// What changes in the body on its way to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// The one model name that travels.
    pub model: Option<&'a str>,
    /// Whether the engine is told to stream.
    pub streaming: Streaming,
    /// What the model's catalog entry changes; the scan watched for its names.
    pub rules: Option<&'a Parameters>,
}

/// Whether the engine is told to stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// As the client wants it.
    #[default]
    AsAsked,
    /// In any case; the reply is put together here.
    Forced,
    /// In any case, usage included, which OpenAI's API must be asked for; the reply is put together here.
    ForcedWithUsage,
}

/// A part of the edited body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes of the body as it came.
    Kept(Range<u64>),
    /// These instead.
    New(Bytes),
}

/// The edited body: pieces in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pieces: Vec<Piece>,
    len: u64,
    /// Just behind the opening brace of the body as it came, and whether it stays empty there; `None`: it is no object
    /// that anybody looked at.
    open: Option<(u64, Rest)>,
}

/// What follows the opening brace of the edited body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Members,
    Nothing,
}

impl Splice {
    /// The body of `len` bytes as it came.
    pub fn untouched(len: u64) -> Self {
        Self { pieces: vec![Piece::Kept(0..len)], len, open: None }
    }

    /// An object of `len` bytes with members, as it was written here: no white space before its brace.
    pub fn of_object(len: u64) -> Self {
        Self { open: Some((1, Rest::Members)), ..Self::untouched(len) }
    }

    /// The body of `len` bytes in which `new` stands for what is at `at`.
    pub fn one(at: Range<u64>, new: &str, len: u64) -> Self {
        Self::of_cuts(vec![(at, new.to_owned().into())], len)
    }

    /// The body of `len` bytes in which `found` was found, with `edits`.
    pub fn new(found: &Findings, len: u64, edits: Edits<'_>) -> Self {
        let mut cuts: Vec<(Range<u64>, Bytes)> = Vec::new();
        let mut added: Vec<String> = Vec::new();
        let mut set = |key: Key, value: String| match found.field(key) {
            Some(field) => cuts.push((field.value.clone(), value.into())),
            None => added.push(format!("\"{}\":{value}", key.as_str())),
        };
        if let Some(model) = edits.model.filter(|m| found.model() != Some(m)) {
            set(Key::Model, serde_json::Value::from(model).to_string());
        }
        if edits.streaming != Streaming::AsAsked {
            set(Key::Stream, "true".to_owned());
        }
        if edits.streaming == Streaming::ForcedWithUsage {
            set(Key::StreamOptions, r#"{"include_usage":true}"#.to_owned());
        }
        if let Some(rules) = edits.rules {
            for (name, value) in &rules.set {
                match found.named(name) {
                    Some(field) => cuts.push((field.value.clone(), value.clone().into())),
                    None => added.push(member(name, value)),
                }
            }
            let absent = rules.default.iter().filter(|(name, _)| found.named(name).is_none());
            added.extend(absent.map(|(name, value)| member(name, value)));
        }
        let stripped: Vec<&Field> = edits.rules.iter().flat_map(|r| &r.strip).filter_map(|n| found.named(n)).collect();
        let stays_empty = found.n_members == stripped.len() as u64;
        cuts.extend(taken_out(stripped).into_iter().map(|range| (range, Bytes::new())));
        let rest = if stays_empty && added.is_empty() { Rest::Nothing } else { Rest::Members };
        if !added.is_empty() {
            let comma = if stays_empty { "" } else { "," };
            cuts.push((found.open_end..found.open_end, (added.join(",") + comma).into()));
        }
        Self { open: Some((found.open_end, rest)), ..Self::of_cuts(cuts, len) }
    }

    /// The same with `id_slot` as the first member: the engine is to use this slot of its own. A body that says so itself
    /// must not be given here; one that nobody looked at stays as it is.
    #[must_use]
    pub fn with_slot(&self, slot: u32) -> Self {
        let Some((open, rest)) = self.open else { return self.clone() };
        let comma = if rest == Rest::Members { "," } else { "" };
        let member = Piece::New(format!("\"{}\":{slot}{comma}", Key::IdSlot.as_str()).into());
        let mut pieces = Vec::with_capacity(self.pieces.len() + 2);
        for (n, piece) in self.pieces.iter().enumerate() {
            match piece {
                // No edit stands before the brace, so the first piece reaches as far.
                Piece::Kept(range) if n == 0 => {
                    pieces.extend([Piece::Kept(range.start..open), member.clone(), Piece::Kept(open..range.end)]);
                }
                other => pieces.push(other.clone()),
            }
        }
        let len = pieces.iter().map(Piece::len).sum();
        Self { pieces, len, open: self.open }
    }

    /// Cuts do not overlap: members do not.
    fn of_cuts(mut cuts: Vec<(Range<u64>, Bytes)>, len: u64) -> Self {
        cuts.sort_by_key(|(range, _)| (range.start, range.end));
        let mut pieces = Vec::with_capacity(2 * cuts.len() + 1);
        let mut from = 0;
        for (range, new) in cuts {
            pieces.push(Piece::Kept(from..range.start));
            pieces.push(Piece::New(new));
            from = range.end;
        }
        pieces.push(Piece::Kept(from..len));
        let len = pieces.iter().map(Piece::len).sum();
        Self { pieces, len, open: None }
    }

    /// Length of the edited body in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

fn member(name: &str, value: &str) -> String {
    format!("{}:{value}", serde_json::Value::from(name))
}

/// What is cut so that these members are gone: neighbours together, and one comma with them while others stay.
fn taken_out(mut members: Vec<&Field>) -> Vec<Range<u64>> {
    members.sort_by_key(|field| field.ordinal);
    let neighbours = members.chunk_by(|a, b| a.ordinal + 1 == b.ordinal);
    let cut = |run: &[&Field]| {
        let (first, last) = (run.first()?, run.last()?);
        Some(match (first.comma_before, last.comma_after) {
            (Some(before), _) => before..last.value.end,
            (None, Some(after)) => first.name.start..after + 1,
            (None, None) => first.name.start..last.value.end,
        })
    };
    neighbours.filter_map(cut).collect()
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Kept(range) => range.end - range.start,
            Self::New(bytes) => bytes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn spliced(body: &str, edits: Edits<'_>) -> String {
        written(body, &splice_of(body, edits))
    }

    fn splice_of(body: &str, edits: Edits<'_>) -> Splice {
        let mut scan = Scan::new(&[]);
        scan.feed(body.as_bytes()).expect("an object");
        Splice::new(&scan.finish().expect("whole"), body.len() as u64, edits)
    }

    fn written(body: &str, splice: &Splice) -> String {
        let place = |n| usize::try_from(n).expect("a short body");
        let text: String = splice
            .pieces()
            .iter()
            .map(|piece| match piece {
                Piece::Kept(range) => body[place(range.start)..place(range.end)].to_owned(),
                Piece::New(bytes) => String::from_utf8(bytes.to_vec()).expect("text"),
            })
            .collect();
        assert_eq!(splice.len(), text.len() as u64);
        text
    }

    const FORCED: Edits<'_> = Edits { model: Some("m"), streaming: Streaming::ForcedWithUsage, rules: None };

    #[test]
    fn only_the_edited_values_change() {
        assert_eq!(
            spliced(r#" {"x" : 1.0e0 , "mod\u0065l":"old","stream":false} "#, FORCED),
            r#" {"stream_options":{"include_usage":true},"x" : 1.0e0 , "mod\u0065l":"m","stream":true} "#
        );
        assert_eq!(spliced("{ }", FORCED), r#"{"model":"m","stream":true,"stream_options":{"include_usage":true} }"#);
    }

    #[test]
    fn a_slot_is_named_first_whatever_else_is_edited() {
        let with_slot = |body: &str, edits| written(body, &splice_of(body, edits).with_slot(3));
        assert_eq!(with_slot(" { }", Edits::default()), r#" {"id_slot":3 }"#);
        assert_eq!(with_slot(r#"{"a":1}"#, Edits::default()), r#"{"id_slot":3,"a":1}"#);
        assert_eq!(
            with_slot("{}", FORCED),
            r#"{"id_slot":3,"model":"m","stream":true,"stream_options":{"include_usage":true}}"#
        );
        assert_eq!(
            with_slot(r#"{"model":"old","b":2}"#, Edits { model: Some("m"), ..Edits::default() }),
            r#"{"id_slot":3,"model":"m","b":2}"#
        );
        assert_eq!(Splice::untouched(7).with_slot(3), Splice::untouched(7));
    }

    #[test]
    fn a_model_that_is_named_right_stays_as_it_is_written() {
        let body = r#"{"model":"\u006d"}"#;
        assert_eq!(spliced(body, Edits { model: Some("m"), ..Edits::default() }), body);
        assert_eq!(spliced(body, Edits { model: Some("a\"b"), ..Edits::default() }), r#"{"model":"a\"b"}"#);
    }

    fn ruled(body: &str, rules: &Parameters) -> Result<String, crate::scan::ScanError> {
        let names: Vec<std::sync::Arc<str>> = rules.names().map(Into::into).collect();
        let mut scan = Scan::new(&[]).watching(&names);
        scan.feed(body.as_bytes())?;
        let edits = Edits { rules: Some(rules), ..Edits::default() };
        Ok(written(body, &Splice::new(&scan.finish()?, body.len() as u64, edits)))
    }

    fn rules(strip: &[&str], set: &[(&str, &str)], default: &[(&str, &str)]) -> Parameters {
        let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Parameters { strip: strip.iter().map(|&n| n.to_owned()).collect(), set: owned(set), default: owned(default) }
    }

    #[test]
    fn rules_take_members_out_set_them_and_give_them_to_who_lacks_them() {
        let all = rules(&["a", "b"], &[("s", "1")], &[("d", "[2]")]);
        for (body, want) in [
            (r#"{"a":1 , "b":[], "c":3}"#, r#"{"s":1,"d":[2], "c":3}"#),
            (r#"{"c":3, "a":1, "b":2 }"#, r#"{"s":1,"d":[2],"c":3 }"#),
            (r#"{"a":1,"c":3,"b":2}"#, r#"{"s":1,"d":[2],"c":3}"#),
            (r#"{"\u0061":1}"#, r#"{"s":1,"d":[2]}"#),
            (r#"{"s":"x","d":null}"#, r#"{"s":1,"d":null}"#),
        ] {
            assert_eq!(ruled(body, &all).expect("an object"), want, "{body}");
        }
        let none = rules(&["a", "b", "stop"], &[], &[]);
        assert_eq!(ruled(r#"{"b":1,"stop":[],"a":2}"#, &none).expect("an object"), "{}");
        for twice in [r#"{"a":1,"a":2}"#, r#"{"stop":1,"stop":2}"#] {
            assert!(ruled(twice, &none).is_err(), "{twice}");
        }
    }

    fn any_object() -> impl Strategy<Value = Map<String, Value>> {
        let name = prop_oneof![Just("stream".to_owned()), Just("stream_options".to_owned()), "[a-z\\\\\"]{0,6}"];
        let value = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), ".*".prop_map(Value::from)];
        (prop::collection::btree_map(name, value, 0..6), prop::option::of(".{0,8}")).prop_map(|(members, model)| {
            members.into_iter().chain(model.map(|m| ("model".to_owned(), Value::from(m)))).collect()
        })
    }

    proptest! {
        #[test]
        fn the_edited_body_means_the_same_but_for_the_edits(object in any_object(), model in ".{1,9}", forced: bool, pretty: bool) {
            let body = if pretty { format!("{:#}", Value::from(object.clone())) } else { Value::from(object.clone()).to_string() };
            let streaming = if forced { Streaming::ForcedWithUsage } else { Streaming::AsAsked };
            let edited: Map<String, Value> = serde_json::from_str(&spliced(&body, Edits { model: Some(&model), streaming, rules: None })).expect("JSON");
            let mut wanted = object;
            wanted.insert("model".into(), model.into());
            if forced {
                wanted.insert("stream".into(), true.into());
                wanted.insert("stream_options".into(), json!({"include_usage": true}));
            }
            prop_assert_eq!(edited, wanted);
        }

        #[test]
        fn what_no_rule_names_is_left_alone(object in any_object(), strip in prop::collection::vec("[a-z]{0,2}", 0..4), pretty: bool) {
            let body = if pretty { format!("{:#}", Value::from(object.clone())) } else { Value::from(object.clone()).to_string() };
            let (mut wanted, mut names) = (object, strip);
            names.sort();
            names.dedup();
            names.retain(|name| !["s", "d"].contains(&name.as_str()));
            let strip: Vec<&str> = names.iter().map(String::as_str).collect();
            let edited = ruled(&body, &rules(&strip, &[("s", "1")], &[("d", "2")])).expect("an object");
            wanted.retain(|name, _| !names.contains(name));
            wanted.insert("s".into(), 1.into());
            wanted.entry("d").or_insert(2.into());
            prop_assert_eq!(serde_json::from_str::<Map<String, Value>>(&edited).expect("JSON"), wanted);
        }
    }
}
