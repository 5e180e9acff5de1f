//! [`Subject::less_than`]: a smaller launch after one ran out of memory (supervisor.md §4).
//!
//! ```text
//! slots nobody asked for, halved ─► context nobody insists on, halved down to its floor ─► layers nobody asked for, an
//! eighth fewer on the devices ─► nothing: it was as small as its operator lets it be
//! ```
//!
//! One step at a time: exactly one smaller launch follows a failed one. What an operator wrote down stays as it is.
use crate::{
    ALL_LAYERS, Choice, ContextWish, LaunchPlan, Ledger, Split, Subject, Wishes, draft::sizing_of, plan::floor_of,
};

/// Context is given up in steps of so many tokens.
const STEP: u32 = 1024;

impl Subject {
    /// The same, wanted smaller than a launch by this plan and split; `None`: nothing of it may be given up.
    #[must_use]
    pub fn less_than(&self, ledger: &Ledger, (plan, split): (&LaunchPlan, Option<&Split>)) -> Option<Self> {
        let with = |wishes: Wishes| Self { wishes, ..self.clone() };
        if self.wishes.slots.is_none() && plan.slots > 1 {
            let held = Wishes { slots: Some(plan.slots / 2), ..self.ungrown_wishes() };
            return Some(with(held));
        }
        if let Some(context) = self.shorter_than(ledger, plan) {
            let shorter = Wishes { context: ContextWish::Tokens(context), ..self.ungrown_wishes() };
            let floor = self.wishes.context_min.unwrap_or(context).min(context);
            // Slots as they were: the plan that failed had no more.
            return Some(with(Wishes { context_min: Some(floor), slots: Some(plan.slots), ..shorter }));
        }
        let layers = split.filter(|_| self.choice.gpu_layers.is_none()).map(|split| split.gpu_layers)?;
        let fewer = (layers > 0 && layers < ALL_LAYERS).then(|| layers - layers.div_ceil(8))?;
        let choice = Choice { gpu_layers: Some(fewer), ..self.choice.clone() };
        Some(Self { choice, wishes: self.ungrown_wishes(), ..self.clone() })
    }

    fn ungrown_wishes(&self) -> Wishes {
        Wishes { context_target: ContextWish::Unasked, ..self.wishes.clone() }
    }

    /// Half the context of `plan` in whole steps, not below what is of use; `None`: it is there, or somebody insists.
    fn shorter_than(&self, ledger: &Ledger, plan: &LaunchPlan) -> Option<u32> {
        let floor = floor_of(&self.wishes, sizing_of(ledger).scale);
        let half = (plan.context_per_slot / 2 / STEP * STEP).max(floor);
        (half < plan.context_per_slot).then_some(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        KvType,
        testing::{ledger, subject},
    };
    use motorpool_vocab::Bytes;

    fn plan(context_per_slot: u32, slots: u32) -> LaunchPlan {
        LaunchPlan { context_per_slot, slots, kv: KvType::F16 }
    }

    fn less(subject: &Subject, plan: LaunchPlan, split: Option<&Split>) -> Option<Subject> {
        subject.less_than(&ledger(Bytes::gib(8)), (&plan, split))
    }

    fn wanting(wishes: Wishes) -> Subject {
        Subject { wishes, ..subject() }
    }

    #[test]
    fn slots_are_given_up_first_then_context_down_to_its_floor_then_layers() {
        let subject = wanting(Wishes { context_own: Some(65_536), ..Wishes::default() });
        let fewer = less(&subject, plan(65_536, 4), None).expect("slots");
        assert_eq!(fewer.wishes.slots, Some(2));
        let fewer = less(&subject, plan(65_536, 1), None).expect("context");
        assert_eq!(fewer.wishes.context, ContextWish::Tokens(32_768));
        let fewer = less(&subject, plan(9000, 1), None).expect("context");
        assert_eq!(fewer.wishes.context, ContextWish::Tokens(8192), "the floor");
        let split = Split { gpu_layers: 24, ..Split::default() };
        assert_eq!(less(&subject, plan(8192, 1), Some(&split)).map(|fewer| fewer.choice.gpu_layers), Some(Some(21)));
        assert_eq!(less(&subject, plan(8192, 1), None), None, "as small as it may be");
    }

    #[test]
    fn what_its_operator_wrote_down_stays() {
        let wishes = Wishes { context: ContextWish::Tokens(4096), slots: Some(4), ..Wishes::default() };
        let mut explicit = wanting(wishes);
        explicit.choice.gpu_layers = Some(12);
        let split = Split { gpu_layers: 12, ..Split::default() };
        assert_eq!(less(&explicit, plan(4096, 4), Some(&split)), None);
        let own = wanting(Wishes {
            context: ContextWish::Own,
            context_own: Some(32_768),
            slots: Some(1),
            ..Wishes::default()
        });
        assert_eq!(less(&own, plan(32_768, 1), None), None, "all of its own or nothing");
    }

    #[test]
    fn a_context_with_a_floor_is_a_wish_and_what_it_grew_by_goes() {
        let wishes = Wishes {
            context: ContextWish::Tokens(16_384),
            context_min: Some(6000),
            context_target: ContextWish::Own,
            slots: Some(2),
            ..Wishes::default()
        };
        let fewer = less(&wanting(wishes), plan(65_536, 2), None).expect("context");
        assert_eq!(fewer.wishes.context, ContextWish::Tokens(32_768));
        assert_eq!((fewer.wishes.context_min, fewer.wishes.slots), (Some(6000), Some(2)));
        assert_eq!(fewer.wishes.context_target, ContextWish::Unasked);
    }
}
