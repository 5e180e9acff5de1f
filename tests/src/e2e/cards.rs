//! [`Cards`]: the graphics cards of a house, which are the fake NVML's: a folder with the library, its state and claims.
use crate::e2e::House;
use nix::{sys::stat::Mode, unistd::mkfifo};
use std::{
    env::consts,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// The ids of the two cards, in the order of their addresses.
pub const CARDS: [&str; 2] = ["GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"];

const NAME: &str = "NVIDIA GeForce RTX 3090";

/// A folder with the fake library.
#[derive(Clone, Debug)]
pub struct Cards {
    folder: PathBuf,
    devices: String,
}

/// A call of the driver that does not come back until this is dropped.
#[derive(Debug)]
pub struct Hang {
    _writer: File,
}

/// A call of the driver that will hang as soon as somebody makes it.
#[derive(Debug)]
pub struct Trap(PathBuf);

impl Cards {
    /// Two cards of `totals` bytes in `house`, and whatever lines of the state file say `more`.
    ///
    /// # Panics
    /// When the library is not built.
    pub fn put_in(house: &mut House, totals: [u64; 2], more: &str) -> Self {
        let cards = Self { folder: house.path("driver"), devices: devices(totals) };
        fs::create_dir_all(cards.claims()).expect("made");
        fs::copy(library(), cards.folder.join("libnvidia-ml.so.1")).expect("copied");
        cards.set(more);
        house.set_env("LD_LIBRARY_PATH", cards.folder.to_str().expect("UTF-8"));
        house.unset("capacity.budget");
        cards
    }

    /// From now on the state is that of the two cards and these lines. Nobody sees half of it.
    pub fn set(&self, more: &str) {
        let next = self.folder.join("next");
        let text = format!("{}claims {}\n{more}\n", self.devices, self.claims().display());
        fs::write(&next, text).expect("written");
        fs::rename(next, self.folder.join("libnvidia-ml.so.1.state")).expect("the same folder");
    }

    /// From now on a card is cut into instances of so many bytes, and the state has these lines besides.
    pub fn cut(&mut self, card: &str, instances: &[(&str, u64)], more: &str) {
        let line = self.devices.lines().find(|line| line.contains(card)).expect("one of the cards").to_owned();
        self.devices = self.devices.replace(&line, &line.replace(" name=", " mig=on name="));
        let line = |(id, total): &(&str, u64)| format!("device uuid={id} of={card} total={total} name={NAME} MIG 1g\n");
        self.devices.extend(instances.iter().map(line));
        self.set(more);
    }

    /// The library, as it is loaded by path.
    pub fn library(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    /// What engines hold: card and bytes, by process id.
    pub fn claimed(&self, pid: u32) -> Vec<(String, u64)> {
        let text = fs::read_to_string(self.claims().join(pid.to_string())).unwrap_or_default();
        let line = |line: &str| line.split_once(' ').map(|(id, bytes)| (id.to_owned(), bytes.parse().expect("bytes")));
        text.lines().filter_map(line).collect()
    }

    /// From now on `function` hangs, and the state has these lines besides.
    pub fn hang(&self, function: &str, more: &str) -> Trap {
        let pipe = self.folder.join("hang");
        mkfifo(&pipe, Mode::S_IRWXU).expect("made");
        self.set(&format!("hang {function} {}\n{more}", pipe.display()));
        Trap(pipe)
    }

    /// Once a look that began after this has been taken in; the state keeps these lines.
    pub async fn after_a_look(&self, more: &str) {
        // The second begins when the first is over.
        for _ in 0..2 {
            let hang = self.hang("nvmlDeviceGetMemoryInfo_v2", more).caught().await;
            self.set(more);
            drop(hang);
        }
    }

    /// The same, with so much of a card in use, and with these lines.
    pub fn set_used(&mut self, card: &str, bytes: u64, more: &str) {
        let is_it = |line: &&str| line.contains(card);
        let line = self.devices.lines().find(is_it).expect("one of the cards").to_owned();
        let plain = line.split(" used=").next().unwrap_or(&line).split(" name=").next().unwrap_or(&line).to_owned();
        let used = format!("{plain} used={bytes} name={NAME}");
        self.devices = self.devices.replace(&line, &used);
        self.set(more);
    }

    fn claims(&self) -> PathBuf {
        self.folder.join("claims")
    }
}

impl Trap {
    /// Once somebody is caught in it.
    ///
    /// # Panics
    /// When the pipe cannot be opened.
    pub async fn caught(self) -> Hang {
        let Self(pipe) = self;
        let open = move || {
            let writer = File::options().write(true).open(&pipe);
            fs::remove_file(pipe).expect("ours");
            writer
        };
        let opened = tokio::task::spawn_blocking(open).await;
        Hang { _writer: opened.expect("no panic").expect("somebody reads") }
    }
}

fn devices(totals: [u64; 2]) -> String {
    let line = |(n, (id, total)): (usize, (&str, u64))| {
        format!("device uuid={id} pci=00000000:0{n}:00.0 total={total} name={NAME}\n")
    };
    (1..).zip(CARDS.into_iter().zip(totals)).map(line).collect()
}

/// Beside the test's own program, or that of an example: cargo builds it for the tests of this package.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let name = format!("{}motorpool_fake_nvml{}", consts::DLL_PREFIX, consts::DLL_SUFFIX);
    let profile = test.parent().and_then(Path::parent).expect("<profile>/deps/<test>");
    let found = [profile.join("deps").join(&name), profile.join(&name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not built: cargo builds it for the tests of motorpool-tests"))
}
