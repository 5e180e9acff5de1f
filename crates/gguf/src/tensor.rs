//! [`Tensor`]: what a file says about its weights, and the proof that they are inside it.
//!
//! llama.cpp wants each offset to be the padded sum of the sizes before it, in declared order. The same rule here
//! also tells the size of a tensor whose type is newer than this table: up to where the next one begins.
use crate::{GgufError, limits, scan::Scan};
use motorpool_vocab::Bytes;
use std::{
    fmt,
    io::{Read, Seek},
};

/// One tensor of a file. It lies inside the file, and no other tensor overlaps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, at most 63 bytes.
    pub name: String,
    /// Elements per dimension, the row first; 1 where there is no dimension.
    pub ne: [u64; 4],
    /// How elements are stored.
    pub kind: TensorType,
    /// Where it begins, counted from the start of the tensor data.
    pub offset: u64,
    /// Its size without padding. Of an unknown type: up to the next tensor, or to the end of the file.
    pub bytes: Bytes,
}

/// How a tensor's elements are stored, by its number in files. Numbers newer than this program are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType(u32);

macro_rules! types {
    ($($name:ident = $id:literal: $block:literal elements in $bytes:literal;)+) => {
        /// The types that have a layout; the numbers are those of ggml 0.26.
        #[expect(missing_docs, reason = "the names are ggml's")]
        impl TensorType {
            $(pub const $name: Self = Self($id);)+

            /// Every type with a known layout.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// ggml's name, `None` for a number that is unknown here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($id => Some(stringify!($name)),)+ _ => None }
            }

            /// Elements of a block and its bytes, `None` for a number that is unknown here.
            pub const fn layout(self) -> Option<(u64, u64)> {
                match self.0 { $($id => Some(($block, $bytes)),)+ _ => None }
            }
        }
    };
}

types! {
    F32 = 0: 1 elements in 4;
    F16 = 1: 1 elements in 2;
    Q4_0 = 2: 32 elements in 18;
    Q4_1 = 3: 32 elements in 20;
    Q5_0 = 6: 32 elements in 22;
    Q5_1 = 7: 32 elements in 24;
    Q8_0 = 8: 32 elements in 34;
    Q8_1 = 9: 32 elements in 36;
    Q2_K = 10: 256 elements in 84;
    Q3_K = 11: 256 elements in 110;
    Q4_K = 12: 256 elements in 144;
    Q5_K = 13: 256 elements in 176;
    Q6_K = 14: 256 elements in 210;
    Q8_K = 15: 256 elements in 292;
    IQ2_XXS = 16: 256 elements in 66;
    IQ2_XS = 17: 256 elements in 74;
    IQ3_XXS = 18: 256 elements in 98;
    IQ1_S = 19: 256 elements in 50;
    IQ4_NL = 20: 32 elements in 18;
    IQ3_S = 21: 256 elements in 110;
    IQ2_S = 22: 256 elements in 82;
    IQ4_XS = 23: 256 elements in 136;
    I8 = 24: 1 elements in 1;
    I16 = 25: 1 elements in 2;
    I32 = 26: 1 elements in 4;
    I64 = 27: 1 elements in 8;
    F64 = 28: 1 elements in 8;
    IQ1_M = 29: 256 elements in 56;
    BF16 = 30: 1 elements in 2;
    TQ1_0 = 34: 256 elements in 54;
    TQ2_0 = 35: 256 elements in 66;
    MXFP4 = 39: 32 elements in 17;
    NVFP4 = 40: 64 elements in 36;
    Q1_0 = 41: 128 elements in 18;
    Q2_0 = 42: 64 elements in 18;
}

impl TensorType {
    /// The type with this number, known or not.
    pub const fn from_id(id: u32) -> Self {
        Self(id)
    }

    /// The number in files.
    pub const fn id(self) -> u32 {
        self.0
    }

