//! How soon the end of an engine is noticed, and how soon a whole tree is gone.
use crate::{memory, row, spread};
use motorpool_testkit::{Behaviour, binary, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    daemon::send,
    processes::{all, is_alive, left_of, one},
    talk::{CHAT, chat},
};
use nix::sys::signal::Signal;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

const N_TIMES: usize = 21;
/// Descendants of an engine, each in a session of its own.
const N_TREE: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Measures, and counts what is left of it all.
pub(crate) async fn trees() {
    let mut house = House::new();
    let wrapper = house.path("wrapper");
    let engine = binary("motorpool-fake-engine");
    let forks = format!("for n in $(seq {N_TREE}); do setsid sleep 1000 & done");
    fs::write(&wrapper, format!("#!/bin/sh\n{forks}\nexec '{}' \"$@\"\n", engine.display())).expect("written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("ours");
    house.set("engine.llama-server.program", wrapper.to_str().expect("UTF-8"));
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let (mut noticed, mut reaped, mut keeper) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..N_TIMES {
        let leader = serve(&daemon).await;
        let keeper_pid = one(leader).expect("it runs").parent;
        keeper = memory(keeper_pid);
        let tree: Vec<u32> =
            all().into_iter().filter(|p| p.parent == leader || p.pid == leader).map(|p| p.pid).collect();
        assert_eq!(tree.len(), N_TREE + 1);
        let began = Instant::now();
        send(leader, Signal::SIGKILL);
        while tree.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        reaped.push(began.elapsed());
        noticed.push(until_noticed(&daemon, began).await);
        eventually("its keeper is gone", async || one(keeper_pid).is_none().then_some(())).await;
    }
    row(&format!("SIGKILL of an engine to its tree of {N_TREE} gone"), &spread(&reaped));
    row("the same to its end shown by the supervisor", &spread(&noticed));
    row("RSS of its keeper, just before", &keeper);
    let survivors = left_of(&house, Some(daemon.pid())).len();
    row(&format!("survivors of {N_TIMES} such trees"), &survivors.to_string());
    daemon.stop().await;
    exits().await;
}

/// One process: nothing but the notice.
async fn exits() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let mut noticed = Vec::new();
    for _ in 0..N_TIMES {
        let leader = serve(&daemon).await;
        let began = Instant::now();
        send(leader, Signal::SIGKILL);
        noticed.push(until_noticed(&daemon, began).await);
    }
    row("SIGKILL of an engine alone to its end shown", &spread(&noticed));
    daemon.stop().await;
}

/// The first process of an engine that has just answered.
async fn serve(daemon: &Daemon<'_>) -> u32 {
    let pid = async || {
        let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
        (answer.status == 200).then_some(())
    };
    eventually("it serves", pid).await;
    daemon.until_phase("a", &["ready"]).await.pid.expect("it lives")
}

async fn until_noticed(daemon: &Daemon<'_>, began: Instant) -> Duration {
    while daemon.status().await.engine("a").is_some_and(|engine| engine.pid.is_some()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    began.elapsed()
}
