//! Forms: one type for each way in which a value stands in a file. It reads the value, writes it back, and says in the
//! schema what may stand there, so that the three cannot part.
//!
//! Fields name theirs with `#[serde(with = "form::Time")]`. Values that only their own field has are read by a function
//! beside it, and are a plain text in the schema.
use crate::quantity;
use jiff::SignedDuration;
use motorpool_vocab::{Bytes, GIB, MIB};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt, time::Duration};

/// A reference to a variable of the environment, anywhere in a text: what it stands for is not known to a schema.
pub(crate) const VARIABLE: &str = r"\$\{";
/// A number and a unit: all that `quantity::parse_size` takes.
const SIZE: &str = r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGTPEkmgtpe][Ii]?)?[Bb]\s*$|^\s*0\s*$";
/// Numbers with units or colons: all that `quantity::duration_from_text` takes, in any of jiff's ways.
const TIME: &str = r"[0-9][\s\S]*[A-Za-z:]";

/// What a schema says of a text.
fn text_like(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": format!("{pattern}|{VARIABLE}") })
}

/// What a schema says of a whole number.
fn whole_between(lo: i64, hi: i64) -> Schema {
    json_schema!({ "type": "integer", "minimum": lo, "maximum": hi })
}

macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident $(<$(const $bound:ident),+>)?: $value:ty, $read:expr, $write:path, $schema:expr;)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name $(<$(const $bound: u32),+>)?;

        impl $(<$(const $bound: u32),+>)? $name $(<$($bound),+>)? {
            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<$value, D::Error> {
                ($read)(reader)
            }

            pub(crate) fn serialize<S: Serializer>(value: &$value, writer: S) -> Result<S::Ok, S::Error> {
                $write(value, writer)
            }
        }

        impl $(<$(const $bound: u32),+>)? JsonSchema for $name $(<$($bound),+>)? {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

forms! {
    /// A size, such as `24GiB`.
    Size: Bytes, quantity::size, write_size, text_like(SIZE);
    /// A size above zero.
    SomeSize: Bytes, quantity::some_bytes, write_size, text_like(SIZE);
    /// A size that may be left out.
    MaybeSize: Option<Bytes>, quantity::optional_size, write_maybe_size, text_like(SIZE);
    /// A duration of any length, zero included.
    Time: Duration, quantity::duration, write_time, text_like(TIME);
    /// A duration above zero.
    SomeTime: Duration, quantity::some_time, write_time, text_like(TIME);
    /// A duration above zero that may be left out.
    MaybeTime: Option<Duration>, quantity::optional_time, write_maybe_time, text_like(TIME);
    /// A whole number from `LO` to `HI`.
    Whole<const LO, const HI>: u32, quantity::whole::<_, LO, HI>, serde_write, whole_between(LO.into(), HI.into());
    /// A whole number from `LO` to `HI` that may be left out.
    MaybeWhole<const LO, const HI>: Option<u32>, quantity::optional_whole::<_, LO, HI>, serde_write,
        whole_between(LO.into(), HI.into());
    /// A priority, -1000 to 1000.
    Priority: i32, quantity::priority, serde_write, whole_between(-1000, 1000);
}

fn serde_write<T: Serialize, S: Serializer>(value: &T, writer: S) -> Result<S::Ok, S::Error> {
    value.serialize(writer)
}

/// As the value shows itself.
pub(crate) fn shown<T: fmt::Display, S: Serializer>(value: &T, writer: S) -> Result<S::Ok, S::Error> {
    writer.collect_str(value)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn write_size<S: Serializer>(size: &Bytes, writer: S) -> Result<S::Ok, S::Error> {
    writer.serialize_str(&size_text(*size))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn write_maybe_size<S: Serializer>(size: &Option<Bytes>, writer: S) -> Result<S::Ok, S::Error> {
    size.map(size_text).serialize(writer)
}

fn write_time<S: Serializer>(time: &Duration, writer: S) -> Result<S::Ok, S::Error> {
    writer.serialize_str(&time_text(*time))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn write_maybe_time<S: Serializer>(time: &Option<Duration>, writer: S) -> Result<S::Ok, S::Error> {
    time.map(time_text).serialize(writer)
}

/// The exact size in the largest unit that it is a multiple of: `4GiB`, `1536MiB`, `17B`.
pub fn size_text(size: Bytes) -> String {
    let bytes = size.get();
    let units = [(GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// The exact duration: `10m`, `90s`, `250ms`.
pub fn time_text(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let whole = time.subsec_nanos().is_multiple_of(1_000_000);
    match units.iter().find(|(unit, _)| whole && millis > 0 && millis.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None if time.is_zero() => "0s".to_owned(),
        None => SignedDuration::try_from(time).map_or_else(|_| format!("{millis}ms"), |signed| format!("{signed:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_durations_are_written_as_people_write_them() {
        for (size, text) in [
            (Bytes::gib(24), "24GiB"),
            (Bytes::mib(1536), "1536MiB"),
            (Bytes::new(65_536), "64KiB"),
            (Bytes::new(17), "17B"),
            (Bytes::ZERO, "0B"),
        ] {
            assert_eq!(size_text(size), text);
        }
        for (millis, text) in [(600_000, "10m"), (90_000, "90s"), (7_200_000, "2h"), (250, "250ms"), (0, "0s")] {
            assert_eq!(time_text(Duration::from_millis(millis)), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(bytes in 0..u64::MAX, unit in 0u32..41, nanos in 0u64..31_000_000_000_000_000) {
            for size in [Bytes::new(bytes), Bytes::new((bytes % 1000) << unit)] {
                prop_assert_eq!(quantity::parse_size(&size_text(size)), Ok(size));
            }
            for time in [Duration::from_nanos(nanos), Duration::from_millis(nanos / 1_000_000), Duration::from_secs(nanos / 1_000_000_000)] {
                prop_assert_eq!(quantity::duration_from_text(&time_text(time)), Ok(time));
            }
        }
    }
}
