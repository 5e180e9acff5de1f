//! Where things are: [`Dirs`], the data, state, run and configuration directories.
//!
//! | directory | default | holds |
//! | --- | --- | --- |
//! | data | `$XDG_DATA_HOME/motorpool` | engines, models, the private Python environment |
//! | state | `--state-dir`, `MOTORPOOL_STATE_DIR`, `$XDG_STATE_HOME/motorpool` | lock, journal, logs, learned figures |
//! | run | `$XDG_RUNTIME_DIR/motorpool/<8 hex digits of the state path>`, else `<state>/run` | sockets |
//! | config | `$XDG_CONFIG_HOME/motorpool` | the user's `motorpool.toml`, `engines/`, `catalog/` |
//!
//! All that we make is 0700, and a directory that belongs to somebody else is refused.
use crate::exit::{Exit, Failure};
use etcetera::base_strategy::{BaseStrategy, Xdg};
use motorpool_catalog::Config;
use motorpool_vocab::EngineKey;
use sha2::{Digest, Sha256};
use std::{
    fmt::Write as _,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Component, Path, PathBuf},
};

/// The longest path a unix socket can have: `sun_path` less its terminating zero.
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
/// The longest name of a socket that the supervisor makes in the run directory, its `/` included.
const SOCKET_NAME_ROOM: usize = 32;

/// The directories of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    pub(crate) data: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) config: PathBuf,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirError {
    #[error("no home directory")]
    NoHome(#[source] etcetera::HomeDirError),
    #[error("cannot make the directory {}", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("the directory {} belongs to another user", path.display())]
    NotOurs { path: PathBuf },
    #[error("the directory {} is not writable", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("the run directory {} is {by} bytes too long for a unix socket", path.display())]
    TooLong { path: PathBuf, by: usize },
}

impl From<DirError> for Failure {
    fn from(error: DirError) -> Self {
        let what = crate::exit::chain(&error);
        let (exit, cure) = match &error {
            DirError::NoHome(_) => (Exit::Missing, "set HOME to your home directory".to_owned()),
            DirError::Create { path, .. } | DirError::NotWritable { path, .. } => {
                (Exit::Denied, format!("make {} writable for you, or name another with {}", path.display(), KNOBS))
            }
            DirError::NotOurs { path } => {
                (Exit::Denied, format!("run `sudo chown -R $USER {}`, or name another with {KNOBS}", path.display()))
            }
            DirError::TooLong { .. } => (Exit::Config, "give --state-dir or XDG_RUNTIME_DIR a shorter path".to_owned()),
        };
        Self::new(exit, what, cure)
    }
}

const KNOBS: &str = "--state-dir, XDG_STATE_HOME or XDG_DATA_HOME";

impl Dirs {
    /// Finds them, makes nothing. `state_dir` is what the command line or `MOTORPOOL_STATE_DIR` says.
    pub(crate) fn find(state_dir: Option<&Path>) -> Result<Self, DirError> {
        let base = Xdg::new().map_err(DirError::NoHome)?;
        let state = match state_dir {
            Some(path) => path.to_owned(),
            None => base.state_dir().unwrap_or_else(|| base.home_dir().join(".local/state")).join("motorpool"),
        };
        let state = real(&state).map_err(|source| DirError::Create { path: state, source })?;
        let runtime = base.runtime_dir().filter(|dir| check_ours(dir).is_ok());
        let run = runtime.map_or_else(|| state.join("run"), |dir| run_below(&dir, &state));
        Ok(Self { data: base.data_dir().join("motorpool"), config: base.config_dir().join("motorpool"), state, run })
    }

    /// The run directory of the user, whatever pool this is: what all pools of theirs share lies below `motorpool/` there.
    pub(crate) fn of_user() -> Result<PathBuf, DirError> {
        let base = Xdg::new().map_err(DirError::NoHome)?;
        let usual = PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()));
        let runtime = base.runtime_dir().into_iter().chain([usual]).find(|dir| check_ours(dir).is_ok());
        Ok(runtime.or_else(|| base.state_dir()).unwrap_or_else(|| base.home_dir().join(".local/state")))
    }

    /// The hashes of access keys: where `config` says, or with the rest of the state.
    pub(crate) fn keys(&self, config: &Config) -> PathBuf {
        config.keys.file.clone().unwrap_or_else(|| self.state.join("keys.json"))
    }

    /// The control socket of the pool with this state directory, where a daemon of ours makes it.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.run.join("control.sock")
    }

    /// The control socket of the daemon that runs. Started by a service manager it may know no runtime directory where
    /// we have one, and the other way round: the usual places are tried.
    pub(crate) fn live_control_socket(&self) -> PathBuf {
        let runtime = PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()));
        let places = [self.run.clone(), self.state.join("run"), run_below(&runtime, &self.state)];
        let sockets = places.into_iter().map(|run| run.join("control.sock"));
        let mut there: Vec<_> = sockets.filter(|socket| socket.exists()).collect();
        there.dedup();
        // One that was killed leaves its socket behind.
        let answers = |socket: &&PathBuf| there.len() == 1 || UnixStream::connect(socket).is_ok();
        there.iter().find(answers).or(there.first()).cloned().unwrap_or_else(|| self.control_socket())
    }

    /// Where the supervisor keeps the output of `key`, written as it writes it.
    pub(crate) fn log_of(&self, key: &EngineKey) -> PathBuf {
        let mut name = String::new();
        for byte in key.to_string().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => name.push(byte.into()),
                _ => write!(name, "%{byte:02X}").expect("a text takes everything"),
            }
        }
        self.state.join("logs").join(name + ".log")
    }

    /// Makes state and run directory for a daemon, and checks that sockets fit below the latter.
    pub(crate) fn make_for_daemon(&self) -> Result<(), DirError> {
        self.check_sockets()?;
        make_private(&self.state)?;
        make_private(&self.run)
    }

    fn check_sockets(&self) -> Result<(), DirError> {
        let longest = self.run.as_os_str().len() + SOCKET_NAME_ROOM;
        match longest.checked_sub(SOCKET_PATH_MAX) {
            None | Some(0) => Ok(()),
            Some(by) => Err(DirError::TooLong { path: self.run.clone(), by }),
        }
    }

    /// Whether a daemon could use what is there; makes nothing.
    pub(crate) fn check(&self) -> Result<(), DirError> {
        self.check_sockets()?;
        [&self.data, &self.state, &self.run].into_iter().try_for_each(|path| {
            match path.ancestors().find(|above| above.exists()) {
                Some(there) if there == path => check_ours(path),
                Some(above) => check_writable(above),
                None => Ok(()),
            }
        })
    }

    /// Makes a directory below the data directory.
    pub(crate) fn make_data(&self, below: &str) -> Result<PathBuf, DirError> {
        make_private(&self.data)?;
        let path = self.data.join(below);
        make_private(&path)?;
        Ok(path)
    }
}

