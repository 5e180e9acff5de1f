//! From fork to exec: what the engine's first process does while it is still our code.
use super::{fence, means::Means, output};
use crate::{
    nonce,
    protocol::{Fence, Launch},
    sys,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags},
    sys::stat::{Mode, umask},
    unistd::{self, ForkResult, Pid},
};
use std::{
    convert::Infallible,
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

/// The exit code of a process that did not come to exec, as shells use it.
const NOT_EXECUTED: i32 = 127;

/// An engine before exec, and our ends of its pipes.
pub(super) struct Blocked {
    pub(super) engine: u32,
    pub(super) go: OwnedFd,
    pub(super) outcomes: Outcomes,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// How exec went: its end closes the pipe, its failure writes the error number first.
pub(super) struct Outcomes(pub(super) File);

pub(super) enum Outcome {
    Running,
    Failed(i32),
}

impl Outcomes {
    pub(super) fn interest(&self) -> PollFd<'_> {
        PollFd::new(self.0.as_fd(), PollFlags::POLLIN)
    }

    /// What is known now.
    pub(super) fn take(&mut self) -> Option<Outcome> {
        let mut errno = [0; 4];
        match self.0.read(&mut errno) {
            Err(_) => None,
            // Four bytes into an empty pipe are written whole.
            Ok(4) => Some(Outcome::Failed(i32::from_ne_bytes(errno))),
            Ok(_) => Some(Outcome::Running),
        }
    }
}

/// What exec takes, made before the fork.
struct Prepared {
    program: CString,
    args: Vec<CString>,
    environment: Vec<CString>,
    cwd: CString,
    fence: Option<Fence>,
}

/// The child's ends of the pipes.
struct Ends {
    go: OwnedFd,
    outcomes: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// A pipe that no program inherits.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reads, writes) = io::pipe()?;
    Ok((reads.into(), writes.into()))
}

/// Forks the engine's first process, which then waits for a byte on `go`.
pub(super) fn fork_blocked(launch: &Launch, means: &mut impl Means) -> io::Result<Blocked> {
    let prepared = Prepared::new(launch)?;
    means.before_fork(launch)?;
    let (theirs_go, go) = pipe()?;
    let (outcomes, theirs_outcomes) = pipe()?;
    let (theirs_in, stdin) = pipe()?;
    let (stdout, theirs_out) = pipe()?;
    let (stderr, theirs_err) = pipe()?;
    output::set_nonblocking(&outcomes)?;
    let ends =
        Ends { go: theirs_go, outcomes: theirs_outcomes, stdin: theirs_in, stdout: theirs_out, stderr: theirs_err };
    let keeper = Pid::this();
    #[expect(unsafe_code, reason = "fork is what a keeper is for: std's Command returns only after exec")]
    // SAFETY: a keeper has one thread, so the child finds every lock free and may do what its parent could.
    let engine = match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // The parent's ends must not stay open here: their end of file is our order to die.
            drop((go, outcomes, stdin, stdout, stderr));
            become_engine(&prepared, ends, keeper, means)
        }
    };
    // Both sides do this, whoever comes first; the child may be past exec only after `go`.
    let _ = unistd::setpgid(engine, engine);
    let engine = u32::try_from(engine.as_raw()).map_err(io::Error::other)?;
    Ok(Blocked { engine, go, outcomes: Outcomes(outcomes.into()), stdin, stdout, stderr })
}

fn become_engine(prepared: &Prepared, ends: Ends, keeper: Pid, means: &mut impl Means) -> ! {
    let mut outcomes = File::from(ends.outcomes);
    let go = File::from(ends.go);
    let follow = || {
        means.in_engine()?;
        // A keeper that died before that line has another in its place by now.
        if unistd::getppid() == keeper { Ok(()) } else { sys::exit_now(NOT_EXECUTED) }
    };
    let Err(errno) = exec_when_told(prepared, go, [ends.stdin, ends.stdout, ends.stderr], follow);
    // Without a reader there is nobody left to tell.
    let _ = outcomes.write_all(&(errno as i32).to_ne_bytes());
    sys::exit_now(NOT_EXECUTED)
}

fn exec_when_told(
    prepared: &Prepared,
    mut go: File,
    streams: [OwnedFd; 3],
    follow: impl FnOnce() -> nix::Result<()>,
) -> nix::Result<Infallible> {
    follow()?;
    let this = Pid::from_raw(0);
    unistd::setpgid(this, this)?;
    let [stdin, stdout, stderr] = streams;
    unistd::dup2_stdin(&stdin)?;
    unistd::dup2_stdout(&stdout)?;
    unistd::dup2_stderr(&stderr)?;
    umask(Mode::from_bits_truncate(0o077));
    unistd::chdir(prepared.cwd.as_c_str())?;
    sys::reset_signals();
    fence::limit();
    if let Some(fence) = &prepared.fence {
        fence::enter(fence)?;
    }
    if go.read_exact(&mut [0]).is_err() {
        sys::exit_now(NOT_EXECUTED);
    }
    unistd::execve(&prepared.program, &prepared.args, &prepared.environment)
}

impl Prepared {
    fn new(launch: &Launch) -> io::Result<Self> {
        let program = c_text(launch.program.as_os_str().as_bytes())?;
        let rest = launch.args.iter().map(|arg| c_text(arg.as_bytes()));
        let args = std::iter::once(Ok(program.clone())).chain(rest).collect::<io::Result<_>>()?;
        let given = launch.environment.iter().filter(|(name, _)| name != nonce::VARIABLE);
        let mark = (OsStr::new(nonce::VARIABLE), OsStr::new(launch.nonce.as_str()));
        let all = given.map(|(name, value)| (name.as_os_str(), value.as_os_str())).chain([mark]);
        let environment = all.map(|(name, value)| c_text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let cwd = c_text(launch.cwd.as_os_str().as_bytes())?;
        let environment = environment.collect::<io::Result<_>>()?;
        Ok(Self { program, args, environment, cwd, fence: launch.fence.clone() })
    }
}

fn c_text(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| Errno::EINVAL.into())
}
