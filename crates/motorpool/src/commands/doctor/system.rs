//! What the operating system allows: pure judgements over what was read of it ([`System`], read by [`System::read`]).
use super::finding::Finding;
use crate::{
    exit::{Exit, Failure},
    os::{WITHOUT_SANDBOX, limit_of_locked_memory, limit_of_processes},
};
use motorpool_devices::{Ram, observe_ram};
use motorpool_supervisor::landlock_version;
use motorpool_vocab::Bytes;
use nix::{
    sys::resource::{Resource, getrlimit},
    unistd::{AccessFlags, access},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each connection and each engine takes a few descriptors.
const FEW_DESCRIPTORS: u64 = 1024;
/// Each engine has a keeper, and threads that count as processes.
const FEW_PROCESSES: u64 = 1024;
/// Less than this is not enough for any engine and the system beside it.
const LITTLE_LIMIT: Bytes = Bytes::gib(1);
/// The kernel's number of the first space of process ids.
const FIRST_PID_SPACE: &str = "pid:[4026531836]";

/// What was read. A text is why something could not be.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) kernel: Kernel,
    pub(super) ram: Result<Ram, String>,
    pub(super) swap: Option<Swap>,
    /// 0 guesses, 1 always, 2 never more than there is.
    pub(super) overcommit: Option<u8>,
    pub(super) cgroup: Cgroup,
    /// The version of Landlock, if the kernel has it.
    pub(super) landlock: Option<u32>,
    pub(super) pid_space: PidSpace,
    pub(super) descriptors: Limit,
    pub(super) processes: Limit,
    pub(super) locked: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) total: Bytes,
    pub(super) free: Bytes,
}

/// Whose kernel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Its own; Windows' second subsystem for Linux has one too.
    Own,
    /// Windows', which plays one for the first of its subsystems.
    Played,
}

/// Which control groups there are, and whether a tree can be ended by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cgroup {
    None,
    V1,
    /// v2 with our group's folder, alone or beside v1.
    V2 {
        writable: Writable,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writable {
    Yes,
    No,
}

/// Whose process ids we see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PidSpace {
    Machine,
    Container,
    Unknown,
}

/// The most that we may raise a limit to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    At(u64),
    Unreadable(String),
}

impl System {
    /// Reads this machine; takes microseconds.
    pub(super) fn read() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| -> Option<Bytes> {
            let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            rest.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024).map(Bytes::new)
        };
        let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").ok();
        Self {
            kernel: kernel_of(&fs::read_to_string("/proc/version").unwrap_or_default()),
            ram: observe_ram(Path::new("/")).map_err(|error| crate::exit::chain(&error)),
            swap: kib("SwapTotal:").zip(kib("SwapFree:")).map(|(total, free)| Swap { total, free }),
            overcommit: overcommit.and_then(|text| text.trim().parse().ok()),
            cgroup: read_cgroup(),
            landlock: landlock_version(),
            pid_space: match fs::read_link("/proc/self/ns/pid") {
                Ok(space) if space == Path::new(FIRST_PID_SPACE) => PidSpace::Machine,
                Ok(_) => PidSpace::Container,
                Err(_) => PidSpace::Unknown,
            },
            descriptors: hard_of(getrlimit(Resource::RLIMIT_NOFILE)),
            processes: hard_of(limit_of_processes()),
            locked: hard_of(limit_of_locked_memory()),
        }
    }

    /// Everything about it, in order. `locks`: a model that asks to be locked into memory.
    pub(super) fn findings(&self, locks: Option<&str>) -> Vec<Finding> {
        let mut findings: Vec<Finding> = kernel(self.kernel).into_iter().collect();
        findings.push(memory(&self.ram));
        findings.extend(self.swap.map(swap));
        findings.extend(self.overcommit.map(overcommit));
        findings.push(cgroup(&self.cgroup));
        findings.push(sandbox(self.landlock));
        findings.push(limit("descriptors", &self.descriptors, FEW_DESCRIPTORS));
        findings.push(limit("processes", &self.processes, FEW_PROCESSES));
        findings.push(locked(&self.locked, locks));
        findings
    }
}

fn hard_of(limit: nix::Result<(u64, u64)>) -> Limit {
    match limit {
        Ok((_, u64::MAX)) => Limit::None,
        Ok((_, hard)) => Limit::At(hard),
        Err(errno) => Limit::Unreadable(errno.to_string()),
    }
}

/// The group that we are in, where it is mounted.
fn read_cgroup() -> Cgroup {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_type = |wanted: &str| {
        mounts.lines().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            (back.split(' ').next()? == wanted).then(|| front.split(' ').nth(4).map(PathBuf::from))?
        })
    };
    let ours = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    match (of_type("cgroup2"), ours) {
        (Some(top), Some(ours)) => {
            let folder = top.join(ours);
            let may = |name: &str| access(&folder.join(name), AccessFlags::W_OK).is_ok();
            let writable = may("cgroup.procs") && access(&folder, AccessFlags::W_OK).is_ok();
            Cgroup::V2 { writable: if writable { Writable::Yes } else { Writable::No } }
        }
        _ if of_type("cgroup").is_some() => Cgroup::V1,
        _ => Cgroup::None,
    }
}

