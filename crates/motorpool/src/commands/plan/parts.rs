//! [`by_part`]: a footprint and where its layers go, as parts by place, for people.
//!
//! It goes through the same layers as the broker's claim does, and a test holds both to one sum.
use super::sheet::{Amounts, Part};
use motorpool_broker::{Mapping, Split};
use motorpool_gguf::{Footprint, Weights};
use motorpool_vocab::{Bytes, DeviceId};
use std::collections::BTreeMap;

/// What memory is for, in the order in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Weights,
    Repacked,
    Cache,
    Compute,
    Results,
    PromptCache,
    Checkpoints,
    Projector,
    Adapters,
    Draft,
    Driver,
    Process,
}

/// Where something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site<'a> {
    /// Computed on by the processor.
    Processor,
    /// Computed on by a device without memory of its own.
    Shared,
    /// In the memory of a device.
    Device(&'a DeviceId),
}

struct Bill<'a> {
    split: &'a Split,
    mapping: Mapping,
    uses: BTreeMap<Use, Amounts>,
}

/// What a launch takes, by part and place. Parts that take nothing are left out.
pub(super) fn by_part(footprint: &Footprint, split: &Split, mapping: Mapping) -> Vec<Part> {
    let mut bill = Bill { split, mapping, uses: BTreeMap::new() };
    bill.layers(footprint);
    bill.buffers(footprint);
    bill.draft(footprint);
    let parts = bill.uses.into_iter().map(|(of, amounts)| Part { part: of.as_str().to_owned(), amounts });
    parts.filter(|part| !part.amounts.is_zero()).collect()
}

impl Use {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Repacked => "repacked weights",
            Self::Cache => "cache",
            Self::Compute => "compute",
            Self::Results => "results",
            Self::PromptCache => "prompt cache",
            Self::Checkpoints => "checkpoints",
            Self::Projector => "projector",
            Self::Adapters => "adapters",
            Self::Draft => "draft model",
            Self::Driver => "driver",
            Self::Process => "process",
        }
    }
}

