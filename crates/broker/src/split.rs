//! [`Load`]: what is to be placed; [`Split`]: which layers go where; and the [`Claim`] that follows.
//!
//! Layers are counted as the engine counts them (`-ngl`): the output counts as one after the last repeating layer, and
//! devices get the last ones first. What the engine keeps in system memory whatever is offloaded stays there.
use crate::Learned;
use motorpool_gguf::{Footprint, LayerBytes, Weights};
use motorpool_vocab::{Bytes, Claim, DeviceId, FileId};
use std::collections::BTreeMap;

/// All layers of something whose parts are not known.
pub const ALL_LAYERS: u32 = u32::MAX;

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// What it takes.
    pub parts: Parts,
    /// What the operator decided about its place.
    pub choice: Choice,
    /// What earlier launches with its plan taught.
    pub learned: Learned,
}

/// What a launch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// By part.
    Known {
        /// The parts.
        footprint: Footprint,
        /// The model's files in order of their shards, with their sizes.
        files: Vec<(FileId, Bytes)>,
        /// Which weights stay mapped.
        mapping: Mapping,
    },
    /// Only as a whole: declared, or estimated without a header. The claim it would make in system memory.
    Lump(Claim),
}

/// Which weights stay mapped from their files, shared with other children that map them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// None: no mapping, plain locking, or direct reads.
    Nothing,
    /// Those in system memory; a device has its own copy.
    SystemMemory,
    /// All of them: the device of a unified host uses the mapped pages.
    Everything,
}

/// What the operator decided; obeyed or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Exactly these devices, in this order; none of them is the processor only.
    pub devices: Option<Vec<DeviceId>>,
    /// So many layers on devices, counted as the engine does; 0 is the processor only.
    pub gpu_layers: Option<u32>,
    /// The experts of so many layers, from the first, in system memory.
    pub cpu_moe: Option<u32>,
}

/// Which layers go where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The devices in the order in which the engine is to take them, and how many of its layers each gets: contiguous,
    /// the output on the last. Empty where there is one pool, and on the processor.
    pub devices: Vec<(DeviceId, u32)>,
    /// Layers that are offloaded (`-ngl`); 0 is the processor only, [`ALL_LAYERS`] however many there are.
    pub gpu_layers: u32,
    /// Layers, from the first, whose experts stay in system memory (`-ncmoe`).
    pub cpu_moe: u32,
}

/// A footprint and how much of it is planned for devices if they were large enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) footprint: &'a Footprint,
    pub(crate) files: &'a [(FileId, Bytes)],
    pub(crate) mapping: Mapping,
    pub(crate) gpu_layers: u32,
    pub(crate) cpu_moe: u32,
}

/// Bytes on their way to a pool of system memory.
#[derive(Default)]
struct HostBytes {
    private: Bytes,
    mapped: Bytes,
}

impl Load {
    /// Something known only as a whole, to be placed wherever it fits.
    pub fn lump(claim: Claim) -> Self {
        Self { parts: Parts::Lump(claim), choice: Choice::default(), learned: Learned::default() }
    }

    /// Whether the operator wants it on the processor only.
    pub(crate) fn is_processor_only(&self) -> bool {
        self.choice.gpu_layers == Some(0) || self.choice.devices.as_ref().is_some_and(Vec::is_empty)
    }
}