/// The second subsystem says `-microsoft-standard-WSL2`, the first `-Microsoft` without a word more.
fn kernel_of(version: &str) -> Kernel {
    let says = |word: &str| version.to_ascii_lowercase().contains(word);
    if says("microsoft") && !says("wsl2") && !says("microsoft-standard") { Kernel::Played } else { Kernel::Own }
}

fn kernel(kernel: Kernel) -> Option<Finding> {
    let what = "this is WSL1, which has no Linux kernel: on Windows, Motorpool runs in WSL2 only";
    let cure = "run `wsl --set-version <distribution> 2` in Windows";
    (kernel == Kernel::Played).then(|| Finding::fault("kernel", Failure::new(Exit::Findings, what, cure)))
}

fn memory(ram: &Result<Ram, String>) -> Finding {
    match ram {
        Ok(ram) if ram.usable() < LITTLE_LIMIT => Finding::note(
            "memory",
            format_args!("only {} usable of {}", ram.usable(), ram.total),
            "raise the limit of this control group: `memory.max`, MemoryMax= of the unit, or --memory of the container",
        ),
        Ok(ram) => Finding::good("memory", format_args!("{} usable of {}", ram.usable(), ram.total)),
        Err(why) => Finding::note("memory", why, "set capacity.budget, as it cannot be measured here"),
    }
}

/// An engine that was swapped out answers, but slowly.
fn swap(Swap { total, free }: Swap) -> Finding {
    let used = total.saturating_sub(free);
    if used > Bytes::gib(1) && used > total.per_mille(500) {
        let cure =
            "set capacity.reserve higher, or end what else runs here: engines that are swapped out answer slowly";
        return Finding::note("swap", format_args!("{used} used of {total}"), cure);
    }
    Finding::good("swap", if total.is_zero() { "none".to_owned() } else { format!("{used} used of {total}") })
}

fn overcommit(mode: u8) -> Finding {
    if mode == 2 {
        let cure = "run `sysctl vm.overcommit_memory=0` as root: engines reserve much more than they touch";
        return Finding::note("overcommit", "never more than there is", cure);
    }
    Finding::good("overcommit", "allowed")
}

/// Without one that we may write to, trees are ended by their process group and a mark in their environment.
fn cgroup(cgroup: &Cgroup) -> Finding {
    match cgroup {
        Cgroup::V2 { writable: Writable::Yes } => Finding::good("cgroup", "version 2, ours to write"),
        Cgroup::V2 { writable: Writable::No } => Finding::note(
            "cgroup",
            "version 2, not ours to write: engines' processes are found without it",
            "nothing needs it; to have it, start the daemon as a systemd unit with Delegate=yes",
        ),
        Cgroup::V1 => Finding::good("cgroup", "version 1: engines' processes are found without it"),
        Cgroup::None => Finding::good("cgroup", "none: engines' processes are found without it"),
    }
}

/// Version 4 is the first that knows of TCP.
fn sandbox(landlock: Option<u32>) -> Finding {
    const WHAT: &str = "sandbox";
    match landlock {
        None => Finding::note(WHAT, WITHOUT_SANDBOX[0], WITHOUT_SANDBOX[1]),
        Some(version) if version < 4 => {
            Finding::good(WHAT, "Landlock holds engines to their files; TCP is left to them")
        }
        Some(_) => Finding::good(WHAT, "Landlock holds engines to their files and ports"),
    }
}

fn limit(what: &'static str, limit: &Limit, few: u64) -> Finding {
    let (letter, directive) = if what == "descriptors" { ("n", "LimitNOFILE") } else { ("u", "LimitNPROC") };
    match limit {
        Limit::None => Finding::good(what, "no limit"),
        Limit::At(n) if *n < few => Finding::note(
            what,
            format_args!("at most {n}"),
            format_args!("raise it with `ulimit -H{letter} 65536` as root, or {directive}=65536 of the unit"),
        ),
        Limit::At(n) => Finding::good(what, format_args!("at most {n}")),
        Limit::Unreadable(why) => Finding::note(what, why, format_args!("check `ulimit -H{letter}`")),
    }
}

