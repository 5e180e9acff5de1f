//! [`Denial`]: a refusal for want of capacity, with its arithmetic.
//!
//! `Display` is the contract's `<reason>` (capacity.md §7), which harnesses search for; [`Denial::prose`] is for people.
//! A refusal that a shorter context would avoid is the context's: it has a line of its own ([`Denial::refuser`]), so that
//! no build counts twice.
//! Building one writes nothing: that is for the program, once per refused build.
use crate::{Bounds, Excess, HostShape, Proof, RefusedContext, Which};
use motorpool_vocab::{Bytes, Claim, DeviceId, EngineKey, GIB};
use std::{fmt, time::Duration};

/// More GiB than this are not printed: nothing has them, and people read no ten digits.
const GIB_MOST: u64 = 999_999_999;
/// So many characters of a program's name are printed, and so many digits in a row are not.
const NAME_MOST: usize = 60;
const DIGITS_MOST: usize = 10;

/// Why a build does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What was to be built.
    pub key: EngineKey,
    /// What it asked for, by part, in the attempt that came nearest.
    pub requested: Claim,
    /// What was passed.
    pub reason: Reason,
    /// The context that is not to be had, when that alone is what is refused.
    pub context: Option<RefusedContext>,
    /// Everything that was reserved then, whether it could go or not.
    pub committed: Bytes,
    /// What holds the memory and cannot go, largest first.
    pub holders: Vec<(EngineKey, Bytes)>,
    /// Who else uses the card that it meets the bound of, by name.
    pub tenants: Vec<(String, Bytes)>,
    /// Model servers of others and what they hold of system memory, when it meets the bound of that.
    pub servers: Vec<(String, Bytes)>,
    /// Cards that are lost, where they could have mattered.
    pub lost: Vec<DeviceId>,
    /// What there is on this machine.
    pub shares: Shares,
}

/// What was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A bound of the ledger.
    Bound(Excess),
    /// What the driver said last, right before the start.
    Measured(Measured),
}

/// The measured check on one card that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The card.
    pub device: DeviceId,
    /// What was needed there.
    pub required: Bytes,
    /// What was free there.
    pub free: Bytes,
    /// Why it was not more.
    pub cause: Cause,
}

/// Why a card has less free than the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// We unloaded something for this build and its memory has not come back.
    OwnEviction {
        /// How long was waited for it.
        waited: Duration,
    },
    /// Others use it.
    Foreign {
        /// Who, as the driver names them, and how much; none when nobody knows.
        tenants: Vec<(String, Bytes)>,
    },
}

/// The shares of a host, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// How it shares its memory.
    pub shape: HostShape,
    /// Memory of the system that we may use.
    pub ram: Bytes,
    /// The share of it.
    pub ram_share: Bytes,
    /// The shares of all cards.
    pub graphics: Bytes,
}

impl From<&Bounds> for Shares {
    fn from(bounds: &Bounds) -> Self {
        Self { shape: bounds.shape, ram: bounds.ram, ram_share: bounds.ram_share, graphics: bounds.graphics() }
    }
}

impl Denial {
    /// The refusal of `key` for want of what `proof` shows, on a host with `bounds`.
    pub fn new(key: EngineKey, proof: Proof, bounds: &Bounds) -> Self {
        let Proof { claim, excess } = proof;
        Self::of(key, claim, Reason::Bound(excess), bounds)
    }

    /// The refusal of `key` by the measured check, on a host with `bounds`.
    pub fn measured(key: EngineKey, requested: Claim, measured: Measured, bounds: &Bounds) -> Self {
        Self::of(key, requested, Reason::Measured(measured), bounds)
    }

    fn of(key: EngineKey, requested: Claim, reason: Reason, bounds: &Bounds) -> Self {
        let (committed, holders, context) = (Bytes::ZERO, vec![], None);
        let (tenants, servers, lost) = (vec![], vec![], vec![]);
        Self { key, requested, reason, context, committed, holders, tenants, servers, lost, shares: bounds.into() }
    }

