//! The keeper: one small process per engine, its parent and the reaper of all below it.
//!
//! Boundary: no policy, no thread, no async; it does what the socket says and reports what happened. It is its own
//! process because only a parent that outlives nobody can promise three things: the engine is written down before
//! it runs; its process group is signalled while its first process is still unreaped, so that the number cannot
//! have become another's; whatever becomes of the supervisor, the tree dies.
//!
//! ```text
//! Launch ─► Blocked ── Go ─► Execing ─► Running ── first process ended ──► Ending ─► Ended?, Gone, exit
//!              └───────────────┴───────────┴────── Kill, end of file ────────┘
//! ```
//!
//! **S1** no engine survives the keeper's end of the socket: the tree is swept until nothing of it is left, and
//! only then the keeper reports and exits. Should somebody kill the keeper itself, the parent-death signal takes
//! the first process (where there is none, the guard takes the tree), and the supervisor (or the next one) finds the rest
//! by its nonce. **S2** output never blocks an engine: it is always read, and forwarded only as far as the supervisor
//! keeps up. **S3** every child is reaped, adopted ones too.
//!
//! By what a tree is held, and how much of this each system gives, is in `means.rs`. It writes no core, is the first to go
//! when memory ends, and is held to its fence, where there is one.
mod child;
mod fence;
mod leader;
mod link;
#[cfg(target_os = "linux")]
mod linux;
mod means;
mod output;
mod plain;

#[cfg(target_os = "linux")]
use linux::Linux as Own;
#[cfg(not(target_os = "linux"))]
use plain::Plain as Own;

use crate::{
    protocol::{Gone, Launch, Order, Polite, ProcessId, Report, Source},
    rotate::LogFile,
    sys::{self, Ended},
};
use child::{Blocked, Outcome, Outcomes};
use link::Link;
use means::{Means, Swept, Tree as _};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{SigSet, Signal},
    unistd,
};
use output::{Feed, Output, Record};
use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
};

/// After so many milliseconds without anything to do, memory is given back.
const QUIET: u16 = 1000;

/// What `motorpool keeper` runs, before any runtime or thread: keeps one engine for whoever holds the other end of
/// `socket`, and returns the exit code. Takes over the whole process: every other descriptor is closed.
pub fn keeper_main(socket: OwnedFd) -> i32 {
    main_with::<Own>(socket)
}

/// [`keeper_main`] with the socket that the supervisor hands over as standard input.
pub fn keeper_on_stdin() -> i32 {
    io::stdin().as_fd().try_clone_to_owned().map_or(1, keeper_main)
}

/// [`keeper_on_stdin`] with nothing but what every Unix has: the keeper of macOS, for tests on Linux.
pub fn plain_keeper_on_stdin() -> i32 {
    io::stdin().as_fd().try_clone_to_owned().map_or(1, main_with::<plain::Plain>)
}

fn main_with<M: Means>(socket: OwnedFd) -> i32 {
    sys::close_inherited(&socket);
    i32::from(keep::<M>(socket).is_err())
}

fn keep<M: Means>(socket: OwnedFd) -> io::Result<()> {
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let mut link = Link::new(socket)?;
    match begin::<M>(&mut link) {
        Ok(None) => Ok(()),
        Ok(Some((mut keeper, born))) => {
            link.report(&born);
            keeper.run(&mut link)?;
            let gone = keeper.gone(link.take_dropped());
            link.report(&gone);
            link.flush_all()
        }
        Err((what, error)) => {
            link.report(&Report::Failed { what, errno: error.raw_os_error().unwrap_or(0) });
            link.flush_all()
        }
    }
}

/// What was tried, and why it failed.
type Untold = (String, io::Error);

