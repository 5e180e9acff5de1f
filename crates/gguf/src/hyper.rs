//! [`Keys`]: the hyperparameters of a model, checked, and what they say about each layer.
use crate::{
    GgufError, Header, Value,
    architecture::{self, Memory, Rules, Windows},
    shape::{Attention, Layer, LayerWidths, ModelShape, Reach},
    stored::Blocks,
};

/// Hyperparameters, checked and for each layer.
pub(crate) struct Keys {
    pub(crate) rules: Rules,
    pub(crate) n_blocks: usize,
    /// Layers that only guess further tokens come last and keep nothing.
    n_trunk: usize,
    pub(crate) n_embd: u64,
    pub(crate) n_vocab: u64,
    heads: Vec<u64>,
    kv_heads: Vec<u64>,
    feed: Vec<u64>,
    pub(crate) key_length: u64,
    value_length: u64,
    /// Of layers that see a window.
    window_lengths: [u64; 2],
    /// Keys and values in one narrow row: elements of its values for one head.
    compressed: Option<u64>,
    pub(crate) window: u64,
    windowed: Vec<bool>,
    recurrent: Vec<bool>,
    state: StateKeys,
    experts_used: u64,
    first_shared: usize,
    /// Embeddings that a token has for every layer, together.
    pub(crate) embeddings_of_layers: u64,
}

/// Numbers that decide what a sequence's state takes.
#[derive(Clone, Copy, Default)]
struct StateKeys {
    convolution: u64,
    matrix: u64,
    /// What the convolution works on.
    wide: u64,
    inner: u64,
}

impl Keys {
    pub(crate) fn of(header: &Header) -> Result<Self, GgufError> {
        let n_blocks = header.checked_block_count()?;
        let rules = architecture::rules(header.architecture().unwrap_or_default(), n_blocks);
        let each = |name: &str| Ok::<_, GgufError>(header.per_block(name)?.unwrap_or_else(|| vec![0; n_blocks]));
        let heads = each("attention.head_count")?;
        check_heads(header, rules.memory, &heads)?;
        let kv_heads = header.per_block("attention.head_count_kv")?.unwrap_or_else(|| heads.clone());
        let feed = each("feed_forward_length")?;
        let n_embd = header.required("embedding_length")?;
        let key_length = header.hyper("attention.key_length").unwrap_or_else(|| share(n_embd, &heads));
        let value_length = header.hyper("attention.value_length").unwrap_or_else(|| share(n_embd, &heads));
        let swa = |name: &str, full: u64| header.hyper(&format!("attention.{name}_length_swa")).unwrap_or(full);
        let (window, windowed) = windows(header, rules.windows, n_blocks)?;
        Ok(Self {
            recurrent: recurrent(header, rules.memory, (&kv_heads, &feed))?,
            n_trunk: n_blocks.saturating_sub(small(header.hyper("nextn_predict_layers").unwrap_or(0))),
            n_vocab: header.hyper("vocab_size").unwrap_or(0),
            window_lengths: [swa("key", key_length), swa("value", value_length)],
            compressed: compressed(header),
            state: state(header, n_embd, heads.first().copied().unwrap_or(0)),
            experts_used: header.per_block("expert_used_count")?.into_iter().flatten().max().unwrap_or(0),
            first_shared: first_shared(header, n_blocks),
            embeddings_of_layers: embeddings_of_layers(header, n_blocks),
            rules,
            n_blocks,
            n_embd,
            heads,
            kv_heads,
            feed,
            key_length,
            value_length,
            window,
            windowed,
        })
    }

    pub(crate) fn layer(&self, n: usize, blocks: &mut Blocks) -> Layer {
        let stored = blocks.take(n);
        let state = if self.has_state(n) { self.state.convolution.saturating_add(self.state.matrix) } else { 0 };
        let kept = n < self.first_shared && self.rules.memory != Memory::Nothing;
        let attention = Some(self.attention(n)).filter(|_| kept && self.attends(n));
        Layer { stored, attention, state }
    }

    /// Elements of a head of keys and of values, in layers of both reaches.
    pub(crate) fn head_lengths(&self) -> Vec<u64> {
        let windowed = if self.window > 0 { self.window_lengths.as_slice() } else { &[] };
        [self.key_length, self.value_length].iter().chain(windowed).copied().collect()
    }

    fn has_state(&self, n: usize) -> bool {
        n < self.n_trunk && self.recurrent[n]
    }

    fn attends(&self, n: usize) -> bool {
        let apart = match self.rules.memory {
            Memory::Attention | Memory::Both | Memory::Nothing => true,
            Memory::States => false,
            Memory::StatesWithoutHeads | Memory::Interval(_) => !self.recurrent[n],
            Memory::StatesWithoutHeadsOrFeed => !self.recurrent[n] && self.feed[n] == 0,
        };
        n < self.n_trunk && apart && self.kv_heads[n] > 0
    }