impl<'a> Bill<'a> {
    /// Layers as the engine counts them, the output last: devices get the last ones.
    fn sites(&self, n_layers: usize) -> Vec<Site<'a>> {
        let n_units = n_layers + 1;
        let n_offloaded = usize::try_from(self.split.gpu_layers).unwrap_or(usize::MAX).min(n_units);
        let mut sites = vec![Site::Processor; n_units - n_offloaded];
        for (id, n) in &self.split.devices {
            let n = usize::try_from(*n).unwrap_or(usize::MAX).min(n_units - sites.len());
            sites.extend(std::iter::repeat_n(Site::Device(id), n));
        }
        sites.resize(n_units, Site::Shared);
        sites
    }

    fn layers(&mut self, footprint: &Footprint) {
        let sites = self.sites(footprint.layers.len());
        let cpu_moe = usize::try_from(self.split.cpu_moe).unwrap_or(usize::MAX);
        for (n, (layer, site)) in footprint.layers.iter().zip(&sites).enumerate() {
            self.weights(layer.dense, *site);
            self.weights(layer.experts, if n < cpu_moe { Site::Processor } else { *site });
            self.weights(layer.kept, Site::Processor);
            self.add(Use::Cache, *site, layer.cache);
            self.add(Use::Adapters, *site, layer.adapters);
        }
        let last = sites.last().copied().unwrap_or(Site::Processor);
        self.weights(footprint.output, last);
        self.add(Use::Adapters, last, footprint.adapters);
        self.weights(Weights { file: footprint.input, repacked: Bytes::ZERO }, Site::Processor);
        if last != Site::Processor {
            self.add(Use::Weights, last, footprint.output_copy);
        }
    }

    fn weights(&mut self, weights: Weights, site: Site<'_>) {
        match (site, self.mapping) {
            (Site::Processor, Mapping::Nothing) => self.add(Use::Weights, site, weights.file.max(weights.repacked)),
            (Site::Processor, _) => {
                self.add(Use::Weights, site, weights.file);
                self.add(Use::Repacked, site, weights.repacked);
            }
            _ => self.add(Use::Weights, site, weights.file),
        }
    }

    fn buffers(&mut self, footprint: &Footprint) {
        let split = self.split;
        let devices: Vec<Site<'_>> = match split.devices.as_slice() {
            [] if split.gpu_layers > 0 => vec![Site::Shared],
            devices => devices.iter().map(|(id, _)| Site::Device(id)).collect(),
        };
        let main = if devices.is_empty() { footprint.compute_host } else { footprint.compute_beside_device };
        self.add(Use::Compute, Site::Processor, main);
        for site in &devices {
            self.add(Use::Compute, *site, footprint.compute_device);
            self.add(Use::Driver, *site, footprint.device_overhead);
        }
        let first = devices.first().copied().unwrap_or(Site::Processor);
        self.add(Use::Projector, first, footprint.projector);
        for (of, bytes) in [
            (Use::Results, footprint.results),
            (Use::PromptCache, footprint.prompt_cache),
            (Use::Checkpoints, footprint.checkpoints),
            (Use::Process, footprint.baseline),
        ] {
            self.add(of, Site::Processor, bytes);
        }
    }

    /// It follows its model: to the first device, to one that shares system memory, or to the processor.
    fn draft(&mut self, footprint: &Footprint) {
        let Some(draft) = &footprint.draft else { return };
        let n_units = u32::try_from(draft.layers.len()).unwrap_or(u32::MAX).saturating_add(1);
        let devices: Vec<_> = self.split.devices.first().map(|(id, _)| (id.clone(), n_units)).into_iter().collect();
        let split = Split { devices, gpu_layers: if self.split.gpu_layers > 0 { n_units } else { 0 }, cpu_moe: 0 };
        for part in by_part(draft, &split, self.mapping) {
            let Amounts { system_memory, devices } = part.amounts;
            let sum = self.uses.entry(Use::Draft).or_default();
            sum.system_memory = sum.system_memory.saturating_add(system_memory);
            for (id, bytes) in devices {
                let on_device = sum.devices.entry(id).or_default();
                *on_device = on_device.saturating_add(bytes);
            }
        }
        self.add(Use::Draft, Site::Processor, footprint.guesses);
    }

    fn add(&mut self, of: Use, site: Site<'_>, bytes: Bytes) {
        let amounts = self.uses.entry(of).or_default();
        let sum = match site {
            Site::Processor | Site::Shared => &mut amounts.system_memory,
            Site::Device(id) => amounts.devices.entry(id.to_string()).or_default(),
        };
        *sum = sum.saturating_add(bytes.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_gguf::LayerBytes;

    /// Four layers, and a different number for every part.
    fn footprint() -> Footprint {
        let weights = |file, repacked| Weights { file: Bytes::new(file), repacked: Bytes::new(repacked) };
        let (dense, experts) = (weights(1000, 7), weights(5000, 3));
        let layer = LayerBytes { dense, experts, cache: Bytes::new(100), ..LayerBytes::default() };
        let of_draft = LayerBytes { dense: weights(40, 0), ..LayerBytes::default() };
        Footprint {
            layers: vec![layer; 4],
            output: weights(300, 11),
            input: Bytes::new(400),
            compute_host: Bytes::new(31),
            compute_device: Bytes::new(32),
            compute_beside_device: Bytes::new(33),
            results: Bytes::new(41),
            prompt_cache: Bytes::new(42),
            checkpoints: Bytes::new(43),
            baseline: Bytes::new(44),
            device_overhead: Bytes::new(45),
            projector: Bytes::new(46),
            draft: Some(Box::new(Footprint { layers: vec![of_draft], input: Bytes::new(7), ..Footprint::default() })),
            ..Footprint::default()
        }
    }

    fn split(devices: &[(&str, u32)], cpu_moe: u32) -> Split {
        let devices: Vec<_> = devices.iter().map(|(id, n)| (DeviceId((*id).into()), *n)).collect();
        Split { gpu_layers: devices.iter().map(|(_, n)| n).sum(), devices, cpu_moe }
    }

    /// `name: system memory | each device`.
    fn lines(parts: &[Part]) -> Vec<String> {
        let line = |part: &Part| {
            let devices: Vec<_> = part.amounts.devices.iter().map(|(id, bytes)| format!(" {id} {bytes}")).collect();
            format!("{} {}{}", part.part, part.amounts.system_memory, devices.concat())
        };
        parts.iter().map(line).collect()
    }

    #[test]
    fn on_the_processor_everything_is_in_system_memory() {
        let parts = by_part(&footprint(), &Split::processor(), Mapping::SystemMemory);
        let expected = [
            "weights 24700",
            "repacked weights 51",
            "cache 400",
            "compute 31",
            "results 41",
            "prompt cache 42",
            "checkpoints 43",
            "projector 46",
            "draft model 47",
            "process 44",
        ];
        assert_eq!(lines(&parts), expected);
        let parts = by_part(&footprint(), &Split::processor(), Mapping::Nothing);
        assert_eq!(lines(&parts)[..2], ["weights 24700", "cache 400"], "a second copy instead of the first");
    }

    #[test]
    fn layers_go_to_devices_from_the_last_with_their_cache_and_the_output() {
        let parts = by_part(&footprint(), &split(&[("A", 2), ("B", 2)], 0), Mapping::SystemMemory);
        let expected = [
            "weights 6400 A 12000 B 6300",
            "repacked weights 10",
            "cache 100 A 200 B 100",
            "compute 33 A 32 B 32",
            "results 41",
            "prompt cache 42",
            "checkpoints 43",
            "projector 0 A 46",
            "draft model 7 A 40",
            "driver 0 A 45 B 45",
            "process 44",
        ];
        assert_eq!(lines(&parts), expected);
    }

    #[test]
    fn experts_stay_where_they_are_told_to() {
        let parts = by_part(&footprint(), &split(&[("A", 5)], 3), Mapping::SystemMemory);
        assert_eq!(lines(&parts)[..3], ["weights 15400 A 9300", "repacked weights 9", "cache 0 A 400"]);
    }

    #[test]
    fn a_device_that_shares_system_memory_has_no_column() {
        let parts = by_part(&footprint(), &Split { gpu_layers: 5, ..Split::default() }, Mapping::Everything);
        assert!(parts.iter().all(|part| part.amounts.devices.is_empty()));
        assert_eq!(lines(&parts)[..4], ["weights 24700", "cache 400", "compute 65", "results 41"]);
    }

    #[test]
    fn counts_that_do_not_go_with_the_model_do_no_harm() {
        let odd = Split { devices: vec![(DeviceId("A".into()), 99)], gpu_layers: 99, cpu_moe: 99 };
        assert_eq!(lines(&by_part(&footprint(), &odd, Mapping::SystemMemory))[0], "weights 20400 A 4300");
        let none = Footprint::default();
        assert_eq!(by_part(&none, &odd, Mapping::SystemMemory), []);
    }
}
