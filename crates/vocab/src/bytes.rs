//! [`Bytes`]: a quantity of memory that refuses to wrap.
use std::fmt;

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// A number of bytes. Arithmetic is checked or saturating by name; there is no `From<u64>` and no float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Self = Self(0);
    /// The largest quantity there is.
    pub const MAX: Self = Self(u64::MAX);

    /// Exactly `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` × 2^20 bytes, saturating.
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(MIB))
    }

    /// `n` × 2^30 bytes, saturating.
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(GIB))
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` past 2^64 - 1.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The sum, stopping at [`Bytes::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, stopping at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self` × `n`, stopping at [`Bytes::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// `floor(self × ratio / 1000)`. The ratio is in thousandths: 950 is 95 %.
    #[must_use]
    pub const fn per_mille(self, ratio: u64) -> Self {
        let wide = self.0 as u128 * ratio as u128 / 1000;
        Self(if wide > u64::MAX as u128 { u64::MAX } else { low_half(wide) })
    }

    /// The sum of all, stopping at [`Bytes::MAX`].
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::ZERO, Self::saturating_add)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the caller compared with u64::MAX")]
const fn low_half(wide: u128) -> u64 {
    wide as u64
}

/// GiB with one decimal, for people; MiB or bytes where that would print `0.0`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = |unit: u64| (u128::from(self.0) * 10 + u128::from(unit) / 2) / u128::from(unit);
        let (n, unit) = match self.0 {
            0..KIB => return write!(f, "{} B", self.0),
            KIB..MIB => (tenths(KIB), "KiB"),
            n if n < GIB => (tenths(MIB), "MiB"),
            _ => (tenths(GIB), "GiB"),
        };
        write!(f, "{}.{} {unit}", n / 10, n % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_floored_and_never_wrap() {
        assert_eq!(Bytes::gib(16).per_mille(700), Bytes::new(12_025_908_428));
        assert_eq!(Bytes::MAX.per_mille(1000), Bytes::MAX);
        assert_eq!(Bytes::MAX.per_mille(2000), Bytes::MAX);
    }

    #[test]
    fn sums_stop_at_the_edges() {
        assert_eq!(Bytes::MAX.checked_add(Bytes::new(1)), None);
        assert_eq!(Bytes::sum([Bytes::MAX, Bytes::gib(1)]), Bytes::MAX);
        assert_eq!(Bytes::new(1).saturating_sub(Bytes::new(2)), Bytes::ZERO);
    }

    #[test]
    fn people_read_one_decimal() {
        assert_eq!(Bytes::mib(1536).to_string(), "1.5 GiB");
        assert_eq!(Bytes::mib(100).to_string(), "100.0 MiB");
        assert_eq!(Bytes::new(512).to_string(), "512 B");
        assert_eq!(Bytes::MAX.to_string(), "17179869184.0 GiB");
    }
}