impl Parts {
    /// The parts with what `choice` says about them, when there are any.
    pub(crate) fn planned(&self, choice: &Choice) -> Option<Planned<'_>> {
        let Self::Known { footprint, files, mapping } = self else { return None };
        let n = count(footprint.layers.len());
        Some(Planned {
            footprint,
            files,
            mapping: *mapping,
            gpu_layers: choice.gpu_layers.unwrap_or(n + 1).min(n + 1),
            cpu_moe: choice.cpu_moe.unwrap_or(0).min(n),
        })
    }

    /// What a launch by `split` takes of system memory beside the buffers that its engine reports: what grows later
    /// (prompt cache, checkpoints), what it takes beside buffers, and what it makes without a word. `None`: the parts
    /// are not known.
    pub fn beside_buffers(&self, split: &Split) -> Option<Bytes> {
        let Self::Known { footprint: f, .. } = self else { return None };
        let of_draft = f.draft.as_ref().map_or(Bytes::ZERO, |draft| draft.checkpoints);
        let always = Bytes::sum([f.prompt_cache, f.checkpoints, f.baseline, f.guesses, of_draft]);
        let (on_cards, offloads) = (!split.devices.is_empty(), split.gpu_layers > 0);
        let projector = if on_cards { Bytes::ZERO } else { f.projector };
        // Where devices share system memory, so do their drivers.
        let driver = if offloads && !on_cards { f.device_overhead } else { Bytes::ZERO };
        Some(Bytes::sum([always, projector, driver]))
    }
}

impl Split {
    /// The processor only.
    pub fn processor() -> Self {
        Self::default()
    }
}

