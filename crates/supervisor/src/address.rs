//! [`address`]: how an engine is told the devices of its plan.
//!
//! # Spaces of numbers
//!
//! | space | who counts so | its order |
//! | --- | --- | --- |
//! | driver | NVML, `nvidia-smi` | the driver's own; may change at every start of it |
//! | list | an engine that sees everything: `CUDA0`, `Vulkan1` | the backend's; CUDA's is that of addresses under `CUDA_DEVICE_ORDER=PCI_BUS_ID` |
//! | visible | the same engine under `CUDA_VISIBLE_DEVICES` or `ROCR_VISIBLE_DEVICES` | that of the variable |
//! | split | a plan, `--tensor-split` | that in which layers are laid out |
//!
//! Plans name devices by ids, which no order changes. Here, and nowhere else, ids become numbers: the variable lists
//! the devices of the split in the order of the split, so that visible and split are one space and the other two do
//! not matter. Only what cannot be named so (Vulkan; a device that only the engine or the operator names) is addressed
//! by its name in the list.
use motorpool_devices::{Gpu, Visible};
use motorpool_vocab::DeviceId;

/// The devices of one launch, in the order of its split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    /// What the engine calls them.
    pub(crate) names: Vec<String>,
    /// The variable that shows it these and no others, with its value.
    pub(crate) visible: Option<(&'static str, String)>,
}

/// How an engine that knows the devices as `gpus` is told those of `ids`. `None`: one of them has no name that the
/// engine knows, and it is left to choose among what it sees. `passes`: whether a variable reaches the engine.
pub(crate) fn address(ids: &[DeviceId], gpus: &[Gpu], passes: impl Fn(&str) -> bool) -> Option<Address> {
    let gpu = |id: &DeviceId| gpus.iter().find(|gpu| gpu.is_called(id));
    // An operator's own names are under the operator's own variables.
    if !ids.iter().any(is_name) {
        let visible: Option<Vec<Visible>> = ids.iter().map(|id| visible_of(id, gpu(id))).collect();
        if let Some([first, rest @ ..]) = visible.as_deref()
            && rest.iter().all(|other| other.variable == first.variable)
            && passes(first.variable)
        {
            let all = std::iter::once(first).chain(rest);
            let value = all.map(|visible| visible.id.as_str()).collect::<Vec<_>>().join(",");
            let names = (0..ids.len()).map(|n| format!("{}{n}", first.backend)).collect();
            return Some(Address { names, visible: Some((first.variable, value)) });
        }
    }
    let listed = |id: &DeviceId| match gpu(id) {
        _ if is_name(id) => Some(id.to_string()),
        Some(gpu) => gpu.listed_as.first().cloned(),
        None => None,
    };
    let names = ids.iter().map(listed).collect::<Option<Vec<_>>>()?;
    Some(Address { names, visible: None })
}

/// How a device is made visible by itself; `None` when the engine's backend is not the vendor's.
fn visible_of(id: &DeviceId, gpu: Option<&Gpu>) -> Option<Visible> {
    match gpu {
        Some(gpu) => {
            let visible = gpu.visible.as_ref()?;
            let has_backend = |name: &String| name.starts_with(visible.backend);
            let is_usable = gpu.listed_as.is_empty() || gpu.listed_as.iter().any(has_backend);
            is_usable.then(|| visible.clone())
        }
        // An instance that nobody could read is shown by its own id alike.
        None if id.is_instance() => {
            Some(Visible { variable: "CUDA_VISIBLE_DEVICES", backend: "CUDA", id: id.to_string() })
        }
        None => None,
    }
}

