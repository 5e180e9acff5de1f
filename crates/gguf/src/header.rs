//! [`Header`]: everything a file says about itself, after every check passed.
use crate::{
    GgufError, Metadata, Scalar, Split, Tensor, Value, limits,
    scan::Scan,
    tensor::{DataArea, Declarations},
};
use motorpool_vocab::Bytes;
use std::io::{Read, Seek};

/// A checked header. All tensors lie inside the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    version: u32,
    alignment: u64,
    data_start: u64,
    metadata: Metadata,
    tensors: Vec<Tensor>,
}

const ALIGNMENT: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// Reads the header of a file of `file_len` bytes and checks every tensor's bounds against that length.
///
/// Tensor data is not read, long arrays are passed over. Little-endian versions 2 and 3.
pub fn read_header<R: Read + Seek>(reader: R, file_len: u64) -> Result<Header, GgufError> {
    let mut scan = Scan::new(reader, file_len)?;
    let version = read_version(&mut scan)?;
    let n_tensors = read_count(&mut scan, "tensors", limits::TENSORS)?;
    let n_keys = read_count(&mut scan, "keys", limits::KEYS)?;
    let metadata = Metadata::read(&mut scan, n_keys)?;
    let alignment = alignment(&metadata)?;
    let declared = Declarations::read(&mut scan, n_tensors)?;
    let data_start = if n_tensors == 0 { scan.at() } else { scan.at().next_multiple_of(alignment) };
    let tensors = declared.place(&DataArea { start: data_start, alignment, file_len })?;
    Ok(Header { version, alignment, data_start, metadata, tensors })
}

fn read_version<R: Read + Seek>(scan: &mut Scan<R>) -> Result<u32, GgufError> {
    let found = scan.array("the magic")?;
    if &found != b"GGUF" {
        return Err(GgufError::Magic { found });
    }
    match scan.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        // The small number of the other byte order: its low half is zero.
        swapped if swapped != 0 && swapped.trailing_zeros() >= 16 => Err(GgufError::BigEndian),
        found => Err(GgufError::Version { found }),
    }
}

fn read_count<R: Read + Seek>(scan: &mut Scan<R>, what: &'static str, most: u64) -> Result<u64, GgufError> {
    let at = scan.at();
    let found = scan.u64("the counts")?;
    if found > most { Err(GgufError::TooMany { what, at, found, most }) } else { Ok(found) }
}

/// llama.cpp takes the alignment as an unsigned number of 32 bits only.
fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    if !metadata.has(ALIGNMENT) {
        return Ok(DEFAULT_ALIGNMENT);
    }
    let number = metadata.value(ALIGNMENT).filter(|value| matches!(value, Value::Scalar(Scalar::U32, _)));
    let power = number.and_then(Value::as_u64).filter(|n| n.is_power_of_two());
    power.ok_or_else(|| bad_key(ALIGNMENT, "is not a power of two of type u32".into()))
}

fn bad_key(key: &str, problem: String) -> GgufError {
    GgufError::Key { key: key.into(), problem }
}

impl Header {
    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensors are aligned to, a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The offset of the tensor data in the file: the header's length with its padding.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The tensors in declared order, which is their order in the file.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Every key, and the values that were kept.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The weights of this file: the sum over tensors, without padding.
    pub fn tensor_bytes(&self) -> Bytes {
        Bytes::sum(self.tensors.iter().map(|tensor| tensor.bytes))
    }

    /// The model's family, such as `llama`. Only the first shard has one.
    pub fn architecture(&self) -> Option<&str> {
        self.metadata.str("general.architecture")
    }

    /// The name of a hyperparameter: `<architecture>.<name>`.
    pub fn hyper_key(&self, name: &str) -> Option<String> {
        self.architecture().map(|architecture| format!("{architecture}.{name}"))
    }

    /// The hyperparameter `<architecture>.<name>`, a non-negative integer.
    pub fn hyper(&self, name: &str) -> Option<u64> {
        self.metadata.u64(&self.hyper_key(name)?)
    }

    /// Tokens of context the model was trained for.
    pub fn context_length(&self) -> Option<u64> {
        self.hyper("context_length")
    }

    /// Layers. Not checked; [`Header::per_block`] does.
    pub fn block_count(&self) -> Option<u64> {
        self.hyper("block_count")
    }

    /// A hyperparameter that is one number for all layers or an array with one for each, as `attention.head_count_kv`:
    /// always one for each. `None` when the model has no such key.
    pub fn per_block(&self, name: &str) -> Result<Option<Vec<u64>>, GgufError> {
        let Some(key) = self.hyper_key(name).filter(|key| self.metadata.has(key)) else { return Ok(None) };
        let n_blocks = self.checked_block_count()?;
        if let Some(all) = self.metadata.u64(&key) {
            return Ok(Some(vec![all; n_blocks]));
        }
        let Some(mut each) = self.metadata.u64s(&key) else {
            return Err(bad_key(&key, "is neither a number nor an array of numbers".into()));
        };
        if each.len() < n_blocks {
            return Err(bad_key(&key, format!("has {} elements for {n_blocks} layers", each.len())));
        }
        each.truncate(n_blocks);
        Ok(Some(each))
    }

    /// Layers, between one and [`limits::BLOCKS`].
    pub(crate) fn checked_block_count(&self) -> Result<usize, GgufError> {
        let count = self.block_count();
        let fits = count.filter(|n| (1..=limits::BLOCKS).contains(n)).and_then(|n| usize::try_from(n).ok());
        fits.ok_or_else(|| {
            let key = self.hyper_key("block_count").unwrap_or_default();
            let problem = count.map_or("is missing or not a number".into(), |n| format!("is {n}"));
            bad_key(&key, format!("{problem}, not 1 to {} layers", limits::BLOCKS))
        })
    }

    /// What the file says about the model's shards; `None` for a model in one file.
    pub fn split(&self) -> Option<Split> {
        Split::of(&self.metadata)
    }
}
