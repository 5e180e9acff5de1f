//! [`nearest`]: which known name somebody probably meant.
/// Below this likeness (1 less the share of characters that differ) a name is no likely slip of another.
const LIKELY: f64 = 0.6;

/// The name of `known` most like `wanted`, if any is like it.
pub(crate) fn nearest<S: AsRef<str>>(wanted: &str, known: &[S]) -> Option<String> {
    nearest_many(wanted, known.iter().map(AsRef::as_ref), 1).pop()
}

/// Up to `n_most` names like `wanted`, the likest first; ties by name.
pub(crate) fn nearest_many<'a>(wanted: &str, known: impl Iterator<Item = &'a str>, n_most: usize) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = known.map(|name| (likeness(wanted, name), name)).collect();
    scored.retain(|(score, _)| *score >= LIKELY);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(n_most);
    scored.into_iter().map(|(_, name)| name.to_owned()).collect()
}

fn likeness(wanted: &str, name: &str) -> f64 {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    // Part of a longer name: people leave out sizes and vendors.
    let part = wanted.chars().count() >= 3 && name.contains(&wanted);
    let score = strsim::normalized_damerau_levenshtein(&wanted, &name);
    if part { score.max(0.9) } else { score }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_what_was_meant_and_strangers_find_nothing() {
        let known = ["listen", "hosts", "origins"];
        assert_eq!(nearest("lisen", &known).as_deref(), Some("listen"));
        assert_eq!(nearest("HOST", &known).as_deref(), Some("hosts"));
        assert_eq!(nearest("zebra", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("idle_ttl", &["id", "tags"]), None);
    }

    #[test]
    fn a_part_of_a_name_finds_it() {
        assert_eq!(nearest("270m", &["gemma3-270m", "qwen3-8b"]).as_deref(), Some("gemma3-270m"));
    }

    #[test]
    fn several_names_come_in_order_of_likeness() {
        let known = ["qwen3-8b", "qwen3-4b", "gemma3-270m", "qwen3-8b"];
        assert_eq!(nearest_many("qwen3-8", known.into_iter(), 3), ["qwen3-8b", "qwen3-4b"]);
    }
}
