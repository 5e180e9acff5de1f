//! What the end of a child means: [`Exit`] from what the keeper reports.
use crate::{Gone, LaunchError, driver::Told};
use motorpool_catalog::Manifest;
use motorpool_pool::Exit;
use motorpool_vocab::FailureClass;
use std::{io, path::Path};
use tokio::task::spawn_blocking;

/// Last lines that are kept of a child: exits are history, and shown whole.
const MAX_LINES: usize = 40;
/// Of a longer line only so many characters are kept.
const MAX_CHARS: usize = 512;

/// A child that ran. One that was told to end did not fail, however it ended.
pub(crate) fn exit_of(pid: u32, gone: Gone, told: Told, manifest: &Manifest) -> Exit {
    let Gone { code, signal, oom_kills, tail, .. } = gone;
    // The log knows better than the signal: an abort after "out of memory" is no assertion.
    let class = match told {
        Told::ToEnd => None,
        // What broke off its first inference may have been its own end; any signal but the one of our kill tells so.
        Told::ToDie => {
            let its_own = signal.filter(|signal| *signal != libc::SIGKILL).and_then(class_of_signal);
            let by_kernel = (oom_kills > Some(0)).then_some(FailureClass::OutOfHostMemory);
            manifest.classify(&tail).or(its_own).or(by_kernel).or(Some(FailureClass::Unknown))
        }
        Told::Nothing => manifest.classify(&tail).or(signal.and_then(class_of_signal)),
    };
    // Reports of progress are for us; people are shown what it said last.
    let tail = tail.into_iter().filter(|line| manifest.progress(line).is_none()).collect();
    Exit { pid: Some(pid), code, signal, class, tail: shortened(tail) }
}

/// How often the kernel has killed in our control group for want of memory; `None` where nobody counts.
pub(crate) async fn oom_kills() -> Option<u64> {
    let kills = spawn_blocking(|| motorpool_devices::observe_oom_kills(Path::new("/"))).await;
    kills.ok()?.ok()?
}

/// A kill that nobody ordered, while the kernel killed for want of memory, was one of those. The count of its own control
/// group says so for sure; without one, that of all of ours before its death and after.
pub(crate) fn with_oom_kills(exit: Exit, own: Option<u64>, (before, after): (Option<u64>, Option<u64>)) -> Exit {
    let killed = exit.class == Some(FailureClass::Killed) && exit.signal == Some(libc::SIGKILL);
    let rose = before.zip(after).is_some_and(|(before, after)| after > before);
    if killed && own.map_or(rose, |own| own > 0) {
        Exit { class: Some(FailureClass::OutOfHostMemory), ..exit }
    } else {
        exit
    }
}

/// A child that never ran. What is wrong stands where its last line would.
pub(crate) fn failed_launch(class: FailureClass, message: String) -> Exit {
    Exit { class: Some(class), tail: vec![message], ..Exit::default() }
}

fn class_of_signal(signal: i32) -> Option<FailureClass> {
    match signal {
        libc::SIGILL => Some(FailureClass::IllegalInstruction),
        libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE => Some(FailureClass::Assertion),
        libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP => Some(FailureClass::Killed),
        _ => None,
    }
}

fn shortened(mut tail: Vec<String>) -> Vec<String> {
    tail.drain(..tail.len().saturating_sub(MAX_LINES));
    tail.into_iter().map(|line| line.chars().take(MAX_CHARS).collect()).collect()
}

