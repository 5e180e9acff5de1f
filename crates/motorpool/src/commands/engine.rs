//! `motorpool engine install | list | verify | remove`.
use crate::{
    args::Engine,
    client::Client,
    dirs::Dirs,
    engine::{
        EngineError,
        discover::{self, Found},
        install,
        record::{self, Install},
        smoke,
    },
    exit::Failure,
    out::{self, Out},
    settings::Settings,
};
use serde::Serialize;
use std::fs;

pub(super) async fn perform(dirs: &Dirs, out: Out, (settings, command): (Settings, Engine)) -> Result<(), Failure> {
    match command {
        Engine::Install { name } => {
            let install = install::install(dirs, &name).await?;
            out.data(&install, || {
                format!("{} {} is installed: {}\n", install.engine, install.version, install.program.display())
            })
        }
        Engine::List => list(dirs, out, &settings),
        Engine::Verify { name } => {
            let install = verify(dirs, &name).await?;
            out.data(&install, || {
                format!("{} {} is as it was installed, and answers\n", install.engine, install.version)
            })
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

/// Compares the installed program with its record, then runs it.
async fn verify(dirs: &Dirs, name: &str) -> Result<Install, EngineError> {
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
