//! The state file: its lines, and what it says about one device, one function, one process.
use crate::code::{Code, UNKNOWN};
use std::{path::PathBuf, time::Duration};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) driver: String,
    pub(crate) cuda: i32,
    devices: Vec<Device>,
    pub(crate) processes: Vec<Process>,
    order: Option<Vec<String>>,
    pub(crate) claims: Option<PathBuf>,
    pub(crate) lag: Duration,
    pub(crate) pid_offset: u32,
    faults: Vec<Fault>,
    hangs: Vec<(String, PathBuf)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) uuid: String,
    pub(crate) pci: String,
    pub(crate) name: String,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    pub(crate) mig: Mig,
    /// The card of which it is an instance.
    pub(crate) of: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mig {
    On,
    Off,
    #[default]
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) uuid: String,
    pub(crate) pid: u32,
    /// `None`: the driver does not say.
    pub(crate) bytes: Option<u64>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Compute,
    Graphics,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    function: String,
    uuid: Option<String>,
    code: Code,
}

impl State {
    /// Reads the whole text; one line that is not understood makes it worthless.
    pub(crate) fn parse(text: &str) -> Result<Self, Code> {
        let mut state = Self { driver: "570.86.10".to_owned(), cuda: 12_080, ..Self::default() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            state.read_line(line).ok_or(UNKNOWN)?;
        }
        Ok(state)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "driver" => rest.clone_into(&mut self.driver),
            "cuda" => self.cuda = rest.parse().ok()?,
            "device" => self.devices.push(Device::parse(rest)?),
            "process" => self.processes.push(Process::parse(rest)?),
            "order" => self.order = Some(rest.split(' ').map(str::to_owned).collect()),
            "claims" => self.claims = Some(rest.into()),
            "lag-ms" => self.lag = Duration::from_millis(rest.parse().ok()?),
            "pid-offset" => self.pid_offset = rest.parse().ok()?,
            "engine" => {}
            "fault" => self.faults.push(Fault::parse(rest)?),
            "hang" => self.hangs.push(rest.split_once(' ').map(|(name, path)| (name.to_owned(), path.into()))?),
            _ => return None,
        }
        Some(())
    }

    /// The devices as they are enumerated.
    pub(crate) fn enumerated(&self) -> Vec<&Device> {
        match &self.order {
            None => self.devices.iter().filter(|device| device.of.is_none()).collect(),
            Some(order) => order.iter().filter_map(|uuid| self.device(uuid)).collect(),
        }
    }

    /// The instances of a card that is cut up, in the order of their lines.
    pub(crate) fn instances(&self, card: &Device) -> Vec<&Device> {
        self.devices.iter().filter(|device| device.of.as_ref() == Some(&card.uuid)).collect()
    }

    pub(crate) fn device(&self, uuid: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.uuid == uuid)
    }

    /// The error that `function` is to give, for the device `uuid` if it takes one.
    pub(crate) fn fault(&self, function: &str, uuid: Option<&str>) -> Option<Code> {
        let is_meant = |fault: &&Fault| match &fault.uuid {
            None => fault.function == function,
            of => of.as_deref() == uuid && (fault.function == function || fault.function == "all"),
        };
        self.faults.iter().find(is_meant).map(|fault| fault.code)
    }

    /// What `function` reads to its end before it answers.
    pub(crate) fn hang(&self, function: &str) -> Option<&PathBuf> {
        self.hangs.iter().find(|(name, _)| name == function).map(|(_, path)| path)
    }
}

impl Device {
    fn parse(text: &str) -> Option<Self> {
        let (fields, name) = text.split_once(" name=")?;
        let mut device = Self { name: name.to_owned(), ..Self::default() };
        for (key, value) in pairs(fields)? {
            match key {
                "uuid" => value.clone_into(&mut device.uuid),
                "pci" => value.clone_into(&mut device.pci),
                "total" => device.total = value.parse().ok()?,
                "reserved" => device.reserved = value.parse().ok()?,
                "used" => device.used = value.parse().ok()?,
                "mig" => device.mig = Mig::parse(value)?,
                "of" => device.of = Some(value.to_owned()),
                _ => return None,
            }
        }
        (!device.uuid.is_empty()).then_some(device)
    }
}

