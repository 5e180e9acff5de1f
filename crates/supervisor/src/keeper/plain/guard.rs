//! [`Guard`]: a second process beside the keeper, which outlives it for as long as something of the tree does.
use super::tree::{Net, Number};
use crate::{
    keeper::leader,
    nonce::Nonce,
    sys::{self, Hold},
};
use motorpool_devices::observe_process;
use nix::{
    sys::{signal::SigSet, wait::waitpid},
    unistd::{self, ForkResult, Pid},
};
use std::{
    fs::File,
    io::{self, PipeWriter, Read as _, Write as _},
    os::fd::OwnedFd,
    thread::sleep,
    time::Duration,
};

/// The first pause between two looks, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// The keeper's end of it.
pub(super) struct Guard {
    pid: u32,
    /// Its other end ends with this process.
    pipe: PipeWriter,
}

impl Guard {
    /// Forks it. Whatever it is to kill comes later, so that nothing is ever without it.
    pub(super) fn post(nonce: &Nonce) -> io::Result<Self> {
        let (reads, pipe) = io::pipe()?;
        let (keeper, mark) = (Number::of(std::process::id()), nonce.entry());
        #[expect(unsafe_code, reason = "it must be a process of its own, and this program is all that it needs")]
        // SAFETY: a keeper has one thread, so the child finds every lock free and may do what its parent could.
        match unsafe { unistd::fork() }? {
            ForkResult::Parent { child } => {
                Ok(Self { pid: u32::try_from(child.as_raw()).map_err(io::Error::other)?, pipe })
            }
            ForkResult::Child => {
                drop(pipe);
                wait_and_kill(&reads.into(), keeper, mark)
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The engine's first process, which leads its group by now.
    pub(super) fn watch_over(&mut self, leader: u32) {
        // One that is dead reads nothing; the keeper and the supervisor are still there.
        let _ = self.pipe.write_all(&leader.to_ne_bytes());
    }

    /// Nothing is left that it could kill.
    pub(super) fn relieve(self) {
        // Reaped already if somebody killed it; then its number is not that of a child of ours any more.
        let is_ours = observe_process(self.pid).is_some_and(|process| process.ppid == std::process::id());
        if let Ok(pid) = i32::try_from(self.pid)
            && is_ours
        {
            if let Ok(held) = Hold::open(self.pid) {
                let _ = held.signal(libc::SIGKILL);
            }
            let _ = waitpid(Pid::from_raw(pid), None);
        }
    }
}

/// What the guard does: nothing, until the keeper is no more.
fn wait_and_kill(pipe: &OwnedFd, keeper: Number, mark: String) -> ! {
    // Only a kill ends it before its time.
    let _ = SigSet::all().thread_block();
    // Not in the session that it is to kill. It leads no group, so this cannot fail.
    let _ = unistd::setsid();
    sys::close_inherited(pipe);
    sys::drop_clean_file_pages();
    let leader = watched(pipe);
    let net = Net { keeper, leader: leader.as_ref().map(|leader| leader.number), mark };
    let me = [std::process::id()];
    let mut pause = PAUSES[0];
    loop {
        // Those whom descent alone tells are found before their parents die.
        let is_empty = net.is_empty_or_kill(&me);
        if let Some(leader) = &leader {
            leader.kill_group();
        }
        if is_empty && net.is_empty_or_kill(&me) {
            sys::exit_now(0);
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// The engine's first process, held since it could not have ended unseen.
struct Watched {
    number: Number,
    held: Hold,
}

impl Watched {
    /// Nobody reaps it for us: while it runs, its number is that of its group.
    fn kill_group(&self) {
        if !self.held.has_ended_within(Duration::ZERO) {
            leader::kill_group(self.number.pid());
        }
    }
}

/// Returns when the keeper is no more: whom it was told to watch over. `None`: nobody, or one that was dead already.
fn watched(pipe: &OwnedFd) -> Option<Watched> {
    let mut reads = pipe.try_clone().map(File::from).ok()?;
    let mut leader = [0; 4];
    reads.read_exact(&mut leader).ok()?;
    let leader = u32::from_ne_bytes(leader);
    // The keeper does not reap it before all is over, so its number is its own.
    let held = Hold::open(leader).map(|held| Watched { number: Number::of(leader), held });
    // Nothing more ever comes but the end.
    let _ = reads.read_to_end(&mut Vec::new());
    held.ok()
}
