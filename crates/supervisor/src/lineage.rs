//! [`is_below_us`]: whether a process is one of an engine's.
//!
//! All that this process starts are keepers and tools, and whatever an engine starts stays below its keeper, which takes in
//! orphans. So whoever descends from us is an engine's.
use motorpool_devices::observe_process;

/// No tree is so deep.
const DEEPEST: usize = 1024;

/// Whether a process descends from this one. One that is gone is taken for one: it may have been, and wants no answer.
/// Processes that this one cannot see, which have the number 0, are not below it.
pub fn is_below_us(pid: u32) -> bool {
    let us = std::process::id();
    if pid == 0 || pid == us {
        return false;
    }
    let mut at = pid;
    for _ in 0..DEEPEST {
        match observe_process(at).map(|process| process.ppid) {
            Some(parent) if parent == us => return true,
            Some(0 | 1) => return false,
            Some(parent) => at = parent,
            None => return true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
    };

    #[test]
    fn whoever_descends_from_us_is_below_us_and_nobody_else_is() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let grandchild: u32 = line.trim().parse().expect("a process id");
        let parent = nix::unistd::getppid().as_raw().unsigned_abs();
        assert!(is_below_us(child.id()) && is_below_us(grandchild));
        assert!(!is_below_us(std::process::id()) && !is_below_us(parent) && !is_below_us(1) && !is_below_us(0));
        assert!(is_below_us(u32::MAX), "it is gone");
        let grandchild = nix::unistd::Pid::from_raw(i32::try_from(grandchild).expect("a process id"));
        nix::sys::signal::kill(grandchild, nix::sys::signal::Signal::SIGKILL).expect("ours");
        child.kill().expect("ours");
        child.wait().expect("ours");
    }
}
