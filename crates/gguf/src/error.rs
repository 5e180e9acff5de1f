//! [`GgufError`]: why a file is refused, and where the reason stands in it.
use crate::TensorType;
use motorpool_vocab::FailureClass;
use std::io;

/// Why a file, or a set of shards, is no model that an engine could load.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The reader failed.
    #[error("reading byte {at} failed")]
    Io {
        /// Where in the file.
        at: u64,
        /// What the reader said.
        source: io::Error,
    },
    /// The file is shorter than what it announces.
    #[error("the file ends inside {what}, which begins at byte {at}: it is truncated or damaged")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it begins.
        at: u64,
    },
    /// Another format.
    #[error("not a GGUF file: it begins with \"{}\" instead of \"GGUF\"", .found.escape_ascii())]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// Written for a machine of the other byte order.
    #[error("a big-endian GGUF file: convert it for little-endian machines")]
    BigEndian,
    /// Too old or too new.
    #[error("GGUF version {found}, versions 2 and 3 are supported{}", if *.found == 1 { ": convert the model again" } else { "" })]
    Version {
        /// What the file says.
        found: u32,
    },
    /// More than [`crate::limits`] allow.
    #[error("{found} {what} announced at byte {at}, at most {most} are accepted")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// Where the number stands.
        at: u64,
        /// The number.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// A key or a tensor's name that is no text.
    #[error("{what} at byte {at} is empty, holds a zero byte or is not UTF-8")]
    Text {
        /// Which kind of text.
        what: &'static str,
        /// Where it begins.
        at: u64,
    },
    /// Two values for one key.
    #[error("key `{}` appears twice, the second time at byte {at}", shown(.key))]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it appears again.
        at: u64,
    },
    /// A value of a type that the format does not have.
    #[error("key `{}` has the unknown value type {id}", shown(.key))]
    ValueType {
        /// The key.
        key: String,
        /// The type's number.
        id: u32,
    },
    /// An array of arrays.
    #[error("key `{}` is an array of arrays", shown(.key))]
    NestedArray {
        /// The key.
        key: String,
    },
    /// A value that makes no sense.
    #[error("key `{}` {problem}", shown(.key))]
    Key {
        /// The key.
        key: String,
        /// What is wrong with its value.
        problem: String,
    },
    /// Two tensors of one name.
    #[error("tensor `{}` appears twice", shown(.name))]
    DuplicateTensor {
        /// The name.
        name: String,
    },
    /// A shape that no tensor has.
    #[error("tensor `{}` has {n_dims} dimensions, not 1 to 4", shown(.name))]
    Dimensions {
        /// The tensor.
        name: String,
        /// How many it claims.
        n_dims: u32,
    },
    /// Dimensions that are zero, negative, or too large together.
    #[error("tensor `{}` has the impossible shape {ne:?}", shown(.name))]
    Shape {
        /// The tensor.
        name: String,
        /// Its dimensions as they stand in the file.
        ne: [u64; 4],
    },
    /// A type that engines no longer read, or a number that was never one.
    #[error("tensor `{}` has the removed or invalid type {id}: convert the model again", shown(.name))]
    RemovedType {
        /// The tensor.
        name: String,
        /// The type's number.
        id: u32,
    },
    /// A row that does not consist of whole blocks.
    #[error("tensor `{}` has rows of {row} elements, not a multiple of the {block} in a block of {kind}", shown(.name))]
    Row {
        /// The tensor.
        name: String,
        /// Elements in a row.
        row: u64,
        /// Elements in a block.
        block: u64,
        /// The tensor's type.
        kind: TensorType,
    },
    /// A gap, an overlap or another order than declared.
    #[error("tensor `{}` is said to be at offset {found}, its predecessors end at {expected}", shown(.name))]
    Offset {
        /// The tensor.
        name: String,
        /// What the file says, from the start of the tensor data.
        found: u64,
        /// The padded sum of the tensors before it.
        expected: u64,
    },
    /// An unknown type whose size the next offset does not tell.
    #[error("tensor `{}` has the unknown type {id}, and the offset after it does not tell its size", shown(.name))]
    UnknownSize {
        /// The tensor.
        name: String,
        /// The type's number.
        id: u32,
    },
    /// Tensor data that is not there.
    #[error("tensor `{}` ends beyond the file of {file_len} bytes: it is truncated or damaged", shown(.name))]
    OutOfFile {
        /// The tensor.
        name: String,
        /// The file's length.
        file_len: u64,
    },
    /// A file name that is no usable shard.
    #[error("`{}` {problem}", shown(.file))]
    ShardName {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Shards that are not of one model, or not all of them.
    #[error("shard {shard}: {problem}")]
    Shards {
        /// Which one, from 1 as in file names; 0 for all together.
        shard: usize,
        /// What does not agree.
        problem: String,
    },
}

impl GgufError {
    /// What kind of failure a start with this file would end with.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::BigEndian | Self::Version { .. } | Self::RemovedType { .. } | Self::UnknownSize { .. } => {
                FailureClass::ModelUnsupported
            }
            Self::Io { .. } => FailureClass::Unknown,
            Self::ShardName { .. } => FailureClass::BadArguments,
            Self::Truncated { .. }
            | Self::Magic { .. }
            | Self::TooMany { .. }
            | Self::Text { .. }
            | Self::DuplicateKey { .. }
            | Self::ValueType { .. }
            | Self::NestedArray { .. }
            | Self::Key { .. }
            | Self::DuplicateTensor { .. }
            | Self::Dimensions { .. }
            | Self::Shape { .. }
            | Self::Row { .. }
            | Self::Offset { .. }
            | Self::OutOfFile { .. }
            | Self::Shards { .. } => FailureClass::ModelCorrupt,
        }
    }
}

/// A name from a file as it may stand in a log: on one line, and not for pages.
fn shown(name: &str) -> String {
    const MOST: usize = 100;
    let clipped: String = name.chars().take(MOST).collect();
    let dots = if clipped.len() < name.len() { "…" } else { "" };
    format!("{}{dots}", clipped.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_neither_breaks_the_line_nor_fills_the_log() {
        let error = GgufError::NestedArray { key: "a\n\u{1b}[31mERROR".into() };
        assert_eq!(error.to_string(), r"key `a\n\u{1b}[31mERROR` is an array of arrays");
        let error = GgufError::DuplicateTensor { name: "é".repeat(1000) };
        assert_eq!(error.to_string(), format!("tensor `{}…` appears twice", "é".repeat(100)));
    }
}
