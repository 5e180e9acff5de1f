//! The engine of the model that `up` starts: found, or built after asking.
use crate::{
    args::Up,
    dirs::Dirs,
    engine::{CPU_ONLY, EngineError, devices::Keep, discover, gpu::Wish, install},
    exit::{Exit, Failure},
    machine,
    out::{self, Answer},
    prerequisites,
    settings::Settings,
};
use motorpool_catalog::{Manifest, Model};
use std::path::Path;

/// Finds the engine's program, or builds one.
pub(super) async fn provide(dirs: &Dirs, settings: &Settings, (model, up): (&Model, &Up)) -> Result<(), Failure> {
    let manifest: &Manifest =
        settings.catalog.manifest(&model.engine).expect("the catalog checked every model's engine");
    let configured = settings.config.engines.get(&manifest.name).and_then(|engine| engine.program.as_deref());
    if let Some(found) = discover::find(dirs, manifest, configured).first() {
        let remark = remark(dirs, settings, &found.program).await.unwrap_or_default();
        let (program, origin) = (found.program.display(), found.origin.as_str());
        out::say(format_args!("engine  {}  {program} ({origin}){remark}", manifest.name));
        return Ok(());
    }
    if manifest.name != install::LLAMA_SERVER {
        return Err(EngineError::NoProgram(manifest.name.clone()).into());
    }
    let missing = prerequisites::missing_for_build();
    if !missing.is_empty() {
        return Err(EngineError::Prerequisites(missing).into());
    }
    let wish = if up.cpu { Wish::Processor } else { Wish::Best };
    let build = install::plan(wish).await?;
    let (name, takes) = (&manifest.name, install::expected_time(&build));
    out::say(format_args!("engine  {name} is not on this machine: building it for {} takes {takes}", build.as_str()));
    if !up.yes && out::ask("Build it now?") == Some(Answer::No) {
        let cure = format!("put a {name} on PATH, or name one with `program` in [engine.{name}]");
        return Err(Failure::new(Exit::Declined, "nothing was built", cure));
    }
    install::install(dirs, &manifest.name, wish).await?;
    Ok(())
}

/// What is odd about a program: there is a card, and it sees none.
async fn remark(dirs: &Dirs, settings: &Settings, program: &Path) -> Option<String> {
    let (_, machine) = machine::look(dirs, settings, Keep::Yes).await.ok()?;
    let sees_none = machine.graphics.gpus_for(program).iter().all(|gpu| gpu.listed_as.is_empty());
    (sees_none && !machine.useless.is_empty()).then(|| format!("  {CPU_ONLY}"))
}
