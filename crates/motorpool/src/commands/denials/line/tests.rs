use super::*;
use proptest::prelude::*;
use serde_json::json;

const KEY: &str = "llama-server:big:0";
const SENTENCE: &str =
    "capacity broker denied llama-server:big:0: budget exhausted: would commit 2147483648 against 1073741824";

fn read(line: &str) -> Option<Denied> {
    Denied::read(line.as_bytes())
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn expected(bound: Bound) -> Denied {
    Denied {
        class: Class::Capacity,
        outcome: Outcome::Denied,
        key: KEY.into(),
        at: Some(time("2026-01-02T03:04:05.678Z")),
        amounts: Some(Amounts { would_commit: Bytes::gib(2), against: Bytes::gib(1), bound }),
    }
}

#[test]
fn every_bound_of_the_contract_is_told_apart() {
    for (suffix, bound) in [
        ("", Bound::Budget),
        (" (co-residency ceiling — RAM spillover off)", Bound::CoResidency),
        (" (device GPU-1a2b)", Bound::Device("GPU-1a2b".into())),
        (" (device 0000:03:00.0)", Bound::Device("0000:03:00.0".into())),
        (" (system memory)", Bound::SystemMemory),
        (" (measured free graphics memory)", Bound::Measured),
        (" (of a later version)", Bound::Other),
    ] {
        let line = format!("2026-01-02T03:04:05.678Z ERROR [provider-pool] {SENTENCE}{suffix}");
        assert_eq!(read(&line), Some(expected(bound)), "{line}");
    }
}

#[test]
fn the_other_refusals_and_background_attempts_have_classes_of_their_own() {
    for (words, class, outcome) in [
        ("context admission denied", Class::Context, Outcome::Denied),
        ("gpu panic guard denied", Class::PanicGuard, Outcome::Denied),
        ("engine busy", Class::Busy, Outcome::Denied),
        ("capacity broker deferred", Class::Capacity, Outcome::Deferred),
        ("context admission deferred", Class::Context, Outcome::Deferred),
        ("gpu panic guard deferred", Class::PanicGuard, Outcome::Deferred),
    ] {
        let line = format!("2026-01-02T03:04:05Z  WARN [provider-pool] {words} {KEY}: for a reason");
        let denied = read(&line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((denied.class, denied.outcome, denied.key.as_str()), (class, outcome, KEY));
        assert_eq!(denied.amounts, None);
    }
    let deferred = SENTENCE.replace("denied", "deferred");
    assert_eq!(read(&deferred).and_then(|denied| denied.amounts), expected(Bound::Budget).amounts);
}

#[test]
fn colours_hide_nothing() {
    let line =
        format!("\u{1b}[2m2026-01-02T03:04:05.678Z\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m [provider-pool] {SENTENCE}");
    assert_eq!(read(&line), Some(expected(Bound::Budget)));
    let line = line.replace("denied", "\u{1b}[1mdenied\u{1b}[0m").replace("against", "\u{1b}]8;;x\u{7}against");
    assert_eq!(read(&line), Some(expected(Bound::Budget)));
}

#[test]
fn a_json_line_is_read_wherever_it_holds_the_sentence() {
    let message = format!("[provider-pool] {SENTENCE} (system memory)");
    let ours = json!({"timestamp": "2026-01-02T03:04:05.678Z", "level": "ERROR", "message": message, "key": KEY});
    let fields = json!({"time": "2026-01-02T03:04:05.678Z", "fields": {"message": message}});
    let text = format!("2026-01-02T03:04:05.678Z ERROR {message}\n");
    let collected = json!({"log": text, "stream": "stderr", "time": "2026-09-09T09:09:09Z"});
    let twice = json!({"log": ours.to_string(), "time": "2026-09-09T09:09:09Z"});
    for line in [&ours, &fields, &collected, &twice] {
        assert_eq!(read(&line.to_string()), Some(expected(Bound::SystemMemory)), "{line}");
    }
    let cut = &ours.to_string()[..ours.to_string().len() - 1];
    assert_eq!(read(cut).map(|denied| denied.key).as_deref(), Some(KEY), "cut: {cut}");
}

#[test]
fn a_collectors_own_time_gives_way_to_ours() {
    let line = format!("2026-09-09T09:09:09+02:00 host motorpool[7]: 2026-01-02T03:04:05.678Z ERROR {SENTENCE}");
    assert_eq!(read(&line), Some(expected(Bound::Budget)));
    let line = format!("2026-09-09T09:09:09+02:00 host motorpool[7]: {SENTENCE}");
    assert_eq!(read(&line).and_then(|denied| denied.at), Some(time("2026-09-09T07:09:09Z")));
    assert_eq!(read(SENTENCE).map(|denied| denied.at), Some(None));
}

#[test]
fn what_only_sounds_like_a_refusal_is_none() {
    for line in [
        "",
        "{}",
        "the engine busy since noon: it works",
        "engine busy",
        "engine busy llama-server: x",
        "context admission denied to all: closed",
        "capacity broker denied llama-server:a:0: another reason",
        "INFO nothing was denied",
        "engine llama-server:big:0 is currently serving requests",
    ] {
        assert_eq!(read(line), None, "{line}");
    }
}

#[test]
fn numbers_that_cannot_be_leave_a_denial_without_arithmetic() {
    let line = format!("capacity broker denied {KEY}: budget exhausted: would commit {} against 5", "9".repeat(30));
    let denied = read(&line).expect("a denial");
    assert_eq!((denied.key.as_str(), denied.amounts), (KEY, None));
    assert_eq!(read("capacity broker denied budget exhausted").map(|denied| denied.key).as_deref(), Some(""));
}

#[test]
fn control_characters_do_not_come_through() {
    let line = json!({"message": format!("capacity broker denied a\u{7}b: budget exhausted")}).to_string();
    assert_eq!(read(&line).map(|denied| denied.key).as_deref(), Some("a\u{fffd}b"));
    let bytes = [b"\xff\xfe capacity broker denied llama-server:\xff:0: budget exhausted".as_slice(), b"\xf0"].concat();
    assert_eq!(Denied::read(&bytes).map(|denied| denied.key).as_deref(), Some("llama-server:\u{fffd}:0"));
}

/// What the looser of the contract's expressions finds in a line.
fn is_denied(line: &str) -> bool {
    line.split_once("capacity broker denied ").is_some_and(|(_, rest)| rest.contains("budget exhausted"))
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Denied::read(&bytes);
    }

    #[test]
    fn pieces_of_the_contract_in_any_order_count_as_the_contracts_expression_counts(
        pieces in proptest::collection::vec(prop_oneof![
            Just("capacity broker denied ".to_owned()), Just("capacity broker deferred ".to_owned()),
            Just("engine busy ".to_owned()), Just("llama-server:a:0".to_owned()), Just(": ".to_owned()),
            Just("budget exhausted".to_owned()), Just("would commit ".to_owned()), Just(" against ".to_owned()),
            Just(" (device ".to_owned()), Just(")".to_owned()), Just("{\"a\":\"".to_owned()), Just("\"}".to_owned()),
            Just("2026-01-02T03:04:05Z ".to_owned()), "[0-9]{1,25}", "\\PC{0,5}",
        ], 0..16),
    ) {
        let line = pieces.concat();
        let denied = read(&line).is_some_and(|d| (d.class, d.outcome) == (Class::Capacity, Outcome::Denied));
        prop_assert_eq!(denied, is_denied(&line), "{}", line);
    }
}