/// What engines call devices: `CUDA0`, `Vulkan1`.
fn is_name(id: &DeviceId) -> bool {
    let number = id.0.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    number.len() < id.0.len() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::{DeviceKind, DeviceSource, ToldBy};

    fn gpu(id: &str, listed_as: &[&str]) -> Gpu {
        Gpu {
            id: DeviceId(id.into()),
            name: "a card".into(),
            pci: None,
            told_by: ToldBy::Driver(DeviceSource::Nvml, DeviceKind::Card),
            total: None,
            visible: Some(Visible { variable: "CUDA_VISIBLE_DEVICES", backend: "CUDA", id: id.into() }),
            listed_as: listed_as.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn ids(ids: &[&str]) -> Vec<DeviceId> {
        ids.iter().map(|id| DeviceId((*id).into())).collect()
    }

    fn addressed(wanted: &[&str], gpus: &[Gpu]) -> (Vec<String>, Option<String>) {
        let address = address(&ids(wanted), gpus, |_| true).expect("an address");
        (address.names, address.visible.map(|(name, value)| format!("{name}={value}")))
    }

    fn shown(names: &[&str], variable: &str) -> (Vec<String>, Option<String>) {
        (names.iter().map(|name| (*name).to_owned()).collect(), Some(variable.to_owned()))
    }

    #[test]
    fn devices_are_shown_in_the_order_of_the_split_whatever_driver_and_engine_count() {
        let expected = shown(&["CUDA0", "CUDA1"], "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a");
        let listed = [gpu("GPU-a", &["CUDA0"]), gpu("GPU-b", &["CUDA1"])];
        let permuted = [gpu("GPU-b", &["CUDA0"]), gpu("GPU-a", &["CUDA1"])];
        let unasked = [gpu("GPU-a", &[]), gpu("GPU-b", &[])];
        for gpus in [&listed[..], &permuted, &unasked] {
            assert_eq!(addressed(&["GPU-b", "GPU-a"], gpus), expected);
        }
        assert_eq!(addressed(&["GPU-b"], &listed), shown(&["CUDA0"], "CUDA_VISIBLE_DEVICES=GPU-b"), "one of two");
    }

    #[test]
    fn a_build_for_another_backend_is_told_its_own_names() {
        let gpus = [gpu("GPU-a", &["Vulkan1"]), gpu("GPU-b", &["Vulkan0"])];
        assert_eq!(addressed(&["GPU-a", "GPU-b"], &gpus), (vec!["Vulkan1".into(), "Vulkan0".into()], None));
        let both = [gpu("GPU-a", &["Vulkan1", "CUDA0"])];
        assert_eq!(addressed(&["GPU-a"], &both), shown(&["CUDA0"], "CUDA_VISIBLE_DEVICES=GPU-a"));
    }

    #[test]
    fn an_operators_names_stay_as_they_are_and_take_no_variable() {
        let gpus = [gpu("GPU-a", &["CUDA0"]), gpu("GPU-b", &["CUDA1"])];
        assert_eq!(addressed(&["CUDA1"], &gpus), (vec!["CUDA1".into()], None));
        assert_eq!(addressed(&["CUDA7", "GPU-a"], &gpus), (vec!["CUDA7".into(), "CUDA0".into()], None));
    }

    #[test]
    fn what_has_no_name_for_the_engine_is_left_to_it() {
        let gpus = [gpu("GPU-a", &[])];
        for id in ["GPU-1a2b3c4d", "0000:01:00.0", "CUDA", "1", ""] {
            assert_eq!(address(&ids(&[id]), &[], |_| true), None, "{id}");
        }
        assert_eq!(address(&ids(&["GPU-a"]), &gpus, |_| false), None, "the manifest lets no such variable through");
        assert_eq!(addressed(&["MIG-1"], &gpus), shown(&["CUDA0"], "CUDA_VISIBLE_DEVICES=MIG-1"));
    }

    #[test]
    fn cards_of_two_vendors_are_not_shown_by_one_variable() {
        let visible = Some(Visible { variable: "ROCR_VISIBLE_DEVICES", backend: "ROCm", id: "GPU-x".into() });
        let gpus = [gpu("GPU-a", &["Vulkan0"]), Gpu { visible, ..gpu("0000:03:00.0", &["Vulkan1"]) }];
        let expected = (vec!["Vulkan0".to_owned(), "Vulkan1".to_owned()], None);
        assert_eq!(addressed(&["GPU-a", "0000:03:00.0"], &gpus), expected);
    }
}
