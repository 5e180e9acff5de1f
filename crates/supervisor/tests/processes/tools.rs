//! The runner: tools leave nothing behind either.
use crate::support::{is_alive, keeper, until};
use motorpool_devices::observe_process;
use motorpool_supervisor::{LaunchError, RunError, Source, Tool, run};
use nix::{sys::signal::Signal, unistd::Pid};
use std::{cell::Cell, path::Path, time::Duration};
use tokio::time::timeout;

fn sh(script: &str) -> Tool {
    Tool {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("GREETING".into(), "hello".into())],
        cwd: "/".into(),
        timeout: None,
    }
}

fn ignore(_: Source, _: &str) {}

#[tokio::test]
async fn a_tool_gets_what_it_is_given_and_its_lines_come_as_they_are_written() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let tool = Tool { cwd: folder.path().to_owned(), ..sh("echo $GREETING; pwd >&2; exit 3") };
    let mut lines = Vec::new();
    let exit = run(&keeper(), &tool, |source, line| lines.push((source, line.to_owned()))).await.expect("a shell");
    assert_eq!((exit.code, exit.signal, exit.is_success()), (Some(3), None, false));
    assert!(lines.contains(&(Source::Stdout, "hello".to_owned())));
    let folder = folder.path().canonicalize().expect("there");
    assert!(lines.iter().any(|(source, line)| *source == Source::Stderr && Path::new(line) == folder));
    assert_eq!(exit.tail.len(), 2);
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_named() {
    let tool = Tool { program: "/absent".into(), ..sh("") };
    let error = run(&keeper(), &tool, ignore).await.expect_err("no tool");
    assert!(matches!(&error, RunError::Launch(LaunchError::EngineMissing { .. })), "{error}");
    assert_eq!(error.to_string(), "cannot execute /absent");
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_killed_with_all_it_started() {
    let pid = Cell::new(0);
    let tool = Tool { timeout: Some(Duration::from_millis(300)), ..sh("setsid sleep 1000 & echo $!; wait") };
    let ran = run(&keeper(), &tool, |_, line| pid.set(line.parse().expect("a process id"))).await;
    match ran {
        Err(RunError::TimedOut { tail, .. }) => assert_eq!(tail, [pid.get().to_string()]),
        other => panic!("a timeout, not {other:?}"),
    }
    assert!(pid.get() != 0 && !is_alive(pid.get()));
}

/// Its keeper stands still: nobody kills it, and nobody tells of its end.
#[tokio::test]
async fn a_tool_that_cannot_be_killed_is_waited_for_no_longer() {
    let (pid, keeper_pid) = (Cell::new(0), Cell::new(0));
    let tool = Tool { timeout: Some(Duration::from_millis(300)), ..sh("echo $$; exec sleep 1000") };
    let stop = |_: Source, line: &str| {
        pid.set(line.parse().expect("a process id"));
        keeper_pid.set(observe_process(pid.get()).expect("it lives").ppid);
        send(keeper_pid.get(), Signal::SIGSTOP);
    };
    let ran = timeout(Duration::from_mins(1), run(&keeper(), &tool, stop)).await.expect("not for ever");
    assert!(matches!(ran, Err(RunError::TimedOut { .. })), "{ran:?}");
    assert!(is_alive(pid.get()), "it is left to its keeper");
    send(keeper_pid.get(), Signal::SIGCONT);
    until("its keeper ends it", || !is_alive(pid.get())).await;
}

fn send(pid: u32, signal: Signal) {
    nix::sys::signal::kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), signal).expect("ours");
}

#[tokio::test]
async fn a_tool_nobody_waits_for_is_killed_with_all_it_started() {
    let (sender, mut pids) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let tool = sh("setsid sleep 1000 & echo $!; echo $$; wait");
        run(&keeper(), &tool, |_, line| sender.send(line.parse::<u32>().expect("a process id")).expect("heard")).await
    });
    let (grandchild, leader) = (pids.recv().await.expect("a line"), pids.recv().await.expect("a line"));
    assert!(is_alive(grandchild) && is_alive(leader));
    running.abort();
    until("both are dead", || !is_alive(grandchild) && !is_alive(leader)).await;
}
