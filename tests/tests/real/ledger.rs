//! What is reserved beside what a real tree holds, tick by tick.
use motorpool_testkit::Incoming;
use motorpool_tests::e2e::{
    Daemon,
    installed::{MODEL, house, model_file},
    processes::memory_kib,
    talk::CHAT,
};
use serde_json::json;
use std::{fs, path::Path};

const KIB: u64 = 1 << 10;
/// Looks at an engine that does nothing, after its answer.
const N_AFTER: u32 = 20;

/// Bytes of `file` that the process has mapped, of whose pages none counts twice.
fn mapped(pid: u32, file: &Path) -> u64 {
    let name = file.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let length = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    };
    let sum: u64 = maps.lines().filter(|line| line.ends_with(name)).filter_map(length).sum();
    sum.min(file.metadata().expect("the model").len())
}

/// What the tree below `leader` holds: private memory, swapped or not, and the mapped model.
fn held(leader: u32, file: &Path) -> u64 {
    let mut pids = vec![leader];
    let mut at = 0;
    while let Some(parent) = pids.get(at) {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    let private: u64 = pids.iter().map(|pid| memory_kib(*pid, "RssAnon") + memory_kib(*pid, "VmSwap")).sum();
    private * KIB + mapped(leader, file)
}

/// One look; `None` while there is no process. What is held is read first: the line may only be larger by then.
async fn look(daemon: &Daemon<'_>, file: &Path) -> Option<(u64, u64)> {
    let pid = daemon.status().await.engine(MODEL)?.pid?;
    let held = held(pid, file);
    let engine = daemon.status().await.engine(MODEL)?.clone();
    assert!(
        held <= engine.reserved_bytes,
        "{held} bytes are held and {} reserved, {}:\n{}",
        engine.reserved_bytes,
        engine.phase,
        daemon.log()
    );
    Some((held, engine.reserved_bytes))
}

async fn long_question(daemon: &Daemon<'_>) -> Incoming {
    // About 1,000 tokens.
    let text = "one more fact to keep in mind; ".repeat(120);
    let body = json!({
        "model": MODEL, "stream": true, "temperature": 0, "max_tokens": 16, "ignore_eos": true,
        "messages": [{"role": "user", "content": text}],
    });
    daemon.http().open(CHAT, &body).await.expect("a head")
}

#[tokio::test]
async fn from_its_first_page_to_the_end_of_a_long_prompt_no_tree_holds_more_than_its_line() {
    let house = house().await;
    let daemon = house.start().await;
    let file = model_file();
    let mut ticks = ticks_of_an_answer(&daemon, &file).await;
    for _ in 0..N_AFTER {
        ticks.extend(look(&daemon, &file).await);
    }
    let most = ticks.iter().map(|(held, _)| *held).max().expect("it was looked at");
    assert!(ticks.len() > 20 && most > file.metadata().expect("the model").len(), "{ticks:?}");
    daemon.stop().await;
}

/// What is seen while the engine loads and answers.
async fn ticks_of_an_answer(daemon: &Daemon<'_>, file: &Path) -> Vec<(u64, u64)> {
    let mut ticks = vec![];
    let mut answer = Box::pin(async { long_question(daemon).await.whole().await.expect("its end") });
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => {
                let text = answer.text();
                assert!(text.contains("[DONE]"), "{text}");
                return ticks;
            }
            tick = look(daemon, file) => ticks.extend(tick),
        }
    }
}
