//! Models of a few hundred kilobytes that a real engine loads and answers with: readable nonsense, always the same.
//!
//! The `llama` architecture with pseudo-random weights. Texts are encoded by characters, and by single bytes where
//! there is no character. In the output matrix the rows of control and byte tokens and of punctuation are zero, so that
//! sampling from the best tokens yields letters, digits and words only: an answer is valid text, means nothing to
//! parsers of thoughts or tool calls, and goes on until its token limit.
use super::{Noise, Writer};
use crate::TensorType;

const N_EMBD: u64 = 64;
const N_HEAD: u64 = 2;
const N_HEAD_KV: u64 = 1;
/// 32 elements, so that a quantised KV cache has whole blocks.
const HEAD: u64 = N_EMBD / N_HEAD;
const N_FF: u64 = 192;

const WORDS: &str = "pool engine lease slot ready idle warm load spawn claim ledger bytes queue drain token frame model \
                     key gate watch keeper signal budget device room grant wait serve stream answer";

/// What llama.cpp calls a token's type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    Byte = 6,
}

/// What may differ between smoke models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smoke {
    /// Tokens of context it was "trained" for: engines allow no more in a slot.
    pub context: u32,
    /// Layers, about 100 KB each. More of them answer more slowly.
    pub n_blocks: u32,
    /// Another seed gives other answers.
    pub seed: u64,
}

impl Default for Smoke {
    /// 8192 tokens, two layers.
    fn default() -> Self {
        Self { context: 8192, n_blocks: 2, seed: 0 }
    }
}

/// The default smoke model, about 300 KB.
pub fn smoke_model() -> Vec<u8> {
    Smoke::default().writer().finish()
}

impl Smoke {
    /// The model as a writer, to be finished, or spoilt first.
    pub fn writer(self) -> Writer {
        let vocabulary = vocabulary();
        let n_vocab = u64::try_from(vocabulary.len()).unwrap_or(u64::MAX);
        let mut noise = Noise::new(self.seed);
        let writer = tokenizer(self.hyperparameters(), &vocabulary)
            .tensor("token_embd.weight", TensorType::F16, &[N_EMBD, n_vocab], noise.f16(N_EMBD * n_vocab))
            .tensor("output_norm.weight", TensorType::F32, &[N_EMBD], ones())
            .tensor("output.weight", TensorType::F16, &[N_EMBD, n_vocab], output(&vocabulary, &mut noise));
        (0..self.n_blocks).fold(writer, |writer, n| block(writer, n, &mut noise))
    }

    fn hyperparameters(self) -> Writer {
        Writer::new()
            .set("general.architecture", "llama")
            .set("general.name", "motorpool smoke model")
            .set("general.file_type", 1_u32)
            .set("llama.context_length", self.context)
            .set("llama.embedding_length", as_u32(N_EMBD))
            .set("llama.block_count", self.n_blocks)
            .set("llama.feed_forward_length", as_u32(N_FF))
            .set("llama.attention.head_count", as_u32(N_HEAD))
            .set("llama.attention.head_count_kv", as_u32(N_HEAD_KV))
            .set("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
            .set("llama.rope.dimension_count", as_u32(HEAD))
    }
}

/// Adds the smoke models' tokenizer, filled up to `n_vocab` tokens with words that no text holds.
#[must_use]
pub fn with_tokenizer(writer: Writer, n_vocab: usize) -> Writer {
    let mut vocabulary = vocabulary();
    let more = (vocabulary.len()..n_vocab).map(|n| (format!("▁more{n}"), TokenType::Normal));
    vocabulary.extend(more);
    tokenizer(writer, &vocabulary)
}

fn tokenizer(writer: Writer, vocabulary: &[(String, TokenType)]) -> Writer {
    let texts: Vec<String> = vocabulary.iter().map(|(text, _)| text.clone()).collect();
    let scores = vec![0_f32; vocabulary.len()];
    let types: Vec<i32> = vocabulary.iter().map(|(_, kind)| *kind as i32).collect();
    let template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}\
                    {% if add_generation_prompt %}assistant:{% endif %}";
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", texts)
        .set("tokenizer.ggml.scores", scores.as_slice())
        .set("tokenizer.ggml.token_type", types.as_slice())
        .set("tokenizer.ggml.unknown_token_id", 0_u32)
        .set("tokenizer.ggml.bos_token_id", 1_u32)
        .set("tokenizer.ggml.eos_token_id", 2_u32)
        .set("tokenizer.ggml.add_bos_token", true)
        .set("tokenizer.ggml.add_eos_token", false)
        .set("tokenizer.chat_template", template)
}

