//! The sizing table of the README, computed anew: headers of well-known models, written from their published
//! hyperparameters and the mix of types that llama.cpp's `Q4_K_M` gives to tensors, and estimated like any other file.
use motorpool_gguf::{Calibration, LaunchSettings, ModelShape, TensorType, estimate, read_header, write::Writer};
use motorpool_vocab::Bytes;
use std::{fmt::Write as _, io::Cursor};

const README: &str = include_str!("../../../../README.md");

/// A model of the llama kind: all its layers are alike.
struct Known {
    name: &'static str,
    architecture: &'static str,
    layers: u64,
    embedding: u64,
    feed_forward: u64,
    heads: u64,
    kv_heads: u64,
    vocabulary: u64,
    tied: bool,
    /// 0 where there are none.
    experts: u64,
}

/// From each model's `config.json`; heads are 128 wide in all of them.
const KNOWN: [Known; 6] = [
    known("Llama 3.2 3B", "llama", [28, 3072, 8192, 24, 8, 128_256], 0),
    known("Llama 3.1 8B", "llama", [32, 4096, 14336, 32, 8, 128_256], 0),
    known("Qwen3 8B", "qwen3", [36, 4096, 12288, 32, 8, 151_936], 0),
    known("Qwen3 30B-A3B", "qwen3moe", [48, 2048, 768, 32, 4, 151_936], 128),
    known("Qwen3 32B", "qwen3", [64, 5120, 25600, 64, 8, 151_936], 0),
    known("Llama 3.3 70B", "llama", [80, 8192, 28672, 64, 8, 128_256], 0),
];

const fn known(name: &'static str, architecture: &'static str, n: [u64; 6], experts: u64) -> Known {
    let [layers, embedding, feed_forward, heads, kv_heads, vocabulary] = n;
    // Of these, the small one alone has one matrix for both ends.
    let tied = embedding == 3072;
    Known { name, architecture, layers, embedding, feed_forward, heads, kv_heads, vocabulary, tied, experts }
}

/// A header that claims its tensors; nothing of their data is there.
struct Claims(Writer, u64);

impl Claims {
    fn tensor(self, name: &str, kind: TensorType, ne: &[u64]) -> Self {
        let (block, bytes) = match kind {
            TensorType::Q4_K => (256, 144),
            TensorType::Q5_K => (256, 176),
            TensorType::Q6_K => (256, 210),
            _ => (1, 4),
        };
        let size = ne.iter().product::<u64>() / block * bytes;
        let Self(writer, at) = self;
        Self(writer.tensor(name, kind, ne, Vec::new()).claim_offset(at), at + size.next_multiple_of(32))
    }
}

impl Known {
    fn shape(&self) -> ModelShape {
        let claims = (0..self.layers).fold(Claims(self.keys(), 0), |claims, n| self.layer(claims, n));
        let ends = if self.tied { TensorType::Q6_K } else { TensorType::Q4_K };
        let claims = claims.tensor("token_embd.weight", ends, &[self.embedding, self.vocabulary]);
        let claims = claims.tensor("output_norm.weight", TensorType::F32, &[self.embedding]);
        let Claims(writer, end) = if self.tied {
            claims
        } else {
            claims.tensor("output.weight", TensorType::Q6_K, &[self.embedding, self.vocabulary])
        };
        let file = writer.finish();
        let length = u64::try_from(file.len()).expect("a header") + end + 32;
        ModelShape::of(&[read_header(Cursor::new(file), length).expect("valid")]).expect("valid")
    }

