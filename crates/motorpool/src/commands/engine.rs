//! `motorpool engine install | list | verify | remove`.
use crate::{
    args::Engine,
    client::Client,
    dirs::Dirs,
    disk,
    engine::{
        EngineError,
        discover::{self, Found, Origin},
        gpu::Wish,
        install,
        record::{self, Install},
        smoke,
    },
    exit::{Exit, Failure},
    out::{self, Out},
    settings::Settings,
};
use motorpool_catalog::Manifest;
use serde::Serialize;
use std::{fs, path::Path};

pub(super) async fn perform(dirs: &Dirs, out: Out, (settings, command): (Settings, Engine)) -> Result<(), Failure> {
    match command {
        Engine::Install { name, cpu } => {
            let wish = if cpu { Wish::Processor } else { Wish::Best };
            let install = install::install(dirs, &name, wish).await?;
            out.data(&install, || {
                format!("{} {} is installed: {}\n", install.engine, install.version, install.program.display())
            })
        }
        Engine::List => list(dirs, out, &settings),
        Engine::Verify { name } => {
            let checked = verify(dirs, &settings, &name).await?;
            out.data(&checked, || checked.for_people())
        }
        Engine::Remove { name } => remove(dirs, &name).await,
    }
}

/// A row of `engine list`.
#[derive(Serialize)]
struct Row {
    engine: String,
    #[serde(flatten)]
    found: Found,
    version: Option<String>,
}

fn list(dirs: &Dirs, out: Out, settings: &Settings) -> Result<(), Failure> {
    let installs = record::installed(dirs);
    let version_of = |found: &Found| {
        let install = installs.iter().find(|install| install.program == found.program);
        install.map(|install| install.version.clone())
    };
    let mut rows = Vec::new();
    for manifest in settings.catalog.manifests() {
        let configured = settings.config.engines.get(&manifest.name).and_then(|engine| engine.program.as_deref());
        let found = discover::find(dirs, manifest, configured);
        rows.extend(found.into_iter().map(|found| Row {
            engine: manifest.name.clone(),
            version: version_of(&found),
            found,
        }));
    }
    if rows.is_empty() {
        out::say("no engine was found; `motorpool engine install` builds one");
    }
    out.data(&rows, || {
        let cells = |row: &Row| {
            let version = row.version.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                row.engine.clone(),
                row.found.origin.as_str().to_owned(),
                version,
                row.found.program.display().to_string(),
            ]
        };
        out::table(&["ENGINE", "FOUND", "VERSION", "PROGRAM"], rows.iter().map(cells).collect())
    })
}

/// What a verification found in order.
#[derive(Serialize)]
#[serde(untagged)]
enum Checked {
    Installed(Install),
    /// A program of the user's, with what it says of itself.
    Theirs {
        engine: String,
        found: Found,
        version: Option<String>,
    },
}

impl Checked {
    fn for_people(&self) -> String {
        match self {
            Self::Installed(install) => {
                format!("{} {} is as it was installed, and answers\n", install.engine, install.version)
            }
            Self::Theirs { engine, found, version } => {
                let version = version.as_deref().unwrap_or("of an unknown version");
                format!("{engine} {version} works: {} ({})\n", found.program.display(), found.origin.as_str())
            }
        }
    }
}

/// Checks the program that the engine `name` is started with.
async fn verify(dirs: &Dirs, settings: &Settings, name: &str) -> Result<Checked, Failure> {
    let Some(manifest) = settings.catalog.manifest(name) else {
        let known = settings.catalog.manifests().map(|manifest| manifest.name.clone()).collect();
        return Err(EngineError::NoSuch { name: name.to_owned(), known }.into());
    };
    let configured = settings.config.engines.get(name).and_then(|engine| engine.program.as_deref());
    if let Some(failure) = configured.and_then(|path| no_program(name, path)) {
        return Err(failure);
    }
    match discover::find(dirs, manifest, configured).into_iter().next() {
        Some(found) if found.origin != Origin::Installed => theirs(dirs, manifest, found).await,
        // One that was touched is not found, and has to be told of.
        _ if record::installed(dirs).iter().any(|install| install.engine == name) => {
            Ok(Checked::Installed(verify_installed(dirs, name).await?))
        }
        _ => Err(EngineError::NoProgram(name.to_owned()).into()),
    }
}

/// Why the configured path of an engine is no use.
pub(super) fn no_program(name: &str, path: &Path) -> Option<Failure> {
    let what = format!("{name}: {} is no program", path.display());
    let cure = format!("correct `program` in [engine.{name}]");
    (!disk::is_executable(path)).then(|| Failure::new(Exit::Config, what, cure))
}

/// A program that is not ours: it must tell its version, and a llama-server must answer too.
async fn theirs(dirs: &Dirs, manifest: &Manifest, found: Found) -> Result<Checked, Failure> {
    let wrong = |error| not_ours(Failure::from(error), manifest, &found);
    let dir = dirs.data.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let version = smoke::version_by(manifest, &found.program, dir).await.map_err(wrong)?;
    if manifest.name == install::LLAMA_SERVER {
        smoke::test(&found.program, dir).await.map_err(wrong)?;
    }
    Ok(Checked::Theirs { engine: manifest.name.clone(), version, found })
}

/// Installing again cures only what we installed.
pub(super) fn not_ours(failure: Failure, manifest: &Manifest, found: &Found) -> Failure {
    let cure = match found.origin {
        Origin::Installed => return failure,
        Origin::Configured => format!("correct `program` in [engine.{}]", manifest.name),
        Origin::Path => format!("mend what is on PATH, or name another with `program` in [engine.{}]", manifest.name),
    };
    Failure { cure, ..failure }
}

/// Compares the installed program with its record, then runs it.
async fn verify_installed(dirs: &Dirs, name: &str) -> Result<Install, EngineError> {
    let install = newest(dirs, name)?;
    let changed = |what| EngineError::Changed { program: install.program.clone(), what };
    if !install.program.exists() {
        return Err(changed("it is gone"));
    }
    let read = install.first_changed();
    if let Some(program) = read.map_err(|source| EngineError::Disk { path: install.program.clone(), source })? {
        return Err(EngineError::Changed { program, what: "other content" });
    }
    if smoke::version(&install.program, &dirs.data).await? != install.reported {
        return Err(changed("another version"));
    }
    smoke::test(&install.program, &dirs.data).await?;
    Ok(install)
}

fn newest(dirs: &Dirs, name: &str) -> Result<Install, EngineError> {
    let mut installs = record::installed(dirs).into_iter().filter(|install| install.engine == name);
    installs.next_back().ok_or_else(|| EngineError::NotInstalled(name.to_owned()))
}

async fn remove(dirs: &Dirs, name: &str) -> Result<(), Failure> {
    let dir = record::engine_dir(dirs, name);
    if name.contains('/') || name.starts_with('.') || !dir.is_dir() {
        return Err(EngineError::NotInstalled(name.to_owned()).into());
    }
    let client = Client::new(&dirs.live_control_socket());
    if let Some(key) = super::ps::in_use(&client, |key| key.provider() == name).await? {
        return Err(EngineError::InUse(key).into());
    }
    fs::remove_dir_all(&dir).map_err(|source| EngineError::Disk { path: dir.clone(), source })?;
    out::say(format_args!("removed {}", dir.display()));
    Ok(())
}
