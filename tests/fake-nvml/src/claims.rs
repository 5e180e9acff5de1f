//! Claims of processes that play engines: files of a folder, counted while their process lives and a while longer.
use crate::state::{Kind, Process, State};
use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// When a call first found the process of a claim gone.
static GONE_SINCE: Mutex<Option<HashMap<u32, Instant>>> = Mutex::new(None);

/// What the claims of `state` hold now.
pub(crate) fn observe(state: &State) -> Vec<Process> {
    let Some(entries) = state.claims.as_deref().and_then(|folder| fs::read_dir(folder).ok()) else { return Vec::new() };
    let claims = entries.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        is_held(pid, state).then(|| read(&entry.path(), pid)).flatten()
    });
    claims.flatten().collect()
}

fn read(path: &Path, pid: u32) -> Option<Vec<Process>> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().filter_map(|line| parse(line, pid)).collect())
}

fn parse(line: &str, pid: u32) -> Option<Process> {
    let (uuid, bytes) = line.trim().split_once(' ')?;
    Some(Process { uuid: uuid.to_owned(), pid, bytes: Some(bytes.parse().ok()?), kind: Kind::Compute })
}

fn is_held(pid: u32, state: &State) -> bool {
    let mut gone = GONE_SINCE.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = gone.get_or_insert_default();
    if lives(pid) {
        gone.remove(&pid);
        return true;
    }
    gone.entry(pid).or_insert_with(Instant::now).elapsed() < state.lag
}

/// A zombie lives no more: its memory went when it exited.
fn lives(pid: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    let text = String::from_utf8_lossy(&stat);
    text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(claims: &Path, lag: &str) -> Vec<(u32, Option<u64>)> {
        let text = format!("claims {}\nlag-ms {lag}\n", claims.display());
        let found = observe(&State::parse(&text).expect("understood"));
        found.iter().map(|process| (process.pid, process.bytes)).collect()
    }

    #[test]
    fn a_claim_lasts_as_long_as_its_process_and_the_lag() {
        let folder = std::env::temp_dir().join(format!("motorpool-fake-nvml-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("writable");
        let (me, nobody) = (std::process::id(), 4_194_305);
        fs::write(folder.join(me.to_string()), "GPU-a 5\nGPU-b 6\nnonsense\n").expect("writable");
        fs::write(folder.join(nobody.to_string()), "GPU-a 7\n").expect("writable");
        fs::write(folder.join("readme"), "GPU-a 8\n").expect("writable");
        assert_eq!(claimed(&folder, "0"), [(me, Some(5)), (me, Some(6))]);
        let mut with_lag = claimed(&folder, "3600000");
        with_lag.sort_unstable();
        assert_eq!(with_lag, [(me, Some(5)), (me, Some(6)), (nobody, Some(7))]);
        fs::remove_dir_all(&folder).expect("ours");
        assert_eq!(claimed(&folder, "0"), []);
    }
}
