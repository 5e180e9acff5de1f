//! What goes wrong on purpose: the engine's own end, a flood of output, a process left behind, memory.
use crate::{arguments::STRAY, engine::Engine, life, log};
use motorpool_testkit::{End, Environment, Flood, Grandchild, LineEnd, ModelFiles, Moment, Session};
use nix::{
    sys::{
        resource::{Resource, setrlimit},
        signal::{SigHandler, Signal, raise, signal},
    },
    time::{ClockId, clock_gettime},
};
use std::{
    io::{self, Write as _},
    process::{Command, ExitCode},
    str::FromStr as _,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

/// Starts the troubles that last.
pub(crate) fn begin(engine: &Arc<Engine>) {
    if let Some(grandchild) = engine.behaviour.grandchild {
        leave_behind(engine, grandchild);
    }
    if let Some(flood) = engine.behaviour.flood {
        let engine = Arc::clone(engine);
        thread::spawn(move || overflow(&engine, flood));
    }
}

/// Ends this process if it is to end at `moment`.
pub(crate) fn pass(engine: &Engine, moment: Moment) {
    let Some(exit) = &engine.behaviour.exit else { return };
    if exit.at == moment && exit.first_starts.is_none_or(|n| engine.n_start <= n) {
        exit.log.iter().for_each(|line| log::plain(line));
        end(&exit.how);
    }
}

#[expect(clippy::exit, reason = "ending at this very place is the purpose")]
fn end(how: &End) -> ! {
    match how {
        End::Code(code) => std::process::exit(*code),
        End::Signal(name) => {
            let by = Signal::from_str(name).unwrap_or_else(|_| panic!("no signal is called {name}"));
            // A handler of ours would turn the end into a request to stop.
            set_action(by, SigHandler::SigDfl);
            raise(by).expect("a process may signal itself");
            panic!("{name} ends nothing")
        }
    }
}

/// Crashes are the purpose of some tests; their cores are not.
pub(crate) fn leave_no_core() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Allocates and touches every page, and never gives it back.
pub(crate) fn take_memory(bytes: u64) {
    let n = usize::try_from(bytes).expect("it fits the address space");
    std::mem::forget(vec![1_u8; n]);
}

/// Keeps a processor busy, as this thread's own clock counts it.
pub(crate) fn compute(work: Duration) {
    let spent = || {
        let at = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of every thread");
        Duration::from(at)
    };
    let until = spent() + work;
    while !work.is_zero() && spent() < until {
        std::hint::spin_loop();
    }
}

#[expect(clippy::zombie_processes, reason = "leaving it is the purpose")]
fn leave_behind(engine: &Engine, grandchild: Grandchild) {
    let session = match grandchild.session {
        Session::Same => "same",
        Session::Own => "own",
    };
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([STRAY, session, &grandchild.memory.to_string()]);
    if grandchild.environment == Environment::Cleared {
        command.env_clear();
    }
    let child = command.spawn().expect("a grandchild");
    let strays = ModelFiles::of(&engine.arguments.model).strays();
    life::append(&strays, &child.id().to_string()).expect("the model's directory can be written");
}

/// The life of a stray: it holds its pipes and goes only when killed.
pub(crate) fn be_a_stray(session: Session, memory: u64) -> ExitCode {
    set_action(Signal::SIGTERM, SigHandler::SigIgn);
    if session == Session::Own {
        nix::unistd::setsid().expect("a child leads no group");
    }
    take_memory(memory);
    loop {
        thread::park();
    }
}

fn overflow(engine: &Engine, flood: Flood) {
    let line: &[u8] = match flood.line_end {
        LineEnd::Lf => b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n",
        LineEnd::Cr => b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\r",
        LineEnd::None => b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    };
    let n_line = u64::try_from(line.len()).expect("64");
    let mut left = flood.bytes.unwrap_or(u64::MAX);
    while left > 0 {
        let n = left.min(n_line);
        if write_some(&line[..usize::try_from(n).expect("at most 64")]).is_err() {
            return;
        }
        left -= n;
        engine.flooded.fetch_add(n, Ordering::Relaxed);
        if let Some(rate) = flood.bytes_per_second {
            thread::sleep(Duration::from_micros(n * 1_000_000 / rate.max(1)));
        }
    }
}

/// Locked for one line only: the log goes on between.
fn write_some(bytes: &[u8]) -> io::Result<()> {
    io::stderr().lock().write_all(bytes)
}

#[expect(unsafe_code, reason = "a disposition without a handler function")]
pub(crate) fn set_action(which: Signal, handler: SigHandler) {
    debug_assert!(matches!(handler, SigHandler::SigDfl | SigHandler::SigIgn), "no handler function");
    // SAFETY: default and ignore run no code of ours in signal context.
    let _ = unsafe { signal(which, handler) };
}