    /// The same as the refusal of a context, if it is one.
    #[must_use]
    pub fn of_context(self, context: Option<RefusedContext>) -> Self {
        Self { context, ..self }
    }

    /// Who refuses, in the words of the contract's line: `capacity broker` or `context admission`.
    pub fn refuser(&self) -> &'static str {
        if self.context.is_some() { "context admission" } else { "capacity broker" }
    }

    /// The same beside what was reserved.
    #[must_use]
    pub fn beside(self, committed: Bytes) -> Self {
        Self { committed, ..self }
    }

    /// The same with what holds the memory and cannot go.
    #[must_use]
    pub fn with_holders(self, mut holders: Vec<(EngineKey, Bytes)>) -> Self {
        holders.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self { holders, ..self }
    }

    /// The same with who else uses the card that it meets the bound of.
    #[must_use]
    pub fn with_tenants(self, tenants: Vec<(String, Bytes)>) -> Self {
        Self { tenants, ..self }
    }

    /// The same with the model servers of others that hold system memory.
    #[must_use]
    pub fn with_servers(self, servers: Vec<(String, Bytes)>) -> Self {
        Self { servers, ..self }
    }

    /// The same beside cards that are lost.
    #[must_use]
    pub fn with_lost(self, lost: Vec<DeviceId>) -> Self {
        Self { lost, ..self }
    }

    /// What would have been committed, or was required.
    pub fn would_commit(&self) -> Bytes {
        match &self.reason {
            Reason::Bound(excess) => excess.would_commit,
            Reason::Measured(measured) => measured.required,
        }
    }

    /// The bound it meets, or what was free.
    pub fn bound(&self) -> Bytes {
        match &self.reason {
            Reason::Bound(excess) => excess.bound,
            Reason::Measured(measured) => measured.free,
        }
    }

    /// The stable name of what was passed, for the structured event.
    pub fn which(&self) -> &'static str {
        match &self.reason {
            Reason::Bound(excess) => match excess.which {
                Which::Total => "budget",
                Which::CoResidency => "co-residency",
                Which::Device(_) => "device",
                Which::SystemMemory => "system-memory",
            },
            Reason::Measured(_) => "measured",
        }
    }

    /// The reason in words: sizes in GiB, who holds what, what helps.
    pub fn prose(&self) -> String {
        let held = self.held();
        match &self.reason {
            Reason::Measured(measured) => self.measured_prose(measured),
            Reason::Bound(excess) => {
                let others = self.others(excess);
                format!("{}{}{held}{others} {}", self.needs(), self.against(excess), self.helps(excess))
            }
        }
    }

    /// What would have helped, in words.
    pub fn remedy(&self) -> String {
        match &self.reason {
            Reason::Bound(excess) => self.helps(excess),
            Reason::Measured(measured) => measured.helps().to_owned(),
        }
    }

    fn needs(&self) -> String {
        let needs = format!("{} needs {}", self.key.model(), Gib(self.requested.total()));
        self.context.map_or(needs.clone(), |context| format!("{needs} with {} tokens of context", Count(context.asked)))
    }

    /// Who else has graphics memory, and which servers of others have system memory.
    fn others(&self, excess: &Excess) -> String {
        let place = if matches!(excess.which, Which::Device(_)) { "There" } else { "On the graphics devices" };
        let said = |place: &str, users: &[(String, Bytes)]| {
            if users.is_empty() { String::new() } else { format!(" {place}, {}.", used(users)) }
        };
        said(place, &self.tenants) + &said("In system memory", &self.servers)
    }

    /// Goes on from what it needs.
    fn against(&self, excess: &Excess) -> String {
        let (would, bound) = (Gib(excess.would_commit), Gib(excess.bound));
        let part = if self.holders.is_empty() {
            format!(", {would} of it")
        } else {
            format!("; with what cannot be unloaded that is {would}")
        };
        match &excess.which {
            Which::CoResidency => format!(
                " beside another model on the graphics devices; together they would take {would} of the {bound} of fast memory, and neither may spill into system memory while the other is loaded."
            ),
            Which::Device(id) if excess.bound.is_zero() => {
                format!(", and nothing may be reserved on graphics device {id} now.")
            }
            Which::Device(id) => format!("{part} on graphics device {id}, more than the {bound} that is ours there."),
            Which::SystemMemory => format!("{part} in system memory, more than the {bound} that is ours there."),
            Which::Total if self.holders.is_empty() => format!(", more than {}.", self.whole(excess.bound)),
            Which::Total => format!("{part}, more than {}.", self.whole(excess.bound)),
        }
    }

    /// The budget, in the terms of this machine.
    fn whole(&self, bound: Bytes) -> String {
        let Shares { shape, ram, ram_share, graphics } = self.shares;
        if shape == HostShape::DiscreteGpu {
            return format!(
                "the budget of {}: {} of graphics memory and a share of {} of system memory",
                Gib(bound),
                Gib(graphics.min(bound)),
                Gib(ram_share)
            );
        }
        let whole = u128::from(ram.get()).max(1);
        let percent = (u128::from(bound.get()) * 100 + whole / 2) / whole;
        let of = if ram.is_zero() || percent > 100 {
            String::new()
        } else {
            format!(" (about {percent} % of your {} machine)", Gib(ram))
        };
        format!("the budget of {}{of}", Gib(bound))
    }

    fn held(&self) -> String {
        if self.holders.is_empty() {
            return String::new();
        }
        let one = |(key, bytes): &(EngineKey, Bytes)| format!("{} holds {}", key.model(), Gib(*bytes));
        let all: Vec<_> = self.holders.iter().map(one).collect();
        format!(" {} and cannot be unloaded.", all.join(", "))
    }

    fn helps(&self, excess: &Excess) -> String {
        if let Some(context) = self.context {
            return format!("A context of {} tokens would fit.", Count(context.fits));
        }
        let lost = |id: &DeviceId| format!(" Graphics device {id} is lost: reset it, or reboot.");
        let lost: String = self.lost.iter().map(lost).collect();
        format!("{}{lost}", self.room_for(excess))
    }

    fn room_for(&self, excess: &Excess) -> String {
        let unpin = if self.holders.is_empty() { "" } else { "unpinning one of them, " };
        match excess.which {
            // A smaller model is no answer: each of them fits.
            Which::CoResidency if self.holders.is_empty() => {
                "Unloading the other, or allowing spillover, helps.".to_owned()
            }
            Which::CoResidency => "Unpinning one of them, or allowing spillover, helps.".to_owned(),
            Which::Device(ref id) if self.lost.contains(id) => "Another device helps.".to_owned(),
            Which::Device(_) if excess.bound.is_zero() => {
                "Another device, or making this one readable, helps.".to_owned()
            }
            Which::Device(_) => sentence(unpin, "a smaller model or context, or another device, helps."),
            Which::SystemMemory => sentence(unpin, "a smaller model or context, or ending other programs, helps."),
            Which::Total => sentence(unpin, "a smaller model or context, or a larger budget, helps."),
        }
    }

    fn measured_prose(&self, measured: &Measured) -> String {
        let Measured { device, required, free, cause } = measured;
        let model = self.key.model();
        let why = match cause {
            Cause::OwnEviction { waited } => format!(
                "it unloaded its previous model and waited {} s, the driver has not given the memory back",
                waited.as_secs()
            ),
            Cause::Foreign { tenants } if tenants.is_empty() => "something else uses the rest".to_owned(),
            Cause::Foreign { tenants } => format!("there, {}", used(tenants)),
        };
        format!(
            "{model} needs {} on graphics device {device}, where {} are free: {why}. {}",
            Gib(*required),
            Gib(*free),
            measured.helps()
        )
    }
}

