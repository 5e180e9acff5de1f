//! [`draft`]: from what is known of a model to its launch plan and what that is to place.
//!
//! | known | taken for it |
//! | --- | --- |
//! | `declared` by its operator | as it stands, as a whole |
//! | the header of its files | the estimate by part, of the plan that gives up least and could ever fit |
//! | the files' sizes only | the formula of capacity.md §6 and the prompt cache, as a whole |
use crate::{
    ALL_LAYERS, Beside, Choice, ContextWish, Fitted, HostShape, KvType, LaunchPlan, Learned, Ledger, Lesson, Load,
    Mapping, Parts, Placement, Policy, Query, Room, Scale, Sized, Sizing, Wishes,
    growth::{grow, has_fast_room},
    pick_room, plan_launch,
};
use motorpool_gguf::{
    Calibration, FlashAttention, Footprint, Format, KvLayout, LaunchSettings, ModelShape, Purpose, SlidingWindow,
    TensorType, estimate_folder, estimate_unreadable,
};
use motorpool_vocab::{Bytes, Claim, FileId, Spawn};
use std::sync::Arc;

/// Hosts with at most so much memory are small.
const SMALL_RAM: Bytes = Bytes::gib(16);
/// Hosts whose graphics devices have at most so much usable memory are small.
const SMALL_GRAPHICS: Bytes = Bytes::gib(8);

/// What is known of a model before it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// How it is wanted.
    pub wishes: Wishes,
    /// What its operator says that it takes.
    pub declared: Option<Bytes>,
    /// What its operator says about its place.
    pub choice: Choice,
    /// Every shard of it, then of its draft model, with its size.
    pub files: Vec<(FileId, Bytes)>,
    /// What its header says.
    pub shape: Option<Arc<ModelShape>>,
    /// How its weights lie on disk.
    pub format: Format,
    /// What is loaded beside it.
    pub beside: Beside,
    /// What was measured of its engine.
    pub calibration: Calibration,
    /// What is set whatever the plan.
    pub settings: FixedSettings,
    /// What earlier launches of it taught.
    pub lessons: Arc<[Lesson]>,
}

/// What a launch is told beside its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSettings {
    /// Tokens that are handed over, and computed, together.
    pub batch: BatchRule,
    /// What is asked of it.
    pub purpose: Purpose,
    /// What layers that see a window keep.
    pub sliding_window: SlidingWindow,
    /// Most checkpoints of a slot.
    pub checkpoints: u32,
    /// Most that finished prompts may take.
    pub prompt_cache: Bytes,
}

/// How many tokens go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRule {
    /// So many, whatever the context.
    Fixed {
        /// Handed over together.
        logical: u32,
        /// Computed together.
        physical: u32,
    },
    /// A whole input must be seen at once: the context of a slot, at most so many.
    WholeInput {
        /// At most.
        most: u32,
    },
}

/// A launch that is planned and not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// What its engine is told.
    pub plan: LaunchPlan,
    /// The context that was wanted, when less was planned.
    pub clamped_from: Option<u32>,
    /// The context that would have been enough, when there was room for more.
    pub grown_from: Option<u32>,
    /// What is to be placed.
    pub load: Load,
    /// Where that comes from, before what was learned; see [`Draft::source_of`].
    pub source: Source,
}

/// Where the size of a launch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Its operator said it.
    Declared,
    /// The header of its files, by part.
    Estimated,
    /// The sizes of its files.
    FileSize,
    /// Earlier launches with the same settings.
    Learned,
    /// What its child really takes.
    Measured,
}

impl Subject {
    /// The same as if it had no context to grow to.
    #[must_use]
    pub fn ungrown(self) -> Self {
        let wishes = Wishes { context_target: ContextWish::Unasked, ..self.wishes };
        Self { wishes, ..self }
    }
}

impl Source {
    /// The name in tables and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Estimated => "estimated",
            Self::FileSize => "file-size",
            Self::Learned => "learned",
            Self::Measured => "measured",
        }
    }
}

impl Draft {
    /// Where the size of what it claims there comes from; `None`: nowhere, and it was refused.
    pub fn source_of(&self, placement: Option<&Placement>) -> Source {
        let is_learned = placement.map_or(self.load.learned.is_something(), |placed| placed.estimate.is_some());
        if is_learned { Source::Learned } else { self.source }
    }
}

