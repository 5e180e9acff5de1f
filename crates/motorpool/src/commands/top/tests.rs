//! Frames as they are shown, and what keys do.
use super::{super::draw::draw, *};
use ratatui::{Terminal, backend::TestBackend};
use serde::Deserialize;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn engine(key: &str, phase: &str, more: &Value) -> Value {
    let mut engine = json!({"key": key, "phase": phase, "leases": [], "queue": 0, "reservedBytes": 0});
    for (name, value) in more.as_object().expect("members") {
        engine[name] = value.clone();
    }
    engine
}

fn status(engines: &[Value], waiters: &[Value]) -> Event {
    let memory = json!([
        {"device": "GPU-1a2b3c4d", "totalBytes": 24 * GIB, "committedBytes": 9 * GIB, "foreignBytes": 3 * GIB},
        {"device": null, "totalBytes": 64 * GIB, "committedBytes": 2 * GIB, "foreignBytes": null},
    ]);
    let whole = json!({
        "listen": ["http://127.0.0.1:8790"], "engines": engines, "waiters": waiters,
        "pool": {"budgetBytes": 80 * GIB, "committedBytes": 11 * GIB, "memory": memory},
    });
    Event::Looked(Box::new(Status::deserialize(&whole).expect("a status")))
}

fn two() -> Event {
    let ready = json!({
        "leases": [{}], "slots": 4, "queue": 2, "reservedBytes": 9 * GIB, "plannedBytes": 8 * GIB,
        "measuredBytes": 9 * GIB, "memory": {"from": "learned"}, "unloadInMs": 540_000,
    });
    let loading = json!({"progress": 630, "reservedBytes": 600 * MIB, "plannedBytes": 600 * MIB, "memory": {"from": "estimated"}});
    status(
        &[
            engine("llama-server:qwen3-8b:0", "ready", &ready),
            engine("llama-server:gemma3-270m:0", "starting", &loading),
        ],
        &[
            json!({"key": "llama-server:big:0", "waitedMs": 12_000, "needsBytes": 20 * GIB, "waitsFor": ["llama-server:qwen3-8b:0"]}),
        ],
    )
}

fn shown(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(view, frame)).expect("drawn");
    terminal.backend().to_string()
}

fn after(events: Vec<Event>) -> View {
    let mut view = View::default();
    for event in events {
        assert_eq!(view.on_event(event), Act::Nothing);
    }
    view
}

fn news(line: &str, is_bad: bool) -> Event {
    Event::News { line: line.to_owned(), is_bad }
}

#[test]
fn a_wide_terminal_shows_all_figures_and_a_narrow_one_the_most_important() {
    let denied = news("    12  capacity-denied  llama-server:big:0  requested 90.0 GiB", true);
    let view = after(vec![two(), news("    11  ready            llama-server:qwen3-8b:0  spawn 3", false), denied]);
    insta::assert_snapshot!("wide", shown(&view, 130, 20));
    assert!(shown(&view, 124, 20).contains(" 600.0 MiB estimated "), "{}", shown(&view, 124, 20));
    insta::assert_snapshot!("narrow", shown(&view, 90, 16));
}

/// What the child of the test below does in a terminal of its own.
#[test]
#[ignore = "the test below runs it, in a terminal of its own: it panics"]
fn opens_the_screen_and_panics() {
    let mut screen = super::super::Screen::open().expect("a terminal");
    screen.draw(&View::default()).expect("drawn");
    panic!("something broke");
}

#[cfg(target_os = "linux")]
#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    let test = std::env::current_exe().expect("a running test has a path");
    let child = concat!(module_path!(), "::opens_the_screen_and_panics");
    let (_, child) = child.split_once("::").expect("below the crate");
    // The terminal is as it was for whoever uses it next.
    let line = format!("'{}' --ignored --exact {child} --nocapture; stty -a", test.display());
    let output = assert_cmd::Command::new("script").args(["--quiet", "--command", &line, "/dev/null"]).output();
    let output = output.expect("`script` of util-linux makes terminals");
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("no {text:?} in {seen:?}"));
    let (entered, left, told) = (at("\u{1b}[?1049h"), at("\u{1b}[?1049l"), at("something broke"));
    assert!(entered < left && left < told, "{seen:?}");
    let modes: Vec<&str> = seen[told..].split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "{seen:?}");
}

