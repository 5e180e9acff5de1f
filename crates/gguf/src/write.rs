//! [`Writer`]: small GGUF files, whole or wrong on purpose.
//!
//! The writer checks nothing: a test that wants a duplicate key or a wrong offset says so and gets it. What it is
//! told without such wishes reads back as it was put in.
use crate::{
    TensorType,
    value::{ARRAY, Scalar, TEXT, Value},
};

mod noise;
mod probe;
mod smoke;

pub use noise::Noise;
pub use probe::{PROBED_TYPES, probe_model};
pub use smoke::{Smoke, smoke_model, with_tokenizer};

/// A file being put together. Pairs and tensors keep the order in which they were added.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    alignment: u64,
    counts: Option<(u64, u64)>,
    pairs: Vec<Vec<u8>>,
    tensors: Vec<Described>,
}

#[derive(Clone, Debug)]
struct Described {
    name: Vec<u8>,
    ne: Vec<u64>,
    kind: TensorType,
    offset: Option<u64>,
    data: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// An empty file of version 3.
    pub const fn new() -> Self {
        Self { version: 3, alignment: 32, counts: None, pairs: Vec::new(), tensors: Vec::new() }
    }

    /// Claims this version.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Pads to `alignment`, a power of two, and says so in the metadata.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment.into();
        self.set("general.alignment", alignment)
    }

    /// Adds a key and its value.
    #[must_use]
    pub fn set(self, key: &str, value: impl Into<Value>) -> Self {
        let mut pair = Vec::new();
        put_text(&mut pair, key.as_bytes());
        put_value(&mut pair, &value.into());
        self.raw_pair(pair)
    }

    /// Adds bytes in the place of a key and its value.
    #[must_use]
    pub fn raw_pair(mut self, pair: Vec<u8>) -> Self {
        self.pairs.push(pair);
        self
    }

    /// Adds a tensor at the next offset.
    #[must_use]
    pub fn tensor(mut self, name: impl Into<Vec<u8>>, kind: TensorType, ne: &[u64], data: Vec<u8>) -> Self {
        self.tensors.push(Described { name: name.into(), ne: ne.into(), kind, offset: None, data });
        self
    }

    /// Makes the tensor added last claim this offset; its data stays where it is.
    #[must_use]
    pub fn claim_offset(mut self, offset: u64) -> Self {
        if let Some(last) = self.tensors.last_mut() {
            last.offset = Some(offset);
        }
        self
    }

    /// Claims these numbers of tensors and keys.
    #[must_use]
    pub const fn claim_counts(mut self, n_tensors: u64, n_keys: u64) -> Self {
        self.counts = Some((n_tensors, n_keys));
        self
    }

    /// The file.
    pub fn finish(&self) -> Vec<u8> {
        let (n_tensors, n_keys) = self.counts.unwrap_or((count(&self.tensors), count(&self.pairs)));
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(n_tensors.to_le_bytes());
        file.extend(n_keys.to_le_bytes());
        self.pairs.iter().for_each(|pair| file.extend(pair));
        self.describe(&mut file);
        for tensor in &self.tensors {
            self.pad(&mut file);
            file.extend(&tensor.data);
        }
        file
    }

    fn describe(&self, file: &mut Vec<u8>) {
        let mut next: u64 = 0;
        for tensor in &self.tensors {
            put_text(file, &tensor.name);
            let n_dims = u32::try_from(tensor.ne.len()).unwrap_or(u32::MAX);
            file.extend(n_dims.to_le_bytes());
            tensor.ne.iter().for_each(|n| file.extend(n.to_le_bytes()));
            file.extend(tensor.kind.id().to_le_bytes());
            file.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next = (next + count(&tensor.data)).next_multiple_of(self.alignment);
        }
    }

    fn pad(&self, file: &mut Vec<u8>) {
        let len = count(file).next_multiple_of(self.alignment);
        file.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
    }
}

fn count<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(count(text).to_le_bytes());
    out.extend(text);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Scalar(scalar, raw) => {
            out.extend(scalar.id().to_le_bytes());
            out.extend(raw);
        }
        Value::Text(text) => {
            out.extend(TEXT.to_le_bytes());
            put_text(out, text.as_bytes());
        }
        Value::Array(scalar, raw) => {
            put_array(out, scalar.id(), raw.len() / Scalar::size(*scalar));
            out.extend(raw);
        }
        Value::Texts(texts) => {
            put_array(out, TEXT, texts.len());
            for text in texts {
                put_text(out, text.as_bytes());
            }
        }
    }
}

fn put_array(out: &mut Vec<u8>, id: u32, n: usize) {
    out.extend(ARRAY.to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend(u64::try_from(n).unwrap_or(u64::MAX).to_le_bytes());
}
