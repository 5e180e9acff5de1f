//! [`order_of`]: what a planned launch is as a command line, and the line that tells of it.
use crate::{
    EngineOrder, Fence,
    address::{Address, address},
    driver::Workshop,
    place::Place,
    state_files::Folder,
};
use motorpool_catalog::{LaunchValues, Manifest, Sandbox, TcpUse};
use motorpool_pool::{Launch, Split};
use motorpool_vocab::Endpoint;
use serde::Serialize;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// How a child is started that serves there and keeps contexts of its sessions in `folder`.
pub(crate) fn order_of(
    (own, launch): (&Place, &Launch),
    workshop: &Workshop,
    (manifest, endpoint, folder): (&Manifest, &Endpoint, Option<&Folder>),
) -> EngineOrder {
    let Launch { key, model, facts, plan, claim, .. } = launch;
    let mut values = LaunchValues::new(model, facts.model_path.clone(), endpoint.clone(), workshop.empty.clone());
    let sessions = folder.map(Folder::path);
    values.sessions_dir.clone_from(&sessions);
    values.context_per_slot = plan.context_per_slot;
    values.slots = plan.slots;
    plan.kv.as_str().clone_into(&mut values.kv_type);
    values.batch = motorpool_catalog::Batch::for_model(&model.capabilities, plan.context_per_slot);
    if let Some(split) = &launch.split {
        let ids: Vec<_> = split.devices.iter().map(|(id, _)| id.clone()).collect();
        let gpus = workshop.lookout.gpus_for(&facts.program);
        place(&mut values, (split, address(&ids, &gpus, |name| manifest.passes(name))));
    } else if workshop.lookout.is_without_cards() {
        place(&mut values, (&Split::default(), None));
    }
    let parent = |name: &str| workshop.environment.get(OsStr::new(name)).cloned();
    let environment = manifest.environment(&parent, &values);
    let temporary =
        environment.iter().find(|(name, _)| name == "TMPDIR").map_or("/tmp".into(), |(_, path)| path.into());
    let given = [Some(own.folder().to_owned()), sessions, Some(temporary)];
    let home = parent("HOME").map(PathBuf::from);
    let fence = manifest.sandbox.as_ref().map(|sandbox| fence(sandbox, endpoint, (given, home.as_deref())));
    let socket = if let Endpoint::Unix(path) = endpoint { Some(path.clone()) } else { None };
    EngineOrder {
        spawn: own.spawn(),
        key: key.clone(),
        claim: claim.clone(),
        program: facts.program.clone(),
        args: manifest.command(&values),
        environment: environment.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        cwd: own.folder().to_owned(),
        log: None,
        socket,
        fence,
    }
}

/// What it is held to: its manifest's word, and what it is given.
fn fence(sandbox: &Sandbox, endpoint: &Endpoint, (given, home): ([Option<PathBuf>; 3], Option<&Path>)) -> Fence {
    let named = sandbox.write.iter().filter_map(|place| place.path(home));
    let own = match endpoint {
        Endpoint::Tcp(port) => vec![*port],
        Endpoint::Unix(_) => vec![],
    };
    let ports = (sandbox.tcp == TcpUse::Own).then_some(own);
    Fence { write: given.into_iter().flatten().chain(named).collect(), ports }
}

/// Where its layers go. A whole whose parts are not known takes everything that its engine can put there.
fn place(values: &mut LaunchValues, (split, address): (&Split, Option<Address>)) {
    values.gpu_layers = Some(split.gpu_layers).filter(|n| *n < u32::MAX).or(values.gpu_layers);
    // Of a whole whose parts are not known, the model's own word stands.
    values.n_cpu_moe = values.n_cpu_moe.max(split.cpu_moe);
    if split.devices.is_empty() && split.gpu_layers == 0 {
        // Without this an engine still computes on a card, in memory that nobody charged.
        values.devices = vec!["none".into()];
        return;
    }
    if let Some(Address { names, visible }) = address {
        values.tensor_split = split.devices.iter().map(|(_, n)| *n).filter(|_| names.len() > 1).collect();
        values.devices = names;
        values.visible = visible.map(|(name, value)| (name.to_owned(), value));
    }
}

