//! Output: lines, floods, the log. **S2**.
use crate::support::{House, keeper_of, line, rest, until, until_file};
use motorpool_supervisor::{Heard, Source};
use std::fs;

#[tokio::test]
async fn lines_come_by_stream_and_the_last_ones_with_the_end() {
    let house = House::new();
    let mut engine = house.run("echo out; echo err >&2; printf 'no end'").await;
    let mut heard = Vec::new();
    let gone = loop {
        match engine.hear().await.expect("an end") {
            Heard::Line { source, text, n_dropped } => heard.push((source == Source::Stderr, text, n_dropped)),
            Heard::Ended(_) => {}
            Heard::Gone(gone) => break gone,
        }
    };
    heard.sort();
    let expected = [(false, "no end", 0), (false, "out", 0), (true, "err", 0)];
    assert_eq!(heard, expected.map(|(is_err, text, n)| (is_err, text.to_owned(), n)));
    let mut tail = gone.tail;
    tail.sort();
    assert_eq!(tail, ["err", "no end", "out"]);
}

#[tokio::test]
async fn a_progress_bar_is_lines_and_broken_text_is_mended() {
    let house = House::new();
    let (lines, _) = rest(&mut house.run("printf '\\r10%%\\r20%%\\r\\n\\377\\n'").await).await;
    assert_eq!(lines, ["10%", "20%", "\u{fffd}"]);
}

#[tokio::test]
async fn a_flood_that_nobody_hears_blocks_nothing_and_is_counted() {
    let house = House::new();
    let n_lines = 400_000;
    let mut engine =
        house.run(&format!("yes 0123456789012345678901234567890123456789 | head -n {n_lines}; touch through")).await;
    // Nobody listens here, so the engine gets through only if nothing waits for us.
    until_file(&house.path("through")).await;
    let (mut n_heard, mut n_missing) = (0, 0);
    let gone = loop {
        match engine.hear().await.expect("an end") {
            Heard::Line { n_dropped, .. } => {
                n_heard += 1;
                n_missing += n_dropped;
            }
            Heard::Ended(_) => {}
            Heard::Gone(gone) => break gone,
        }
    };
    let n_missing = n_missing + gone.n_dropped;
    assert!(n_missing > 0 && n_heard + n_missing == n_lines, "{n_heard} heard, {n_missing} missing");
    assert_eq!(gone.code, Some(0));
    let size: usize = gone.tail.iter().map(|line| line.len() + 1).sum();
    assert!(size <= 64 << 10 && size > 60 << 10, "{size}");
}

#[tokio::test]
async fn a_kill_is_heard_in_the_middle_of_a_flood() {
    let house = House::new();
    let mut engine = house.run("yes >&2").await;
    line(&mut engine).await;
    engine.kill().await;
    assert_eq!(rest(&mut engine).await.1.signal, Some(9));
}

#[tokio::test]
async fn a_line_without_end_takes_no_memory() {
    let house = House::new();
    let mut engine = house.run("head -c 20000000 /dev/zero; touch through; read x").await;
    let keeper = keeper_of(&engine);
    until_file(&house.path("through")).await;
    let memory = motorpool_devices::observe_memory(keeper).expect("it lives");
    assert!(memory.anonymous <= motorpool_vocab::Bytes::mib(2), "{memory:?}");
    assert!(line(&mut engine).await.len() <= 9 << 10);
}

#[tokio::test]
async fn output_is_in_the_log_too() {
    let house = House::new();
    let log = house.path("engine.log");
    for word in ["one", "two"] {
        let mut order = house.script(&format!("echo {word}"));
        order.log = Some(log.clone());
        rest(&mut house.launcher.launch(order).await.expect("a shell")).await;
    }
    assert_eq!(fs::read_to_string(&log).expect("a log"), "one\ntwo\n", "it goes on over starts");
    let mut order = house.script("yes 0123456789012345678901234567890123456789 | head -n 300000");
    order.log = Some(log.clone());
    rest(&mut house.launcher.launch(order).await.expect("a shell")).await;
    assert!(house.path("engine.log.1").exists(), "12 MB are more than one file");
    until("the log is small", || fs::metadata(&log).expect("a log").len() < 11 << 20).await;
}
