//! [`plan_launch`]: which context, how many slots, which KV type (capacity.md §6).
//!
//! ```text
//! context   configured ─► preferred by the profile ─► the model's own, at most 65,536
//! slots     configured ─► by the fast memory, lowered to what is left beside the others
//! to fit    a slot less, … one slot ─► context down to its floor, in steps of 1,024 ─► refused with the numbers
//! to spare  context up to the catalog's target, for slots beyond two: `growth.rs`
//! ```
//!
//! Boundary: what a combination takes is asked through [`Sized`], whether it could ever fit through `fits`; both are
//! pure. A value that somebody configured is never changed here: it is admitted or refused as it stands. Only a context
//! that came with a floor of its own (`context_min`) is a wish, and may be clamped down to that floor.
use motorpool_vocab::Bytes;
use std::fmt;

/// Context of a model whose header names none, and the floor of an unasked context.
const CONTEXT_UNKNOWN: u32 = 8_192;
/// The most an unasked context is, and what agents prefer.
const CONTEXT_MOST: u32 = 65_536;
/// What agents get at least on small hosts.
const CONTEXT_AGENT_SMALL: u32 = 32_768;
/// Context is clamped to multiples of so many tokens.
const STEP: u32 = 1024;

/// What an operator or a header says about how to launch a model. `None` is left to the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Tokens per slot.
    pub context: ContextWish,
    /// The least tokens per slot that are of use, as configured.
    pub context_min: Option<u32>,
    /// What the context may grow to where there is room (`growth.rs`); unasked: it does not.
    pub context_target: ContextWish,
    /// Requests at a time, as configured.
    pub slots: Option<u32>,
    /// KV cache type, as configured.
    pub kv: Option<KvType>,
    /// What it is used for.
    pub profile: Profile,
    /// The model's own context length, from its header.
    pub context_own: Option<u32>,
    /// The model's architecture, from its header.
    pub architecture: Option<String>,
}

/// How much context is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextWish {
    /// Nobody said.
    #[default]
    Unasked,
    /// So many tokens per slot.
    Tokens(u32),
    /// All that the model was trained for, or nothing.
    Own,
}

/// What a model is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Anything.
    #[default]
    General,
    /// Long sessions with tools: a large context is worth more than slots.
    Agent,
}

/// How the KV cache is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 16-bit floats.
    F16,
    /// 8-bit blocks; needs flash attention.
    Q8,
    /// 4-bit blocks; needs flash attention.
    Q4,
}

/// Everything that a launch needs to be told explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Tokens per slot.
    pub context_per_slot: u32,
    /// Requests at a time.
    pub slots: u32,
    /// KV cache type.
    pub kv: KvType,
}

/// A plan and what it had to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The plan. When nothing fits, the smallest that would have been of use.
    pub plan: LaunchPlan,
    /// The context that was wanted, when less was planned.
    pub clamped_from: Option<u32>,
}

/// The memory that slots are sized by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizing {
    /// Fast memory: of all graphics devices, or the budget where there is one memory.
    pub fast: Bytes,
    /// The smaller of budget and `sizing` (capacity.md §2); `None`: nothing is enforced.
    pub bound: Option<Bytes>,
    /// What everybody else has reserved.
    pub others: Bytes,
    /// Whether the host is small: at most 16 GiB of memory, or at most 8 GiB of usable graphics memory.
    pub scale: Scale,
}

/// How large a host is, for the context of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// At most 16 GiB of system memory, or graphics devices with at most 8 GiB of usable memory.
    Small,
    /// Everything else.
    #[default]
    Ample,
}

/// What one plan takes, as far as planning must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sized {
    /// Weights, whatever the plan.
    pub weights: Bytes,
    /// KV cache and recurrent state of all slots.
    pub cache: Bytes,
}