impl FixedSettings {
    fn with(&self, plan: &LaunchPlan) -> LaunchSettings {
        let kv = match plan.kv {
            KvType::F16 => TensorType::F16,
            KvType::Q8 => TensorType::Q8_0,
            KvType::Q4 => TensorType::Q4_0,
        };
        let [batch, physical_batch] = match self.batch {
            BatchRule::Fixed { logical, physical } => [logical, physical],
            BatchRule::WholeInput { most } => [plan.context_per_slot.clamp(1, most.max(1)); 2],
        };
        LaunchSettings {
            context_per_slot: plan.context_per_slot,
            slots: plan.slots,
            kv_keys: kv,
            kv_values: kv,
            kv_layout: KvLayout::PerSlot,
            flash_attention: FlashAttention::On,
            sliding_window: self.sliding_window,
            batch,
            physical_batch,
            purpose: self.purpose,
            checkpoints: self.checkpoints,
            prompt_cache: self.prompt_cache,
        }
    }
}

/// Plans a launch beside what `ledger` holds, of which `fixed` never goes.
pub fn draft(ledger: &Ledger, fixed: &[Spawn], subject: &Subject) -> Draft {
    match (subject.declared, &subject.shape) {
        (None, Some(shape)) => estimated((ledger, fixed), subject, shape),
        (declared, shape) => whole(ledger, subject, (declared, shape.as_deref())),
    }
}

/// Context and slots are given up before layers leave the devices; only what cannot be there at its floor may spill.
fn estimated((ledger, fixed): (&Ledger, &[Spawn]), subject: &Subject, shape: &ModelShape) -> Draft {
    let load = |plan: &LaunchPlan, choice: &Choice| load_of(ledger, (subject, shape), (plan, choice));
    let size = |plan: &LaunchPlan| {
        let footprint = footprint_of(subject, shape, plan);
        let of_draft = footprint.draft.as_deref().map(|draft| (draft.weights(), draft.cache())).unwrap_or_default();
        Sized {
            weights: Bytes::sum([footprint.weights(), footprint.projector, of_draft.0]),
            cache: footprint.cache().saturating_add(of_draft.1),
        }
    };
    let could = |plan: &LaunchPlan, choice: &Choice| could_fit(ledger, fixed, &load(plan, choice));
    let (wishes, sizing) = (wishes_of(subject), sizing_of(ledger));
    let planned = |choice: &Choice| plan_launch(&wishes, &sizing, &size, &|plan| could(plan, choice));
    let unspilled = Choice { gpu_layers: subject.choice.gpu_layers.or(Some(ALL_LAYERS)), ..subject.choice.clone() };
    let first = planned(&unspilled);
    let may_spill = subject.choice.gpu_layers.is_none() && !ledger.bounds().cards.is_empty();
    let Fitted { plan, clamped_from } =
        if may_spill && !could(&first.plan, &unspilled) { planned(&subject.choice) } else { first };
    let has_room = |plan: &LaunchPlan| has_fast_room(ledger, &load(plan, &unspilled));
    let grown = if clamped_from.is_none() { grow(&plan, &wishes, &has_room) } else { None };
    let grown_from = grown.map(|_| plan.context_per_slot);
    let plan = grown.unwrap_or(plan);
    Draft { load: load(&plan, &subject.choice), plan, clamped_from, grown_from, source: Source::Estimated }
}

/// Slots that nobody asked for are as many as the header says fit what is declared, else one.
fn whole(ledger: &Ledger, subject: &Subject, (declared, shape): (Option<Bytes>, Option<&ModelShape>)) -> Draft {
    let holds = |plan: &LaunchPlan| match (declared, shape) {
        (Some(declared), Some(shape)) => footprint_of(subject, shape, plan).on_processor() <= declared,
        _ => false,
    };
    // Neither a wish nor one slot is given up for a size that does not follow from the plan.
    let fits = |plan: &LaunchPlan| subject.wishes.slots.is_some() || plan.slots == 1 || holds(plan);
    let size = |_: &LaunchPlan| Sized::default();
    let Fitted { plan, .. } = plan_launch(&wishes_of(subject), &sizing_of(ledger), &size, &fits);
    let source = if declared.is_some() { Source::Declared } else { Source::FileSize };
    let learned = Learned::of(&subject.lessons, plan, source);
    let load = Load { parts: lump(subject), choice: subject.choice.clone(), learned };
    Draft { load, plan, clamped_from: None, grown_from: None, source }
}

