//! Clients that nobody here wrote, browsers among them: installed once, in the versions that are pinned beside their
//! scripts, and run.
//!
//! They stay in `MOTORPOOL_TEST_CACHE` beside the real engine, in folders named after what is pinned, so that another
//! version of us finds its own. Python and node must be there: whoever has none is told, and nothing is skipped.
use crate::e2e::{House, house::outcome, installed};
use motorpool_testkit::fingerprint;
use std::{
    fs::{self, File},
    io::ErrorKind::NotFound,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What a script is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Python,
    Node,
}

/// Runs a script of `tests/tests/clients` in a house, told of the pool by `POOL`; it must end with 0.
///
/// # Panics
/// When it does not, with all that it said; when its client cannot be installed.
pub async fn run(house: &House, script: &str, pool: &serde_json::Value) {
    run_in("clients", house, script, pool).await;
}

/// The same with a script of another folder below `tests/tests`, which has its own pins. Returns what it printed.
///
/// # Panics
/// When it does not end with 0, with all that it said; when what it needs cannot be installed.
pub async fn run_in(folder: &'static str, house: &House, script: &str, pool: &serde_json::Value) -> String {
    let is_module = Path::new(script).extension().is_some_and(|ending| ending == "mjs");
    let language = if is_module { Language::Node } else { Language::Python };
    let installed = tokio::task::spawn_blocking(move || language.install(folder)).await.expect("no panic");
    let place = installed.unwrap_or_else(|why| panic!("{why}"));
    let mut command = tokio::process::Command::new(language.program(&place));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", house.path("home"));
    if let Some(shots) = std::env::var_os("SHOTS") {
        command.env("SHOTS", shots);
    }
    command.env("POOL", pool.to_string()).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true).stdin(Stdio::null());
    let script = match language {
        Language::Python => scripts(folder).join(script),
        // Its modules are looked for above it.
        Language::Node => beside_modules(&place, house, &scripts(folder)).join(script),
    };
    let ended = outcome({
        command.arg(&script).current_dir(house.folder());
        command
    })
    .await;
    assert_eq!(ended.code, Some(0), "{}\n{}\n{}", script.display(), ended.stdout, ended.stderr);
    ended.stdout
}

/// Where the scripts lie, and what they need.
fn scripts(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)
}

/// A folder of this house with copies of the scripts, and a link to the modules.
fn beside_modules(place: &Path, house: &House, scripts: &Path) -> PathBuf {
    let folder = house.path("scripts");
    if folder.exists() {
        return folder;
    }
    fs::create_dir(&folder).expect("made");
    std::os::unix::fs::symlink(place.join("node_modules"), folder.join("node_modules")).expect("made");
    let files = fs::read_dir(scripts).expect("read").flatten().map(|entry| entry.path());
    for script in files.filter(|path| path.extension().is_some_and(|ending| ending == "mjs")) {
        fs::copy(&script, folder.join(script.file_name().expect("a file"))).expect("copied");
    }
    folder
}

impl Language {
    const fn pins(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["requirements.txt"],
            Self::Node => &["package.json", "package-lock.json"],
        }
    }

    fn program(self, place: &Path) -> PathBuf {
        match self {
            Self::Python => place.join("bin/python"),
            Self::Node => "node".into(),
        }
    }

    /// The folder that holds what is pinned, made whole before it has its name.
    fn install(self, of: &str) -> Result<PathBuf, String> {
        let pins = self.pins().iter().map(|name| fs::read(scripts(of).join(name)));
        let pins = pins.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?.concat();
        let folder = installed::cache().join(of);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
        lock.lock().map_err(|error| error.to_string())?;
        let place = folder.join(format!("{self:?}-{:x}", fingerprint(&pins)));
        let whole = place.join("whole");
        if !whole.exists() {
            installed::say(&format!("tests: installing what the {of} of {self:?} need (in {})", place.display()));
            self.fill(&place, &scripts(of))?;
            File::create(whole).map_err(|error| error.to_string())?;
        }
        Ok(place)
    }

    fn fill(self, place: &Path, scripts: &Path) -> Result<(), String> {
        match self {
            Self::Python => {
                let venv =
                    Command::new("python3").args(["-m", "venv", "--clear"]).arg(place).stdin(Stdio::null()).status();
                must_end(venv, "python3 with its venv module (on Debian: apt install python3-venv)")?;
                let mut pip = Command::new(self.program(place));
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
                pip.arg("-r").arg(scripts.join("requirements.txt")).stdin(Stdio::null());
                must_end(pip.status(), "the package index of Python, once")
            }
            Self::Node => {
                fs::create_dir_all(place).map_err(|error| error.to_string())?;
                for name in self.pins() {
                    fs::copy(scripts.join(name), place.join(name)).map_err(|error| error.to_string())?;
                }
                let mut npm = Command::new("npm");
                npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(place);
                must_end(npm.stdin(Stdio::null()).status(), "node 20 or later with npm, and its registry, once")
            }
        }
    }
}

/// A step of an installation; `needs` says what it takes.
fn must_end(ended: std::io::Result<std::process::ExitStatus>, needs: &str) -> Result<(), String> {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}; the tests with clients need {needs}; what was said is above")),
        Err(error) if error.kind() == NotFound => Err(format!("the tests with clients need {needs}: it is not there")),
        Err(error) => Err(format!("the tests with clients need {needs}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let status = Command::new("no-such-program-anywhere").status();
        let why = must_end(status, "that program").expect_err("it is not there");
        assert!(why.contains("need that program: it is not there"), "{why}");
        let failed = must_end(Command::new("false").status(), "that program").expect_err("it fails");
        assert!(failed.contains("need that program"), "{failed}");
    }
}