#[test]
fn what_an_engine_generates_is_told_by_two_looks_at_the_same_child() {
    let looked = |at_ms: u64, spawn: u64, frames: Option<u64>| {
        let one = engine("llama-server:a:0", "ready", &json!({"spawn": spawn, "frames": frames}));
        let whole = json!({"atMs": at_ms, "engines": [one], "pool": {"committedBytes": 0}});
        Event::Looked(Box::new(Status::deserialize(&whole).expect("a status")))
    };
    let rate = |looks: Vec<Event>| {
        let view = after(looks);
        view.rate(&view.engines()[0])
    };
    let first = || looked(1_000, 1, Some(100));
    assert_eq!(rate(vec![first()]), None, "nothing to compare it with");
    assert_eq!(rate(vec![first(), looked(3_000, 1, Some(184))]), Some(42.0));
    assert_eq!(rate(vec![first(), looked(3_000, 1, Some(184)), looked(4_000, 1, Some(184))]), Some(0.0));
    assert_eq!(rate(vec![first(), looked(3_000, 2, Some(184))]), None, "another child began anew");
    assert_eq!(rate(vec![first(), looked(1_000, 1, Some(184))]), None, "no time passed");
    assert_eq!(rate(vec![first(), looked(3_000, 1, Some(10))]), None, "the daemon began anew");
    assert_eq!(rate(vec![first(), looked(3_000, 1, None)]), None);
    let view = after(vec![first(), looked(3_000, 1, Some(184))]);
    assert!(shown(&view, 130, 12).contains(" 42.0 "), "{}", shown(&view, 130, 12));
}

#[test]
fn an_empty_pool_and_one_that_is_gone_say_so() {
    let mut view = after(vec![status(&[], &[])]);
    insta::assert_snapshot!("empty", shown(&view, 80, 12));
    assert_eq!(view.on_event(Event::Gone("no daemon answers; looking for it".into())), Act::Nothing);
    insta::assert_snapshot!("gone", shown(&view, 80, 12));
    assert_eq!(view.on_event(two()), Act::Nothing);
    assert!(view.gone.is_none() && shown(&view, 80, 12).contains("starting 63 %"));
}

#[test]
fn no_terminal_is_too_small() {
    let view = after(vec![two(), news("x", false)]);
    for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 5)] {
        assert!(!shown(&view, width, height).is_empty());
    }
}

#[test]
fn what_ends_work_wants_a_yes_and_everything_else_is_a_no() {
    let mut view = after(vec![two()]);
    let key = |model: &str| format!("llama-server:{model}:0").parse::<EngineKey>().expect("a key");
    assert_eq!(view.on_event(Event::Key(Key::Unload)), Act::Nothing);
    assert!(shown(&view, 80, 14).contains("unload llama-server:qwen3-8b:0? y: yes, any other key: no"));
    assert_eq!(view.on_event(Event::Key(Key::Quit)), Act::Nothing, "it answers the question");
    assert_eq!(view.on_event(Event::Key(Key::Down)), Act::Nothing);
    assert_eq!(view.on_event(Event::Key(Key::Drain)), Act::Nothing);
    assert_eq!(view.on_event(Event::Key(Key::Yes)), Act::Drain(key("gemma3-270m")));
    assert_eq!(view.on_event(Event::Key(Key::Load)), Act::Load(key("gemma3-270m")), "a load ends nothing");
    assert_eq!(view.on_event(Event::Key(Key::Unload)), Act::Nothing);
    assert_eq!(view.on_event(Event::Gone("gone".into())), Act::Nothing);
    assert_eq!(view.on_event(Event::Key(Key::Yes)), Act::Nothing, "nobody is asked who is not there");
    assert_eq!(view.on_event(Event::Key(Key::Quit)), Act::Quit);
}

#[test]
fn the_choice_follows_its_engine_and_stays_within_the_rows() {
    let mut view = after(vec![two()]);
    for _ in 0..5 {
        assert_eq!(view.on_event(Event::Key(Key::Down)), Act::Nothing);
    }
    assert_eq!(view.row(), Some(1));
    let none = json!({});
    let moved =
        [engine("llama-server:gemma3-270m:0", "ready", &none), engine("llama-server:qwen3-8b:0", "idle", &none)];
    assert_eq!(view.on_event(status(&moved, &[])), Act::Nothing);
    assert_eq!(view.row(), Some(0), "the same engine");
    assert_eq!(view.on_event(status(&moved[1..], &[])), Act::Nothing);
    assert_eq!((view.row(), view.chosen.as_deref()), (Some(0), Some("llama-server:qwen3-8b:0")));
    assert_eq!(view.on_event(status(&[], &[])), Act::Nothing);
    assert_eq!(view.on_event(Event::Key(Key::Unload)), Act::Nothing);
    assert_eq!(view.asked, None);
}
