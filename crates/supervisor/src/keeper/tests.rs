//! What is passed on when, on sockets and pipes whose other ends are the test's.
use super::*;
use crate::wire::Deframer;
use std::{
    io::{PipeWriter, Read as _},
    net::Shutdown,
    os::unix::net::UnixStream,
};

/// One whose trees no sweep ends.
struct Endless(Own);

struct EndlessTree(leader::Leader);

impl Means for Endless {
    type Tree = EndlessTree;

    fn prepare(signals: SigSet) -> io::Result<Self> {
        Own::prepare(signals).map(Self)
    }

    fn wakes(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.wakes()
    }

    fn forget_wakes(&self) {}

    fn before_fork(&mut self, _: &Launch) -> io::Result<()> {
        Ok(())
    }

    fn in_engine(&mut self) -> nix::Result<()> {
        Ok(())
    }

    fn tree(&mut self, engine: u32, _: &Launch) -> EndlessTree {
        EndlessTree(leader::Leader::Unreaped(engine))
    }

    fn over(&mut self) {}
}

impl means::Tree for EndlessTree {
    fn leader(&self) -> &leader::Leader {
        &self.0
    }

    fn oom_kills(&self) -> Option<u64> {
        Some(1)
    }

    fn sweep(&mut self) -> Swept {
        Swept::Remains
    }
}

/// A keeper of nothing, what its engine would print to, and the supervisor's end.
fn at(stage: Stage) -> (Keeper<Own>, Link, PipeWriter, UnixStream) {
    with_means(stage)
}

fn with_means<M: Means>(stage: Stage) -> (Keeper<M>, Link, PipeWriter, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let pipe = || io::pipe().expect("a pipe");
    let ((stdout, prints), (stderr, _), (_, stdin)) = (pipe(), pipe(), pipe());
    let mut means = M::prepare(SigSet::empty()).expect("descriptors");
    let keeper = Keeper {
        tree: means.tree(u32::MAX, &launch()),
        means,
        stage,
        first: First::Lives,
        stdin: Feed::new(stdin.into()).expect("a pipe"),
        outputs: [(Source::Stdout, stdout), (Source::Stderr, stderr)]
            .map(|(source, pipe)| Output::new(source, pipe.into()).expect("a pipe")),
        record: Record::new(None),
    };
    (keeper, Link::new(theirs.into()).expect("a socket"), prints, ours)
}

/// Of nothing.
fn launch() -> Launch {
    Launch {
        nonce: crate::nonce::Nonce::draw().expect("random bits"),
        program: "/absent".into(),
        args: vec![],
        environment: vec![],
        cwd: "/".into(),
        log: None,
        group: None,
        fence: None,
    }
}

/// Let go, and at exec when the other end of the pipe is dropped.
fn execing() -> (Stage, PipeWriter) {
    let (exec, not_yet) = io::pipe().expect("a pipe");
    let outcomes = Outcomes(File::from(OwnedFd::from(exec)));
    fcntl(&outcomes.0, FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).expect("a pipe");
    (Stage::Execing { outcomes }, not_yet)
}

/// What has been sent so far.
fn heard(supervisor: &mut UnixStream) -> Vec<Report> {
    supervisor.set_nonblocking(true).expect("a socket");
    let (mut deframer, mut bytes) = (Deframer::new(), [0; 4096]);
    while let Ok(n @ 1..) = supervisor.read(&mut bytes) {
        deframer.push(&bytes[..n]);
    }
    std::iter::from_fn(|| deframer.next_message().expect("reports")).collect()
}

#[test]
fn what_an_engine_prints_is_passed_on_only_after_it_is_said_to_run() {
    let (execing, not_yet) = execing();
    let (mut keeper, mut link, mut prints, mut supervisor) = at(execing);
    prints.write_all(b"early\n").expect("a reader");
    keeper.relay(&mut link);
    assert_eq!(heard(&mut supervisor), []);
    drop(not_yet);
    keeper.relay(&mut link);
    let early = Report::Line { source: Source::Stdout, text: "early".into(), n_dropped: 0 };
    assert_eq!(heard(&mut supervisor), [Report::Running, early]);
}

#[test]
fn one_that_ran_and_ended_between_two_looks_is_said_to_have_run() {
    let (execing, not_yet) = execing();
    let (mut keeper, mut link, mut prints, mut supervisor) = with_means::<Endless>(execing);
    keeper.relay(&mut link);
    prints.write_all(b"no such port\n").expect("a reader");
    drop((not_yet, prints));
    keeper.first_ended(Ended::Code(1), &mut link);
    keeper.sweep(&mut link);
    let said = Report::Line { source: Source::Stdout, text: "no such port".into(), n_dropped: 0 };
    let ended = Report::Ended(keeper.end_of(Some(Ended::Code(1)), 0));
    assert_eq!(heard(&mut supervisor), [Report::Running, said, ended]);
}

#[test]
fn a_supervisor_that_is_found_gone_only_by_sending_ends_the_engine() {
    let (mut keeper, mut link, mut prints, supervisor) = at(Stage::Running);
    keeper.relay(&mut link);
    assert!(matches!(keeper.stage, Stage::Running));
    // To us it looks as if nothing more came, not as an end.
    supervisor.shutdown(Shutdown::Read).expect("open");
    prints.write_all(b"a line\n").expect("a reader");
    keeper.relay(&mut link);
    assert!(matches!(keeper.stage, Stage::Ending { .. }));
}

#[test]
fn the_end_of_the_first_process_is_told_once_while_others_of_its_tree_live() {
    let (mut keeper, mut link, mut prints, mut supervisor) = with_means::<Endless>(Stage::Ending { patience: 1 });
    keeper.sweep(&mut link);
    link.flush();
    assert_eq!(heard(&mut supervisor), [], "it lives, and is being killed");
    prints.write_all(b"last words\n").expect("a reader");
    keeper.first = First::Ended(Ended::Code(3));
    keeper.sweep(&mut link);
    keeper.sweep(&mut link);
    link.flush();
    let said = Report::Line { source: Source::Stdout, text: "last words".into(), n_dropped: 0 };
    let tail = vec!["last words".into()];
    let ended = Report::Ended(Gone { code: Some(3), signal: None, tail, n_dropped: 0, oom_kills: Some(1) });
    assert_eq!(heard(&mut supervisor), [said, ended]);
    assert!(matches!(keeper.stage, Stage::Ending { .. }), "Gone comes with the last of them");
}

#[test]
fn a_secret_that_an_engine_prints_in_parts_is_neither_passed_on_nor_kept() {
    let (mut keeper, mut link, mut prints, mut supervisor) = at(Stage::Running);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("engine.log");
    keeper.record = Record::new(Some(crate::rotate::LogFile::open(&path).expect("writable")));
    for part in ["Authorization: Bear", "er abc", "def\n"] {
        prints.write_all(part.as_bytes()).expect("a reader");
        keeper.relay(&mut link);
    }
    let shown = "Authorization: Bearer [redacted]";
    assert_eq!(heard(&mut supervisor), [Report::Line { source: Source::Stdout, text: shown.into(), n_dropped: 0 }]);
    assert_eq!(keeper.record.tail(), [shown]);
    assert_eq!(std::fs::read_to_string(&path).expect("written"), format!("{shown}\n"));
}