    /// Whether no engine reads it: taken out of the format, or negative where files hold a signed number.
    const fn is_removed(self) -> bool {
        matches!(self.0, 4 | 5 | 31..=33 | 36..=38 | 0x8000_0000..)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// The least a description takes: a length, one byte of name, dimensions' number and one of them, type, offset.
const LEAST_TENSOR: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// A tensor before its place is proven. `size` is `None` for an unknown type.
struct Declared {
    name: String,
    ne: [u64; 4],
    kind: TensorType,
    size: Option<u64>,
    offset: u64,
}

/// Where the tensor data is.
pub(crate) struct DataArea {
    pub(crate) start: u64,
    pub(crate) alignment: u64,
    pub(crate) file_len: u64,
}

/// Descriptions that stand in the file one after another.
pub(crate) struct Declarations(Vec<Declared>);

impl Declarations {
    /// Reads `n` descriptions; each is possible by itself.
    pub(crate) fn read<R: Read + Seek>(scan: &mut Scan<R>, n: u64) -> Result<Self, GgufError> {
        scan.need_items(n, LEAST_TENSOR, "the tensor descriptions")?;
        let tensors: Vec<Declared> = (0..n).map(|_| Declared::read(scan)).collect::<Result<_, _>>()?;
        check_names(tensors.iter().map(|tensor| tensor.name.as_str()))?;
        Ok(Self(tensors))
    }

    /// Proves that together they fill the data area in order and end inside the file.
    pub(crate) fn place(self, area: &DataArea) -> Result<Vec<Tensor>, GgufError> {
        let mut expected = 0;
        let mut placed = Vec::with_capacity(self.0.len());
        let mut rest = self.0.into_iter().peekable();
        while let Some(tensor) = rest.next() {
            if tensor.offset != expected {
                return Err(GgufError::Offset { name: tensor.name, found: tensor.offset, expected });
            }
            let size = match tensor.size {
                Some(size) => size,
                None => tensor.size_to(rest.peek(), area)?,
            };
            let Some(end) = end_inside(tensor.offset, size, area) else {
                return Err(GgufError::OutOfFile { name: tensor.name, file_len: area.file_len });
            };
            // No overflow: before the data, the file has at least one alignment's bytes.
            expected = end.next_multiple_of(area.alignment);
            let Declared { name, ne, kind, offset, .. } = tensor;
            placed.push(Tensor { name, ne, kind, offset, bytes: Bytes::new(size) });
        }
        Ok(placed)
    }
}

impl Declared {
    fn read<R: Read + Seek>(scan: &mut Scan<R>) -> Result<Self, GgufError> {
        let name = scan.name(limits::NAME_BYTES, "a tensor's name")?;
        let n_dims = scan.u32("a tensor's dimensions")?;
        if !(1..=4).contains(&n_dims) {
            return Err(GgufError::Dimensions { name, n_dims });
        }
        let mut ne = [1; 4];
        for (n, _) in ne.iter_mut().zip(0..n_dims) {
            *n = scan.u64("a tensor's dimensions")?;
        }
        let kind = TensorType(scan.u32("a tensor's type")?);
        if kind.is_removed() {
            return Err(GgufError::RemovedType { name, id: kind.0 });
        }
        let size = size_of_shape(&name, ne, kind)?;
        let offset = scan.u64("a tensor's offset")?;
        Ok(Self { name, ne, kind, size, offset })
    }

    /// The size of an unknown type: the room up to the next tensor, or up to the end of the file.
    fn size_to(&self, next: Option<&Self>, area: &DataArea) -> Result<u64, GgufError> {
        let end = match next {
            Some(next) => Some(next.offset).filter(|offset| offset.is_multiple_of(area.alignment)),
            None => area.file_len.checked_sub(area.start),
        };
        let room = end.and_then(|end| end.checked_sub(self.offset)).filter(|room| *room > 0);
        room.ok_or_else(|| GgufError::UnknownSize { name: self.name.clone(), id: self.kind.0 })
    }
}

/// Bytes of a shape; `None` when the type's layout is unknown. The number of elements fits `i64`, as ggml wants.
fn size_of_shape(name: &str, ne: [u64; 4], kind: TensorType) -> Result<Option<u64>, GgufError> {
    let impossible = || GgufError::Shape { name: name.into(), ne };
    let product = ne.iter().try_fold(1_u64, |product, n| product.checked_mul(*n));
    let elements = product.filter(|n| (1..i64::MAX.cast_unsigned()).contains(n)).ok_or_else(impossible)?;
    let Some((block, bytes)) = kind.layout() else { return Ok(None) };
    let row = ne[0];
    if !row.is_multiple_of(block) {
        return Err(GgufError::Row { name: name.into(), row, block, kind });
    }
    (elements / block).checked_mul(bytes).map(Some).ok_or_else(impossible)
}

/// Where the tensor ends, from the start of the data area, if that is inside the file.
fn end_inside(offset: u64, size: u64, area: &DataArea) -> Option<u64> {
    let end = offset.checked_add(size)?;
    (area.start.checked_add(end)? <= area.file_len).then_some(end)
}

/// Sorting finds a name that appears twice without comparing every pair, whatever the file claims.
pub(crate) fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), GgufError> {
    let mut sorted: Vec<&str> = names.collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(GgufError::DuplicateTensor { name: pair[0].into() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_has_a_name_and_is_not_removed() {
        for kind in TensorType::ALL {
            assert!(kind.name().is_some() && !kind.is_removed(), "{kind}");
        }
        assert_eq!(TensorType::IQ2_XXS.to_string(), "IQ2_XXS");
        assert_eq!(TensorType::from_id(142).to_string(), "type 142");
    }

    #[test]
    fn numbers_up_to_the_newest_are_known_or_removed() {
        let strange: Vec<u32> =
            (0..=42).map(TensorType).filter(|kind| kind.layout().is_some() == kind.is_removed()).map(|k| k.0).collect();
        assert_eq!(strange, Vec::<u32>::new());
    }

    #[test]
    fn sizes_are_those_of_blocks() {
        let size = |kind, ne| size_of_shape("t", ne, kind).ok().flatten();
        assert_eq!(size(TensorType::F16, [3, 5, 1, 1]), Some(30));
        assert_eq!(size(TensorType::Q4_K, [512, 2, 1, 1]), Some(4 * 144));
        assert_eq!(size(TensorType::Q8_0, [33, 2, 1, 1]), None);
        assert_eq!(size(TensorType::from_id(99), [33, 2, 1, 1]), None);
    }
}