/// An engine refuses a cache in blocks that do not divide its heads.
fn wishes_of(subject: &Subject) -> Wishes {
    let plain = subject.shape.as_ref().is_some_and(|shape| !shape.takes_quantised_cache());
    let kv = subject.wishes.kv.or(plain.then_some(KvType::F16));
    Wishes { kv, ..subject.wishes.clone() }
}

/// What an estimated launch of `plan` is to place.
pub(crate) fn load_of(
    ledger: &Ledger,
    (subject, shape): (&Subject, &ModelShape),
    (plan, choice): (&LaunchPlan, &Choice),
) -> Load {
    let learned = Learned::of(&subject.lessons, *plan, Source::Estimated);
    Load { parts: parts(ledger, subject, shape, plan), choice: choice.clone(), learned }
}

fn footprint_of(subject: &Subject, shape: &ModelShape, plan: &LaunchPlan) -> Footprint {
    subject.beside.estimate(shape, &subject.settings.with(plan), &subject.calibration)
}

fn parts(ledger: &Ledger, subject: &Subject, shape: &ModelShape, plan: &LaunchPlan) -> Parts {
    let mapping = match ledger.bounds().shape {
        HostShape::Unified => Mapping::Everything,
        HostShape::DiscreteGpu | HostShape::SystemRam => Mapping::SystemMemory,
    };
    let footprint = footprint_of(subject, shape, plan);
    Parts::Known { footprint, files: subject.files.clone(), mapping }
}

/// The operator's word is shared with nobody. Of the formula, the files' own bytes are shared with other children that
/// map them, and the rest is private.
fn lump(subject: &Subject) -> Parts {
    if let Some(declared) = subject.declared {
        return Parts::Lump(Claim::private(declared));
    }
    let size = Bytes::sum(subject.files.iter().map(|(_, bytes)| *bytes));
    let whole = match subject.format {
        Format::Files => estimate_unreadable(size, subject.beside.projector),
        Format::Folder => estimate_folder(size),
    };
    let beside = whole.saturating_sub(size);
    Parts::Lump(Claim {
        ram_private: Bytes::sum([beside, subject.beside.adapters(), subject.settings.prompt_cache]),
        ram_files: subject.files.iter().copied().collect(),
        ..Claim::default()
    })
}

/// Whether there would be room with everything gone that can go.
pub(crate) fn could_fit(ledger: &Ledger, fixed: &[Spawn], load: &Load) -> bool {
    let policy = Policy::default();
    let query = Query { load, elders: &[], leaving: &[], draining: &[], fixed, policy };
    !matches!(pick_room(ledger, &query, &[]), Room::Never(_))
}

