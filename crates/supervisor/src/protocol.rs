//! What supervisor and keeper say to each other.
//!
//! ```text
//! supervisor ── Launch ─────────────► keeper    fork the engine, blocked before exec
//!            ◄───────────── Born ────           both processes, so that they can be journaled
//!            ── Go ─────────────────►           exec
//!            ◄──── Running | ExecFailed ─
//!            ◄───────────── Line* ───           dropped and counted when nobody reads
//!            ── Polite | Kill ──────►
//!            ◄───────────── Ended? ──           the first process is dead, others of its tree are not yet
//!            ◄───────────── Gone ────           the whole tree is dead and reaped; nothing follows
//! ```
//!
//! End of file instead of an order kills the tree. `Failed` takes the place of `Born` when there was nothing to
//! bear; nothing follows it.
use crate::{
    nonce::Nonce,
    wire::{Message, Reader, WireError, put_i32, put_list, put_option, put_text, put_u32, put_u64},
};
use std::{ffi::OsString, path::PathBuf};

/// What the supervisor tells the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Fork this engine and block it before exec. The first order, once.
    Launch(Box<Launch>),
    /// Let it exec.
    Go,
    /// Ask it to end.
    Polite(Polite),
    /// Kill it and all below it.
    Kill,
}

/// All that the engine gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The mark that its tree carries in the environment.
    pub(crate) nonce: Nonce,
    /// The program, absolute.
    pub(crate) program: PathBuf,
    /// Its arguments, without its own name.
    pub(crate) args: Vec<OsString>,
    /// Its whole environment, but for the nonce.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub(crate) cwd: PathBuf,
    /// Where its output is kept.
    pub(crate) log: Option<PathBuf>,
    /// The control group to make for it, if one can be made.
    pub(crate) group: Option<PathBuf>,
    /// What it is held to.
    pub(crate) fence: Option<Fence>,
}

/// What the kernel lets a tree do, where it has Landlock. It reads and runs whatever its user may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// It writes below these, or to them. What is not there is passed over.
    pub write: Vec<PathBuf>,
    /// It listens on these ports and connects to none; `None`: as it likes.
    pub ports: Option<Vec<u16>>,
}

/// How an engine is asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Polite {
    /// A line on its standard input.
    Line(String),
    /// A signal to its first process.
    Signal(i32),
}

/// A process that cannot be confused with a later one of the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: u32,
    /// When it was forked, in clock ticks since boot.
    pub start_time: u64,
}

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What the keeper tells the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The engine is forked and waits.
    Born { keeper: ProcessId, engine: ProcessId },
    /// It has been executed.
    Running,
    /// It could not be executed; `Gone` follows.
    ExecFailed { errno: i32 },
    /// There is no engine: the keeper could not do `what`.
    Failed { what: String, errno: i32 },
    /// A line of output, after `n_dropped` that found no room.
    Line { source: Source, text: String, n_dropped: u32 },
    /// The first process has ended and others of its tree live, which are being killed; `Gone` follows.
    Ended(Gone),
    /// The tree is dead and reaped.
    Gone(Gone),
}

/// The end of an engine's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Exit code of the first process, when it exited.
    pub code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// The last lines of output (64 KiB at most), oldest first.
    pub tail: Vec<String>,
    /// How many lines are missing after the last that was forwarded.
    pub n_dropped: u32,
    /// How many of its own control group the kernel killed for want of memory; `None`: nobody counted.
    pub oom_kills: Option<u64>,
}

impl Message for Order {
    fn write(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Launch(launch) => {
                launch.write(out);
                1
            }
            Self::Go => 2,
            Self::Polite(Polite::Line(line)) => {
                put_text(line, out);
                3
            }
            Self::Polite(Polite::Signal(signal)) => {
                put_i32(*signal, out);
                4
            }
            Self::Kill => 5,
        }
    }

    fn read(kind: u8, payload: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            1 => Self::Launch(Box::new(Launch::read(payload)?)),
            2 => Self::Go,
            3 => Self::Polite(Polite::Line(payload.text()?)),
            4 => Self::Polite(Polite::Signal(payload.i32()?)),
            5 => Self::Kill,
            other => return Err(WireError::Kind(other)),
        })
    }
}

impl Launch {
    fn write(&self, out: &mut Vec<u8>) {
        put_text(self.nonce.as_str(), out);
        put_text(&self.program, out);
        put_list(&self.args, |arg, out| put_text(arg, out), out);
        let pair = |(name, value): &(OsString, OsString), out: &mut Vec<u8>| {
            put_text(name, out);
            put_text(value, out);
        };
        put_list(&self.environment, pair, out);
        put_text(&self.cwd, out);
        put_option(self.log.as_ref(), put_text, out);
        put_option(self.group.as_ref(), put_text, out);
        put_option(self.fence.as_ref(), Fence::write, out);
    }

