//! Which requests may be assembled: only those whose every member is known to leave the reply in the known shape.
use super::Kind;
use crate::scan::{Findings, Key};

/// Members of a request that change what is generated but not the shape of the reply. Others (`echo`,
/// `timings_per_token`, `return_progress`, whatever comes next) send the request on as it is.
pub const PLAIN_MEMBERS: &[&str] = &[
    "add_generation_prompt",
    "cache_prompt",
    "chat_template_kwargs",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "frequency_penalty",
    "grammar",
    "ignore_eos",
    "json_schema",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "min_keep",
    "min_p",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "n",
    "n_keep",
    "n_predict",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt",
    "reasoning_effort",
    "reasoning_format",
    "repeat_last_n",
    "repeat_penalty",
    "response_format",
    "safety_identifier",
    "samplers",
    "seed",
    "store",
    "t_max_predict_ms",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
];

/// The same for `/completion`: `n` would be an array of replies there, and `stream_options` is nobody's.
const NATIVE: &[&str] = &[
    "cache_prompt",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "frequency_penalty",
    "grammar",
    "ignore_eos",
    "json_schema",
    "logit_bias",
    "max_tokens",
    "min_keep",
    "min_p",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "n_keep",
    "n_predict",
    "presence_penalty",
    "prompt",
    "repeat_last_n",
    "repeat_penalty",
    "samplers",
    "seed",
    "t_max_predict_ms",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
];

/// The same for `/v1/messages`.
const MESSAGES: &[&str] = &[
    "chat_template_kwargs",
    "max_tokens",
    "messages",
    "min_p",
    "output_config",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "seed",
    "service_tier",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// The same for `/v1/responses`.
const RESPONSES: &[&str] = &[
    "chat_template_kwargs",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "min_p",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "truncation",
];

impl Kind {
    /// Members of a request that leave its reply in the known shape.
    pub const fn members(self) -> &'static [&'static str] {
        match self {
            Self::Chat | Self::Text => PLAIN_MEMBERS,
            Self::Native => NATIVE,
            Self::Messages => MESSAGES,
            Self::Responses => RESPONSES,
        }
    }
}

/// Whether the reply can be put together here and be the engine's own. A scan with [`Kind::members`] made `found`.
///
/// Three things that llama-server's streams lose are not asked of it there:
/// text that might begin a stop string of more than one byte is held back, and lost at the length limit;
/// a stop string's token keeps its probability in a stream, but not in a whole reply;
/// in a chat, a token that adds no text (the last one, one that its parser holds back) takes its probability with it.
pub fn can_assemble(kind: Kind, found: &Findings) -> bool {
    !asks_for(found, Key::Stream)
        && !found.has_strangers
        && stops_and_probabilities_survive(kind, found)
        && has_one_prompt(kind, found)
}

fn stops_and_probabilities_survive(kind: Kind, found: &Findings) -> bool {
    let key = if kind == Kind::Messages { Key::StopSequences } else { Key::Stop };
    let stops = match found.field(key) {
        None => Some(Vec::new()),
        Some(_) => found.raw(key).and_then(stops_of),
    };
    let Some(stops) = stops else { return false };
    if asks_for(found, Key::Logprobs) {
        return kind == Kind::Text && stops.is_empty();
    }
    stops.iter().all(|s| s.len() == 1)
}

/// Several prompts have several replies, which only OpenAI's API puts into one.
fn has_one_prompt(kind: Kind, found: &Findings) -> bool {
    kind != Kind::Native || found.field(Key::Prompt).is_some_and(|field| field.first == b'"')
}

/// Whether the member stands there with another value than `false` or `null`.
fn asks_for(found: &Findings, key: Key) -> bool {
    found.field(key).is_some() && !matches!(found.raw(key), Some(b"false" | b"null"))
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

fn stops_of(raw: &[u8]) -> Option<Vec<String>> {
    Some(match serde_json::from_slice::<Option<Stop>>(raw).ok()? {
        None => Vec::new(),
        Some(Stop::One(one)) => vec![one],
        Some(Stop::Many(many)) => many,
    })
}
