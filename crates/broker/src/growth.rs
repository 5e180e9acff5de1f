//! [`grow`]: more context than was planned, where it costs nobody anything (capacity.md §6, "Growth").
//!
//! The specification names "the catalog's target" and not what that is. Here it is a key of its own, `context_target`:
//! the context that a model is planned with is asked for from the start, so nothing is left to grow towards; and the
//! default of at most 65,536 tokens would mean nothing if an empty machine were always filled to the model's own.
//!
//! | context in the catalog | grows to |
//! | --- | --- |
//! | none, or one with a floor (`context_min`) | `context_target`, when that is given |
//! | exact (no floor), or `"max"` | never: what is explicit is taken as it is |
//!
//! Slots are given up for context, down to two, unless their number is configured; what gains less than a quarter is left.
//! There is room when the launch fits beside everything that is reserved now, with every layer and its cache in fast
//! memory: growth evicts nobody, and takes no system memory of a host with cards for it. A budget that is not enforced
//! proves no room. A pool that cannot start a grown launch at once plans it without growth (`pool`'s `room.rs`).
use crate::{ALL_LAYERS, ContextWish, HostShape, LaunchPlan, Ledger, Load, Parts, Wishes, pick_placement};

/// A launch never has fewer slots for growth.
const SLOTS_LEAST: u32 = 2;
/// What is gained must be at least so many thousandths of what was planned.
const GAIN_PER_MILLE: u64 = 1250;
/// Contexts below the target are multiples of so many tokens.
const STEP: u32 = 1024;

impl Wishes {
    /// The context to grow towards, in tokens.
    fn target(&self) -> Option<u32> {
        let is_exact = match self.context {
            ContextWish::Unasked => false,
            ContextWish::Tokens(_) => self.context_min.is_none(),
            ContextWish::Own => true,
        };
        let target = match self.context_target {
            ContextWish::Unasked => None,
            ContextWish::Own => self.context_own,
            // Engines refuse more than a model was made for.
            ContextWish::Tokens(tokens) => Some(tokens.min(self.context_own.unwrap_or(tokens))),
        };
        target.filter(|_| !is_exact)
    }
}

/// The longest context up to the target that has room, and as many slots as have room with it; `None` when too little
/// would be gained. `has_room` says whether a plan fits as things are.
pub(crate) fn grow(
    planned: &LaunchPlan,
    wishes: &Wishes,
    has_room: &dyn Fn(&LaunchPlan) -> bool,
) -> Option<LaunchPlan> {
    let (target, before) = (wishes.target()?, planned.context_per_slot);
    let fewest = if wishes.slots.is_some() { planned.slots } else { SLOTS_LEAST };
    let fits = |slots, context_per_slot| has_room(&LaunchPlan { context_per_slot, slots, ..*planned });
    if planned.slots < SLOTS_LEAST || !gains(before, target) || !fits(fewest, before) {
        return None;
    }
    let context = if fits(fewest, target) {
        target
    } else {
        let (mut low, mut high) = (before / STEP, target / STEP);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(fewest, middle * STEP) { low = middle } else { high = middle - 1 }
        }
        low * STEP
    };
    let slots = (fewest..=planned.slots).rev().find(|slots| fits(*slots, context))?;
    gains(before, context).then_some(LaunchPlan { context_per_slot: context, slots, ..*planned })
}

fn gains(before: u32, after: u32) -> bool {
    u64::from(after) * 1000 >= u64::from(before) * GAIN_PER_MILLE
}

