//! What an earlier supervisor left is killed; a look-alike is not. **S4**.
use crate::support::{House, is_alive, keeper, kill, open_again, until, until_file};
use motorpool_devices::{boot_id, observe_process};
use motorpool_supervisor::{Launcher, LockError, OpenError};
use motorpool_vocab::Spawn;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

/// A mark for one test alone: they run side by side.
fn nonce() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    format!("{:024x}{:08x}", DRAWN.fetch_add(1, Ordering::Relaxed), std::process::id())
}

/// A process that somebody left, or that only looks so.
struct Left(Child);

impl Left {
    fn sleeping(nonce: Option<&str>) -> Self {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").env_clear().envs(nonce.map(|nonce| ("MOTORPOOL_NONCE", nonce)));
        Self(command.spawn().expect("sleep"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn start_time(&self) -> u64 {
        observe_process(self.pid()).expect("it lives").start_time
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// So that a failed test leaves nothing.
struct KilledAtLast(u32);

impl Drop for KilledAtLast {
    fn drop(&mut self) {
        if is_alive(self.0) {
            kill(self.0);
        }
    }
}

fn intent(nonce: &str, boot: &str) -> String {
    format!(
        "{{\"v\":1,\"record\":\"intent\",\"spawn\":5,\"nonce\":\"{nonce}\",\"boot\":\"{boot}\",\"executable\":\"/bin/sleep\",\
         \"key\":\"test:model:0\",\"socket\":null,\"claim\":{{\"devices\":{{}},\"ram\":0}}}}\n"
    )
}

fn born(pid: u32, start_time: u64) -> String {
    let process = format!("{{\"pid\":{pid},\"start_time\":{start_time}}}");
    format!("{{\"v\":1,\"record\":\"born\",\"spawn\":5,\"keeper\":{process},\"engine\":{process}}}\n")
}

fn this_boot() -> String {
    boot_id(Path::new("/")).expect("linux")
}

/// Starts a supervisor on a journal that an earlier one wrote.
fn settle(journal: &str) -> Launcher {
    let state = tempfile::tempdir().expect("a temporary directory");
    fs::write(state.path().join("journal.jsonl"), journal).expect("writable");
    let launcher = Launcher::open(keeper(), state.path()).expect("readable");
    assert_eq!(launcher.settle().expect("writable"), []);
    let journal = fs::read_to_string(state.path().join("journal.jsonl")).expect("there");
    assert!(journal.contains("\"record\":\"gone\",\"spawn\":5"), "{journal}");
    launcher
}

#[test]
fn an_engine_left_behind_is_killed_before_anything_is_admitted() {
    let nonce = nonce();
    let left = Left::sleeping(Some(&nonce));
    let launcher = settle(&(intent(&nonce, &this_boot()) + &born(left.pid(), left.start_time())));
    assert!(!is_alive(left.pid()));
    assert_eq!(launcher.next_spawn(), Spawn(6), "numbers go on");
}

#[test]
fn one_whose_birth_was_not_written_down_is_found_by_its_mark() {
    let nonce = nonce();
    let left = Left::sleeping(Some(&nonce));
    settle(&intent(&nonce, &this_boot()));
    assert!(!is_alive(left.pid()));
    let left = Left::sleeping(Some(&nonce));
    settle(&(intent(&nonce, &this_boot()) + "{\"v\":1,\"record\":\"born\",\"spawn\":5,\"kee"));
    assert!(!is_alive(left.pid()), "a torn last line changes nothing");
}

#[tokio::test]
async fn an_engine_that_nobody_looks_after_any_more_is_gone_when_that_is_said() {
    let house = House::new();
    let order = house.script("setsid sh -c 'trap \"\" TERM; touch up; sleep 1000'");
    let (spawn, launcher) = (order.spawn, &house.launcher);
    let engine = launcher.launch(order).await.expect("a shell");
    until_file(&house.path("up")).await;
    let pid = engine.process().pid;
    // As a driver that broke off does.
    drop(engine);
    assert_eq!(launcher.settle_one(spawn), None);
    assert!(!is_alive(pid));
    assert_eq!(launcher.settle_one(spawn), None, "it is written down");
}

#[test]
fn its_unmarked_descendants_die_with_it() {
    let nonce = nonce();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "setsid env -i /bin/sleep 1000 & echo $!; wait"]).env("MOTORPOOL_NONCE", &nonce);
    let mut left = Left(command.stdout(Stdio::piped()).spawn().expect("a shell"));
    let mut line = String::new();
    BufReader::new(left.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let descendant = line.trim().parse().expect("a process id");
    settle(&intent(&nonce, &this_boot()));
    assert!(!is_alive(left.pid()) && !is_alive(descendant));
}

#[test]
fn an_unmarked_worker_outlives_neither_its_leader_nor_its_keeper_for_long() {
    let nonce = nonce();
    // Whose session it is, whose group, and who is left of both.
    let worker = "env -i /bin/sleep 1000 & echo $!; exec /bin/sleep 1000";
    let mut command = Command::new("setsid");
    command.args(["bash", "-c", &format!("set -m; bash -c '{worker}' & echo $!; wait")]);
    let mut keeper = Left(command.stdout(Stdio::piped()).spawn().expect("a shell"));
    let lines = BufReader::new(keeper.0.stdout.take().expect("piped")).lines();
    let pids = lines.take(2).map(|line| line.expect("a line").parse::<u32>().expect("a process id"));
    let facts: Vec<_> = pids.map(|pid| observe_process(pid).expect("it lives")).collect();
    let engine = facts.iter().find(|one| one.pid == one.pgid).expect("it leads a group");
    let worker = facts.iter().find(|one| one.pid != one.pgid).expect("it is in that group");
    let _killed_at_last = KilledAtLast(worker.pid);
    assert_eq!((worker.pgid, worker.sid), (engine.pid, keeper.pid()));
    let process = |pid, start_time| format!("{{\"pid\":{pid},\"start_time\":{start_time}}}");
    let led = process(engine.pid, engine.start_time);
    let born =
        |keeper: String| format!("{{\"v\":1,\"record\":\"born\",\"spawn\":5,\"keeper\":{keeper},\"engine\":{led}}}\n");
    let kept = process(keeper.pid(), keeper.start_time());
    kill(engine.pid);
    keeper.0.kill().expect("it lives");
    keeper.0.wait().expect("killed");
    settle(&(intent(&nonce, &this_boot()) + &born(process(worker.pid, 1))));
    assert!(is_alive(worker.pid), "another keeper's");
    settle(&(intent(&nonce, &this_boot()) + &born(kept)));
    assert!(!is_alive(worker.pid));
}

#[test]
fn a_look_alike_is_never_touched() {
    let nonce = nonce();
    let (other, absent) = ("f".repeat(32), "");
    let unmarked = Left::sleeping(None);
    let marked_otherwise = Left::sleeping(Some(&other));
    let marked_longer = Left::sleeping(Some(&format!("{nonce}0")));
    for left in [&unmarked, &marked_otherwise, &marked_longer] {
        // Same id, same program, same start even: the mark is missing.
        settle(&(intent(&nonce, &this_boot()) + &born(left.pid(), left.start_time())));
        settle(&(intent(&nonce, &this_boot()) + &born(left.pid(), left.start_time() + 1)));
        settle(&(intent(absent, &this_boot()) + &born(left.pid(), left.start_time())));
        assert!(is_alive(left.pid()));
    }
}

#[test]
fn processes_of_another_boot_mean_nothing() {
    let nonce = nonce();
    let left = Left::sleeping(Some(&nonce));
    settle(&(intent(&nonce, "00000000-0000-0000-0000-000000000000") + &born(left.pid(), left.start_time())));
    assert!(is_alive(left.pid()));
}

#[test]
fn a_second_supervisor_is_refused_and_the_first_undisturbed() {
    let house = House::new();
    match Launcher::open(keeper(), house.state.path()) {
        Err(OpenError::Lock(LockError::Held { pid, .. })) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("held, not {other:?}"),
    }
}

#[tokio::test]
async fn what_a_dead_keeper_and_a_dead_supervisor_left_is_found_by_the_next() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("setsid sleep 1000 & : >ran; read x")).await.expect("a shell");
    let keeper_pid = blocked.keeper().pid;
    let kept = blocked.go().await.expect("a shell");
    crate::support::until_file(&house.path("ran")).await;
    let tree = motorpool_devices::descendants(keeper_pid);
    let House { state, launcher } = house;
    // Frozen, so that it cannot do its work when we are gone.
    let _thawed = KilledAtLast(keeper_pid);
    let frozen = nix::unistd::Pid::from_raw(i32::try_from(keeper_pid).expect("a process id"));
    nix::sys::signal::kill(frozen, nix::sys::signal::Signal::SIGSTOP).expect("ours");
    drop((kept, launcher));
    assert!(tree.len() == 2 && tree.iter().all(|pid| is_alive(*pid)));
    let path = state.path().to_owned();
    let settling = tokio::task::spawn_blocking(move || open_again(&path).settle());
    let left = settling.await.expect("no panic").expect("writable");
    assert_eq!(left, []);
    assert!(!tree.iter().any(|pid| is_alive(*pid)) && !is_alive(keeper_pid));
}

#[tokio::test]
async fn a_keeper_that_hears_nonsense_kills_and_leaves() {
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[1, 2, 0, 0, 0, 0], &[1, 1, 255, 255, 255, 255], &[]] {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let program = keeper().program;
        let child = Command::new(program).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).spawn().expect("ours");
        std::io::Write::write_all(&mut &ours, nonsense).expect("it reads");
        drop(ours);
        let mut child = Left(child);
        until("it left", || child.0.try_wait().expect("ours").is_some()).await;
    }
}

#[test]
fn a_killed_stranger_is_nobodys_leftover() {
    let nonce = nonce();
    let left = Left::sleeping(Some(&nonce));
    let (pid, start_time) = (left.pid(), left.start_time());
    kill(pid);
    drop(left);
    settle(&(intent(&nonce, &this_boot()) + &born(pid, start_time)));
}