    fn read(payload: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            nonce: Nonce::of(&payload.text()?).ok_or(WireError::Value)?,
            program: payload.os_text()?.into(),
            args: payload.list(Reader::os_text)?,
            environment: payload.list(|payload| Ok((payload.os_text()?, payload.os_text()?)))?,
            cwd: payload.os_text()?.into(),
            log: payload.option(Reader::os_text)?.map(PathBuf::from),
            group: payload.option(Reader::os_text)?.map(PathBuf::from),
            fence: payload.option(Fence::read)?,
        })
    }
}

impl Fence {
    fn write(&self, out: &mut Vec<u8>) {
        put_list(&self.write, |place, out| put_text(place, out), out);
        put_option(
            self.ports.as_ref(),
            |ports, out| put_list(ports, |port, out| put_u32((*port).into(), out), out),
            out,
        );
    }

    fn read(payload: &mut Reader<'_>) -> Result<Self, WireError> {
        fn port(payload: &mut Reader<'_>) -> Result<u16, WireError> {
            u16::try_from(payload.u32()?).map_err(|_| WireError::Value)
        }
        let write = payload.list(Reader::os_text)?.into_iter().map(PathBuf::from).collect();
        Ok(Self { write, ports: payload.option(|payload| payload.list(port))? })
    }
}

impl Message for Report {
    fn write(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Born { keeper, engine } => {
                keeper.write(out);
                engine.write(out);
                65
            }
            Self::Running => 66,
            Self::ExecFailed { errno } => {
                put_i32(*errno, out);
                67
            }
            Self::Failed { what, errno } => {
                put_text(what, out);
                put_i32(*errno, out);
                68
            }
            Self::Line { source, text, n_dropped } => {
                put_u32(*n_dropped, out);
                put_text(text, out);
                if *source == Source::Stdout { 69 } else { 70 }
            }
            Self::Gone(gone) => {
                gone.write(out);
                71
            }
            Self::Ended(so_far) => {
                so_far.write(out);
                72
            }
        }
    }

    fn read(kind: u8, payload: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            65 => Self::Born { keeper: ProcessId::read(payload)?, engine: ProcessId::read(payload)? },
            66 => Self::Running,
            67 => Self::ExecFailed { errno: payload.i32()? },
            68 => Self::Failed { what: payload.text()?, errno: payload.i32()? },
            69 | 70 => {
                let n_dropped = payload.u32()?;
                let source = if kind == 69 { Source::Stdout } else { Source::Stderr };
                Self::Line { source, text: payload.text()?, n_dropped }
            }
            71 => Self::Gone(Gone::read(payload)?),
            72 => Self::Ended(Gone::read(payload)?),
            other => return Err(WireError::Kind(other)),
        })
    }
}

impl Gone {
    fn write(&self, out: &mut Vec<u8>) {
        put_option(self.code, put_i32, out);
        put_option(self.signal, put_i32, out);
        put_list(&self.tail, |line, out| put_text(line, out), out);
        put_u32(self.n_dropped, out);
        put_option(self.oom_kills, put_u64, out);
    }

    fn read(payload: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            code: payload.option(Reader::i32)?,
            signal: payload.option(Reader::i32)?,
            tail: payload.list(Reader::text)?,
            n_dropped: payload.u32()?,
            oom_kills: payload.option(Reader::u64)?,
        })
    }
}

impl ProcessId {
    fn write(self, out: &mut Vec<u8>) {
        put_u32(self.pid, out);
        put_u64(self.start_time, out);
    }

