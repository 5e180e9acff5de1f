//! What of a test still runs, found in `/proc` by every trace there is: the test's folder in arguments, environment or
//! open files; a nonce of its journal; a process id that a fake engine wrote down; descent from any of these.
//!
//! The product looks for its processes by itself. Here nothing of that is used: who checks must not make the same
//! mistakes.
use crate::e2e::{House, house::read, journal};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Nothing may outlive a killed supervisor longer.
pub const GONE_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// `R`, `S`, `Z`, …
    pub state: char,
    /// Its arguments, or its name when it has none any more.
    pub command: String,
}

/// Everything that runs on this machine.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("Linux");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(one).collect()
}

/// One process, while it is there.
pub fn one(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold any.
    let (head, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
    let arguments = read_bytes(pid, "cmdline");
    let command = if arguments.is_empty() {
        head.split_once('(').map_or("", |(_, name)| name).to_owned()
    } else {
        String::from_utf8_lossy(&arguments).replace('\0', " ")
    };
    Some(Process { pid, parent, state, command })
}

/// Whether it runs. A zombie does not.
pub fn is_alive(pid: u32) -> bool {
    one(pid).is_some_and(|process| process.state != 'Z')
}

/// Every process of `house` but `daemon` itself.
pub fn left_of(house: &House, daemon: Option<u32>) -> Vec<Process> {
    let traces = Traces::of(house);
    let all = all();
    let mut ours: BTreeSet<u32> = all.iter().map(|process| process.pid).filter(|pid| traces.mark(*pid)).collect();
    ours.extend(daemon);
    loop {
        let more: Vec<u32> = all.iter().filter(|p| ours.contains(&p.parent)).map(|p| p.pid).collect();
        let n = ours.len();
        ours.extend(more);
        if ours.len() == n {
            break;
        }
    }
    let me = std::process::id();
    all.into_iter().filter(|p| ours.contains(&p.pid) && p.pid != me && Some(p.pid) != daemon).collect()
}

/// Nothing of `house` runs.
///
/// # Panics
/// When something does.
pub fn assert_none(house: &House) {
    let left = left_of(house, None);
    assert!(left.is_empty(), "left running: {left:#?}");
    assert_no_group(house);
}

/// The control groups of engines go with them. (An empty one stays when supervisor and keeper were killed; the next start
/// removes it.)
///
/// # Panics
/// When one is left.
pub fn assert_no_group(house: &House) {
    let left: Vec<_> =
        journal::groups(&house.state("journal.jsonl")).into_iter().filter(|folder| folder.exists()).collect();
    assert!(left.is_empty(), "control groups are left: {left:#?}");
}

/// Kills whatever of `house` runs, until nothing does or nothing helps.
pub fn end_all(house: &House) {
    for _ in 0..100 {
        let left = left_of(house, None);
        if left.is_empty() {
            return;
        }
        for process in left {
            let pid = i32::try_from(process.pid).expect("a process id");
            // It may be gone by now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until nothing of `house` runs, and returns how long that took.
///
/// # Panics
/// When something still does after [`GONE_WITHIN`].
pub async fn assert_gone(house: &House) -> Duration {
    let since = Instant::now();
    loop {
        let left = left_of(house, None);
        let within = since.elapsed();
        if left.is_empty() {
            return within;
        }
        assert!(within < GONE_WITHIN, "left running after {within:?}: {left:#?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// How many descriptors a process has open.
pub fn n_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
}

/// Children of a process that ended and were not reaped.
pub fn zombies_of(pid: u32) -> Vec<Process> {
    all().into_iter().filter(|process| process.parent == pid && process.state == 'Z').collect()
}

/// Bytes of a process that are in memory, in KiB, by the name of the line in its status: `VmRSS`, `VmHWM`.
pub fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("the line is there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn read_bytes(pid: u32, name: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

/// What tells a process of a test.
struct Traces {
    folder: Vec<u8>,
    nonces: Vec<Vec<u8>>,
    strays: BTreeSet<u32>,
}

impl Traces {
    fn of(house: &House) -> Self {
        let folder = house.folder();
        let nonces = journal::nonces(&house.state("journal.jsonl")).into_iter().map(String::into_bytes).collect();
        Self { folder: folder.as_os_str().as_encoded_bytes().to_vec(), nonces, strays: strays(&folder.join("models")) }
    }

    /// The daemon of a house names its folder in its arguments, and so does whoever runs in it; the test itself does
    /// not.
    fn mark(&self, pid: u32) -> bool {
        let texts = [read_bytes(pid, "cmdline"), read_bytes(pid, "environ")];
        let holds = |needle: &[u8]| texts.iter().any(|text| contains(text, needle));
        let opened = || {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut paths = files.filter_map(|file| fs::read_link(file.path()).ok());
            paths.any(|path| contains(path.as_os_str().as_encoded_bytes(), &self.folder))
        };
        let is_me = pid == std::process::id();
        !is_me && (holds(&self.folder) || self.nonces.iter().any(|n| holds(n)) || self.is_stray(pid) || opened())
    }

    /// The number may be another's by now: a stray of ours is a fake engine's.
    fn is_stray(&self, pid: u32) -> bool {
        self.strays.contains(&pid) && contains(&read_bytes(pid, "cmdline"), b"--stray")
    }
}

fn strays(models: &Path) -> BTreeSet<u32> {
    let files = fs::read_dir(models).into_iter().flatten().flatten().map(|file| file.path());
    let lists = files.filter(|path| path.extension().is_some_and(|ending| ending == "strays"));
    lists.flat_map(|path| read(&path).lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process that `mark` is to find, or not.
    fn sleeper(mark: impl FnOnce(&mut Command) -> &mut Command) -> std::process::Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        mark(&mut command);
        command.spawn().expect("sleep is there")
    }

    fn is_found(house: &House, mark: impl FnOnce(&mut Command) -> &mut Command) -> bool {
        let mut child = sleeper(mark);
        let found = left_of(house, None).iter().any(|process| process.pid == child.id());
        child.kill().and_then(|()| child.wait()).expect("ours");
        found
    }

    #[test]
    fn what_carries_any_trace_of_a_test_is_found_and_what_carries_none_is_not() {
        let house = House::without_engine();
        let nonce = "0123456789abcdef0123456789abcdef";
        fs::create_dir(house.path("state")).expect("made");
        let line = format!("{{\"v\":1,\"record\":\"intent\",\"spawn\":5,\"nonce\":\"{nonce}\"}}\n");
        fs::write(house.state("journal.jsonl"), line).expect("written");
        let log = fs::File::create(house.path("log")).expect("created");
        assert!(is_found(&house, |command| command.env("HOME", house.folder())));
        assert!(is_found(&house, |command| command.env("MOTORPOOL_NONCE", nonce)));
        assert!(is_found(&house, |command| command.stdout(log)));
        assert!(!is_found(&house, |command| command));
        assert_none(&house);
    }

    #[test]
    fn what_descends_from_a_marked_process_is_found() {
        let house = House::without_engine();
        let mut shell = Command::new("sh");
        shell.args(["-c", "env -i sleep 1000 & wait"]).env("HOME", house.folder()).stdin(Stdio::null());
        let mut shell = shell.spawn().expect("a shell is there");
        let found = loop {
            let left = left_of(&house, None);
            if left.iter().any(|process| process.command.starts_with("sleep")) {
                break left;
            }
            std::thread::yield_now();
        };
        shell.kill().and_then(|()| shell.wait()).expect("ours");
        let sleep = found.iter().find(|process| process.command.starts_with("sleep")).expect("just seen");
        kill(Pid::from_raw(i32::try_from(sleep.pid).expect("a process id")), Signal::SIGKILL).expect("ours");
    }
}