impl Planned<'_> {
    /// The layers that can be offloaded: the repeating ones and the output.
    pub(crate) fn n_units(&self) -> u32 {
        count(self.footprint.layers.len()) + 1
    }

    pub(crate) fn has_experts(&self) -> bool {
        self.footprint.layers.iter().any(|layer| !layer.experts.file.is_zero())
    }

    /// Device bytes of the last `gpu_layers` layers, in order, with the experts of the first `cpu_moe` elsewhere.
    pub(crate) fn units(&self, gpu_layers: u32, cpu_moe: u32) -> Vec<Bytes> {
        let begin = self.n_units().saturating_sub(gpu_layers);
        let layer = |(n, layer): (u32, &LayerBytes)| {
            let own = Bytes::sum([layer.dense.file, layer.cache, layer.adapters]);
            (n >= begin).then(|| if n < cpu_moe { own } else { own.saturating_add(layer.experts.file) })
        };
        let f = self.footprint;
        let output = (gpu_layers > 0).then_some(Bytes::sum([f.output.file, f.output_copy, f.adapters]));
        (0..).zip(&self.footprint.layers).filter_map(layer).chain(output).collect()
    }

    /// What the n-th device takes beside its layers.
    pub(crate) fn fixed(&self, nth: usize) -> Bytes {
        let f = self.footprint;
        let every = f.compute_device.saturating_add(f.device_overhead);
        let of_draft = self.draft().map_or(Bytes::ZERO, |draft| draft.accelerated());
        if nth == 0 { Bytes::sum([every, f.projector, of_draft]) } else { every }
    }

    /// The draft model, as if all of it were planned for a device.
    pub(crate) fn draft(&self) -> Option<Planned<'_>> {
        let footprint = self.footprint.draft.as_deref()?;
        let gpu_layers = count(footprint.layers.len()) + 1;
        Some(Planned { footprint, files: &[], mapping: self.mapping, gpu_layers, cpu_moe: 0 })
    }

    /// What would be on one device if it were large enough: `accel(x)` of capacity.md §4.
    pub(crate) fn accelerated(&self) -> Bytes {
        if self.gpu_layers == 0 {
            return Bytes::ZERO;
        }
        Bytes::sum(self.units(self.gpu_layers, self.cpu_moe).into_iter().chain([self.fixed(0)]))
    }

    /// The claim of `split` over devices with memory of their own, or on the processor.
    pub(crate) fn claim(&self, split: &Split) -> Claim {
        let host = self.host_bytes(split);
        let accelerated = if split.devices.is_empty() { Bytes::ZERO } else { self.accelerated() };
        Claim { device: self.device_bytes(split), accelerated, ..self.in_memory(&host) }
    }

    /// The claim of `split` where devices share system memory.
    pub(crate) fn claim_in_one_pool(&self, split: &Split) -> Claim {
        let mut host = self.host_bytes(split);
        if split.gpu_layers > 0 {
            let units = self.units(split.gpu_layers, split.cpu_moe);
            let all = Bytes::sum(units.into_iter().chain([self.fixed(0)]));
            let mapped = if self.mapping == Mapping::Everything { self.offloaded_weights(split) } else { Bytes::ZERO };
            host.mapped = host.mapped.saturating_add(mapped);
            host.private = host.private.saturating_add(all.saturating_sub(mapped));
        }
        let claim = self.in_memory(&host);
        let accelerated = if split.gpu_layers > 0 { claim.total() } else { Bytes::ZERO };
        Claim { accelerated, ..claim }
    }

    fn device_bytes(&self, split: &Split) -> BTreeMap<DeviceId, Bytes> {
        let units = self.units(split.gpu_layers, split.cpu_moe);
        let mut rest = units.as_slice();
        let mut device: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
        for (nth, (id, n)) in split.devices.iter().enumerate() {
            let (own, others) = rest.split_at(rest.len().min(usize::try_from(*n).unwrap_or(usize::MAX)));
            rest = others;
            let bytes = Bytes::sum(own.iter().copied().chain([self.fixed(nth)]));
            let sum = device.entry(id.clone()).or_default();
            *sum = sum.saturating_add(bytes);
        }
        device
    }

    fn host_bytes(&self, split: &Split) -> HostBytes {
        let f = self.footprint;
        let mut host = HostBytes::default();
        host.add_weights(Weights { file: f.input, repacked: Bytes::ZERO }, self.mapping);
        let begin = self.n_units().saturating_sub(split.gpu_layers);
        for (n, layer) in (0..).zip(&f.layers) {
            host.add_weights(layer.kept, self.mapping);
            if n < begin {
                host.add_weights(layer.dense, self.mapping);
                host.add_private(layer.cache.saturating_add(layer.adapters));
            }
            if n < begin.max(split.cpu_moe) {
                host.add_weights(layer.experts, self.mapping);
            }
        }
        let compute = if split.gpu_layers == 0 {
            host.add_weights(f.output, self.mapping);
            Bytes::sum([f.compute_host, f.projector, f.adapters])
        } else {
            f.compute_beside_device
        };
        host.add_private(Bytes::sum([compute, f.results, f.guesses, f.prompt_cache, f.checkpoints, f.baseline]));
        if let Some(draft) = self.draft() {
            let of_draft =
                Split { gpu_layers: if split.gpu_layers > 0 { draft.gpu_layers } else { 0 }, ..Split::default() };
            let HostBytes { private, mapped } = draft.host_bytes(&of_draft);
            host.add_private(private);
            host.mapped = host.mapped.saturating_add(mapped);
        }
        host
    }

    fn offloaded_weights(&self, split: &Split) -> Bytes {
        let begin = self.n_units().saturating_sub(split.gpu_layers);
        let weights = |(n, layer): (u32, &LayerBytes)| {
            let experts = if n < split.cpu_moe { Bytes::ZERO } else { layer.experts.file };
            if n < begin { Bytes::ZERO } else { layer.dense.file.saturating_add(experts) }
        };
        let layers = (0..).zip(&self.footprint.layers).map(weights);
        Bytes::sum(layers.chain([self.footprint.output.file]))
    }

    /// Mapped bytes go to the files in order; what they do not hold is private.
    fn in_memory(&self, host: &HostBytes) -> Claim {
        let mut rest = host.mapped;
        let mut of = |(id, size): &(FileId, Bytes)| {
            let part = rest.min(*size);
            rest = rest.saturating_sub(part);
            (!part.is_zero()).then_some((*id, part))
        };
        let ram_files = self.files.iter().filter_map(&mut of).collect();
        Claim { ram_private: host.private.saturating_add(rest), ram_files, ..Claim::default() }
    }
}

impl HostBytes {
    fn add_private(&mut self, bytes: Bytes) {
        self.private = self.private.saturating_add(bytes);
    }

    /// Mapped weights keep their place in the file beside a second copy; others are moved into it.
    fn add_weights(&mut self, weights: Weights, mapping: Mapping) {
        if mapping == Mapping::Nothing {
            self.add_private(weights.file.max(weights.repacked));
        } else {
            self.mapped = self.mapped.saturating_add(weights.file);
            self.add_private(weights.repacked);
        }
    }
}