/// Control tokens, every byte, printable characters, and words that are only ever an answer. `▁` stands for a space.
fn vocabulary() -> Vec<(String, TokenType)> {
    let control = [("<unk>", TokenType::Unknown), ("<s>", TokenType::Control), ("</s>", TokenType::Control)];
    let bytes = (0..=u8::MAX).map(|byte| (format!("<0x{byte:02X}>"), TokenType::Byte));
    let characters = ('!'..='~').chain(['▁']).map(|c| (c.to_string(), TokenType::Normal));
    let words = WORDS.split_whitespace().map(|word| (format!("▁{word}"), TokenType::Normal));
    control.map(|(text, kind)| (text.into(), kind)).into_iter().chain(bytes).chain(characters).chain(words).collect()
}

fn block(writer: Writer, n: u32, noise: &mut Noise) -> Writer {
    let matrices = [
        ("attn_q", N_EMBD, N_HEAD * HEAD),
        ("attn_k", N_EMBD, N_HEAD_KV * HEAD),
        ("attn_v", N_EMBD, N_HEAD_KV * HEAD),
        ("attn_output", N_HEAD * HEAD, N_EMBD),
        ("ffn_gate", N_EMBD, N_FF),
        ("ffn_up", N_EMBD, N_FF),
        ("ffn_down", N_FF, N_EMBD),
    ];
    let norms = ["attn_norm", "ffn_norm"];
    let writer = norms.into_iter().fold(writer, |writer, name| {
        writer.tensor(format!("blk.{n}.{name}.weight"), TensorType::F32, &[N_EMBD], ones())
    });
    matrices.into_iter().fold(writer, |writer, (name, row, rows)| {
        writer.tensor(format!("blk.{n}.{name}.weight"), TensorType::F16, &[row, rows], noise.f16(row * rows))
    })
}

/// Zero rows score in the middle: never among the best.
fn output(vocabulary: &[(String, TokenType)], noise: &mut Noise) -> Vec<u8> {
    let silent = vec![0; usize::try_from(N_EMBD * 2).unwrap_or_default()];
    let is_spoken = |text: &str| text.ends_with(|last: char| last.is_ascii_alphanumeric());
    let row = |(text, kind): &(String, TokenType)| match kind {
        TokenType::Normal if is_spoken(text) => noise.f16(N_EMBD),
        TokenType::Normal | TokenType::Unknown | TokenType::Control | TokenType::Byte => silent.clone(),
    };
    vocabulary.iter().flat_map(row).collect()
}

fn ones() -> Vec<u8> {
    (0..N_EMBD).flat_map(|_| 1_f32.to_le_bytes()).collect()
}

fn as_u32(n: u64) -> u32 {
    u32::try_from(n).expect("the model's dimensions are small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, read_header};
    use std::io::Cursor;

    fn header(smoke: Smoke) -> (Header, usize) {
        let file = smoke.writer().finish();
        (read_header(Cursor::new(&file), u64::try_from(file.len()).expect("small")).expect("valid"), file.len())
    }

    #[test]
    fn the_smoke_model_is_valid_and_small() {
        let (header, file_len) = header(Smoke::default());
        assert!(file_len < 512 << 10, "{file_len}");
        assert_eq!(header.architecture(), Some("llama"));
        assert_eq!(header.context_length(), Some(8192));
        assert_eq!(header.per_block("attention.head_count_kv").expect("valid"), Some(vec![1, 1]));
        assert_eq!(header.split(), None);
        assert_eq!(header.tensors().len(), 3 + 2 * 9);
    }

    #[test]
    fn one_seed_always_gives_the_same_weights_and_another_seed_others() {
        assert_eq!(smoke_model(), smoke_model());
        assert_ne!(smoke_model(), Smoke { seed: 1, ..Smoke::default() }.writer().finish());
    }

    #[test]
    fn layers_and_context_are_as_wished() {
        let (header, _) = header(Smoke { context: 100, n_blocks: 5, seed: 0 });
        assert_eq!((header.context_length(), header.block_count()), (Some(100), Some(5)));
        assert_eq!(header.tensors().len(), 3 + 5 * 9);
    }
}
