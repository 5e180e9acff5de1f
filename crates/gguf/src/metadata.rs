//! [`Metadata`]: the keys of a header and the values worth keeping.
use crate::{
    GgufError, limits,
    scan::Scan,
    value::{ARRAY, Scalar, TEXT, Value},
};
use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

/// Every key of a header. Long texts, long arrays and arrays of texts are known by key only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// `None`: the value was there and was skipped.
    entries: BTreeMap<String, Option<Value>>,
}

/// The least a pair takes: a length, one byte of key, a type, one byte of value.
const LEAST_PAIR: u64 = 8 + 1 + 4 + 1;

impl Metadata {
    /// Reads `n` pairs.
    pub(crate) fn read<R: Read + Seek>(scan: &mut Scan<R>, n: u64) -> Result<Self, GgufError> {
        scan.need_items(n, LEAST_PAIR, "the metadata")?;
        let mut entries = BTreeMap::new();
        let mut kept: u64 = 0;
        for _ in 0..n {
            let at = scan.at();
            let key = scan.name(limits::KEY_BYTES, "a key")?;
            let value = read_value(scan, &key)?;
            kept += value.as_ref().map_or(0, Value::weight) + u64::try_from(key.len()).unwrap_or(0);
            if kept > limits::KEPT_TOTAL {
                let (what, most) = ("bytes of metadata", limits::KEPT_TOTAL);
                return Err(GgufError::TooMany { what, at, found: kept, most });
            }
            if entries.contains_key(&key) {
                return Err(GgufError::DuplicateKey { key, at });
            }
            entries.insert(key, value);
        }
        Ok(Self { entries })
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether the key is there, its value kept or not.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The value, when it was kept.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)?.as_ref()
    }

    /// A non-negative integer of any width.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.value(key)?.as_u64()
    }

    /// A 32-bit floating number.
    pub fn f32(&self, key: &str) -> Option<f32> {
        self.value(key)?.as_f32()
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.value(key)?.as_bool()
    }

    /// A text of at most [`limits::KEPT_TEXT`] bytes.
    pub fn str(&self, key: &str) -> Option<&str> {
        self.value(key)?.as_str()
    }

    /// An array of non-negative integers, of at most [`limits::KEPT_ELEMENTS`].
    pub fn u64s(&self, key: &str) -> Option<Vec<u64>> {
        self.value(key)?.as_u64s()
    }

    /// An array of 32-bit floating numbers, of at most [`limits::KEPT_ELEMENTS`].
    pub fn f32s(&self, key: &str) -> Option<Vec<f32>> {
        self.value(key)?.as_f32s()
    }

    /// An array of truth values, of at most [`limits::KEPT_ELEMENTS`].
    pub fn bools(&self, key: &str) -> Option<Vec<bool>> {
        self.value(key)?.as_bools()
    }
}

fn read_value<R: Read + Seek>(scan: &mut Scan<R>, key: &str) -> Result<Option<Value>, GgufError> {
    match scan.u32("a value's type")? {
        TEXT => read_text(scan),
        ARRAY => read_array(scan, key),
        id => {
            let scalar = scalar(id, key)?;
            let raw = scan.bytes(bytes_of(1, scalar), 8, "a value")?;
            Ok(Some(Value::Scalar(scalar, raw.into())))
        }
    }
}

fn read_text<R: Read + Seek>(scan: &mut Scan<R>) -> Result<Option<Value>, GgufError> {
    let len = scan.u64("a text")?;
    if len > limits::KEPT_TEXT {
        scan.skip(len, "a text")?;
        return Ok(None);
    }
    let raw = scan.bytes(len, limits::KEPT_TEXT, "a text")?;
    // Licences and descriptions come in any encoding, and engines do not mind.
    Ok(Some(Value::Text(String::from_utf8(raw).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into()))))
}

fn read_array<R: Read + Seek>(scan: &mut Scan<R>, key: &str) -> Result<Option<Value>, GgufError> {
    let id = scan.u32("an array's type")?;
    let n = scan.u64("an array's length")?;
    if id == ARRAY {
        return Err(GgufError::NestedArray { key: key.into() });
    }
    if id == TEXT {
        scan.skip_texts(n, "an array of texts")?;
        return Ok(None);
    }
    let scalar = scalar(id, key)?;
    let len = bytes_of(n, scalar);
    if n > limits::KEPT_ELEMENTS {
        scan.skip(len, "an array")?;
        return Ok(None);
    }
    let raw = scan.bytes(len, len, "an array")?;
    Ok(Some(Value::Array(scalar, raw.into())))
}

fn scalar(id: u32, key: &str) -> Result<Scalar, GgufError> {
    Scalar::from_id(id).ok_or_else(|| GgufError::ValueType { key: key.into(), id })
}

fn bytes_of(n: u64, scalar: Scalar) -> u64 {
    n.saturating_mul(u64::try_from(scalar.size()).unwrap_or(u64::MAX))
}