/// Where `path` is, or will be once it is made. A link and its target are one pool, whose run directory has one name,
/// before the directory is made and after.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, mut real)) = there else { return Ok(path) };
    // What is not there is no link: it will be made as it is written.
    for part in path.strip_prefix(above).unwrap_or(&path).components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            part => real.push(part),
        }
    }
    Ok(real)
}

fn run_below(runtime: &Path, state: &Path) -> PathBuf {
    let digest = Sha256::digest(state.as_os_str().as_bytes());
    let name = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    runtime.join("motorpool").join(format!("{name:08x}"))
}

/// Makes `path` and what is missing above it, 0700, or tightens what is there and ours.
pub(crate) fn make_private(path: &Path) -> Result<(), DirError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| DirError::Create { path: path.to_owned(), source })?;
    check_ours(path)?;
    let unwritable = |source| DirError::NotWritable { path: path.to_owned(), source };
    if fs::metadata(path).map_err(unwritable)?.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(unwritable)?;
    }
    Ok(())
}

fn check_ours(path: &Path) -> Result<(), DirError> {
    let unwritable = |source| DirError::NotWritable { path: path.to_owned(), source };
    if fs::metadata(path).map_err(unwritable)?.uid() != nix::unistd::geteuid().as_raw() {
        return Err(DirError::NotOurs { path: path.to_owned() });
    }
    check_writable(path)
}

fn check_writable(path: &Path) -> Result<(), DirError> {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK)
        .map_err(|errno| DirError::NotWritable { path: path.to_owned(), source: errno.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn two_state_directories_never_share_a_run_directory() {
        let runtime = Path::new("/run/user/7");
        let one = run_below(runtime, Path::new("/a"));
        assert_ne!(one, run_below(runtime, Path::new("/b")));
        assert_eq!(one, run_below(runtime, Path::new("/a")));
        assert_eq!(one.file_name().map(std::ffi::OsStr::len), Some(8));
    }

    #[test]
    fn a_daemon_without_a_runtime_directory_is_found_by_one_who_has_it() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let state = top.path().join("state");
        let run = top.path().join("runtime/motorpool/0123abcd");
        let dirs = Dirs { data: state.clone(), config: state.clone(), run, state: state.clone() };
        assert_eq!(dirs.live_control_socket(), dirs.control_socket());
        let theirs = state.join("run/control.sock");
        make_private(&state.join("run")).expect("made");
        fs::write(&theirs, "").expect("written");
        assert_eq!(dirs.live_control_socket(), theirs);
    }

    #[test]
    fn the_socket_of_one_that_was_killed_hides_no_daemon() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let state = top.path().join("state");
        let run = top.path().join("runtime/motorpool/0123abcd");
        let dirs = Dirs { data: state.clone(), config: state.clone(), run: run.clone(), state: state.clone() };
        for folder in [&run, &state.join("run")] {
            make_private(folder).expect("made");
        }
        drop(UnixListener::bind(run.join("control.sock")).expect("bound"));
        let theirs = state.join("run/control.sock");
        let daemon = UnixListener::bind(&theirs).expect("bound");
        assert_eq!(dirs.live_control_socket(), theirs);
        drop(daemon);
        assert_eq!(dirs.live_control_socket(), dirs.control_socket(), "nobody answers: its own place is said");
    }

    #[test]
    fn a_state_directory_has_one_name_before_it_is_made_and_after() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let folder = top.path().canonicalize().expect("there");
        fs::create_dir(folder.join("real")).expect("made");
        std::os::unix::fs::symlink(folder.join("real"), folder.join("link")).expect("made");
        for (written, place) in
            [("link/pool", "real/pool"), ("real/../a/b", "a/b"), ("c/../d", "d"), ("link/../e", "e")]
        {
            let before = real(&folder.join(written)).expect("a path");
            assert_eq!(before, folder.join(place), "{written}");
            fs::create_dir_all(folder.join(written)).expect("made");
            assert_eq!(real(&folder.join(written)).expect("a path"), before, "{written}");
        }
    }

    #[test]
    fn a_made_directory_is_private_and_a_wide_one_is_tightened() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("a/b");
        make_private(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("widened");
        make_private(&path).expect("tightened");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_run_directory_too_long_for_sockets_is_refused_before_anything_is_made() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let state = top.path().join("x".repeat(120));
        let dirs = Dirs { data: state.clone(), config: state.clone(), run: state.join("run"), state: state.clone() };
        assert!(matches!(dirs.make_for_daemon(), Err(DirError::TooLong { .. })));
        assert!(!state.exists());
    }
}
