//! What the reader accepts and refuses, against files of the writer.
use motorpool_gguf::{GgufError, Header, TensorType, read_header, write::Writer};
use std::io::Cursor;

mod bounds;
mod damage;
mod kinds;
mod measured;
mod metadata;
mod properties;
mod seeds;
mod shapes;
mod shards;
mod sizing;
mod tensors;

/// Reads a file that is as long as it is.
fn read(file: &[u8]) -> Result<Header, GgufError> {
    read_header(Cursor::new(file), length(file))
}

/// The refusal of what the writer was told.
fn refusal(writer: &Writer) -> GgufError {
    read(&writer.finish()).expect_err("the file is refused")
}

fn length(file: &[u8]) -> u64 {
    u64::try_from(file.len()).expect("files are small")
}

/// A key and what follows it, byte by byte.
fn pair(key: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let len = length(key);
    [&len.to_le_bytes(), key, &rest.concat()].concat()
}

/// Two layers, three kinds of arrays, no tensors yet.
fn keys() -> Writer {
    Writer::new()
        .set("general.architecture", "llama")
        .set("llama.context_length", 4096_u32)
        .set("llama.block_count", 2_u32)
        .set("llama.attention.head_count_kv", [4_u32, 8].as_slice())
        .set("tokenizer.ggml.tokens", ["<s>", "a", ""].map(String::from).to_vec())
        .set("tokenizer.ggml.scores", [0_f32, -1.5].as_slice())
}

/// A whole small file: 32 bytes of `a`, 102 bytes of `b` after it.
fn whole() -> Writer {
    keys().tensor("a", TensorType::F32, &[4, 2], vec![1; 32]).tensor("b", TensorType::Q8_0, &[32, 3], vec![2; 102])
}