impl Measured {
    fn helps(&self) -> &'static str {
        match self.cause {
            Cause::OwnEviction { .. } => "Trying again in a moment helps.",
            Cause::Foreign { .. } => "Ending that program, or a smaller model or context, helps.",
        }
    }
}

/// Who uses how much.
fn used(tenants: &[(String, Bytes)]) -> String {
    let all: Vec<_> =
        tenants.iter().map(|(name, bytes)| format!("{} uses {}", fit_to_print(name), Gib(*bytes))).collect();
    all.join(", ")
}

/// A program may call itself anything: what people read holds no control characters and no run of ten digits.
fn fit_to_print(name: &str) -> String {
    let mut n_digits = 0;
    let keep = |c: char| {
        n_digits = if c.is_ascii_digit() { n_digits + 1 } else { 0 };
        (n_digits < DIGITS_MOST).then_some(if c.is_control() { '?' } else { c })
    };
    name.chars().take(NAME_MOST).filter_map(keep).collect()
}

/// `first`, then `rest`, as one sentence.
fn sentence(first: &str, rest: &str) -> String {
    let all = format!("{first}{rest}");
    let mut letters = all.chars();
    letters.next().map_or_else(String::new, |letter| letter.to_uppercase().chain(letters).collect())
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.context {
            Some(context) => write!(f, "{} tokens/turn", context.asked)?,
            None => f.write_str("budget exhausted:")?,
        }
        write!(f, " would commit {} against {}", self.would_commit().get(), self.bound().get())?;
        match &self.reason {
            Reason::Bound(excess) => excess.which.fmt(f)?,
            Reason::Measured(_) => f.write_str(" (measured free graphics memory)")?,
        }
        self.context.map_or(Ok(()), |context| write!(f, "; {} would fit", context.fits))
    }
}

