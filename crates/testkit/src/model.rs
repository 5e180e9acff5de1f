//! [`FakeModel`]: a model file with a sidecar that tells the fake engine how to behave; [`Gate`]: a file to wait for.
use crate::Behaviour;
use motorpool_vocab::Endpoint;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The files that belong to one model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles(PathBuf);

impl ModelFiles {
    /// Those of `model`.
    pub fn of(model: &Path) -> Self {
        Self(model.to_owned())
    }

    /// How the engine behaves.
    pub fn sidecar(&self) -> PathBuf {
        self.beside("fake.toml")
    }

    /// One JSON line per start.
    pub fn starts(&self) -> PathBuf {
        self.beside("fake.starts")
    }

    /// One process id per line.
    pub fn strays(&self) -> PathBuf {
        self.beside("fake.strays")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

/// A model file in a test's directory, with its sidecar.
#[derive(Clone, Debug)]
pub struct FakeModel {
    file: PathBuf,
}

/// One start of an engine with a model, as the engine wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its process id.
    pub pid: u32,
    /// Where it was told to listen: a path, or `127.0.0.1:<port>`.
    pub address: String,
}

impl Start {
    /// Where it listens. A port of 0 was chosen by the system and is not known here.
    pub fn endpoint(&self) -> Endpoint {
        match self.address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok()) {
            Some(port) => Endpoint::Tcp(port),
            None => Endpoint::Unix(self.address.clone().into()),
        }
    }
}

impl FakeModel {
    /// Writes `<dir>/<name>.gguf`, a small model that a real engine loads too, and its sidecar.
    pub fn write(dir: &Path, name: &str, behaviour: &Behaviour) -> io::Result<Self> {
        let file = dir.join(format!("{name}.gguf"));
        fs::write(&file, motorpool_gguf::write::smoke_model())?;
        Self::beside(&file, behaviour)
    }

    /// A model file that is already there, a real one for instance, with a sidecar beside it.
    pub fn beside(file: &Path, behaviour: &Behaviour) -> io::Result<Self> {
        let model = Self { file: file.to_owned() };
        model.behave(behaviour)?;
        Ok(model)
    }

    /// From its next start on the engine behaves like this.
    pub fn behave(&self, behaviour: &Behaviour) -> io::Result<()> {
        fs::write(self.files().sidecar(), behaviour.to_toml())
    }

    /// The model file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// All files of it.
    pub fn files(&self) -> ModelFiles {
        ModelFiles::of(&self.file)
    }

    /// Every start so far, oldest first. An unfinished line is not one yet.
    pub fn starts(&self) -> Vec<Start> {
        let text = fs::read_to_string(self.files().starts()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The process ids of every grandchild so far.
    pub fn strays(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.files().strays()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// A file that an engine waits for, or that switches a fault on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate(PathBuf);

impl Gate {
    /// `<dir>/<name>`, closed: the file is not there.
    pub fn closed(dir: &Path, name: &str) -> Self {
        Self(dir.join(name))
    }

    /// The file, for a [`Behaviour`].
    pub fn file(&self) -> PathBuf {
        self.0.clone()
    }

    /// Lets waiting engines through; switches on.
    pub fn open(&self) -> io::Result<()> {
        fs::write(&self.0, "")
    }

    /// Switches off; later comers wait.
    pub fn close(&self) -> io::Result<()> {
        fs::remove_file(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_says_where_its_engine_listens() {
        let start = |address: &str| Start { pid: 1, address: address.into() }.endpoint();
        assert_eq!(start("/run/a.sock"), Endpoint::Unix("/run/a.sock".into()));
        assert_eq!(start("127.0.0.1:8080"), Endpoint::Tcp(8080));
    }

    #[test]
    fn a_half_written_line_is_no_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let model = FakeModel { file: dir.path().join("a.gguf") };
        assert!(model.starts().is_empty());
        fs::write(model.files().starts(), "{\"pid\":7,\"address\":\"/a\"}\n{\"pid\":8,").expect("written");
        assert_eq!(model.starts(), [Start { pid: 7, address: "/a".into() }]);
    }
}
