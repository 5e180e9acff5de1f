//! No text, however broken, makes a reader panic; and every place that is shown exists.
use motorpool_catalog::{
    ConfigError, Source, embedded_manifests, embedded_models, parse_config, parse_host, parse_manifest, parse_model,
};
use proptest::prelude::*;

fn env(name: &str) -> Option<String> {
    name.len().is_multiple_of(2).then(|| name.to_lowercase())
}

/// Reads `text` as everything, and looks at what is shown.
fn read(text: &str) {
    let source = Source { file: "f", text };
    let errors = [
        parse_config(source, &env).err(),
        parse_host(source, &env).err(),
        parse_manifest(source, &env).err(),
        parse_model(source, &env).err(),
    ];
    for error in errors.into_iter().flatten() {
        look_at(text, &error);
    }
}

fn look_at(text: &str, error: &ConfigError) {
    let shown = error.to_string();
    assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{shown:?}");
    let (Some(line), Some(column)) = (error.line(), error.column()) else { return };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let there = text.split('\n').nth(line - 1).expect("the line is in the text");
    assert!(column <= there.chars().count() + 1, "column {column} of {there:?}");
    let carets = shown.lines().find(|l| l.trim_start().starts_with("| ") && l.contains('^'));
    assert!(carets.is_some(), "{shown}");
}

/// A text of the words that the readers know, in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "[server]",
        "[capacity]",
        "[host]",
        "[[device]]",
        "[[external]]",
        "[external.load]",
        "[[protect]]",
        "kind",
        "\"ollama\"",
        "url",
        "\"http://h\"",
        "ram",
        "total",
        "reserve",
        "devices",
        "context_min",
        "context_target",
        "\"max\"",
        "[limits]",
        "[source]",
        "[source.pypi]",
        "[program]",
        "[[log_class]]",
        "[probe.chat]",
        "listen",
        "budget",
        "body",
        "id",
        "aliases",
        "engine",
        "source",
        "context",
        "args",
        "name",
        "path",
        "pattern",
        "when",
        "=",
        "=",
        "=",
        "=",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "\n",
        "\n",
        "\r\n",
        ".",
        "\"",
        "'",
        "\"\"\"",
        "#",
        "\"24GiB\"",
        "\"5m\"",
        "\"127.0.0.1:1\"",
        "\"{slots}\"",
        "\"${AB}\"",
        "\"${A}\"",
        "\"${\"",
        "\"(\"",
        "1",
        "-1",
        "0.5",
        "true",
        "1979-05-27",
        "é",
        "𝄞",
        "\t",
        "\u{1b}[31m",
        "\u{feff}",
    ]);
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// A file that is right but for a few characters.
fn nearly_right() -> impl Strategy<Value = String> {
    let texts: Vec<String> =
        embedded_manifests().iter().chain(embedded_models()).map(|(_, text)| (*text).to_owned()).collect();
    let edit = (any::<prop::sample::Index>(), 0usize..4, "[\\[\\]{}=\"'\\n$é#a1.-]{0,3}");
    (prop::sample::select(texts), prop::collection::vec(edit, 1..4)).prop_map(|(text, edits)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, n_gone, new) in edits {
            let at = at.index(chars.len());
            let end = (at + n_gone).min(chars.len());
            chars.splice(at..end, new.chars());
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        read(&text);
    }

    #[test]
    fn any_lines_are_read_or_refused(text in "([ -~é\\t]{0,20}\\r?\\n){0,8}") {
        read(&text);
    }

    #[test]
    fn any_words_are_read_or_refused(text in words()) {
        read(&text);
    }

    #[test]
    fn files_that_are_nearly_right_are_read_or_refused(text in nearly_right()) {
        read(&text);
    }
}