    fn attention(&self, n: usize) -> Attention {
        let reach = self.reach(n);
        let [key, value] = match reach {
            Reach::Everything => [self.key_length, self.value_length],
            Reach::Window => self.window_lengths,
        };
        let heads = self.kv_heads[n];
        match self.compressed {
            Some(_) => Attention { keys: key, values: 0, reach },
            None => Attention { keys: key.saturating_mul(heads), values: value.saturating_mul(heads), reach },
        }
    }

    fn reach(&self, n: usize) -> Reach {
        if self.window > 0 && self.windowed[n] { Reach::Window } else { Reach::Everything }
    }

    /// Takes one layer's widths into the model's.
    pub(crate) fn widen(&self, shape: &mut ModelShape, n: usize, layer: LayerWidths) {
        let widths = &mut shape.widths;
        widths.feed = widths.feed.max(feed_width(&layer)).max(self.expert_width(&layer));
        if self.attends(n) {
            let heads = match self.reach(n) {
                Reach::Everything => &mut widths.heads,
                Reach::Window => &mut widths.window_heads,
            };
            *heads = (*heads).max(self.heads[n]);
            widths.attention = widths.attention.max(self.attention_width(n));
        }
        if self.has_state(n) {
            let StateKeys { convolution, matrix, wide, inner } = self.state;
            let twice = wide.saturating_mul(2);
            let from =
                if layer.state_in == 0 { twice } else { twice.saturating_add(layer.state_in).saturating_add(inner) };
            widths.state = widths.state.max(from);
            widths.state_fixed = widths.state_fixed.max(matrix.saturating_add(convolution.saturating_mul(2)));
        }
    }

    fn attention_width(&self, n: usize) -> u64 {
        let Attention { keys, values, .. } = self.attention(n);
        let queries = self.heads[n].saturating_mul(self.key_length);
        let values = self.compressed.map_or(values, |value| value.saturating_mul(self.heads[n]));
        queries.saturating_mul(2).saturating_add(keys).saturating_add(values)
    }

    fn expert_width(&self, layer: &LayerWidths) -> u64 {
        let [gate, up, down] = layer.expert;
        let one = gate.saturating_add(up).saturating_add(down);
        if one == 0 {
            return 0;
        }
        let chosen = one.max(self.n_embd).saturating_mul(self.experts_used.max(1));
        let [gate, up, down] = layer.shared;
        let shared = feed_width(&LayerWidths { gate, up, down, ..LayerWidths::default() });
        chosen.max(shared.saturating_add(self.n_embd))
    }
}

/// Gate, up and down live together; without a gate, of its own or within `up`, down follows in the place of up.
fn feed_width(layer: &LayerWidths) -> u64 {
    let LayerWidths { gate, up, down, .. } = *layer;
    let is_gated = gate > 0 || (down > 0 && up == down.saturating_mul(2));
    if is_gated { gate.saturating_add(up).saturating_add(down) } else { up.max(down) }
}

/// Where nothing but attention remembers, some layer must have a head: engines divide by their number.
fn check_heads(header: &Header, memory: Memory, heads: &[u64]) -> Result<(), GgufError> {
    let attends = matches!(memory, Memory::Attention | Memory::Both | Memory::Nothing);
    if !attends || heads.iter().any(|heads| *heads > 0) {
        return Ok(());
    }
    let key = header.hyper_key("attention.head_count").unwrap_or_default();
    Err(GgufError::Key { key, problem: "is missing or 0 in every layer".into() })
}

/// An embedding's share of one head; nothing where there are no heads.
fn share(n_embd: u64, heads: &[u64]) -> u64 {
    n_embd.checked_div(heads.first().copied().unwrap_or(0)).unwrap_or(0)
}

