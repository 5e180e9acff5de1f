//! Sizes, durations, counts and checked strings as configuration writes them.
//!
//! Sizes need a unit, and the unit is the one written: `8GiB` is 8 × 2^30 bytes, `8GB` is 8 × 10^9. Durations are
//! `90s`, `5m`, `1h30m`. Every refusal says what was read and what is right.
use bytesize::ByteSize;
use jiff::SignedDuration;
use motorpool_vocab::{Bytes, GIB};
use serde::{Deserializer, de};
use std::{fmt, marker::PhantomData, time::Duration};

/// The longest duration there is: a leap year.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// A visitor that takes a string and checks it with a function.
struct Checked<T, F> {
    expecting: &'static str,
    check: F,
    value: PhantomData<T>,
}

impl<T, F: FnOnce(&str) -> Result<T, String>> de::Visitor<'_> for Checked<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.check)(text).map_err(E::custom)
    }
}

/// A string that `check` turns into a `T`; `expecting` names it where something else was written.
pub(crate) fn checked<'de, D: Deserializer<'de>, T>(
    reader: D,
    expecting: &'static str,
    check: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    reader.deserialize_str(Checked { expecting, check, value: PhantomData })
}

/// Like `checked`, for keys that may be left out.
macro_rules! optional {
    ($($(#[$doc:meta])* $name:ident = $of:ident -> $type:ty;)+) => {$(
        $(#[$doc])*
        pub(crate) fn $name<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<$type>, D::Error> {
            $of(reader).map(Some)
        }
    )+};
}

/// A size, such as `24GiB`.
pub(crate) fn size<'de, D: Deserializer<'de>>(reader: D) -> Result<Bytes, D::Error> {
    checked(reader, "a size such as \"24GiB\"", parse_size)
}

/// A size above zero.
pub(crate) fn some_bytes<'de, D: Deserializer<'de>>(reader: D) -> Result<Bytes, D::Error> {
    checked(reader, "a size such as \"24GiB\"", |text| match parse_size(text)? {
        Bytes::ZERO => Err("this size must be above zero".into()),
        size => Ok(size),
    })
}

/// A duration of any length, zero included.
pub(crate) fn duration<'de, D: Deserializer<'de>>(reader: D) -> Result<Duration, D::Error> {
    checked(reader, "a duration such as \"90s\"", duration_from_text)
}

/// A duration above zero.
pub(crate) fn some_time<'de, D: Deserializer<'de>>(reader: D) -> Result<Duration, D::Error> {
    checked(reader, "a duration such as \"90s\"", |text| match duration_from_text(text)? {
        Duration::ZERO => Err("this duration must be above zero".into()),
        duration => Ok(duration),
    })
}

optional! {
    /// A size that may be left out.
    optional_size = size -> Bytes;
    /// A duration above zero that may be left out.
    optional_time = some_time -> Duration;
}

/// A visitor that takes a whole number within bounds.
pub(crate) struct Within {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

impl de::Visitor<'_> for Within {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.lo, self.hi)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
        self.visit_i128(number.into())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
        self.visit_i128(number.into())
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<i64, E> {
        match i64::try_from(number) {
            Ok(n) if (self.lo..=self.hi).contains(&n) => Ok(n),
            _ => Err(E::custom(format!("`{number}` is not between {} and {}", self.lo, self.hi))),
        }
    }
}

/// A whole number from `LO` to `HI`.
pub(crate) fn whole<'de, D: Deserializer<'de>, const LO: u32, const HI: u32>(reader: D) -> Result<u32, D::Error> {
    let number = reader.deserialize_any(Within { lo: LO.into(), hi: HI.into() })?;
    Ok(u32::try_from(number).expect("between two u32"))
}

/// A priority, -1000 to 1000.
pub(crate) fn priority<'de, D: Deserializer<'de>>(reader: D) -> Result<i32, D::Error> {
    let number = reader.deserialize_any(Within { lo: -1000, hi: 1000 })?;
    Ok(i32::try_from(number).expect("between two i32"))
}

/// A whole number from `LO` to `HI` that may be left out.
pub(crate) fn optional_whole<'de, D: Deserializer<'de>, const LO: u32, const HI: u32>(
    reader: D,
) -> Result<Option<u32>, D::Error> {
    whole::<D, LO, HI>(reader).map(Some)
}

pub(crate) fn parse_size(text: &str) -> Result<Bytes, String> {
    let bare = text.trim();
    if bare == "0" {
        return Ok(Bytes::ZERO);
    }
    if !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(format!("the size `{bare}` has no unit: `{bare}GiB` is {bare} × 2^30 bytes"));
    }
    let wrong = || format!("`{text}` is no size: a number and B, KiB, MiB, GiB or TiB, such as `24GiB`");
    // A lone `G` reads as 10^9 to some and 2^30 to others.
    if !bare.ends_with(['B', 'b']) {
        return Err(wrong());
    }
    let size: ByteSize = bare.parse().map_err(|_| wrong())?;
    // The library stops at the largest number instead of failing.
    if size.as_u64() == u64::MAX {
        Err(format!("the size `{text}` is past 16 EiB"))
    } else {
        Ok(Bytes::new(size.as_u64()))
    }
}

/// A duration as configuration files write it, zero to a year: `1h30m`, `5m`, `90s`, `250ms`. The error says what is wrong.
pub fn duration_from_text(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: hours, minutes, seconds, such as `1h30m`, `5m`, `90s`, `250ms`");
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from(signed).map_err(|_| format!("the duration `{text}` is negative"))?;
    if duration > LONGEST { Err(format!("the duration `{text}` is longer than a year")) } else { Ok(duration) }
}

/// Why a text is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetText {
    /// Not digits with at most one point between them.
    #[error("`{0}` is no decimal number of GiB, such as `24` or `12.5`")]
    NotDecimal(String),
    /// 2^64 bytes or more.
    #[error("`{0}` GiB is past 16 EiB")]
    TooLarge(String),
}