    fn read(payload: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { pid: payload.u32()?, start_time: payload.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Deframer, MAX_PAYLOAD, VERSION, append_frame};
    use proptest::{collection::vec, option, prelude::*};
    use std::os::unix::ffi::OsStringExt;

    fn os_text() -> impl Strategy<Value = OsString> {
        vec(any::<u8>(), 0..12).prop_map(OsString::from_vec)
    }

    fn process() -> impl Strategy<Value = ProcessId> {
        any::<(u32, u64)>().prop_map(|(pid, start_time)| ProcessId { pid, start_time })
    }

    fn launch() -> impl Strategy<Value = Launch> {
        (
            "[0-9a-f]{32}",
            os_text(),
            vec(os_text(), 0..4),
            vec((os_text(), os_text()), 0..4),
            os_text(),
            option::of(os_text()),
            option::of(os_text()),
            option::of((vec(os_text(), 0..3), option::of(vec(any::<u16>(), 0..3)))),
        )
            .prop_map(|(nonce, program, args, environment, cwd, log, group, fence)| Launch {
                nonce: Nonce::of(&nonce).expect("32 digits"),
                program: program.into(),
                args,
                environment,
                cwd: cwd.into(),
                log: log.map(PathBuf::from),
                group: group.map(PathBuf::from),
                fence: fence
                    .map(|(write, ports)| Fence { write: write.into_iter().map(PathBuf::from).collect(), ports }),
            })
    }

    fn order() -> impl Strategy<Value = Order> {
        prop_oneof![
            launch().prop_map(|launch| Order::Launch(Box::new(launch))),
            Just(Order::Go),
            ".*".prop_map(|line| Order::Polite(Polite::Line(line))),
            any::<i32>().prop_map(|signal| Order::Polite(Polite::Signal(signal))),
            Just(Order::Kill),
        ]
    }

    fn report() -> impl Strategy<Value = Report> {
        let source = prop_oneof![Just(Source::Stdout), Just(Source::Stderr)];
        prop_oneof![
            (process(), process()).prop_map(|(keeper, engine)| Report::Born { keeper, engine }),
            Just(Report::Running),
            any::<i32>().prop_map(|errno| Report::ExecFailed { errno }),
            (".*", any::<i32>()).prop_map(|(what, errno)| Report::Failed { what, errno }),
            (source, ".*", any::<u32>()).prop_map(|(source, text, n_dropped)| Report::Line { source, text, n_dropped }),
            (any::<(Option<i32>, Option<i32>, u32, Option<u64>)>(), vec(".*", 0..4)).prop_map(
                |((code, signal, n_dropped, oom_kills), tail)| {
                    let gone = Gone { code, signal, tail, n_dropped, oom_kills };
                    if n_dropped % 2 == 0 { Report::Gone(gone) } else { Report::Ended(gone) }
                }
            ),
        ]
    }

    /// Sends messages through a stream that cuts wherever it likes.
    fn through<M: Message>(messages: &[M], cut: usize) -> Vec<M> {
        let mut bytes = Vec::new();
        for message in messages {
            append_frame(message, &mut bytes);
        }
        let mut deframer = Deframer::new();
        let mut out = Vec::new();
        for chunk in bytes.chunks(cut) {
            deframer.push(chunk);
            while let Some(message) = deframer.next_message().expect("our own frames") {
                out.push(message);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn orders_arrive_as_they_were_sent(orders in vec(order(), 0..4), cut in 1usize..40) {
            prop_assert_eq!(through(&orders, cut), orders);
        }

        #[test]
        fn reports_arrive_as_they_were_sent(reports in vec(report(), 0..4), cut in 1usize..40) {
            prop_assert_eq!(through(&reports, cut), reports);
        }

        #[test]
        fn hostile_bytes_are_errors_and_never_panics(kind: u8, payload in vec(any::<u8>(), 0..64), length: u32) {
            let mut honest = vec![VERSION, kind];
            honest.extend(u32::try_from(payload.len()).expect("short").to_le_bytes());
            honest.extend(&payload);
            let mut lying = vec![VERSION, kind];
            lying.extend(length.to_le_bytes());
            lying.extend(&payload);
            for bytes in [honest, lying, payload] {
                let (mut orders, mut reports) = (Deframer::<Order>::new(), Deframer::<Report>::new());
                orders.push(&bytes);
                reports.push(&bytes);
                while let Ok(Some(_)) = orders.next_message() {}
                while let Ok(Some(_)) = reports.next_message() {}
            }
        }

        #[test]
        fn a_damaged_frame_never_panics(order in order(), at: prop::sample::Index, byte: u8) {
            let mut bytes = Vec::new();
            append_frame(&order, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let mut deframer = Deframer::<Order>::new();
            deframer.push(&bytes);
            while let Ok(Some(_)) = deframer.next_message() {}
        }
    }

    fn refused(bytes: &[u8]) -> WireError {
        let mut deframer = Deframer::<Order>::new();
        deframer.push(bytes);
        deframer.next_message().expect_err("no message")
    }

    #[test]
    fn what_is_no_message_is_named() {
        assert_eq!(refused(&[9, 2, 0, 0, 0, 0]), WireError::Version(9));
        assert_eq!(refused(&[VERSION, 77, 0, 0, 0, 0]), WireError::Kind(77));
        assert_eq!(refused(&[VERSION, 2, 1, 0, 0, 0, 0]), WireError::Trailing(1));
        assert_eq!(refused(&[VERSION, 4, 1, 0, 0, 0, 0]), WireError::Short);
        assert_eq!(refused(&[VERSION, 3, 5, 0, 0, 0, 1, 0, 0, 0, 0xff]), WireError::Value);
        let too_long = u32::try_from(MAX_PAYLOAD).expect("small") + 1;
        let [a, b, c, d] = too_long.to_le_bytes();
        assert_eq!(refused(&[VERSION, 2, a, b, c, d]), WireError::TooLong(too_long));
    }
}