impl KvType {
    /// The name that llama-server and configuration use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8 => "q8_0",
            Self::Q4 => "q4_0",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::F16, Self::Q8, Self::Q4].into_iter().find(|kv| kv.as_str() == name)
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The launch plan of capacity.md §6.
///
/// `size` says what a plan takes, `fits` whether it could be admitted with everything gone that can go. A plan that
/// gives up the least of slots and context and fits is returned; when none does, the smallest, for its refusal.
pub fn plan_launch(
    wishes: &Wishes,
    sizing: &Sizing,
    size: &dyn Fn(&LaunchPlan) -> Sized,
    fits: &dyn Fn(&LaunchPlan) -> bool,
) -> Fitted {
    let context = pick_context(wishes, sizing.scale);
    let kv = wishes.kv.unwrap_or_else(|| pick_kv(wishes.architecture.as_deref()));
    let one = LaunchPlan { context_per_slot: context.wanted, slots: 1, kv };
    let slots = wishes.slots.unwrap_or_else(|| pick_slots(sizing, size(&one))).max(1);
    let least = wishes.slots.map_or(1, |slots| slots.max(1));
    let of_slots = |slots| LaunchPlan { slots, ..one };
    if let Some(plan) = (least..=slots).rev().map(of_slots).find(fits) {
        return Fitted { plan, clamped_from: None };
    }
    let plan = clamp(of_slots(least), context.floor, fits);
    Fitted { plan, clamped_from: (plan.context_per_slot < context.wanted).then_some(context.wanted) }
}

/// A context that is wanted, and the least that is of use.
struct Context {
    wanted: u32,
    floor: u32,
}

fn pick_context(wishes: &Wishes, scale: Scale) -> Context {
    let own = wishes.context_own.unwrap_or(CONTEXT_UNKNOWN).max(1);
    let strict = |tokens: u32| Context { wanted: tokens, floor: wishes.context_min.unwrap_or(tokens).min(tokens) };
    match (wishes.context, wishes.profile) {
        (ContextWish::Own, _) => Context { wanted: own, floor: own },
        (ContextWish::Tokens(tokens), _) => strict(tokens.max(1)),
        (ContextWish::Unasked, profile) => {
            let wanted = own.min(CONTEXT_MOST);
            let floor = match (profile, scale) {
                (Profile::General, _) => CONTEXT_UNKNOWN,
                (Profile::Agent, Scale::Ample) => CONTEXT_MOST,
                (Profile::Agent, Scale::Small) => CONTEXT_AGENT_SMALL,
            };
            Context { wanted, floor: wishes.context_min.unwrap_or(floor).min(wanted) }
        }
    }
}

/// The least tokens per slot that are of use.
pub(crate) fn floor_of(wishes: &Wishes, scale: Scale) -> u32 {
    pick_context(wishes, scale).floor
}

/// By the fast memory, then as many caches as 80 % of what is left hold.
fn pick_slots(sizing: &Sizing, one: Sized) -> u32 {
    const STEPS: [(Bytes, u32); 3] = [(Bytes::gib(12), 1), (Bytes::gib(24), 2), (Bytes::gib(48), 3)];
    let most = STEPS.iter().find(|(below, _)| sizing.fast < *below).map_or(4, |(_, slots)| *slots);
    let (Some(bound), false) = (sizing.bound, one.cache.is_zero()) else { return most };
    let left = bound.saturating_sub(sizing.others).saturating_sub(one.weights).per_mille(800);
    most.min(u32::try_from(left.get() / one.cache.get()).unwrap_or(u32::MAX)).max(1)
}

/// The largest context in steps that fits, not below the floor; the floor when none does.
fn clamp(plan: LaunchPlan, floor: u32, fits: &dyn Fn(&LaunchPlan) -> bool) -> LaunchPlan {
    let at = |context_per_slot| LaunchPlan { context_per_slot, ..plan };
    let (mut low, mut high) = (floor.div_ceil(STEP), plan.context_per_slot / STEP);
    if low > high || !fits(&at(low * STEP)) {
        return at(floor);
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(&at(middle * STEP)) { low = middle } else { high = middle - 1 }
    }
    at(low * STEP)
}

