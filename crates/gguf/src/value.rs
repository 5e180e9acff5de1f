//! [`Value`]: one metadata value as it stands in the file, and what it means as a number.
use std::mem::size_of;

/// The types of fixed size, alone or as elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed.
    I8,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    I16,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    I32,
    /// 32 bits, floating.
    F32,
    /// One byte, true unless zero.
    Bool,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// 64 bits, floating.
    F64,
}

/// The number of the text type in a file.
pub(crate) const TEXT: u32 = 8;
/// The number of the array type in a file.
pub(crate) const ARRAY: u32 = 9;

impl Scalar {
    const ALL: [(u32, Self, usize); 11] = [
        (0, Self::U8, 1),
        (1, Self::I8, 1),
        (2, Self::U16, 2),
        (3, Self::I16, 2),
        (4, Self::U32, 4),
        (5, Self::I32, 4),
        (6, Self::F32, 4),
        (7, Self::Bool, 1),
        (10, Self::U64, 8),
        (11, Self::I64, 8),
        (12, Self::F64, 8),
    ];

    /// The type with this number in files.
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, ..)| *known == id).map(|(_, scalar, _)| scalar)
    }

    /// Its number in files.
    pub(crate) fn id(self) -> u32 {
        self.row().0
    }

    /// Bytes of one value.
    pub fn size(self) -> usize {
        self.row().2
    }

    fn row(self) -> (u32, Self, usize) {
        Self::ALL.into_iter().find(|(_, scalar, _)| *scalar == self).expect("ALL lists every scalar")
    }

    /// One element as an unsigned number; `None` when it is no integer or negative.
    fn unsigned(self, raw: &[u8]) -> Option<u64> {
        match self {
            Self::U8 => le(raw).map(u8::from_le_bytes).map(u64::from),
            Self::U16 => le(raw).map(u16::from_le_bytes).map(u64::from),
            Self::U32 => le(raw).map(u32::from_le_bytes).map(u64::from),
            Self::U64 => le(raw).map(u64::from_le_bytes),
            Self::I8 => u64::try_from(i8::from_le_bytes(le(raw)?)).ok(),
            Self::I16 => u64::try_from(i16::from_le_bytes(le(raw)?)).ok(),
            Self::I32 => u64::try_from(i32::from_le_bytes(le(raw)?)).ok(),
            Self::I64 => u64::try_from(i64::from_le_bytes(le(raw)?)).ok(),
            Self::F32 | Self::Bool | Self::F64 => None,
        }
    }

    fn float(self, raw: &[u8]) -> Option<f32> {
        (self == Self::F32).then(|| le(raw).map(f32::from_le_bytes)).flatten()
    }

    fn truth(self, raw: &[u8]) -> Option<bool> {
        (self == Self::Bool).then(|| raw.first().map(|byte| *byte != 0)).flatten()
    }
}

/// The first `N` bytes.
fn le<const N: usize>(raw: &[u8]) -> Option<[u8; N]> {
    raw.first_chunk().copied()
}

/// A metadata value. Numbers are kept as the file's little-endian bytes, so that a small array stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One number or truth value.
    Scalar(Scalar, Box<[u8]>),
    /// A text. Bytes that are not UTF-8 were replaced when it was read.
    Text(String),
    /// An array of numbers or truth values, back to back.
    Array(Scalar, Box<[u8]>),
    /// An array of texts: written, but never kept by the reader.
    Texts(Vec<String>),
}

impl Value {
    /// A non-negative integer of any width.
    pub fn as_u64(&self) -> Option<u64> {
        let Self::Scalar(scalar, raw) = self else { return None };
        scalar.unsigned(raw)
    }

    /// A 32-bit floating number.
    pub fn as_f32(&self) -> Option<f32> {
        let Self::Scalar(scalar, raw) = self else { return None };
        scalar.float(raw)
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        let Self::Scalar(scalar, raw) = self else { return None };
        scalar.truth(raw)
    }