/// Says how a child was started.
pub(crate) fn log_launch(launch: &Launch, pid: u32) {
    let Launch { key, model, facts, plan, split, claim, .. } = launch;
    let laid_out = split.iter().flat_map(|split| split.devices.iter().map(|(id, _)| id));
    let others = claim.device.keys().filter(|id| !laid_out.clone().any(|known| known == *id));
    let devices: Vec<String> = laid_out.clone().chain(others).map(ToString::to_string).collect();
    let line = LaunchLine {
        pid,
        key: key.to_string(),
        program: facts.program.display().to_string(),
        model: model.id.as_str(),
        backend: if devices.is_empty() { "cpu" } else { "gpu" },
        context_per_slot: plan.context_per_slot,
        context_total: u64::from(plan.context_per_slot) * u64::from(plan.slots),
        slots: plan.slots,
        kv_cache_type: plan.kv.as_str(),
        devices,
    };
    let line = serde_json::to_string(&line).expect("plain values are JSON");
    tracing::info!("[{}] launch {line}", key.provider());
}

/// The line of a launch, as harnesses read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LaunchLine<'a> {
    pid: u32,
    key: String,
    program: String,
    model: &'a str,
    /// What it is charged for, not what it makes of it.
    backend: &'a str,
    context_per_slot: u32,
    context_total: u64,
    slots: u32,
    kv_cache_type: &'a str,
    /// By their stable ids, in the order in which its layers lie on them.
    devices: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::{Model, ModelSource};
    use motorpool_vocab::{DeviceId, ModelId};

    fn placed(split: &Split, gpu_layers: Option<u32>) -> LaunchValues {
        let id = ModelId::new("m").expect("an id");
        let mut model = Model::new(id, "llama-server", ModelSource::File("/m.gguf".into()));
        model.gpu_layers = gpu_layers;
        model.n_cpu_moe = Some(1);
        let mut values = LaunchValues::new(&model, "/m.gguf".into(), Endpoint::Tcp(1), "/empty".into());
        let ids: Vec<_> = split.devices.iter().map(|(id, _)| id.clone()).collect();
        place(&mut values, (split, address(&ids, &[], |_| true)));
        values
    }

    fn split(devices: &[(&str, u32)], gpu_layers: u32) -> Split {
        let devices = devices.iter().map(|(id, n)| (DeviceId((*id).into()), *n)).collect();
        Split { devices, gpu_layers, cpu_moe: 2 }
    }

    #[test]
    fn an_engine_is_told_its_devices_by_name_and_their_shares_when_there_are_several() {
        let two = placed(&split(&[("CUDA0", 20), ("CUDA1", 12)], 32), None);
        assert_eq!((two.gpu_layers, two.n_cpu_moe), (Some(32), 2));
        assert_eq!((two.devices, two.tensor_split), (vec!["CUDA0".to_owned(), "CUDA1".to_owned()], vec![20, 12]));
        let one = placed(&split(&[("Vulkan1", 32)], 32), None);
        assert_eq!((one.devices, one.tensor_split), (vec!["Vulkan1".to_owned()], vec![]));
    }

    #[test]
    fn devices_without_an_address_are_left_to_the_engine() {
        let values = placed(&split(&[("GPU-1a2b3c4d", 9)], 9), None);
        assert_eq!((values.devices, values.visible, values.gpu_layers), (vec![], None, Some(9)));
    }

    #[test]
    fn the_processor_only_is_said_and_a_whole_leaves_what_the_model_says() {
        let processor = placed(&split(&[], 0), None);
        assert_eq!((processor.gpu_layers, processor.devices), (Some(0), vec!["none".to_owned()]));
        assert_eq!(placed(&split(&[("CUDA0", 1)], u32::MAX), Some(7)).gpu_layers, Some(7));
        assert_eq!(placed(&split(&[("CUDA0", 1)], u32::MAX), None).gpu_layers, None);
        let whole = Split { cpu_moe: 0, ..split(&[("CUDA0", 1)], u32::MAX) };
        assert_eq!(placed(&whole, None).n_cpu_moe, 1);
    }
}
