//! [`refused_context`]: whether a refusal is that of a context, and which context would be had instead.
//!
//! One build is refused once, with one line: as the context's when somebody holds to a context (a number of tokens,
//! `"max"`, a configured floor, the floor of a profile) that this machine could never have, and a shorter one would fit;
//! as want of capacity otherwise: what others have there now is no matter of the context. The default floor is nobody's
//! word: what does not fit at that has no room (capacity.md §6 and §7 leave the border open).
use crate::{
    ContextWish, Draft, LaunchPlan, Ledger, Profile, Source, Subject, Wishes,
    cut::most_that_fit,
    draft::{could_fit, load_of},
};

/// The shortest context that a catalog can name; shorter ones are not searched for, and others in steps of it. Engines
/// round to as many.
const STEP: u32 = 256;

/// A context that is not to be had, and one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedContext {
    /// Tokens per slot: the fewest that were of use to whoever asked.
    pub asked: u32,
    /// The most tokens per slot that would fit, in as many slots; less than `asked`.
    pub fits: u32,
}

impl Wishes {
    /// Whether somebody said how much context must be there.
    fn holds_to_a_context(&self) -> bool {
        self.context != ContextWish::Unasked || self.context_min.is_some() || self.profile != Profile::General
    }
}

/// The context that `draft` of `subject` was refused for; `None` when the machine could have it, were it not for what
/// others have there now, when no shorter one would help, or nobody asked for one.
pub fn refused_context(ledger: &Ledger, (subject, draft): (&Subject, &Draft)) -> Option<RefusedContext> {
    let shape = subject.shape.as_ref().filter(|_| draft.source == Source::Estimated)?;
    if !subject.wishes.holds_to_a_context() {
        return None;
    }
    let empty = Ledger::new(ledger.bounds().clone());
    if could_fit(&empty, &[], &draft.load) {
        return None;
    }
    let asked = draft.plan.context_per_slot;
    let tokens = |n: u32| (n + 1) * STEP;
    let fits = |n: u32| {
        let plan = LaunchPlan { context_per_slot: tokens(n), ..draft.plan };
        could_fit(&empty, &[], &load_of(&empty, (subject, shape), (&plan, &subject.choice)))
    };
    let n_shorter = asked.saturating_sub(1) / STEP;
    let fits = most_that_fit(n_shorter.checked_sub(1)?, fits).map(tokens)?;
    Some(RefusedContext { asked, fits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Verdict, draft, pick_placement,
        testing::{ledger, subject},
    };
    use motorpool_vocab::{Bytes, Claim, Spawn};

    fn wishing(wishes: Wishes) -> Subject {
        let mut subject =
            Subject { wishes: Wishes { context_own: Some(1 << 20), slots: Some(1), ..wishes }, ..subject() };
        // A pool below 1 GiB is none.
        subject.settings.prompt_cache = Bytes::gib(1);
        subject
    }

    fn tokens(tokens: u32) -> Wishes {
        Wishes { context: ContextWish::Tokens(tokens), ..Wishes::default() }
    }

    /// A pool of just as much as a launch with so many tokens takes.
    fn with_room_for(n: u32) -> Ledger {
        let roomy = ledger(Bytes::gib(60));
        let drafted = draft(&roomy, &[], &wishing(tokens(n)));
        ledger(pick_placement(&roomy, &drafted.load).expect("it fits").claim.total())
    }

    /// The context that is refused where so many tokens fit, and the one that would fit.
    fn refused(room_for: u32, wishes: Wishes) -> Option<(u32, u32)> {
        let (ledger, subject) = (with_room_for(room_for), wishing(wishes));
        let draft = draft(&ledger, &[], &subject);
        assert!(!could_fit(&ledger, &[], &draft.load), "it fits: {:?}", draft.plan);
        refused_context(&ledger, (&subject, &draft)).map(|context| (context.asked, context.fits))
    }

    #[test]
    fn whoever_holds_to_a_context_hears_which_one_would_fit() {
        let floor = Wishes { context_min: Some(100_000), ..tokens(1 << 20) };
        let floor_alone = Wishes { context_min: Some(60_000), ..Wishes::default() };
        let own = Wishes { context: ContextWish::Own, ..Wishes::default() };
        let agent = Wishes { profile: Profile::Agent, ..Wishes::default() };
        for (wishes, asked) in
            [(tokens(200_000), 200_000), (floor, 100_000), (floor_alone, 60_000), (own, 1 << 20), (agent, 65_536)]
        {
            assert_eq!(refused(32_768, wishes.clone()), Some((asked, 32_768)), "{wishes:?}");
        }
        assert_eq!(refused(512, tokens(1000)), Some((1000, 512)), "in steps of 256");
    }

    #[test]
    fn what_others_have_there_now_is_no_matter_of_the_context() {
        const PINNED: [Spawn; 1] = [Spawn(1)];
        let (mut ledger, subject) = (ledger(Bytes::gib(8)), wishing(tokens(32_768)));
        assert_eq!(ledger.reserve(PINNED[0], Claim::private(Bytes::gib(7))), Verdict::Admit);
        let draft = draft(&ledger, &PINNED, &subject);
        assert!(!could_fit(&ledger, &PINNED, &draft.load));
        assert_eq!(refused_context(&ledger, (&subject, &draft)), None);
    }

    #[test]
    fn the_default_floor_is_nobodys_word_and_what_no_context_helps_is_want_of_capacity() {
        assert_eq!(refused(4096, Wishes::default()), None);
        let ledger = ledger(Bytes::gib(2));
        let mut subject = wishing(tokens(65_536));
        subject.settings.prompt_cache = Bytes::gib(3);
        let drafted = draft(&ledger, &[], &subject);
        assert_eq!(refused_context(&ledger, (&subject, &drafted)), None);
        subject.declared = Some(Bytes::gib(3));
        let declared = draft(&ledger, &[], &subject);
        assert_eq!(refused_context(&ledger, (&subject, &declared)), None, "its size does not follow from the context");
        assert_eq!(refused(1, tokens(200)), None, "no shorter one can be named");
    }
}