    fn keys(&self) -> Writer {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let number = |n: u64| u32::try_from(n).expect("small");
        let writer = Writer::new()
            .set("general.architecture", self.architecture)
            .set(&key("context_length"), 131_072_u32)
            .set(&key("block_count"), number(self.layers))
            .set(&key("embedding_length"), number(self.embedding))
            .set(&key("feed_forward_length"), number(self.feed_forward))
            .set(&key("attention.head_count"), number(self.heads))
            .set(&key("attention.head_count_kv"), number(self.kv_heads))
            .set(&key("attention.key_length"), 128_u32)
            .set(&key("attention.value_length"), 128_u32)
            .set(&key("vocab_size"), number(self.vocabulary));
        if self.experts == 0 {
            return writer;
        }
        writer
            .set(&key("expert_count"), number(self.experts))
            .set(&key("expert_used_count"), 8_u32)
            .set(&key("expert_feed_forward_length"), number(self.feed_forward))
    }

    /// `Q4_K_M` gives more bits to what hurts most: values and the way down, in an eighth of the layers at either end and
    /// each third between (`use_more_bits` of llama-quant.cpp).
    fn layer(&self, claims: Claims, n: u64) -> Claims {
        let eighth = self.layers / 8;
        let is_dear = n < eighth || n >= 7 * self.layers / 8 || (n - eighth) % 3 == 2;
        let dear = if is_dear { TensorType::Q6_K } else { TensorType::Q4_K };
        // Eight heads share the values of the largest; experts have theirs in eight bits only where there are eight.
        let values = if self.layers == 80 && !is_dear { TensorType::Q5_K } else { dear };
        let (width, queries, keys) = (self.embedding, self.heads * 128, self.kv_heads * 128);
        let named = |name: &str| format!("blk.{n}.{name}.weight");
        let claims = claims
            .tensor(&named("attn_norm"), TensorType::F32, &[width])
            .tensor(&named("attn_q"), TensorType::Q4_K, &[width, queries])
            .tensor(&named("attn_k"), TensorType::Q4_K, &[width, keys])
            .tensor(&named("attn_v"), values, &[width, keys])
            .tensor(&named("attn_output"), TensorType::Q4_K, &[queries, width])
            .tensor(&named("ffn_norm"), TensorType::F32, &[width]);
        let inner = self.feed_forward;
        if self.experts == 0 {
            return claims
                .tensor(&named("ffn_gate"), TensorType::Q4_K, &[width, inner])
                .tensor(&named("ffn_up"), TensorType::Q4_K, &[width, inner])
                .tensor(&named("ffn_down"), dear, &[inner, width]);
        }
        claims
            .tensor(&named("ffn_gate_inp"), TensorType::F32, &[width, self.experts])
            .tensor(&named("ffn_gate_exps"), TensorType::Q4_K, &[width, inner, self.experts])
            .tensor(&named("ffn_up_exps"), TensorType::Q4_K, &[width, inner, self.experts])
            .tensor(&named("ffn_down_exps"), dear, &[inner, width, self.experts])
    }

    fn row(&self) -> String {
        let shape = self.shape();
        let mut row = format!("| {} |", self.name);
        let launches = [(1, 8192), (4, 8192), (1, 131_072)];
        let sizes = launches.iter().map(|(slots, context)| on_a_card(&shape, *slots, *context));
        for size in [shape.weights()].into_iter().chain(sizes) {
            let tenths = (size.get() * 10).div_ceil(1 << 30);
            write!(row, " {}.{} |", tenths / 10, tenths % 10).expect("a string");
        }
        row
    }
}

/// All that a card holds of a model that lies there whole.
fn on_a_card(shape: &ModelShape, slots: u32, context_per_slot: u32) -> Bytes {
    let settings = LaunchSettings { slots, context_per_slot, ..LaunchSettings::default() };
    let footprint = estimate(shape, &settings, &Calibration::default());
    let layers = footprint.layers.iter().flat_map(|layer| [layer.dense.file, layer.experts.file, layer.cache]);
    let rest = [footprint.output.file, footprint.output_copy, footprint.compute_device, footprint.device_overhead];
    Bytes::sum(layers.chain(rest))
}

#[test]
fn the_sizing_table_is_what_the_estimate_says() {
    for known in &KNOWN {
        let row = known.row();
        assert!(README.lines().any(|line| line == row), "the README lacks\n{row}");
    }
}
