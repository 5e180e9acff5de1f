//! Which requests may be assembled: only those whose every member is known to leave the reply in the known shape.
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
    "metadata",
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
    "user",
    "xtc_probability",
    "xtc_threshold",
];

/// Whether the reply can be put together here and be the engine's own.
///
/// A scan with [`PLAIN_MEMBERS`] made `found`. Two things engines lose in streams are asked for: text that might begin a
/// stop string of more than one byte is held back, and lost at the length limit; and a stop string's token keeps its
/// probability in a stream, but not in a whole reply.
pub fn can_assemble(found: &Findings) -> bool {
    let streams = matches!(found.raw(Key::Stream), Some(b"false" | b"null")) || found.field(Key::Stream).is_none();
    streams && !found.has_strangers && stop_is_harmless(found)
}

fn stop_is_harmless(found: &Findings) -> bool {
    if found.field(Key::Stop).is_none() {
        return true;
    }
    let Some(stops) = found.raw(Key::Stop).and_then(stops_of) else { return false };
    let has_logprobs =
        !matches!(found.raw(Key::Logprobs), Some(b"false" | b"null")) && found.field(Key::Logprobs).is_some();
    stops.is_empty() || (!has_logprobs && stops.iter().all(|s| s.len() == 1))
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