/// It matters only to a model that asks for it.
fn locked(limit: &Limit, asked_by: Option<&str>) -> Finding {
    const WHAT: &str = "locked memory";
    let found = match limit {
        Limit::None => "no limit".to_owned(),
        Limit::At(n) => format!("at most {}", Bytes::new(*n)),
        Limit::Unreadable(why) => why.clone(),
    };
    match (asked_by, limit) {
        (Some(model), Limit::At(_) | Limit::Unreadable(_)) => Finding::note(
            WHAT,
            format_args!("{found}; `{model}` asks for --mlock"),
            "raise it with `ulimit -Hl unlimited` as root, or LimitMEMLOCK=infinity of the unit, or take --mlock away",
        ),
        _ => Finding::good(WHAT, found),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::finding::State, *};

    fn ram(gib: u64, limit: Option<Bytes>) -> Ram {
        Ram { total: Bytes::gib(gib), limit, available: Bytes::gib(1) }
    }

    /// Every kind of reading there is, one beside the other.
    pub(in super::super) fn all() -> Vec<System> {
        let good = System {
            kernel: Kernel::Own,
            ram: Ok(ram(64, None)),
            swap: Some(Swap { total: Bytes::gib(8), free: Bytes::gib(8) }),
            overcommit: Some(0),
            cgroup: Cgroup::V2 { writable: Writable::Yes },
            landlock: Some(6),
            pid_space: PidSpace::Machine,
            descriptors: Limit::At(1 << 20),
            processes: Limit::None,
            locked: Limit::None,
        };
        let bad = System {
            kernel: Kernel::Own,
            ram: Err("cannot read /proc/meminfo".into()),
            swap: Some(Swap { total: Bytes::gib(8), free: Bytes::gib(1) }),
            overcommit: Some(2),
            cgroup: Cgroup::V2 { writable: Writable::No },
            landlock: None,
            pid_space: PidSpace::Container,
            descriptors: Limit::At(256),
            processes: Limit::At(100),
            locked: Limit::At(64 << 10),
        };
        let unknown = System {
            kernel: Kernel::Own,
            ram: Ok(ram(64, Some(Bytes::mib(512)))),
            swap: None,
            overcommit: None,
            cgroup: Cgroup::None,
            landlock: Some(1),
            pid_space: PidSpace::Unknown,
            descriptors: Limit::Unreadable("not permitted".into()),
            processes: Limit::Unreadable("not permitted".into()),
            locked: Limit::Unreadable("not permitted".into()),
        };
        vec![System { cgroup: Cgroup::V1, ..good.clone() }, good, bad, unknown]
    }

    fn of(system: &System, locks: Option<&str>) -> Vec<(&'static str, State)> {
        system.findings(locks).into_iter().map(|finding| (finding.what, finding.state)).collect()
    }

    #[test]
    fn what_is_well_is_said_without_a_cure() {
        let findings = all()[1].findings(Some("m"));
        assert!(findings.iter().all(|finding| finding.state == State::Good), "{findings:?}");
        let order: Vec<_> = findings.iter().map(|finding| finding.what).collect();
        let expected =
            ["memory", "swap", "overcommit", "cgroup", "sandbox", "descriptors", "processes", "locked memory"];
        assert_eq!(order, expected);
    }

    #[test]
    fn each_thing_that_is_short_is_a_note_of_its_own() {
        let notes = of(&all()[2], Some("m"));
        assert!(notes.iter().all(|(_, state)| *state == State::Note), "{notes:?}");
        assert_eq!(notes.len(), 8);
        let quiet = of(&all()[2], None);
        assert!(quiet.contains(&("locked memory", State::Good)), "nobody asks for it");
        let unknown = of(&all()[3], None);
        assert_eq!(unknown[0], ("memory", State::Note), "a limit of 512 MiB");
        assert!(unknown.contains(&("descriptors", State::Note)) && !unknown.iter().any(|(what, _)| *what == "swap"));
    }

    #[test]
    fn windows_first_subsystem_is_a_fault_and_its_second_is_as_good_as_any() {
        for (version, kernel) in [
            (
                "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) (gcc version 5.4.0 (GCC) )",
                Kernel::Played,
            ),
            ("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) (gcc (GCC) 11.2.0)", Kernel::Own),
            ("Linux version 4.19.84-microsoft-standard (oe-user@oe-host)", Kernel::Own),
            ("Linux version 6.12.41+deb13-amd64 (debian-kernel@lists.debian.org)", Kernel::Own),
            ("", Kernel::Own),
        ] {
            assert_eq!(kernel_of(version), kernel, "{version}");
        }
        let findings = System { kernel: Kernel::Played, ..all()[1].clone() }.findings(None);
        assert_eq!((findings[0].what, findings[0].state), ("kernel", State::Fault));
        assert!(findings[0].found.contains("WSL2 only"), "{findings:?}");
        assert!(findings[1..].iter().all(|finding| finding.state == State::Good), "{findings:?}");
    }

    #[test]
    fn swap_that_is_there_and_not_used_is_no_finding_to_cure() {
        let of = |total, free| swap(Swap { total: Bytes::gib(total), free: Bytes::gib(free) }).state;
        assert_eq!([of(0, 0), of(8, 4), of(2, 1)], [State::Good; 3]);
        assert_eq!(of(8, 3), State::Note);
    }

    #[test]
    fn this_machine_can_be_read() {
        let read = System::read();
        assert!(read.ram.is_ok() && read.descriptors != Limit::At(0), "{read:?}");
    }
}
