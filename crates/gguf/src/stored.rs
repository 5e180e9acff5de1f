//! [`Stored`]: weights as they stand in files, by the layer they belong to.
use crate::{Calibration, Header, Tensor, TensorType, Weights, shape::LayerWidths};
use motorpool_vocab::Bytes;
use std::collections::BTreeMap;

/// Weights of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) file: Bytes,
    /// Matrices that an engine may copy into another order, by type.
    matrices: BTreeMap<TensorType, Bytes>,
}

impl Stored {
    fn add(&mut self, tensor: &Tensor) {
        self.file = self.file.saturating_add(tensor.bytes);
        if is_repackable(tensor) {
            let sum = self.matrices.entry(tensor.kind).or_default();
            *sum = sum.saturating_add(tensor.bytes);
        }
    }

    pub(crate) fn weights(&self, calibration: &Calibration) -> Weights {
        Weights { file: self.file, repacked: self.repacked(calibration) }
    }

    pub(crate) fn repacked(&self, calibration: &Calibration) -> Bytes {
        let copied = self.matrices.iter().filter(|(kind, _)| calibration.repacked.contains(kind));
        Bytes::sum(copied.map(|(_, bytes)| *bytes))
    }
}

/// Rows are interleaved eight at a time; of tensors with more than two dimensions only experts are multiplied so.
fn is_repackable(tensor: &Tensor) -> bool {
    const INTERLEAVED: u64 = 8;
    let [_, rows, third, fourth] = tensor.ne;
    let is_matrix = rows > 1 && fourth == 1 && (third == 1 || is_expert(&tensor.name));
    is_matrix && rows.is_multiple_of(INTERLEAVED) && tensor.name.ends_with(".weight")
}

/// The name of `-cmoe`: `ffn_(up|down|gate|gate_up)_(ch|)exps`.
fn is_expert(name: &str) -> bool {
    expert_part(name.rsplit_once(".ffn_").map_or("", |(_, part)| part)).is_some()
}

/// `up_exps.weight` → `up`.
fn expert_part(part: &str) -> Option<&str> {
    let (which, rest) = part.split_once('_').map(|(which, rest)| match rest.strip_prefix("up_") {
        Some(rest) if which == "gate" => ("gate_up", rest),
        _ => (which, rest),
    })?;
    let is_known = matches!(which, "up" | "down" | "gate" | "gate_up");
    let is_expert = rest.starts_with("exps") || rest.starts_with("chexps");
    (is_known && is_expert).then_some(which)
}

/// All tensors of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerStored {
    pub(crate) dense: Stored,
    pub(crate) experts: Stored,
    /// Those that stay in system memory by the operator's word.
    pub(crate) kept: Stored,
}

impl LayerStored {
    pub(crate) fn files(&self) -> [Bytes; 3] {
        [self.dense.file, self.experts.file, self.kept.file]
    }
}

/// All tensors of a model, sorted.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    layers: Vec<LayerStored>,
    pub(crate) widths: Vec<LayerWidths>,
    pub(crate) output: Stored,
    pub(crate) tied_output: Option<Stored>,
    pub(crate) input: Bytes,
    pub(crate) n_vocab: u64,
}

impl Blocks {
    pub(crate) fn of(headers: &[Header], n_blocks: usize, stays: &dyn Fn(&str) -> bool) -> Self {
        let layers = vec![LayerStored::default(); n_blocks];
        let mut blocks = Self { layers, widths: vec![LayerWidths::default(); n_blocks], ..Self::default() };
        let tensors = || headers.iter().flat_map(Header::tensors);
        tensors().for_each(|tensor| blocks.sort(tensor, stays));
        if tensors().any(|tensor| tensor.name == "output.weight") {
            blocks.tied_output = None;
        }
        blocks
    }

    /// What layer `n` has. Once.
    pub(crate) fn take(&mut self, n: usize) -> LayerStored {
        self.layers.get_mut(n).map(std::mem::take).unwrap_or_default()
    }

    fn sort(&mut self, tensor: &Tensor, stays: &dyn Fn(&str) -> bool) {
        match block_of(&tensor.name) {
            Some((n, part)) if n < self.layers.len() => {
                let LayerStored { dense, experts, kept } = &mut self.layers[n];
                let place = match is_expert(&tensor.name) {
                    _ if stays(&tensor.name) => kept,
                    true => experts,
                    false => dense,
                };
                place.add(tensor);
                widen(&mut self.widths[n], part, tensor.ne);
            }
            _ => self.sort_outside(tensor),
        }
    }

    /// Before the layers and always in system memory, or after them.
    fn sort_outside(&mut self, tensor: &Tensor) {
        let name = tensor.name.as_str();
        if name == "token_embd.weight" {
            self.n_vocab = tensor.ne[1];
            self.tied_output.get_or_insert_default().add(tensor);
        }
        if name.starts_with("output") || name.starts_with("cls") {
            self.output.add(tensor);
        } else {
            self.input = self.input.saturating_add(tensor.bytes);
        }
    }
}

/// `blk.12.attn_q.weight` → 12 and `attn_q.weight`.
pub(crate) fn block_of(name: &str) -> Option<(usize, &str)> {
    let (number, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, part))
}

fn widen(widths: &mut LayerWidths, part: &str, [columns, rows, ..]: [u64; 4]) {
    let LayerWidths { gate, up, down, expert, shared, state_in } = widths;
    match part {
        "ffn_gate.weight" => *gate = rows,
        "ffn_up.weight" => *up = rows,
        "ffn_down.weight" => *down = columns,
        "ffn_gate_shexp.weight" => shared[0] = rows,
        "ffn_up_shexp.weight" => shared[1] = rows,
        "ffn_down_shexp.weight" => shared[2] = columns,
        "ssm_in.weight" => *state_in = rows,
        _ if part.ends_with(".weight") => match part.strip_prefix("ffn_").and_then(expert_part) {
            Some("gate") => expert[0] = rows,
            Some("up" | "gate_up") => expert[1] = rows,
            Some("down") => expert[2] = columns,
            _ => {}
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_known_by_the_names_that_engines_look_for() {
        for name in ["blk.3.ffn_up_exps.weight", "blk.3.ffn_gate_up_exps.weight", "blk.0.ffn_down_chexps.weight"] {
            assert!(is_expert(name), "{name}");
        }
        for name in ["blk.3.ffn_up.weight", "blk.3.ffn_gate_inp.weight", "blk.3.ffn_up_shexp.weight", "ffn_exps"] {
            assert!(!is_expert(name), "{name}");
        }
    }

    #[test]
    fn names_of_layers_are_numbers_between_two_dots() {
        assert_eq!(block_of("blk.12.attn_q.weight"), Some((12, "attn_q.weight")));
        for name in ["blk.x.attn_q", "blk.1", "blk.-1.x", "output.weight", "blk.99999999999999999999.x", ""] {
            assert_eq!(block_of(name), None, "{name}");
        }
    }
}