    /// A text.
    pub fn as_str(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text)
    }

    /// An array of non-negative integers of any width.
    pub fn as_u64s(&self) -> Option<Vec<u64>> {
        self.elements(Scalar::unsigned)
    }

    /// An array of 32-bit floating numbers.
    pub fn as_f32s(&self) -> Option<Vec<f32>> {
        self.elements(Scalar::float)
    }

    /// An array of truth values.
    pub fn as_bools(&self) -> Option<Vec<bool>> {
        self.elements(Scalar::truth)
    }

    fn elements<T>(&self, read: impl Fn(Scalar, &[u8]) -> Option<T>) -> Option<Vec<T>> {
        let Self::Array(scalar, raw) = self else { return None };
        raw.chunks_exact(scalar.size()).map(|element| read(*scalar, element)).collect()
    }

    /// Bytes that keeping it takes.
    pub(crate) fn weight(&self) -> u64 {
        let len = match self {
            Self::Scalar(_, raw) | Self::Array(_, raw) => raw.len(),
            Self::Text(text) => text.len(),
            Self::Texts(texts) => texts.iter().map(|text| text.len() + size_of::<String>()).sum(),
        };
        u64::try_from(len + size_of::<Self>()).unwrap_or(u64::MAX)
    }
}

macro_rules! from_plain {
    ($($plain:ty => $scalar:ident),+ $(,)?) => { $(
        impl From<$plain> for Value {
            fn from(plain: $plain) -> Self {
                Self::Scalar(Scalar::$scalar, plain.to_le_bytes().into())
            }
        }

        impl From<&[$plain]> for Value {
            fn from(plain: &[$plain]) -> Self {
                Self::Array(Scalar::$scalar, plain.iter().flat_map(|element| element.to_le_bytes()).collect())
            }
        }
    )+ };
}

from_plain! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, u64 => U64, i64 => I64, f64 => F64,
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Scalar(Scalar::Bool, [u8::from(truth)].into())
    }
}

impl From<&[bool]> for Value {
    fn from(truths: &[bool]) -> Self {
        Self::Array(Scalar::Bool, truths.iter().map(|truth| u8::from(*truth)).collect())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_of_any_width_is_read_unless_it_is_negative() {
        let values =
            [Value::from(7_u8), 7_i8.into(), 7_u16.into(), 7_i16.into(), 7_u32.into(), 7_i32.into(), 7_i64.into()];
        assert!(values.iter().all(|value| value.as_u64() == Some(7)));
        assert_eq!(Value::from(u64::MAX).as_u64(), Some(u64::MAX));
        assert_eq!(Value::from(-7_i64).as_u64(), None);
        assert_eq!(Value::from([1_i32, -1].as_slice()).as_u64s(), None);
    }

    #[test]
    fn a_value_of_another_type_is_not_converted() {
        assert_eq!(Value::from(true).as_u64(), None);
        assert_eq!(Value::from(1.5_f64).as_f32(), None);
        assert_eq!(Value::from(1_u8).as_bool(), None);
        assert_eq!(Value::from([1_u32].as_slice()).as_u64(), None);
        assert_eq!(Value::from(1_u32).as_u64s(), None);
        assert_eq!(Value::from("1").as_u64(), None);
        assert_eq!(Value::from([1_u32].as_slice()).as_bools(), None);
    }

    #[test]
    fn every_byte_but_zero_is_true() {
        assert_eq!(Value::Scalar(Scalar::Bool, [2].into()).as_bool(), Some(true));
        assert_eq!(Value::Array(Scalar::Bool, [0, 255].into()).as_bools(), Some(vec![false, true]));
    }

    #[test]
    fn types_are_found_by_their_number_and_8_and_9_are_no_scalars() {
        let found: Vec<u32> = (0..20).filter_map(Scalar::from_id).map(Scalar::id).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12]);
    }
}