/// Whether `load` fits beside everything that is reserved now, all its layers in fast memory.
pub(crate) fn has_fast_room(ledger: &Ledger, load: &Load) -> bool {
    let bounds = ledger.bounds();
    let Parts::Known { footprint, .. } = &load.parts else { return false };
    let n_units = u32::try_from(footprint.layers.len() + 1).unwrap_or(ALL_LAYERS);
    bounds.budget.bound().is_some()
        && pick_placement(ledger, load).is_ok_and(|placement| {
            let split = placement.split;
            bounds.shape != HostShape::DiscreteGpu || !split.devices.is_empty() && split.gpu_layers >= n_units
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KvType;

    const PLANNED: LaunchPlan = LaunchPlan { context_per_slot: 65_536, slots: 4, kv: KvType::Q8 };

    fn towards(tokens: u32) -> Wishes {
        let context_target = ContextWish::Tokens(tokens);
        Wishes { context_target, context_own: Some(1 << 20), ..Wishes::default() }
    }

    /// With room for so many tokens of all slots together.
    fn grown(planned: LaunchPlan, wishes: &Wishes, tokens: u64) -> Option<(u32, u32)> {
        let fits = |plan: &LaunchPlan| u64::from(plan.context_per_slot) * u64::from(plan.slots) <= tokens;
        grow(&planned, wishes, &fits).map(|plan| (plan.context_per_slot, plan.slots))
    }

    #[test]
    fn with_room_for_all_of_it_the_target_is_reached_and_no_slot_given_up() {
        assert_eq!(grown(PLANNED, &towards(131_072), 4 * 131_072), Some((131_072, 4)));
        let all = Wishes { context_target: ContextWish::Own, ..towards(0) };
        assert_eq!(grown(PLANNED, &all, 4 << 20), Some((1 << 20, 4)));
        assert_eq!(
            grown(PLANNED, &Wishes { context_own: Some(100_000), ..towards(131_072) }, 4 << 20),
            Some((100_000, 4))
        );
        assert_eq!(grown(PLANNED, &Wishes { context_own: None, ..all }, 4 << 20), None, "nobody knows how much");
    }

    #[test]
    fn a_gain_of_less_than_a_quarter_is_left() {
        let a_quarter = 65_536 / 4 * 5;
        assert_eq!(grown(PLANNED, &towards(a_quarter), 4 << 20), Some((a_quarter, 4)));
        assert_eq!(grown(PLANNED, &towards(a_quarter - 1), 4 << 20), None);
        assert_eq!(grown(PLANNED, &towards(65_536 * 124 / 100), 4 << 20), None);
        assert_eq!(grown(PLANNED, &towards(1 << 20), 2 * u64::from(a_quarter)), Some((a_quarter, 2)));
        assert_eq!(grown(PLANNED, &towards(1 << 20), 2 * u64::from(a_quarter) - 1), None, "room, and not for so much");
        assert_eq!(grown(PLANNED, &towards(32_768), 4 << 20), None, "a target below the plan");
    }

    #[test]
    fn slots_are_given_up_for_context_but_two_stay() {
        assert_eq!(grown(PLANNED, &towards(131_072), 3 * 131_072), Some((131_072, 3)));
        assert_eq!(grown(PLANNED, &towards(131_072), 2 * 131_072), Some((131_072, 2)));
        assert_eq!(grown(PLANNED, &towards(131_072), 2 * 100_000), Some((99_328, 2)), "in steps of 1,024");
        for slots in [1, 2] {
            let few = LaunchPlan { slots, ..PLANNED };
            assert_eq!(grown(few, &towards(131_072), 131_072), None, "one slot would do");
        }
        assert_eq!(grown(LaunchPlan { slots: 1, ..PLANNED }, &towards(131_072), 4 << 20), None);
    }

    #[test]
    fn what_is_explicit_never_changes() {
        let slots = Wishes { slots: Some(4), ..towards(131_072) };
        assert_eq!(grown(PLANNED, &slots, 3 * 131_072), Some((98_304, 4)));
        assert_eq!(grown(PLANNED, &slots, 4 * 80_000), None, "less than a quarter with four slots");
        let exact = Wishes { context: ContextWish::Tokens(65_536), ..towards(131_072) };
        assert_eq!(grown(PLANNED, &exact, 4 << 20), None);
        assert_eq!(
            grown(PLANNED, &Wishes { context_min: Some(8_192), ..exact }, 4 << 20),
            Some((131_072, 4)),
            "a wish"
        );
        assert_eq!(grown(PLANNED, &Wishes { context: ContextWish::Own, ..towards(131_072) }, 4 << 20), None);
        assert_eq!(grown(PLANNED, &Wishes { context_target: ContextWish::Unasked, ..towards(0) }, 4 << 20), None);
    }
}