/// From nothing to a blocked engine. `None` when the supervisor left before.
fn begin<M: Means>(link: &mut Link) -> Result<Option<(Keeper<M>, Report)>, Untold> {
    let means = prepare().map_err(|error| ("become a keeper".to_owned(), error))?;
    let launch = link.wait_for_launch().map_err(|error| ("receive the launch order".to_owned(), error))?;
    let Some(launch) = launch else { return Ok(None) };
    let log = launch.log.as_deref().map(LogFile::open).transpose();
    let log = log.map_err(|error| (format!("open the log {}", shown(launch.log.as_ref())), error))?;
    let begun = Keeper::begin(&launch, means, Record::new(log));
    begun.map(Some).map_err(|error| (format!("fork {}", launch.program.display()), error))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

/// Makes this process a keeper: out of the terminal's session, holding no file of anybody.
fn prepare<M: Means>() -> io::Result<M> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    unistd::dup2_stdin(&null)?;
    unistd::dup2_stdout(&null)?;
    unistd::dup2_stderr(&null)?;
    // Fails for a process that leads its group already, which then has no terminal either.
    let _ = unistd::setsid();
    // Nothing but a kill or the end of the socket ends a keeper: signals meant for a whole group or service reach
    // the supervisor, which stops its engines in order.
    let mut set = SigSet::all();
    for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGABRT] {
        set.remove(fault);
    }
    let means = M::prepare(set)?;
    sys::drop_clean_file_pages();
    Ok(means)
}

/// The engine and everything held for it.
struct Keeper<M: Means> {
    means: M,
    tree: M::Tree,
    stage: Stage,
    first: First,
    stdin: Feed,
    outputs: [Output; 2],
    record: Record,
}

/// What became of the engine's first process.
enum First {
    Lives,
    /// It ended so, which is told if others of its tree outlive it.
    Ended(Ended),
    Told,
}

enum Stage {
    /// Forked; `go` lets it exec.
    Blocked {
        go: File,
        outcomes: Outcomes,
    },
    /// Let go; the end of `outcomes` says that exec was reached.
    Execing {
        outcomes: Outcomes,
    },
    Running,
    /// Being killed; the next look in so many milliseconds.
    Ending {
        patience: u16,
    },
    /// Nothing of it is left.
    Over(Ended),
}

impl<M: Means> Keeper<M> {
    fn begin(launch: &Launch, mut means: M, record: Record) -> io::Result<(Self, Report)> {
        let Blocked { engine, go, outcomes, stdin, stdout, stderr } = child::fork_blocked(launch, &mut means)?;
        let tree = means.tree(engine, launch);
        let identity = |pid| {
            let facts = motorpool_devices::observe_process(pid).ok_or(Errno::ESRCH)?;
            Ok::<_, io::Error>(ProcessId { pid, start_time: facts.start_time })
        };
        let born = Report::Born { keeper: identity(std::process::id())?, engine: identity(engine)? };
        let outputs = [Output::new(Source::Stdout, stdout)?, Output::new(Source::Stderr, stderr)?];
        let stage = Stage::Blocked { go: go.into(), outcomes };
        let (first, stdin) = (First::Lives, Feed::new(stdin)?);
        Ok((Self { means, tree, stage, first, stdin, outputs, record }, born))
    }

    fn run(&mut self, link: &mut Link) -> io::Result<()> {
        while !matches!(self.stage, Stage::Over(_)) {
            self.wait(link)?;
            self.means.forget_wakes();
            self.take_orders(link);
            self.relay(link);
            self.look_at_children(link);
            self.sweep(link);
        }
        self.means.over();
        for output in &mut self.outputs {
            output.drain(&mut self.record, link);
        }
        Ok(())
    }

    /// Passes on what there is in both directions. Sending, too, may find that nobody is there; nothing wakes us later.
    fn relay(&mut self, link: &mut Link) {
        self.look_at_exec(link);
        if self.has_begun() {
            for output in &mut self.outputs {
                output.read(&mut self.record, link);
            }
        }
        self.stdin.write();
        link.flush();
        if link.is_closed() {
            self.end();
        }
    }

    /// Waits for anything at all. What is ready is found out by trying: every descriptor is non-blocking.
    fn wait(&self, link: &Link) -> nix::Result<()> {
        let mut fds = vec![PollFd::new(self.means.wakes(), PollFlags::POLLIN)];
        fds.extend(link.interest());
        fds.extend(self.outputs.iter().filter(|_| self.has_begun()).filter_map(Output::interest));
        fds.extend(self.stdin.interest());
        if let Stage::Execing { outcomes } = &self.stage {
            fds.push(outcomes.interest());
        }
        let ended_wait = match self.stage {
            Stage::Ending { patience } => poll(&mut fds, patience),
            _ => match poll(&mut fds, QUIET) {
                // Here and nowhere else, so that nothing is read again but for the wait itself.
                Ok(0) => {
                    sys::drop_clean_file_pages();
                    poll(&mut fds, PollTimeout::NONE)
                }
                other => other,
            },
        };
        match ended_wait {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Before it is told that it runs, nothing that it says is passed on: one that prints at once may be heard first.
    fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Blocked { .. } | Stage::Execing { .. })
    }