pub(crate) fn sizing_of(ledger: &Ledger) -> Sizing {
    let bounds = ledger.bounds();
    let small = bounds.ram <= SMALL_RAM || (bounds.shape == HostShape::DiscreteGpu && bounds.fast <= SMALL_GRAPHICS);
    Sizing {
        fast: bounds.fast,
        bound: bounds.budget.bound().map(|budget| budget.min(bounds.sizing)),
        // What lies in system memory takes no room of a card.
        others: if bounds.shape == HostShape::DiscreteGpu { ledger.accelerated() } else { ledger.committed() },
        scale: if small { Scale::Small } else { Scale::Ample },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Card, Host, Verdict, pick_placement,
        testing::{ledger, shape, shape_of, subject},
    };
    use motorpool_gguf::write;

    fn total(draft: &Draft) -> Bytes {
        match &draft.load.parts {
            Parts::Known { footprint, .. } => footprint.weights().saturating_add(footprint.cache()),
            Parts::Lump(claim) => claim.total(),
        }
    }

    #[test]
    fn what_is_declared_is_taken_as_a_whole_and_does_not_change_the_plan() {
        let subject = Subject { declared: Some(Bytes::gib(9)), ..subject() };
        let drafted = draft(&ledger(Bytes::gib(8)), &[], &subject);
        assert_eq!((drafted.source, drafted.clamped_from), (Source::Declared, None));
        assert_eq!(drafted.plan.context_per_slot, 65_536);
        assert_eq!(drafted.load.parts, Parts::Lump(Claim::private(Bytes::gib(9))));
    }

    #[test]
    fn without_a_header_the_files_are_shared_and_the_rest_is_private() {
        let subject = Subject { shape: None, ..subject() };
        let drafted = draft(&ledger(Bytes::gib(8)), &[], &subject);
        let Parts::Lump(claim) = drafted.load.parts else { panic!("no parts are known") };
        assert_eq!(drafted.source, Source::FileSize);
        let whole = estimate_unreadable(Bytes::mib(500), None).saturating_add(Bytes::mib(64));
        assert_eq!((claim.total(), claim.private_total()), (whole, whole.saturating_sub(Bytes::mib(500))));
    }

    #[test]
    fn a_folder_of_weights_goes_by_its_size_in_the_formula_for_folders() {
        let subject = Subject { shape: None, format: Format::Folder, ..subject() };
        let drafted = draft(&ledger(Bytes::gib(8)), &[], &subject);
        let Parts::Lump(claim) = drafted.load.parts else { panic!("no parts are known") };
        assert_eq!(claim.total(), Bytes::mib(510).saturating_add(Bytes::gib(1)).saturating_add(Bytes::mib(64)));
    }

    #[test]
    fn an_estimate_follows_the_plan() {
        let long = draft(&ledger(Bytes::gib(8)), &[], &subject());
        let wishes = Wishes { context: ContextWish::Tokens(1024), ..subject().wishes };
        let short = draft(&ledger(Bytes::gib(8)), &[], &Subject { wishes, ..subject() });
        assert_eq!((long.source, long.plan.context_per_slot), (Source::Estimated, 65_536));
        assert_eq!(short.plan.context_per_slot, 1024);
        assert!(total(&short) < total(&long), "{short:?} {long:?}");
    }

    #[test]
    fn what_never_goes_bounds_the_context() {
        let mut ledger = ledger(Bytes::gib(8));
        let claimed = |ledger: &Ledger, tokens| {
            let wishes = Wishes { context: ContextWish::Tokens(tokens), slots: Some(1), ..subject().wishes };
            let drafted = draft(ledger, &[], &Subject { wishes, ..subject() });
            pick_placement(ledger, &drafted.load).expect("it fits").claim.total()
        };
        let (least, all) = (claimed(&ledger, 8_192), claimed(&ledger, 65_536));
        let between = Bytes::new(u64::midpoint(least.get(), all.get()));
        let held = Claim::private(Bytes::gib(8).saturating_sub(between));
        assert_eq!(ledger.reserve(Spawn(1), held), Verdict::Admit);
        assert_eq!(draft(&ledger, &[], &subject()).clamped_from, None, "it can be evicted");
        let beside = draft(&ledger, &[Spawn(1)], &subject());
        assert_eq!((beside.clamped_from, beside.plan.slots), (Some(65_536), 1));
        assert!((8_192..65_536).contains(&beside.plan.context_per_slot), "{:?}", beside.plan);
        assert!(claimed(&ledger, beside.plan.context_per_slot) <= between);
    }

    #[test]
    fn a_cache_in_blocks_is_planned_only_where_they_divide_the_heads() {
        let odd = shape_of(&write::Smoke::default().writer().set("llama.attention.key_length", 80_u32));
        let kv = |shape: ModelShape, kv| {
            let wishes = Wishes { kv, ..subject().wishes };
            draft(&ledger(Bytes::gib(8)), &[], &Subject { shape: Some(Arc::new(shape)), wishes, ..subject() }).plan.kv
        };
        assert_eq!(kv(shape(), None), KvType::Q8);
        assert_eq!(kv(odd.clone(), None), KvType::F16);
        assert_eq!(kv(odd, Some(KvType::Q4)), KvType::Q4, "somebody asked for it");
    }

    #[test]
    fn context_is_given_up_before_layers_leave_the_devices() {
        let host = |card| Host {
            shape: HostShape::DiscreteGpu,
            ram: Bytes::gib(64),
            cards: vec![Card::new("CUDA0", card)],
            ..Host::default()
        };
        let on_card = |tokens| {
            let ledger = Ledger::new(host(Bytes::gib(24)).bounds());
            let wishes = Wishes { context: ContextWish::Tokens(tokens), slots: Some(1), ..subject().wishes };
            let drafted = draft(&ledger, &[], &Subject { wishes, ..subject() });
            Bytes::sum(pick_placement(&ledger, &drafted.load).expect("it fits").claim.device.into_values())
        };
        let between = u64::midpoint(on_card(8_192).get(), on_card(65_536).get());
        let ledger = Ledger::new(host(Bytes::new(between * 1000 / 950)).bounds());
        let drafted = draft(&ledger, &[], &subject());
        assert_eq!((drafted.clamped_from, drafted.plan.slots), (Some(65_536), 1), "{:?}", drafted.plan);
        let placed = pick_placement(&ledger, &drafted.load).expect("it fits");
        assert_eq!((placed.split.devices.len(), placed.split.gpu_layers), (1, 3), "two layers and the output");
        let tiny = Ledger::new(host(Bytes::mib(100)).bounds());
        let spilled = draft(&tiny, &[], &subject());
        assert_eq!((spilled.clamped_from, spilled.plan.context_per_slot), (None, 65_536), "no context helps there");
    }

    /// A card of so many MiB that may be reserved, beside much memory.
    fn card(mib: u64) -> Ledger {
        let cards = vec![Card::new("CUDA0", Bytes::new(Bytes::mib(mib).get() * 1000 / 950 + 1))];
        let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(128), cards, ..Host::default() };
        Ledger::new(host.bounds())
    }

    fn towards(tokens: u32) -> Subject {
        let subject = subject();
        let wishes = Wishes { context_target: ContextWish::Tokens(tokens), slots: Some(2), ..subject.wishes };
        Subject { wishes, ..subject }
    }

    #[test]
    fn context_grows_to_the_target_where_there_is_room_beside_what_is_there() {
        let mut ledger = ledger(Bytes::gib(8));
        let grown = draft(&ledger, &[], &towards(131_072));
        assert_eq!((grown.plan.context_per_slot, grown.plan.slots, grown.grown_from), (131_072, 2, Some(65_536)));
        let ungrown = draft(&ledger, &[], &towards(131_072).ungrown());
        assert_eq!((ungrown.plan.context_per_slot, ungrown.grown_from), (65_536, None));
        assert_eq!(
            ledger.reserve(Spawn(1), Claim::private(Bytes::gib(8).saturating_sub(Bytes::mib(1)))),
            Verdict::Admit
        );
        let beside = draft(&ledger, &[], &towards(131_072));
        assert_eq!((beside.plan.context_per_slot, beside.grown_from), (65_536, None), "nobody goes for growth");
    }

    #[test]
    fn context_grows_on_cards_alone_and_only_where_room_is_proven() {
        let ample = card(4 << 10);
        assert_eq!(draft(&ample, &[], &towards(131_072)).plan.context_per_slot, 131_072);
        let on_card = |tokens| {
            let wishes = Wishes { context: ContextWish::Tokens(tokens), slots: Some(2), ..subject().wishes };
            let drafted = draft(&ample, &[], &Subject { wishes, ..subject() });
            Bytes::sum(pick_placement(&ample, &drafted.load).expect("it fits").claim.device.into_values())
        };
        let between = Bytes::new(u64::midpoint(on_card(65_536).get(), on_card(1 << 20).get()));
        let tight = card(between.get() >> 20);
        let grown = draft(&tight, &[], &towards(1 << 20));
        assert!(
            (81_920..1 << 20).contains(&grown.plan.context_per_slot),
            "as much as the card holds: {:?}",
            grown.plan
        );
        let placed = pick_placement(&tight, &grown.load).expect("it fits");
        assert_eq!(placed.split.gpu_layers, 3, "every layer and the output");
        for gpu_layers in [0, 1] {
            let choice = Choice { gpu_layers: Some(gpu_layers), ..Choice::default() };
            let stays = draft(&ample, &[], &Subject { choice, ..towards(131_072) });
            assert_eq!(stays.grown_from, None, "{gpu_layers} layers on the card");
        }
        assert_eq!(draft(&ledger(Bytes::ZERO), &[], &towards(131_072)).grown_from, None, "not enforced");
    }

    #[test]
    fn slots_of_what_is_declared_are_those_that_the_header_says_fit() {
        let large = Ledger::new(Host { ram: Bytes::gib(128), ..Host::default() }.bounds());
        let slots = |declared| draft(&large, &[], &Subject { declared: Some(declared), ..subject() }).plan.slots;
        assert_eq!((slots(Bytes::gib(8)), slots(Bytes::mib(1))), (4, 1));
        assert_eq!(draft(&large, &[], &Subject { shape: None, ..subject() }).plan.slots, 1, "nothing is known");
    }

    #[test]
    fn what_lies_in_system_memory_takes_no_slot_of_a_card() {
        let cards = vec![Card::new("CUDA0", Bytes::gib(64))];
        let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(128), cards, ..Host::default() };
        let mut ledger = Ledger::new(host.bounds());
        let slots = |ledger: &Ledger| draft(ledger, &[], &subject()).plan.slots;
        assert_eq!(slots(&ledger), 4);
        assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::gib(90))), Verdict::Admit);
        assert_eq!(slots(&ledger), 4);
    }
}