/// Gemma's families lose quality with a quantised cache.
fn pick_kv(architecture: Option<&str>) -> KvType {
    if architecture.is_some_and(|a| a.starts_with("gemma")) { KvType::F16 } else { KvType::Q8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Weights of 4 GiB and a cache of 1 MiB for 1,024 tokens.
    fn size(plan: &LaunchPlan) -> Sized {
        let tokens = u64::from(plan.context_per_slot) * u64::from(plan.slots);
        Sized { weights: Bytes::gib(4), cache: Bytes::new(tokens * 1024) }
    }

    fn within(bytes: Bytes) -> impl Fn(&LaunchPlan) -> bool {
        move |plan| size(plan).weights.saturating_add(size(plan).cache) <= bytes
    }

    fn ample(gib: u64) -> Sizing {
        Sizing { fast: Bytes::gib(gib), bound: Some(Bytes::gib(gib)), ..Sizing::default() }
    }

    fn plan(wishes: &Wishes, sizing: &Sizing, bound: Bytes) -> Fitted {
        plan_launch(wishes, sizing, &size, &within(bound))
    }

    fn asked(tokens: u32) -> Wishes {
        Wishes { context: ContextWish::Tokens(tokens), context_own: Some(131_072), ..Wishes::default() }
    }

    #[test]
    fn what_is_configured_is_taken_as_it_is_whether_it_fits_or_not() {
        let wishes = Wishes { slots: Some(3), kv: Some(KvType::Q4), ..asked(4096) };
        for bound in [Bytes::gib(8), Bytes::ZERO] {
            let planned = plan(&wishes, &ample(4), bound);
            assert_eq!(planned.plan, LaunchPlan { context_per_slot: 4096, slots: 3, kv: KvType::Q4 });
            assert_eq!(planned.clamped_from, None);
        }
    }

    #[test]
    fn slots_follow_the_fast_memory() {
        for (gib, slots) in [(0, 1), (11, 1), (12, 2), (23, 2), (24, 3), (47, 3), (48, 4), (512, 4)] {
            assert_eq!(plan(&asked(1024), &ample(gib), Bytes::MAX).plan.slots, slots, "{gib} GiB");
        }
    }

    #[test]
    fn slots_are_lowered_to_what_is_left_beside_others_and_weights() {
        // 8 GiB a slot: (48 - 20 - 4) × 0.8 holds two.
        let wishes = Wishes { context_own: Some(8 << 20), ..asked(8 << 20) };
        let sizing = Sizing { others: Bytes::gib(20), ..ample(48) };
        assert_eq!(plan(&wishes, &sizing, Bytes::MAX).plan.slots, 2);
        let full = Sizing { others: Bytes::gib(48), ..sizing };
        assert_eq!(plan(&wishes, &full, Bytes::MAX).plan.slots, 1, "never less than one");
        let free = Sizing { bound: None, ..full };
        assert_eq!(plan(&wishes, &free, Bytes::MAX).plan.slots, 4, "nothing is enforced");
    }

    #[test]
    fn an_unasked_context_is_the_models_own_within_bounds() {
        let context =
            |own| plan(&Wishes { context_own: own, ..Wishes::default() }, &ample(4), Bytes::MAX).plan.context_per_slot;
        assert_eq!(context(Some(32_768)), 32_768);
        assert_eq!(context(Some(1_000_000)), 65_536);
        assert_eq!(context(Some(0)), 1);
        assert_eq!(context(None), 8_192);
    }

    #[test]
    fn all_of_its_own_is_strict() {
        let wishes = Wishes { context: ContextWish::Own, context_own: Some(131_072), ..Wishes::default() };
        let planned = plan(&wishes, &ample(4), Bytes::ZERO);
        assert_eq!((planned.plan.context_per_slot, planned.clamped_from), (131_072, None));
    }

    #[test]
    fn to_fit_slots_are_shed_first_then_context_down_to_its_floor() {
        let wishes = Wishes { context_own: Some(65_536), ..Wishes::default() };
        let mib = |mib| Bytes::gib(4).saturating_add(Bytes::mib(mib));
        let of = |bound| plan(&wishes, &ample(48), bound);
        assert_eq!(of(mib(256)).plan.slots, 4);
        assert_eq!(of(mib(255)).plan.slots, 3);
        let one = of(mib(64));
        assert_eq!((one.plan.slots, one.plan.context_per_slot, one.clamped_from), (1, 65_536, None));
        let less = of(mib(33));
        assert_eq!((less.plan.slots, less.plan.context_per_slot, less.clamped_from), (1, 33 * 1024, Some(65_536)));
        assert_eq!(of(mib(8)).plan.context_per_slot, 8_192);
        assert_eq!(of(mib(7)).plan.context_per_slot, 8_192, "the least that would have been of use, for its refusal");
    }

    #[test]
    fn a_context_with_a_floor_is_a_wish() {
        let wishes = Wishes { context_min: Some(10_000), slots: Some(1), ..asked(20_000) };
        let bound = |kib: u64| Bytes::gib(4).saturating_add(Bytes::new(kib << 10));
        assert_eq!(plan(&wishes, &ample(4), bound(20_000)).plan.context_per_slot, 20_000);
        assert_eq!(plan(&wishes, &ample(4), bound(19_999)).plan.context_per_slot, 19_456);
        assert_eq!(plan(&wishes, &ample(4), bound(10_100)).plan.context_per_slot, 10_000, "no step fits, the floor");
    }

    #[test]
    fn agents_hold_out_for_a_large_context() {
        let wishes = Wishes { profile: Profile::Agent, context_own: Some(131_072), ..Wishes::default() };
        let floor = |scale, own| {
            let wishes = Wishes { context_own: Some(own), ..wishes.clone() };
            plan(&wishes, &Sizing { scale, ..ample(4) }, Bytes::ZERO).plan.context_per_slot
        };
        assert_eq!(floor(Scale::Ample, 131_072), 65_536);
        assert_eq!(floor(Scale::Small, 131_072), 32_768);
        assert_eq!(floor(Scale::Ample, 4_096), 4_096, "it has no more");
    }

    #[test]
    fn gemma_keeps_sixteen_bits() {
        let kv = |arch: &str| {
            let wishes = Wishes { architecture: Some(arch.into()), ..Wishes::default() };
            plan(&wishes, &ample(4), Bytes::MAX).plan.kv
        };
        assert_eq!(kv("gemma3"), KvType::F16);
        assert_eq!(kv("llama"), KvType::Q8);
        assert_eq!(KvType::from_name("q8_0"), Some(KvType::Q8));
        assert_eq!(KvType::from_name("q9"), None);
    }

    proptest! {
        /// Whatever is wished, something is planned; it fits whenever the smallest of its kind does, and one step more
        /// would not.
        #[test]
        fn a_plan_gives_up_no_more_than_it_must(own in 1u32..200_000, kib in 0u64..400_000, slots in prop::option::of(1u32..5)) {
            let wishes = Wishes { context_own: Some(own), slots, ..Wishes::default() };
            let bound = Bytes::gib(4).saturating_add(Bytes::new(kib << 10));
            let Fitted { plan: got, clamped_from } = plan(&wishes, &ample(48), bound);
            let floor = own.min(8_192);
            let least = LaunchPlan { context_per_slot: floor, slots: slots.unwrap_or(1), ..got };
            prop_assert!(got.slots >= 1 && got.context_per_slot >= floor);
            prop_assert_eq!(within(bound)(&got), within(bound)(&least));
            if let Some(wanted) = clamped_from {
                let more = LaunchPlan { context_per_slot: (got.context_per_slot / STEP + 1) * STEP, ..got };
                prop_assert!(more.context_per_slot > wanted || !within(bound)(&more));
            }
        }
    }
}