/// A count as the engine's flags take it.
pub(crate) fn count(n: usize) -> u32 {
    // One less than the largest, so that the output can be counted too.
    u32::try_from(n).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four layers of 100 MiB and 10 MiB of cache, an output of 50 MiB, and a different number for every other part.
    fn footprint(experts: u64) -> Footprint {
        let weights = |mib| Weights { file: Bytes::mib(mib), repacked: Bytes::ZERO };
        let cache = Bytes::mib(10);
        let layer =
            LayerBytes { dense: weights(100 - experts), experts: weights(experts), cache, ..LayerBytes::default() };
        Footprint {
            layers: vec![layer; 4],
            output: weights(50),
            input: Bytes::mib(40),
            compute_host: Bytes::mib(30),
            compute_device: Bytes::mib(20),
            compute_beside_device: Bytes::mib(5),
            results: Bytes::mib(1),
            prompt_cache: Bytes::mib(64),
            checkpoints: Bytes::mib(8),
            baseline: Bytes::mib(46),
            device_overhead: Bytes::mib(300),
            ..Footprint::default()
        }
    }

    fn shard(n: u64, mib: u64) -> (FileId, Bytes) {
        (FileId { device: 1, inode: n, size: mib, mtime_nanos: 0 }, Bytes::mib(mib))
    }

    fn planned<'a>(footprint: &'a Footprint, files: &'a [(FileId, Bytes)], mapping: Mapping) -> Planned<'a> {
        Planned { footprint, files, mapping, gpu_layers: 5, cpu_moe: 0 }
    }

    fn split(devices: &[(&str, u32)], cpu_moe: u32) -> Split {
        let devices: Vec<_> = devices.iter().map(|(id, n)| (DeviceId((*id).into()), *n)).collect();
        Split { gpu_layers: devices.iter().map(|(_, n)| n).sum(), devices, cpu_moe }
    }

    /// Private memory whatever is offloaded: results, prompt cache, checkpoints, baseline.
    const ALWAYS: u64 = 1 + 64 + 8 + 46;

    #[test]
    fn on_the_processor_weights_are_mapped_once_and_everything_else_is_private() {
        let (f, files) = (footprint(0), [shard(1, 300), shard(2, 300)]);
        let claim = planned(&f, &files, Mapping::SystemMemory).claim(&Split::processor());
        assert_eq!(claim.ram_files, [shard(1, 300), (shard(2, 300).0, Bytes::mib(190))].into(), "490 MiB in order");
        assert_eq!(claim.ram_private, Bytes::mib(ALWAYS + 30 + 4 * 10));
        assert!(claim.device.is_empty() && claim.accelerated.is_zero());
    }

    #[test]
    fn weights_that_no_file_holds_or_that_are_not_mapped_are_private() {
        let f = footprint(0);
        let short = [shard(1, 100)];
        let claim = planned(&f, &short, Mapping::SystemMemory).claim(&Split::processor());
        assert_eq!(claim.ram_private, Bytes::mib(ALWAYS + 30 + 40 + 390));
        let claim = planned(&f, &short, Mapping::Nothing).claim(&Split::processor());
        assert_eq!((claim.ram_files.len(), claim.ram_private), (0, Bytes::mib(ALWAYS + 30 + 40 + 490)));
    }

    #[test]
    fn a_second_copy_costs_more_beside_a_mapping_and_nothing_instead_of_one() {
        let mut f = footprint(0);
        f.layers[0].dense.repacked = Bytes::mib(100);
        f.layers[3].dense.repacked = Bytes::mib(100);
        let private = |mapping, split: &Split| planned(&f, &[], mapping).claim(split).private_total();
        let processor = Split::processor();
        let (mapped, moved) = (private(Mapping::SystemMemory, &processor), private(Mapping::Nothing, &processor));
        assert_eq!(mapped.saturating_sub(moved), Bytes::mib(200));
        let on_card = split(&[("A", 4)], 0);
        let less = private(Mapping::SystemMemory, &on_card).saturating_sub(private(Mapping::Nothing, &on_card));
        assert_eq!(less, Bytes::mib(100), "only of layers in system memory");
    }

    #[test]
    fn offloaded_layers_move_with_their_cache_and_the_input_stays() {
        let (f, files) = (footprint(0), [shard(1, 500)]);
        let all = planned(&f, &files, Mapping::SystemMemory).claim(&split(&[("A", 5)], 0));
        assert_eq!(all.device, [(DeviceId("A".into()), Bytes::mib(4 * 110 + 50 + 320))].into());
        assert_eq!(all.accelerated, Bytes::mib(4 * 110 + 50 + 320));
        assert_eq!(all.ram_files, [(shard(1, 500).0, Bytes::mib(40))].into());
        assert_eq!(all.ram_private, Bytes::mib(ALWAYS + 5));
        let two = planned(&f, &files, Mapping::SystemMemory).claim(&split(&[("A", 2)], 0));
        assert_eq!(two.device, [(DeviceId("A".into()), Bytes::mib(110 + 50 + 320))].into(), "one layer and the output");
        assert_eq!(two.ram_private, Bytes::mib(ALWAYS + 5 + 3 * 10));
        assert_eq!(two.accelerated, all.accelerated, "what was planned for a card");
    }

    #[test]
    fn beside_reported_buffers_there_is_what_grows_and_what_nobody_reports() {
        let f = Footprint { projector: Bytes::mib(7), draft: Some(Box::new(small())), ..footprint(0) };
        let parts = Parts::Known { footprint: f, files: vec![], mapping: Mapping::SystemMemory };
        // Checkpoints of the draft model too.
        let always = 64 + 8 + 46 + 2;
        assert_eq!(parts.beside_buffers(&Split::processor()), Some(Bytes::mib(always + 7)));
        assert_eq!(parts.beside_buffers(&split(&[("A", 5)], 0)), Some(Bytes::mib(always)), "the card has it");
        let shared = Split { gpu_layers: 5, ..Split::default() };
        assert_eq!(parts.beside_buffers(&shared), Some(Bytes::mib(always + 7 + 300)));
        assert_eq!(Parts::Lump(Claim::private(Bytes::gib(1))).beside_buffers(&shared), None);
    }

    #[test]
    fn each_device_takes_its_own_overhead_and_the_first_the_projector() {
        let f = Footprint { projector: Bytes::mib(7), draft: Some(Box::new(small())), ..footprint(0) };
        let claim = planned(&f, &[], Mapping::SystemMemory).claim(&split(&[("B", 2), ("A", 3)], 0));
        let expected = [("B", 2 * 110 + 320 + 7 + 67), ("A", 2 * 110 + 50 + 320)];
        assert_eq!(claim.device, expected.map(|(id, mib)| (DeviceId(id.into()), Bytes::mib(mib))).into());
        let processor = planned(&f, &[], Mapping::SystemMemory).claim(&Split::processor());
        assert!(processor.device.is_empty());
        let draft = 3 + 60 + 4 + 1 + 2;
        assert_eq!(
            processor.ram_private,
            Bytes::mib(490 + 40 + 30 + 7 + draft + ALWAYS),
            "without a device both stay here"
        );
    }

    /// A draft model of one layer with 60 MiB and 1 MiB of cache.
    fn small() -> Footprint {
        let weights = |mib| Weights { file: Bytes::mib(mib), repacked: Bytes::ZERO };
        let layer = LayerBytes { dense: weights(60), cache: Bytes::mib(1), ..LayerBytes::default() };
        Footprint {
            layers: vec![layer],
            input: Bytes::mib(3),
            compute_host: Bytes::mib(4),
            compute_device: Bytes::mib(6),
            checkpoints: Bytes::mib(2),
            ..Footprint::default()
        }
    }

    #[test]
    fn a_draft_model_follows_its_model_to_the_first_device_and_its_input_stays() {
        let f = Footprint { draft: Some(Box::new(small())), guesses: Bytes::mib(5), ..footprint(0) };
        let (files, plain) = ([shard(1, 500), shard(2, 70)], footprint(0));
        let with = |f, split: &Split| planned(f, &files, Mapping::SystemMemory).claim(split);
        let (card, without) = (with(&f, &split(&[("A", 5)], 0)), with(&plain, &split(&[("A", 5)], 0)));
        let more = |f: fn(&Claim) -> Bytes| f(&card).saturating_sub(f(&without));
        assert_eq!(more(|claim| claim.device[&DeviceId("A".into())]), Bytes::mib(60 + 1 + 6));
        assert_eq!(more(|claim| claim.ram_private), Bytes::mib(5 + 2));
        assert_eq!(more(|claim| Bytes::sum(claim.ram_files.iter().map(|(_, bytes)| *bytes))), Bytes::mib(3));
        let (processor, without) = (with(&f, &Split::processor()), with(&plain, &Split::processor()));
        assert_eq!(processor.total().saturating_sub(without.total()), Bytes::mib(3 + 60 + 1 + 4 + 2 + 5));
        assert_eq!(
            processor.ram_private.saturating_sub(without.ram_private),
            Bytes::mib(1 + 4 + 2 + 5),
            "it is mapped"
        );
    }

    #[test]
    fn tensors_that_stay_and_adapters_that_move_are_counted_where_they_are() {
        let mut f = footprint(0);
        for layer in &mut f.layers {
            layer.kept = Weights { file: Bytes::mib(20), repacked: Bytes::mib(1) };
            layer.adapters = Bytes::mib(4);
        }
        f.adapters = Bytes::mib(2);
        let claim = |split: &Split| planned(&f, &[], Mapping::SystemMemory).claim(split);
        let two = claim(&split(&[("A", 2)], 0));
        assert_eq!(two.device[&DeviceId("A".into())], Bytes::mib(110 + 4 + 50 + 2 + 320), "one layer and the output");
        let here = 40 + 3 * (100 + 10 + 4) + 4 * 21 + 5;
        assert_eq!(two.ram_private, Bytes::mib(here + ALWAYS));
        let all = 40 + 4 * (100 + 10 + 4) + 4 * 21 + 50 + 2 + 30;
        assert_eq!(claim(&Split::processor()).ram_private, Bytes::mib(all + ALWAYS));
        assert_eq!(f.on_processor(), Bytes::mib(all + ALWAYS));
    }

    #[test]
    fn experts_can_stay_while_the_rest_of_the_layer_goes() {
        let (f, files) = (footprint(80), [shard(1, 500)]);
        let claim = planned(&f, &files, Mapping::SystemMemory).claim(&split(&[("A", 5)], 3));
        assert_eq!(claim.device[&DeviceId("A".into())], Bytes::mib(3 * 30 + 110 + 50 + 320));
        assert_eq!(claim.ram_files, [(shard(1, 500).0, Bytes::mib(40 + 3 * 80))].into());
    }

    #[test]
    fn in_one_pool_nothing_is_lost_and_all_of_it_is_accelerated() {
        let (f, files) = (footprint(0), [shard(1, 500)]);
        let whole = Split { gpu_layers: 5, ..Split::default() };
        let claim = planned(&f, &files, Mapping::SystemMemory).claim_in_one_pool(&whole);
        assert_eq!(claim.total(), Bytes::mib(40 + 4 * 110 + 50 + 320 + ALWAYS + 5));
        assert_eq!((claim.accelerated, claim.device.len()), (claim.total(), 0));
        let shared = planned(&f, &files, Mapping::Everything).claim_in_one_pool(&whole);
        assert_eq!((shared.total(), shared.ram_files.len()), (claim.total(), 1));
        assert_eq!(shared.ram_private, Bytes::mib(40 + 320 + ALWAYS + 5), "cache and buffers; the file is shared");
        let processor = planned(&f, &files, Mapping::SystemMemory).claim_in_one_pool(&Split::processor());
        assert_eq!(processor.accelerated, Bytes::ZERO);
    }
}