    fn take_orders(&mut self, link: &mut Link) {
        while let Some(order) = link.next_order() {
            match order {
                Order::Go => self.go(),
                Order::Polite(how) => self.ask_to_end(&how),
                // A second launch is nothing that a supervisor sends; neither is trust in one that does.
                Order::Kill | Order::Launch(_) => self.end(),
            }
        }
        if link.is_closed() {
            self.end();
        }
    }

    fn go(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Running) {
            Stage::Blocked { mut go, outcomes } => {
                // An engine that died meanwhile does not read; its end is found below.
                let _ = go.write_all(b"!");
                self.stage = Stage::Execing { outcomes };
            }
            other => self.stage = other,
        }
    }

    fn ask_to_end(&mut self, how: &Polite) {
        match (&self.stage, how) {
            (Stage::Blocked { .. }, _) => self.end(),
            (Stage::Execing { .. } | Stage::Running, Polite::Line(line)) => self.stdin.push_line(line),
            (Stage::Execing { .. } | Stage::Running, Polite::Signal(signal)) => self.tree.leader().signal(*signal),
            (Stage::Ending { .. } | Stage::Over(_), _) => {}
        }
    }

    fn end(&mut self) {
        if !matches!(self.stage, Stage::Ending { .. } | Stage::Over(_)) {
            self.stage = Stage::Ending { patience: 1 };
        }
    }

    fn look_at_exec(&mut self, link: &mut Link) {
        let (Stage::Blocked { outcomes, .. } | Stage::Execing { outcomes }) = &mut self.stage else { return };
        match (outcomes.take(), &self.stage) {
            (Some(Outcome::Failed(errno)), _) => {
                link.report(&Report::ExecFailed { errno });
                self.end();
            }
            (Some(Outcome::Running), Stage::Execing { .. }) => {
                self.stage = Stage::Running;
                link.report(&Report::Running);
                // What the launch took of the program is not run again.
                sys::drop_clean_file_pages();
            }
            // A blocked one that closed its end is dead, and is found among the children.
            _ => {}
        }
    }

    /// Reaps adopted orphans. The first process stays a zombie until the rest of its tree is dead: as long, its
    /// number and that of its group cannot become another's.
    fn look_at_children(&mut self, link: &mut Link) {
        while let Ok(Some((pid, ended))) = sys::peek_ended_child() {
            if self.tree.leader().is(pid) {
                return self.first_ended(ended, link);
            }
            let _ = sys::reap(pid);
        }
    }

    fn first_ended(&mut self, ended: Ended, link: &mut Link) {
        // It may have come to exec, and to its end, since that was looked at: what it said is that of one that ran.
        self.look_at_exec(link);
        if matches!(self.first, First::Lives) {
            self.first = First::Ended(ended);
        }
        self.end();
    }

    fn sweep(&mut self, link: &mut Link) {
        if let Stage::Ending { patience } = self.stage {
            self.stage = match self.tree.sweep() {
                Swept::Over(ended) => Stage::Over(ended),
                Swept::Remains => {
                    self.tell_of_first(link);
                    Stage::Ending { patience: (patience * 2).min(50) }
                }
            };
        }
    }

    /// Whoever waits for it need not wait for the rest of its tree.
    fn tell_of_first(&mut self, link: &mut Link) {
        let First::Ended(ended) = self.first else { return };
        self.first = First::Told;
        for output in &mut self.outputs {
            output.read_all(&mut self.record, link);
        }
        // Lines that are missing are told of with the next one, or with the end.
        link.report(&Report::Ended(self.end_of(Some(ended), 0)));
        link.flush();
    }

    fn gone(&self, n_dropped: u32) -> Report {
        let ended = if let Stage::Over(ended) = self.stage { Some(ended) } else { None };
        Report::Gone(self.end_of(ended, n_dropped))
    }

    fn end_of(&self, ended: Option<Ended>, n_dropped: u32) -> Gone {
        let (code, signal) = match ended {
            Some(Ended::Code(code)) => (Some(code), None),
            Some(Ended::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Gone { code, signal, tail: self.record.tail(), n_dropped, oom_kills: self.tree.oom_kills() }
    }
}

#[cfg(test)]
mod tests;
