//! Tiny models of many families that the real engine loads and answers with, for checking estimates of memory.
//!
//! Each is a few hundred kilobytes of weights that mean nothing, with the tensors and keys of its architecture and
//! dimensions unlike each other's: shared heads, windows, experts, states. Made when asked for, always the same.
mod attention;
mod experts;
mod recipe;
mod states;
mod unlike;

use motorpool_gguf::{Purpose, write::Writer};

/// One model of the corpus.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name: the architecture, and what is special where two share one.
    pub name: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    build: fn() -> Writer,
}

impl Family {
    /// The model as a writer, to be finished, or changed first.
    pub fn writer(&self) -> Writer {
        (self.build)()
    }
}

const fn generating(name: &'static str, build: fn() -> Writer) -> Family {
    Family { name, purpose: Purpose::Generate, build }
}

/// Every model of the corpus.
pub const FAMILIES: &[Family] = &[
    generating("llama", attention::llama),
    generating("qwen2", attention::qwen2),
    generating("qwen3", attention::qwen3),
    generating("gemma2", attention::gemma2),
    generating("gemma3", attention::gemma3),
    generating("phi3", attention::phi3),
    generating("gpt2", attention::gpt2),
    generating("qwen3moe", experts::qwen3moe),
    generating("gpt-oss", experts::gpt_oss),
    generating("deepseek2", experts::deepseek2),
    generating("mamba", states::mamba),
    generating("mamba2", states::mamba2),
    generating("lfm2", states::lfm2),
    generating("falcon-h1", states::falcon_h1),
    generating("qwen35", states::qwen35),
    generating("cohere2", unlike::cohere2),
    generating("jamba", unlike::jamba),
    generating("gemma4", unlike::gemma4),
    generating("rwkv7", unlike::rwkv7),
    Family { name: "bert", purpose: Purpose::Embed, build: attention::bert },
];

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_gguf::read_header;
    use std::io::Cursor;

    #[test]
    fn every_family_is_a_valid_small_file_of_its_architecture() {
        for family in FAMILIES {
            let file = family.writer().finish();
            let len = u64::try_from(file.len()).expect("small");
            let header = read_header(Cursor::new(&file), len).expect("valid");
            assert_eq!(header.architecture(), Some(family.name));
            assert!(len < 8 << 20, "{}: {len}", family.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }
}
