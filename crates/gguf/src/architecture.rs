//! What an architecture's name alone decides: which layers attend, how far they see, which carry a state.
//!
//! Files say the sizes; which layer is of which kind is partly fixed in the engine, architecture by architecture
//! (read from llama.cpp of build 11434). A name that is not listed attends everywhere and sees everything: never less
//! than what an engine takes.

/// The rules of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) memory: Memory,
    pub(crate) windows: Windows,
}

/// Which layers keep keys and values, which a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Every layer attends.
    Attention,
    /// Every layer carries a state.
    States,
    /// A layer without heads for keys carries a state, the others attend.
    StatesWithoutHeads,
    /// The same, and layers that feed forward do neither.
    StatesWithoutHeadsOrFeed,
    /// States, and in the last of so many layers attention, unless the file says it layer by layer.
    Interval(u64),
    /// Both in every layer.
    Both,
    /// An encoder or a diffusion model: nothing is kept between batches.
    Nothing,
}

/// Which attending layers see only the newest tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// None, whatever the file says.
    Never,
    /// All but one of so many: the last one, or the first.
    Period { every: u64, full: Full, window: Option<u64> },
    /// Those that the file names.
    Listed,
    /// All, when the file has a window.
    All,
}

/// Which layer of a period sees everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    First,
    Last,
}

const fn period(every: u64) -> Windows {
    Windows::Period { every, full: Full::Last, window: None }
}

const fn period_of(every: u64, window: u64) -> Windows {
    Windows::Period { every, full: Full::Last, window: Some(window) }
}

/// The rules for `architecture` with so many layers.
pub(crate) fn rules(architecture: &str, n_blocks: usize) -> Rules {
    Rules { memory: memory(architecture), windows: windows(architecture, n_blocks) }
}

fn memory(architecture: &str) -> Memory {
    match architecture {
        "mamba" | "mamba2" | "rwkv6" | "rwkv6qwen2" | "rwkv7" | "arwkv7" => Memory::States,
        "jamba" | "granitehybrid" | "lfm2" | "lfm2moe" | "kimi-linear" | "kimi-k3" | "plamo2" | "bailingmoe3"
        | "glm5-next" => Memory::StatesWithoutHeads,
        "nemotron_h" | "nemotron_h_moe" => Memory::StatesWithoutHeadsOrFeed,
        "qwen3next" | "qwen35" | "qwen35moe" | "qwen4exp" => Memory::Interval(4),
        "minimax-01" => Memory::Interval(8),
        "falcon-h1" => Memory::Both,
        "bert" | "modern-bert" | "nomic-bert" | "nomic-bert-moe" | "neo-bert" | "jina-bert-v2" | "jina-bert-v3"
        | "eurobert" | "gemma-embedding" | "wavtokenizer-dec" | "dream" | "llada" | "llada-moe" | "rnd1" | "clef" => {
            Memory::Nothing
        }
        _ => Memory::Attention,
    }
}

fn windows(architecture: &str, n_blocks: usize) -> Windows {
    match architecture {
        "gemma2" | "gpt-oss" => period(2),
        "gemma3n" => period(5),
        "gemma3" => period(6),
        "cohere2" | "olmo2" | "afmoe" | "mellum" | "muse-glimmer" => period(4),
        "plamo3" => period(8),
        "exaone-moe" => period_of(4, 128),
        "exaone4" if n_blocks == 64 => period_of(4, 4096),
        "llama4" => period_of(4, 8192),
        "cohere2moe" | "smallthinker" => Windows::Period { every: 4, full: Full::First, window: None },
        "gemma4" | "mimo2" | "step35" | "granite_swa" | "maple" | "spark2_5" | "laguna" => Windows::Listed,
        "lfm2" | "lfm2moe" => Windows::All,
        _ => Windows::Never,
    }
}

/// Layers that share the keys and values of earlier ones, where the file does not say how many.
pub(crate) fn first_shared(architecture: &str) -> Option<usize> {
    (architecture == "gemma3n").then_some(20)
}

impl Windows {
    /// Whether layer `n` sees only the window, in a file that lists nothing.
    pub(crate) fn has(self, n: usize) -> bool {
        let n = u64::try_from(n).unwrap_or(u64::MAX);
        match self {
            Self::Never | Self::Listed => false,
            Self::All | Self::Period { every: 0, .. } => true,
            Self::Period { every, full: Full::Last, .. } => n % every < every - 1,
            Self::Period { every, full: Full::First, .. } => !n.is_multiple_of(every),
        }
    }

    /// The same with the period that a file gives.
    pub(crate) fn with_period(self, given: u64) -> Self {
        match self {
            Self::Period { full, window, .. } => Self::Period { every: given, full, window },
            Self::Never | Self::Listed | Self::All => self,
        }
    }

    /// The window where the file gives none.
    pub(crate) fn default_window(self) -> Option<u64> {
        match self {
            Self::Period { window, .. } => window,
            Self::Never | Self::Listed | Self::All => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windowed(windows: Windows) -> Vec<usize> {
        (0..8).filter(|n| windows.has(*n)).collect()
    }

    #[test]
    fn the_full_layer_is_the_last_or_the_first_of_each_period() {
        assert_eq!(windowed(rules("gemma3", 18).windows), [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!(windowed(rules("gemma2", 26).windows), [0, 2, 4, 6]);
        assert_eq!(windowed(rules("smallthinker", 32).windows), [1, 2, 3, 5, 6, 7]);
        assert_eq!(windowed(rules("gemma3", 18).windows.with_period(1)), [0_usize; 0]);
        assert_eq!(windowed(rules("gemma3", 18).windows.with_period(0)).len(), 8);
    }

    #[test]
    fn an_unknown_architecture_attends_everywhere_and_sees_everything() {
        for name in ["", "llama", "of-tomorrow", "phi3"] {
            assert_eq!(rules(name, 32), Rules { memory: Memory::Attention, windows: Windows::Never }, "{name}");
        }
    }

    #[test]
    fn one_architecture_has_windows_in_its_large_size_only() {
        assert_eq!(rules("exaone4", 30).windows, Windows::Never);
        assert_eq!(rules("exaone4", 64).windows.default_window(), Some(4096));
    }
}