/// The budget that `MOTORPOOL_CAPACITY_BUDGET_GB` asks for: a plain decimal number of GiB (2^30 bytes), rounded down to
/// a byte. `0` is a budget (below 1 GiB the budget is not enforced); a sign, an exponent or a unit is an error.
pub fn budget_from_env(text: &str) -> Result<Bytes, BudgetText> {
    let bare = text.trim();
    let not_decimal = || BudgetText::NotDecimal(text.into());
    let too_large = || BudgetText::TooLarge(bare.into());
    let (whole, part) = bare.split_once('.').unwrap_or((bare, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err(not_decimal());
    }
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // Ten digits are finer than a byte.
    let part: String = part.chars().chain("0000000000".chars()).take(10).collect();
    let part: u64 = part.parse().map_err(|_| not_decimal())?;
    let below = u128::from(part) * u128::from(GIB) / 10_000_000_000;
    let all = u128::from(whole) * u128::from(GIB) + below;
    u64::try_from(all).map(Bytes::new).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gigabyte_is_not_a_gibibyte() {
        assert_eq!(parse_size("8GiB"), Ok(Bytes::gib(8)));
        assert_eq!(parse_size("8GB"), Ok(Bytes::new(8_000_000_000)));
        assert_eq!(parse_size("1.5 GiB"), Ok(Bytes::mib(1536)));
        assert_eq!(parse_size("256mib"), Ok(Bytes::mib(256)));
        assert_eq!(parse_size("17B"), Ok(Bytes::new(17)));
        assert_eq!(parse_size("0"), Ok(Bytes::ZERO));
    }

    #[test]
    fn a_size_without_a_clear_unit_is_refused() {
        assert_eq!(parse_size("24"), Err("the size `24` has no unit: `24GiB` is 24 × 2^30 bytes".into()));
        for text in ["", "GiB", "8 apples", "24G", "-1GiB", "1e3GiB", "+1GiB", "1..2GiB", "8GiB8", "auto"] {
            assert_eq!(
                parse_size(text),
                Err(format!("`{text}` is no size: a number and B, KiB, MiB, GiB or TiB, such as `24GiB`"))
            );
        }
        assert_eq!(parse_size("99999999EiB"), Err("the size `99999999EiB` is past 16 EiB".into()));
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in
            [("5m", 300_000), ("90s", 90_000), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("250ms", 250), ("0s", 0)]
        {
            assert_eq!(duration_from_text(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "m", "5 apples", "soon"] {
            let right = "hours, minutes, seconds, such as `1h30m`, `5m`, `90s`, `250ms`";
            assert_eq!(duration_from_text(text), Err(format!("`{text}` is no duration: {right}")));
        }
        assert_eq!(duration_from_text("-5m"), Err("the duration `-5m` is negative".into()));
        assert_eq!(duration_from_text("9000h"), Err("the duration `9000h` is longer than a year".into()));
    }

    #[test]
    fn the_environment_names_a_budget_in_gib() {
        for (text, bytes) in [
            ("24", Bytes::gib(24)),
            (" 0.5\n", Bytes::mib(512)),
            ("12.25", Bytes::mib(12_544)),
            ("0", Bytes::ZERO),
            ("0.0000000009", Bytes::ZERO),
            ("0.000000001", Bytes::new(1)),
            ("17179869183", Bytes::gib(17_179_869_183)),
        ] {
            assert_eq!(budget_from_env(text), Ok(bytes), "{text}");
        }
        for text in ["", ".", "5.", ".5", "-1", "+1", "1e3", "24GiB", "1.2.3", "٣"] {
            assert_eq!(budget_from_env(text), Err(BudgetText::NotDecimal(text.into())));
        }
        assert_eq!(budget_from_env("17179869184"), Err(BudgetText::TooLarge("17179869184".into())));
    }

    proptest! {
        #[test]
        fn every_text_is_read_or_refused(text in ".{0,40}", number in "[0-9]{0,30}(\\.[0-9]{0,30})?(GiB|MB|h|ms)?") {
            for text in [text, number] {
                let _ = (parse_size(&text), duration_from_text(&text), budget_from_env(&text));
            }
        }

        #[test]
        fn whole_gibibytes_are_exact(n in 0u64..1 << 33) {
            prop_assert_eq!(parse_size(&format!("{n}GiB")), Ok(Bytes::gib(n)));
            prop_assert_eq!(budget_from_env(&n.to_string()), Ok(Bytes::gib(n)));
        }
    }
}
