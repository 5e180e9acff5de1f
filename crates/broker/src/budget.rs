//! [`Budget`]: the bound on everything we reserve, and [`BudgetSetting`]: who decides it.
use motorpool_vocab::{Bytes, GIB};

/// The bound on the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Grants never pass this many bytes.
    Enforced(Bytes),
    /// Everything is granted, tracked and shown.
    NotEnforced,
}

/// What the operator says about the budget: an explicit value wins over the automatic one, whoever changed that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetSetting {
    /// `capacity.budget`, unless it is `auto`.
    pub explicit: Option<Bytes>,
    /// What the environment puts in the place of the computed automatic value.
    pub automatic: Option<Bytes>,
}

impl Budget {
    /// The budget of `bytes`; under 1 GiB (0 included) it is not enforced (capacity.md §2).
    pub const fn of(bytes: Bytes) -> Self {
        if bytes.get() < GIB { Self::NotEnforced } else { Self::Enforced(bytes) }
    }

    /// The bound, when there is one.
    pub const fn bound(self) -> Option<Bytes> {
        match self {
            Self::Enforced(bytes) => Some(bytes),
            Self::NotEnforced => None,
        }
    }
}

impl BudgetSetting {
    /// Nothing but `bytes`.
    pub const fn explicit(bytes: Bytes) -> Self {
        Self { explicit: Some(bytes), automatic: None }
    }

    /// The automatic value where `computed` is what the machine suggests.
    pub fn automatic_of(self, computed: Bytes) -> Bytes {
        self.automatic.unwrap_or(computed)
    }

    /// What is in force where `computed` is what the machine suggests.
    pub fn in_force(self, computed: Bytes) -> Bytes {
        self.explicit.unwrap_or_else(|| self.automatic_of(computed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_under_one_gib_is_not_enforced() {
        assert_eq!(Budget::of(Bytes::ZERO), Budget::NotEnforced);
        assert_eq!(Budget::of(Bytes::new(GIB - 1)), Budget::NotEnforced);
        assert_eq!(Budget::of(Bytes::gib(1)), Budget::Enforced(Bytes::gib(1)));
    }

    #[test]
    fn an_explicit_setting_wins_and_the_environment_changes_the_automatic_value_only() {
        let (computed, environment, explicit) = (Bytes::gib(10), Bytes::gib(20), Bytes::gib(30));
        assert_eq!(BudgetSetting::default().in_force(computed), computed);
        let changed = BudgetSetting { automatic: Some(environment), ..BudgetSetting::default() };
        assert_eq!(changed.in_force(computed), environment);
        let both = BudgetSetting { explicit: Some(explicit), ..changed };
        assert_eq!(both.in_force(computed), explicit);
        assert_eq!(both.automatic_of(computed), environment, "shown beside it");
    }
}