fn small(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The width of one head's values where keys and values are one narrow row.
fn compressed(header: &Header) -> Option<u64> {
    let of = |name: &str| header.hyper(&format!("attention.{name}_length_mla")).filter(|n| *n > 0);
    of("key").and(of("value"))
}

fn embeddings_of_layers(header: &Header, n_blocks: usize) -> u64 {
    let each = header.hyper("embedding_length_per_layer_input").unwrap_or(0);
    each.saturating_mul(u64::try_from(n_blocks).unwrap_or(u64::MAX))
}

fn first_shared(header: &Header, n_blocks: usize) -> usize {
    let shared = header.hyper("attention.shared_kv_layers").map(|n| n_blocks.saturating_sub(small(n)));
    shared.or_else(|| architecture::first_shared(header.architecture()?)).unwrap_or(n_blocks)
}

const PATTERN: &str = "attention.sliding_window_pattern";

/// The window, and which layers have it.
fn windows(header: &Header, rule: Windows, n_blocks: usize) -> Result<(u64, Vec<bool>), GgufError> {
    let window = header.hyper("attention.sliding_window").or_else(|| rule.default_window()).unwrap_or(0);
    let none = (0, vec![false; n_blocks]);
    if window == 0 || rule == Windows::Never {
        return Ok(none);
    }
    let listed = header.flags(PATTERN, n_blocks)?;
    let rule = header.hyper(PATTERN).map_or(rule, |period| rule.with_period(period));
    let windowed = listed.unwrap_or_else(|| (0..n_blocks).map(|n| rule.has(n)).collect());
    Ok(if windowed.contains(&true) { (window, windowed) } else { none })
}

/// Which layers carry a state.
fn recurrent(header: &Header, memory: Memory, (kv, feed): (&[u64], &[u64])) -> Result<Vec<bool>, GgufError> {
    let n_blocks = kv.len();
    Ok(match memory {
        Memory::Attention | Memory::Nothing => vec![false; n_blocks],
        Memory::States | Memory::Both => vec![true; n_blocks],
        Memory::StatesWithoutHeads => kv.iter().map(|kv| *kv == 0).collect(),
        Memory::StatesWithoutHeadsOrFeed => kv.iter().zip(feed).map(|(kv, feed)| *kv == 0 && *feed == 0).collect(),
        Memory::Interval(default) => {
            let every = small(header.hyper("full_attention_interval").unwrap_or(default)).max(1);
            let listed = header.flags("attention.recurrent_layers", n_blocks)?;
            listed.unwrap_or_else(|| (1..=n_blocks).map(|n| !n.is_multiple_of(every)).collect())
        }
    })
}

/// The formulas of llama-server.md §4.2.
fn state(header: &Header, n_embd: u64, n_head: u64) -> StateKeys {
    let key = |name: &str| header.hyper(name).filter(|n| *n > 0);
    if let Some(head) = key("wkv.head_size") {
        let shifts = key("token_shift_count").unwrap_or(2).saturating_mul(n_embd);
        // Fifteen embeddings: mixtures with the token before, and what becomes of them.
        let wide = n_embd.saturating_mul(15).div_ceil(2);
        return StateKeys { convolution: shifts, matrix: n_embd.saturating_mul(head), wide, inner: n_embd };
    }
    if let Some(cached) = key("shortconv.l_cache") {
        let wide = n_embd.saturating_mul(3).div_ceil(2);
        return StateKeys { convolution: n_embd.saturating_mul(cached - 1), matrix: 0, wide, inner: n_embd };
    }
    let convolution = key("ssm.conv_kernel");
    if let Some(head) = key("kda.head_dim") {
        let wide = n_head.saturating_mul(head).saturating_mul(3);
        let matrix = head.saturating_mul(head).saturating_mul(n_head);
        let steps = convolution.map_or(3, |kernel| kernel - 1);
        return StateKeys { convolution: steps.saturating_mul(wide), matrix, wide, inner: wide / 3 };
    }
    let inner = key("ssm.inner_size").unwrap_or(0);
    let size = key("ssm.state_size").unwrap_or(0);
    let groups = key("ssm.group_count").unwrap_or(0);
    let wide = inner.saturating_add(groups.saturating_mul(size).saturating_mul(2));
    let steps = convolution.map_or(0, |kernel| kernel - 1);
    StateKeys { convolution: steps.saturating_mul(wide), matrix: size.saturating_mul(inner), wide, inner }
}

impl Header {
    /// A hyperparameter that no model is without: a positive number.
    fn required(&self, name: &str) -> Result<u64, GgufError> {
        self.hyper(name).filter(|n| *n > 0).ok_or_else(|| {
            let key = self.hyper_key(name).unwrap_or_else(|| name.into());
            GgufError::Key { key, problem: "is missing or not a positive number".into() }
        })
    }

    /// One truth value for each layer, where the file lists them: as truth values or as numbers.
    fn flags(&self, name: &str, n_blocks: usize) -> Result<Option<Vec<bool>>, GgufError> {
        let Some(key) = self.hyper_key(name) else { return Ok(None) };
        let Some(value @ Value::Array(..)) = self.metadata().value(&key) else { return Ok(None) };
        let numbers = || value.as_u64s().map(|numbers| numbers.into_iter().map(|n| n != 0).collect());
        let Some(mut flags) = value.as_bools().or_else(numbers) else {
            return Err(GgufError::Key { key, problem: "is an array of neither truth values nor numbers".into() });
        };
        if flags.len() < n_blocks {
            let problem = format!("has {} elements for {n_blocks} layers", flags.len());
            return Err(GgufError::Key { key, problem });
        }
        flags.truncate(n_blocks);
        Ok(Some(flags))
    }
}
