//! [`Recipe`]: a model being put together from its dimensions.
use motorpool_gguf::{
    TensorType, Value,
    write::{Noise, Writer, with_tokenizer},
};

/// How a model's matrices are stored, and the numbers that nearly every architecture has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dimensions {
    pub(super) architecture: &'static str,
    pub(super) kind: TensorType,
    pub(super) n_vocab: u32,
    pub(super) n_embd: u32,
    pub(super) n_blocks: u32,
    pub(super) n_head: u32,
    pub(super) n_head_kv: u32,
    /// Elements of one head.
    pub(super) head: u32,
    pub(super) n_ff: u32,
    /// Tokens of context it was "trained" for.
    pub(super) n_context: u32,
}

/// A model being put together.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) dimensions: Dimensions,
    writer: Writer,
    noise: Noise,
}

impl Recipe {
    /// Tokenizer and the common keys; no tensors yet.
    pub(super) fn new(dimensions: Dimensions) -> Self {
        let Dimensions { architecture, n_vocab, n_embd, n_blocks, n_ff, n_head, n_head_kv, head, n_context, .. } =
            dimensions;
        let writer = Writer::new().set("general.architecture", architecture).set("general.name", "motorpool corpus");
        let writer = with_tokenizer(writer, usize::try_from(n_vocab).unwrap_or_default());
        let seed = architecture.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
        let recipe = Self { dimensions, writer, noise: Noise::new(seed) };
        let recipe =
            recipe.key("context_length", n_context).key("embedding_length", n_embd).key("block_count", n_blocks);
        let recipe = recipe.key("feed_forward_length", n_ff).key("attention.head_count", n_head);
        let recipe = recipe.key("attention.layer_norm_rms_epsilon", 1e-5_f32);
        let recipe = recipe.key("attention.layer_norm_epsilon", 1e-5_f32);
        // States have no heads; compressed attention says itself what its heads are.
        if head == 0 {
            return recipe;
        }
        let recipe = recipe.key("rope.dimension_count", head);
        let recipe = recipe.key("attention.key_length", head).key("attention.value_length", head);
        // Families with attention in some layers only say it themselves, for each layer.
        if n_head_kv == 0 { recipe } else { recipe.key("attention.head_count_kv", n_head_kv) }
    }

    /// Sets `<architecture>.<name>`.
    pub(super) fn key(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.writer = self.writer.set(&format!("{}.{name}", self.dimensions.architecture), value);
        self
    }

    /// Sets a key of no architecture.
    pub(super) fn plain_key(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.writer = self.writer.set(name, value);
        self
    }

    /// A matrix in the model's type.
    pub(super) fn matrix(self, name: &str, ne: &[u32]) -> Self {
        let kind = self.dimensions.kind;
        self.tensor(name, kind, ne)
    }

    /// Small numbers in a type of their own.
    pub(super) fn tensor(mut self, name: &str, kind: TensorType, ne: &[u32]) -> Self {
        let ne: Vec<u64> = ne.iter().copied().map(u64::from).collect();
        let data = self.noise.weights(kind, ne.iter().product());
        self.writer = self.writer.tensor(name, kind, &ne, data);
        self
    }

    /// A vector of small numbers.
    pub(super) fn vector(self, name: &str, n: u32) -> Self {
        self.tensor(name, TensorType::F32, &[n])
    }

    /// A vector of ones.
    pub(super) fn norm(mut self, name: &str, n: u32) -> Self {
        let ones = (0..n).flat_map(|_| 1_f32.to_le_bytes()).collect();
        self.writer = self.writer.tensor(name, TensorType::F32, &[u64::from(n)], ones);
        self
    }

    /// Token embeddings.
    pub(super) fn embeddings(self) -> Self {
        let Dimensions { n_embd, n_vocab, .. } = self.dimensions;
        self.matrix("token_embd.weight", &[n_embd, n_vocab])
    }

    /// An output matrix of its own: without it, the token embeddings serve twice.
    pub(super) fn output(self) -> Self {
        let Dimensions { n_embd, n_vocab, .. } = self.dimensions;
        self.matrix("output.weight", &[n_embd, n_vocab])
    }

    /// Every block in turn, each given its prefix `blk.N.`.
    pub(super) fn blocks(self, block: impl Fn(Self, u32, &str) -> Self) -> Self {
        (0..self.dimensions.n_blocks).fold(self, |recipe, n| block(recipe, n, &format!("blk.{n}.")))
    }

    /// Queries, keys, values and what follows them.
    pub(super) fn attention(self, at: &str) -> Self {
        let Dimensions { n_embd, n_head, n_head_kv, head, .. } = self.dimensions;
        self.matrix(&format!("{at}attn_q.weight"), &[n_embd, n_head * head])
            .matrix(&format!("{at}attn_k.weight"), &[n_embd, n_head_kv * head])
            .matrix(&format!("{at}attn_v.weight"), &[n_embd, n_head_kv * head])
            .matrix(&format!("{at}attn_output.weight"), &[n_head * head, n_embd])
            .norm(&format!("{at}attn_norm.weight"), n_embd)
    }

    /// Gate, up and down.
    pub(super) fn gated(self, at: &str) -> Self {
        let Dimensions { n_embd, n_ff, .. } = self.dimensions;
        self.matrix(&format!("{at}ffn_gate.weight"), &[n_embd, n_ff]).plain_feed_forward(at)
    }

    /// Up and down alone.
    pub(super) fn plain_feed_forward(self, at: &str) -> Self {
        let Dimensions { n_embd, n_ff, .. } = self.dimensions;
        self.matrix(&format!("{at}ffn_up.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
            .norm(&format!("{at}ffn_norm.weight"), n_embd)
    }

    /// Norms of single heads.
    pub(super) fn head_norms(self, at: &str) -> Self {
        let head = self.dimensions.head;
        self.norm(&format!("{at}attn_q_norm.weight"), head).norm(&format!("{at}attn_k_norm.weight"), head)
    }

    /// `n_expert` gates, ups and downs of `n_ff` each, and what chooses among them.
    pub(super) fn experts(self, at: &str, [n_expert, n_ff]: [u32; 2]) -> Self {
        let n_embd = self.dimensions.n_embd;
        self.tensor(&format!("{at}ffn_gate_inp.weight"), TensorType::F32, &[n_embd, n_expert])
            .matrix(&format!("{at}ffn_gate_exps.weight"), &[n_embd, n_ff, n_expert])
            .matrix(&format!("{at}ffn_up_exps.weight"), &[n_embd, n_ff, n_expert])
            .matrix(&format!("{at}ffn_down_exps.weight"), &[n_ff, n_embd, n_expert])
    }

    /// The file, after the last norm. Converters put it last too, so that all weights are inside of what is mapped.
    pub(super) fn with_last_norm(self) -> Writer {
        let n_embd = self.dimensions.n_embd;
        self.norm("output_norm.weight", n_embd).done()
    }

    /// The file.
    pub(super) fn done(self) -> Writer {
        self.writer
    }
}