impl LaunchError {
    /// What kind of failure this is.
    pub(crate) fn class(&self) -> FailureClass {
        match self {
            // Only what is no program, or not there, stays so: too busy, no memory, no descriptor, a permission or a mount may
            // be put right without a change of the file.
            Self::EngineMissing { program, source } => match source.raw_os_error() {
                Some(libc::ENOEXEC) => FailureClass::EngineMissing,
                _ if source.kind() == io::ErrorKind::NotFound && !program.exists() => FailureClass::EngineMissing,
                _ => FailureClass::Unknown,
            },
            Self::EngineLost => FailureClass::Killed,
            Self::Keeper { .. }
            | Self::KeeperLost
            | Self::NotWanted
            | Self::Keeping { .. }
            | Self::Journal(_)
            | Self::OldSocket { .. }
            | Self::Nonce(_) => FailureClass::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let (manifests, _) = motorpool_catalog::shipped();
        manifests.into_iter().find(|manifest| manifest.name == "llama-server").expect("shipped")
    }

    fn class(gone: Gone, told: Told) -> Option<FailureClass> {
        exit_of(1, gone, told, &manifest()).class
    }

    fn signalled(signal: i32, line: &str) -> Gone {
        Gone { signal: Some(signal), tail: vec![line.to_owned()], ..Gone::default() }
    }

    #[test]
    fn reports_of_progress_are_no_last_words() {
        let report = r#"cmd_child_to_router:state:{"state":"loading","payload":{"current":"text_model","value":0.5}}"#;
        let gone = Gone { code: Some(1), tail: vec!["no room".into(), report.into()], ..Gone::default() };
        assert_eq!(exit_of(1, gone, Told::Nothing, &manifest()).tail, ["no room"]);
    }

    #[test]
    fn the_log_is_believed_before_the_signal() {
        let oom = signalled(libc::SIGABRT, "ggml_cuda: cudaMalloc failed: out of memory");
        assert_eq!(class(oom, Told::Nothing), Some(FailureClass::OutOfDeviceMemory));
        assert_eq!(class(signalled(libc::SIGABRT, "x"), Told::Nothing), Some(FailureClass::Assertion));
        assert_eq!(class(signalled(libc::SIGILL, "x"), Told::Nothing), Some(FailureClass::IllegalInstruction));
        assert_eq!(class(signalled(libc::SIGKILL, "x"), Told::Nothing), Some(FailureClass::Killed));
        assert_eq!(class(signalled(libc::SIGUSR1, "x"), Told::Nothing), None);
        assert_eq!(class(signalled(libc::SIGKILL, "x"), Told::ToDie), Some(FailureClass::Unknown));
    }

    #[test]
    fn one_that_ended_itself_while_its_first_inference_was_asked_is_classed_by_its_end() {
        let of = |signal| class(signalled(signal, "a first inference failed"), Told::ToDie);
        assert_eq!(of(libc::SIGILL), Some(FailureClass::IllegalInstruction));
        assert_eq!(of(libc::SIGSEGV), Some(FailureClass::Assertion));
        let killed = |n| Gone { oom_kills: Some(n), ..signalled(libc::SIGKILL, "a first inference failed") };
        assert_eq!(class(killed(1), Told::ToDie), Some(FailureClass::OutOfHostMemory));
        assert_eq!(class(killed(0), Told::ToDie), Some(FailureClass::Unknown), "that kill was ours");
    }

    #[test]
    fn an_end_that_was_ordered_is_no_failure() {
        assert_eq!(class(signalled(libc::SIGKILL, "cudaMalloc failed"), Told::ToEnd), None);
    }

    #[test]
    fn a_kill_while_the_kernel_killed_for_memory_is_one_of_those_and_no_other_end_is() {
        let class = |signal, of_all| {
            let exit = exit_of(1, signalled(signal, "x"), Told::Nothing, &manifest());
            with_oom_kills(exit, None, of_all).class
        };
        assert_eq!(class(libc::SIGKILL, (Some(1), Some(2))), Some(FailureClass::OutOfHostMemory));
        for counted in [(Some(1), Some(1)), (None, Some(1)), (Some(1), None)] {
            assert_eq!(class(libc::SIGKILL, counted), Some(FailureClass::Killed), "{counted:?}");
        }
        assert_eq!(class(libc::SIGTERM, (Some(1), Some(2))), Some(FailureClass::Killed));
        assert_eq!(class(libc::SIGABRT, (Some(1), Some(2))), Some(FailureClass::Assertion));
    }

    #[test]
    fn its_own_group_knows_better_than_the_count_of_all() {
        let class = |own, of_all| {
            let exit = exit_of(1, signalled(libc::SIGKILL, "x"), Told::Nothing, &manifest());
            with_oom_kills(exit, own, of_all).class
        };
        let rose = (Some(1), Some(2));
        assert_eq!(class(Some(0), rose), Some(FailureClass::Killed), "another of ours died for want of memory");
        assert_eq!(class(Some(1), rose), Some(FailureClass::OutOfHostMemory));
        assert_eq!(class(Some(1), (None, None)), Some(FailureClass::OutOfHostMemory));
    }

    #[test]
    fn history_keeps_the_last_lines_short() {
        let tail = (0..100).map(|n| format!("{n} {}", "é".repeat(1000))).collect();
        let exit = exit_of(1, Gone { tail, ..Gone::default() }, Told::Nothing, &manifest());
        assert_eq!(exit.tail.len(), MAX_LINES);
        assert!(exit.tail.iter().all(|line| line.chars().count() == MAX_CHARS));
        assert!(exit.tail[39].starts_with("99 "));
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_missing_and_a_busy_one_is_not() {
        let missing = |kind: io::ErrorKind| LaunchError::EngineMissing { program: "/e".into(), source: kind.into() };
        assert_eq!(missing(io::ErrorKind::NotFound).class(), FailureClass::EngineMissing);
        assert_eq!(missing(io::ErrorKind::ExecutableFileBusy).class(), FailureClass::Unknown);
    }
}
