//! What there is to measure, over the whole program: names, keys, and engines that do not answer.
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    daemon::send,
    talk::{CHAT, ask},
};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;

const NAMES: &str = include_str!("../../../crates/gateway/src/metrics/names.txt");

/// `/metrics` with these headers.
async fn scraped(daemon: &Daemon<'_>, method: Method, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let request = Request::builder().method(method).uri("/metrics").header("host", "localhost");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = daemon.http().send(request.body(Full::default()).expect("a request")).await.expect("an answer");
    let answer = answer.whole().await.expect("whole");
    (answer.status, answer.headers.clone(), answer.text())
}

async fn text(daemon: &Daemon<'_>) -> String {
    let (status, _, text) = scraped(daemon, Method::GET, &[]).await;
    assert_eq!(status, 200, "{text}");
    text
}

/// The series, without their values.
fn series(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect()
}

#[tokio::test]
async fn every_name_is_there_from_the_start_and_a_model_that_there_is_not_makes_no_series() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let before = text(&daemon).await;
    let heads = |form: &str| -> BTreeSet<String> {
        let kinds =
            before.lines().filter_map(|line| line.strip_prefix(form)).filter(|line| line.starts_with("motorpool_"));
        kinds.map(str::to_owned).collect()
    };
    let known = NAMES.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(heads("# TYPE "), known);
    assert_eq!(heads("# HELP ").len(), NAMES.lines().count());
    for n in 0..5 {
        let answer = daemon.http().post(CHAT, &ask(&format!("made-up-{n}"), "hello")).await.expect("an answer");
        assert_eq!(answer.status, 404);
    }
    let after = text(&daemon).await;
    assert!(after.contains("motorpool_unrouted_requests_total{code=\"model_not_found\"} 5"), "{after}");
    let (now, then) = (series(&after), series(&before));
    // The machine may have been read meanwhile.
    let new: Vec<_> = now.difference(&then).filter(|series| !series.contains("_foreign_")).copied().collect();
    assert_eq!(new, ["motorpool_unrouted_requests_total{code=\"model_not_found\"}"]);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_measured_needs_a_key_that_reads_and_a_head_has_no_body() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.write_config();
    let key = async |name: &str, scope: &str| {
        let made = house.run(&["key", "new", name, "--scope", scope]).await;
        format!("Bearer {}", made.stdout.trim())
    };
    let (asks, reads) = (key("asks", "inference").await, key("reads", "read").await);
    let daemon = house.start().await;
    assert_eq!(scraped(&daemon, Method::GET, &[]).await.0, 401);
    assert_eq!(scraped(&daemon, Method::GET, &[("authorization", &asks)]).await.0, 403);
    let (status, headers, body) = scraped(&daemon, Method::HEAD, &[("authorization", &reads)]).await;
    assert_eq!(
        (status.as_u16(), &headers["content-type"], body.as_str()),
        (200, &"text/plain; version=0.0.4; charset=utf-8".parse().expect("a value"), "")
    );
    let open = [("authorization", reads.as_str()), ("accept", "application/openmetrics-text;version=1.0.0")];
    let (status, headers, body) = scraped(&daemon, Method::GET, &open).await;
    assert!(status == 200 && body.ends_with("# EOF\n"), "{status} {body}");
    assert!(headers["content-type"].to_str().is_ok_and(|kind| kind.starts_with("application/openmetrics-text")));
    assert_eq!(
        scraped(&daemon, Method::GET, &[("authorization", &reads), ("origin", "https://evil.example")]).await.0,
        403
    );
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_does_not_answer_stalls_nothing_and_is_told_by_no_old_figure() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake_with(id, &Behaviour::default(), "declared = \"300MiB\"\nslots = 2\n");
    }
    let daemon = house.start().await;
    for id in ["a", "b"] {
        assert_eq!(daemon.http().post(CHAT, &ask(id, "hello")).await.expect("an answer").status, 200);
    }
    let of = |id: &str| format!("llamacpp:requests_processing{{model=\"{id}\",replica=\"0\"}} 0");
    let up = |id: &str, level: &str| format!("motorpool_engine_scrape_up{{model=\"{id}\",replica=\"0\"}} {level}");
    let shown = async |what: &str, lines: &[String]| {
        eventually(what, async || {
            let text = text(&daemon).await;
            lines.iter().all(|line| text.lines().any(|known| known == line)).then_some(text)
        })
        .await
    };
    let text = shown("both are read", &[of("a"), of("b"), up("a", "1.0"), up("b", "1.0")]).await;
    assert_eq!(text.matches("# TYPE llamacpp:requests_processing ").count(), 1, "{text}");
    assert!(text.contains("motorpool_requests_total{model=\"a\",outcome=\"finished\"} 1"), "{text}");
    let pid = daemon.status().await.engine("b").and_then(|engine| engine.pid).expect("it runs");
    send(pid, Signal::SIGSTOP);
    let text = shown("one is read, and the other is said not to be", &[of("a"), up("a", "1.0"), up("b", "0.0")]).await;
    assert!(!text.contains(&of("b")), "{text}");
    send(pid, Signal::SIGCONT);
    shown("both are read again", &[of("a"), of("b"), up("b", "1.0")]).await;
    daemon.stop().await;
}