impl Mig {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let mut process = Self { uuid: String::new(), pid: 0, bytes: None, kind: Kind::Compute };
        for (key, value) in pairs(text)? {
            match (key, value) {
                ("uuid", uuid) => uuid.clone_into(&mut process.uuid),
                ("pid", pid) => process.pid = pid.parse().ok()?,
                ("bytes", "unknown") => process.bytes = None,
                ("bytes", n) => process.bytes = Some(n.parse().ok()?),
                ("kind", "compute") => process.kind = Kind::Compute,
                ("kind", "graphics") => process.kind = Kind::Graphics,
                _ => return None,
            }
        }
        (!process.uuid.is_empty() && process.pid > 0).then_some(process)
    }
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let (function, uuid, error) = match words[..] {
            [function, error] => (function, None, error),
            [function, uuid, error] => (function, Some(uuid.to_owned()), error),
            _ => return None,
        };
        Some(Self { function: function.to_owned(), uuid, code: Code::named(error)? })
    }
}

/// `key=value key=value`.
fn pairs(text: &str) -> Option<Vec<(&str, &str)>> {
    text.split(' ').map(|pair| pair.split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{GPU_IS_LOST, NOT_SUPPORTED};

    #[test]
    fn a_file_with_every_line_is_read() {
        let state = State::parse(
            "# two cards\ndriver 1.2\ncuda 11000\ndevice uuid=A pci=1 total=9 reserved=1 used=2 mig=on name=A card\n\
             device uuid=B total=5 name=B\ndevice uuid=M of=A total=4 name=A part\nprocess uuid=A pid=4 bytes=3\nprocess uuid=A pid=5 bytes=unknown kind=graphics\n\
             order B A\nclaims /a b\nlag-ms 1500\npid-offset 7\nengine CUDA B A\nfault init driver-not-loaded\nhang count /pipe\n",
        )
        .expect("understood");
        let uuids: Vec<&str> = state.enumerated().iter().map(|device| device.uuid.as_str()).collect();
        assert_eq!(uuids, ["B", "A"]);
        let a = state.device("A").expect("there");
        assert_eq!((a.name.as_str(), a.total, a.reserved, a.used, a.mig), ("A card", 9, 1, 2, Mig::On));
        assert_eq!(state.instances(a).iter().map(|one| one.total).collect::<Vec<_>>(), [4]);
        assert!(State::parse("device uuid=M of=A name=x").expect("understood").enumerated().is_empty());
        assert_eq!((state.driver.as_str(), state.cuda, state.pid_offset), ("1.2", 11_000, 7));
        assert_eq!((state.claims, state.lag), (Some("/a b".into()), Duration::from_millis(1500)));
        let bytes: Vec<_> = state.processes.iter().map(|process| (process.bytes, process.kind)).collect();
        assert_eq!(bytes, [(Some(3), Kind::Compute), (None, Kind::Graphics)]);
    }

    #[test]
    fn a_fault_strikes_its_function_and_device_only() {
        let state =
            State::parse("fault all A lost\nfault f B not-supported\nfault init unknown\n").expect("understood");
        assert_eq!(state.fault("f", Some("A")), Some(GPU_IS_LOST));
        assert_eq!(state.fault("f", Some("B")), Some(NOT_SUPPORTED));
        assert_eq!(state.fault("g", Some("B")), None);
        assert_eq!(state.fault("init", None), Some(UNKNOWN));
        assert_eq!(state.fault("count", None), None);
    }

    #[test]
    fn a_line_that_is_not_understood_is_no_state() {
        for text in [
            "nonsense",
            "colour red",
            "device uuid=A total=x name=A",
            "fault a b c d",
            "device name=",
            "process uuid=A pid=0",
        ] {
            assert_eq!(State::parse(text), Err(UNKNOWN), "{text}");
        }
    }
}
