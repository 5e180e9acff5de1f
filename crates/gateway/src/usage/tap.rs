//! What an engine counts, read from its reply as that passes: [`Tap`].
//!
//! Counts stand in an object behind `"usage":` or `"timings":`. Inside a text of JSON those quotes would be escaped, so what
//! looks like it is it. Nothing else is parsed, and nothing is kept but an object that a frame's end has cut.
use super::{Recorder, Tokens};
use memchr::memmem::Finder;
use serde::Deserialize;
use std::sync::LazyLock;

/// An object of counts is never longer.
const LONGEST: usize = 4096;
/// What stands before such an object. Made once: a search for each frame would cost more than the search.
static MARKS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| ["\"usage\":", "\"timings\":"].map(Finder::new));

/// Reads over one reply.
#[derive(Debug)]
pub(crate) struct Tap {
    recorder: Recorder,
    /// The beginning of an object whose end has not come.
    cut: Vec<u8>,
    n_passed: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    cache_n: Option<u64>,
    prompt_n: Option<u64>,
    predicted_n: Option<u64>,
    predicted_per_second: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Tap {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, cut: Vec::new(), n_passed: 0 }
    }

    /// These bytes pass.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        if self.n_passed == 0 {
            self.recorder.has_result();
        }
        self.n_passed += 1;
        if !self.cut.is_empty() {
            let room = LONGEST.saturating_sub(self.cut.len());
            self.cut.extend(bytes.iter().take(room));
            let whole = object(&self.cut).map(<[u8]>::to_vec);
            if whole.is_some() || self.cut.len() >= LONGEST {
                self.cut.clear();
            }
            if let Some(object) = whole {
                self.count(&object);
            }
        }
        for mark in &*MARKS {
            for at in mark.find_iter(bytes) {
                let behind = &bytes[at + mark.needle().len()..];
                // Some write a space behind the colon.
                let begin = behind.strip_prefix(b" ").unwrap_or(behind);
                if !begin.starts_with(b"{") {
                    continue;
                }
                match object(begin) {
                    Some(object) => self.count(object),
                    None => self.cut = begin[..begin.len().min(LONGEST)].to_vec(),
                }
            }
        }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn count(&self, object: &[u8]) {
        if let Ok(counts) = serde_json::from_slice::<Counts>(object) {
            self.recorder.counted(counts.tokens());
        }
    }
}

/// The object that begins here, if its end is there. It holds no texts with brackets.
fn object(bytes: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_usize;
    for at in memchr::memchr2_iter(b'{', b'}', &bytes[..bytes.len().min(LONGEST)]) {
        depth = if bytes[at] == b'{' { depth + 1 } else { depth.checked_sub(1)? };
        if depth == 0 {
            return Some(&bytes[..=at]);
        }
    }
    None
}

impl Counts {
    fn tokens(&self) -> Tokens {
        let details = self.prompt_tokens_details.as_ref().or(self.input_tokens_details.as_ref());
        let cached =
            details.and_then(|details| details.cached_tokens).or(self.cache_read_input_tokens).or(self.cache_n);
        // Anthropic's count of the input, and llama-server's own, are without what was cached.
        let rest = self.prompt_n.or(self.input_tokens.filter(|_| self.cache_read_input_tokens.is_some()));
        let sum = rest.map(|n| n.saturating_add(cached.unwrap_or(0)));
        Tokens {
            prompt: self.prompt_tokens.or(sum).or(self.input_tokens),
            cached,
            generated: self.completion_tokens.or(self.output_tokens).or(self.predicted_n),
            per_second: self.predicted_per_second,
        }
    }
}