/// Tokens for people, of nine digits at most: headers may claim anything.
struct Count(u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.min(999_999_999).fmt(f)
    }
}

/// Bytes for people, of nine digits at most.
struct Gib(Bytes);

impl fmt::Display for Gib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.get() / GIB >= GIB_MOST { write!(f, "more than {GIB_MOST} GiB") } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BudgetSetting, Card, Host};
    use proptest::prelude::*;
    use regex::Regex;

    fn key(model: &str) -> EngineKey {
        format!("llama-server:{model}:0").parse().expect("a key")
    }

    fn discrete() -> Bounds {
        let cards = vec![Card::new("GPU-5c0ffee", Bytes::gib(24))];
        Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() }.bounds()
    }

    fn plain() -> Bounds {
        Host { ram: Bytes::gib(64), ..Host::default() }.bounds()
    }

    fn bound(which: Which, would: Bytes, bound: Bytes, bounds: &Bounds) -> Denial {
        let excess = Excess { would_commit: would, bound, which };
        Denial::new(key("big"), Proof { claim: Claim::private(would), excess }, bounds)
    }

    fn measured(cause: Cause) -> Denial {
        let device = DeviceId("GPU-5c0ffee".into());
        let measured = Measured { device, required: Bytes::gib(9), free: Bytes::gib(2), cause };
        Denial::measured(key("big"), Claim::private(Bytes::gib(9)), measured, &discrete())
    }

    fn every(would: Bytes, limit: Bytes) -> Vec<Denial> {
        let foreign = Cause::Foreign { tenants: vec![("blender".to_owned(), limit), ("9".repeat(80), would)] };
        let mut all = vec![measured(Cause::OwnEviction { waited: Duration::from_secs(5) }), measured(foreign)];
        for which in
            [Which::Total, Which::CoResidency, Which::SystemMemory, Which::Device(DeviceId("GPU-5c0ffee".into()))]
        {
            for bounds in [discrete(), plain()] {
                let denial = bound(which.clone(), would, limit, &bounds);
                let held = denial.clone().with_holders(vec![(key("pinned"), limit), (key("other"), would)]);
                all.extend([denial, held]);
            }
        }
        all
    }

    #[test]
    fn the_reason_is_the_contracts_line_with_plain_integers() {
        let line = |which| bound(which, Bytes::gib(9), Bytes::gib(8), &discrete()).to_string();
        let plain = "budget exhausted: would commit 9663676416 against 8589934592";
        assert_eq!(line(Which::Total), plain);
        let ceiling = format!("{plain} (co-residency ceiling — RAM spillover off)");
        assert_eq!(line(Which::CoResidency), ceiling);
        assert_eq!(line(Which::Device(DeviceId("GPU-1".into()))), format!("{plain} (device GPU-1)"));
        assert_eq!(line(Which::SystemMemory), format!("{plain} (system memory)"));
        let foreign = Cause::Foreign { tenants: vec![("blender".to_owned(), Bytes::gib(20))] };
        assert_eq!(
            measured(foreign).to_string(),
            "budget exhausted: would commit 9663676416 against 2147483648 (measured free graphics memory)"
        );
    }

    #[test]
    fn every_variant_matches_both_expressions_of_the_harness() {
        let strict = Regex::new(r"capacity broker denied [^\n]+: budget exhausted: would commit \d+ against \d+");
        let loose = Regex::new(r"capacity broker denied [^\n]*budget exhausted");
        for denial in every(Bytes::gib(9), Bytes::gib(8)) {
            let line = format!("ERROR [provider-pool] capacity broker denied {}: {denial}", denial.key);
            for expression in [&strict, &loose] {
                assert!(expression.as_ref().expect("an expression").is_match(&line), "{line}");
            }
        }
    }

    fn too_long(asked: u32, fits: u32, which: Which) -> Denial {
        bound(which, Bytes::gib(9), Bytes::gib(8), &discrete()).of_context(Some(RefusedContext { asked, fits }))
    }

    #[test]
    fn the_refusal_of_a_context_has_a_line_of_its_own_that_no_harness_counts_as_want_of_capacity() {
        let denial = too_long(131_072, 32_768, Which::Device(DeviceId("GPU-1".into())));
        let line = format!("{} denied {}: {denial}", denial.refuser(), denial.key);
        let figures = "131072 tokens/turn would commit 9663676416 against 8589934592 (device GPU-1); 32768 would fit";
        assert_eq!(line, format!("context admission denied llama-server:big:0: {figures}"));
        assert!(!Regex::new(r"capacity broker denied|budget exhausted").expect("valid").is_match(&line), "{line}");
        assert_eq!(bound(Which::Total, Bytes::gib(9), Bytes::gib(8), &plain()).refuser(), "capacity broker");
    }

    #[test]
    fn people_are_told_which_context_would_fit() {
        let prose = too_long(131_072, 32_768, Which::SystemMemory).prose();
        assert_eq!(
            prose,
            "big needs 9.0 GiB with 131072 tokens of context, 9.0 GiB of it in system memory, more than the 8.0 GiB that is ours there. A context of 32768 tokens would fit."
        );
        let absurd = too_long(u32::MAX, u32::MAX - 1, Which::Total).prose();
        assert!(absurd.contains("999999999 tokens") && !absurd.contains("4294967"), "{absurd}");
    }

    #[test]
    fn a_refusal_by_the_budget_says_what_part_of_the_machine_it_is() {
        let prose = bound(Which::Total, Bytes::gib(40), plain().ram_share, &plain()).prose();
        assert_eq!(
            prose,
            "big needs 40.0 GiB, more than the budget of 38.4 GiB (about 60 % of your 64.0 GiB machine). A smaller model or context, or a larger budget, helps."
        );
        let absurd = Host { budget: BudgetSetting::explicit(Bytes::gib(900)), ..Host::default() }.bounds();
        let prose = bound(Which::Total, Bytes::gib(901), Bytes::gib(900), &absurd).prose();
        assert!(!prose.contains('%'), "{prose}");
    }

    #[test]
    fn on_a_host_with_cards_both_pools_are_told_apart() {
        let budget = discrete().budget.bound().expect("enforced");
        let mut denial = bound(Which::Total, Bytes::gib(92), budget, &discrete());
        denial.requested = Claim::private(Bytes::gib(70));
        assert_eq!(
            denial.with_holders(vec![(key("small"), Bytes::gib(2)), (key("pinned"), Bytes::gib(20))]).prose(),
            "big needs 70.0 GiB; with what cannot be unloaded that is 92.0 GiB, more than the budget of 61.2 GiB: 22.8 GiB of graphics memory and a share of 38.4 GiB of system memory. pinned holds 20.0 GiB, small holds 2.0 GiB and cannot be unloaded. Unpinning one of them, a smaller model or context, or a larger budget, helps."
        );
    }

    #[test]
    fn a_smaller_model_is_never_suggested_for_want_of_co_residency() {
        for denial in every(Bytes::gib(31), Bytes::gib(22)) {
            let prose = denial.prose();
            assert_eq!(prose.contains("spill"), denial.which() == "co-residency", "{prose}");
            assert!(!(prose.contains("spill") && prose.contains("smaller")), "{prose}");
            assert!(prose.ends_with(&denial.remedy()), "{prose}");
        }
    }

    #[test]
    fn the_measured_variants_say_who_has_the_memory() {
        let own = measured(Cause::OwnEviction { waited: Duration::from_secs(5) }).prose();
        let words = "unloaded its previous model and waited 5 s, the driver has not given the memory back";
        assert!(own.contains(words), "{own}");
        let tenants = vec![("blender".to_owned(), Bytes::gib(20)), ("a\nb".to_owned(), Bytes::gib(2))];
        let foreign = measured(Cause::Foreign { tenants: tenants.clone() }).prose();
        let named = "there, blender uses 20.0 GiB, a?b uses 2.0 GiB";
        assert!(foreign.contains(named), "{foreign}");
        let unknown = measured(Cause::Foreign { tenants: vec![] }).prose();
        assert!(unknown.contains("something else uses the rest"), "{unknown}");
        let device = Which::Device(DeviceId("GPU-5c0ffee".into()));
        let refused =
            |which| bound(which, Bytes::gib(9), Bytes::gib(2), &discrete()).with_tenants(tenants.clone()).prose();
        let there = refused(device);
        assert!(there.contains(". There, blender uses 20.0 GiB"), "{there}");
        let instead = refused(Which::SystemMemory);
        assert!(instead.contains(". On the graphics devices, blender uses 20.0 GiB"), "{instead}");
        let servers = bound(Which::SystemMemory, Bytes::gib(9), Bytes::gib(2), &discrete());
        let servers = servers.with_servers(vec![("external server desk".to_owned(), Bytes::gib(4))]).prose();
        assert!(servers.contains(". In system memory, external server desk uses 4.0 GiB. "), "{servers}");
    }

    #[test]
    fn a_device_that_nobody_can_read_is_said_to_take_nothing() {
        let device = Which::Device(DeviceId("GPU-5c0ffee".into()));
        let prose = bound(device, Bytes::gib(9), Bytes::ZERO, &discrete()).prose();
        assert!(prose.contains("nothing may be reserved on graphics device GPU-5c0ffee now"), "{prose}");
    }

    proptest! {
        /// What people read could otherwise be taken for the contract's line, or for nothing a person says.
        #[test]
        fn people_read_no_ten_digits_and_no_names_of_the_environment(would: u64, limit: u64) {
            for denial in every(Bytes::new(would), Bytes::new(limit)) {
                let prose = denial.prose();
                let longest = prose.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
                prop_assert!(longest < Some(10), "{prose}");
                prop_assert!(!prose.contains("MOTORPOOL_") && !prose.contains("budget exhausted"), "{prose}");
            }
        }
    }
}
