//! Reads Rust sources: their sizes, their module docs, and words that some crates must not use.
use super::{
    Complaint,
    house::{self, Nature, WITHOUT_WIRE_FORM},
};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Attribute, ImplItemFn, Item, ItemFn, TraitItemFn,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// Lines of a file without its tests that are too many.
pub const MOST_LINES: usize = 500;
/// A file longer than this needs module docs.
const OF_SUBSTANCE: usize = 20;

/// What was read out of one file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path below the root.
    pub path: String,
    /// Its lines without tests.
    pub n_lines: usize,
    /// Its functions outside of tests.
    pub functions: Vec<Function>,
    has_docs: Docs,
    words: Vec<Word>,
}

/// A function and its length, signature and braces included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its lines.
    pub n_lines: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Docs {
    There,
    Missing,
}

/// A word that may be forbidden here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    line: usize,
    what: What,
    part: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// `unsafe`, `async`, `await`.
    Keyword(String),
    /// `#[derive(Serialize)]`.
    Serialize,
    /// A lint that holds a sentence of the design, waived.
    Waived(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Product,
    Tests,
}

impl Source {
    /// Reads `text`, which lies at `path`.
    pub fn read(path: &str, text: &str) -> Result<Self, Complaint> {
        let file = syn::parse_file(text).map_err(|e| format!("{path}: {e}"))?;
        let tokens: TokenStream = text.parse().map_err(|e| format!("{path}: {e}"))?;
        let tests: Vec<(usize, usize)> = file.items.iter().filter(|item| is_for_tests(item)).map(lines_of).collect();
        let of_tests = |line: usize| is_test_file(path) || tests.iter().any(|(from, to)| (*from..=*to).contains(&line));
        let mut words = Vec::new();
        find_words(tokens, &mut words);
        for word in &mut words {
            word.part = if of_tests(word.line) { Part::Tests } else { Part::Product };
        }
        let mut finder = Functions::default();
        finder.visit_file(&file);
        finder.found.retain(|(line, _)| !of_tests(*line));
        let n_test_lines: usize = tests.iter().map(|(from, to)| to - from + 1).sum();
        Ok(Self {
            path: path.to_owned(),
            n_lines: if is_test_file(path) { 0 } else { text.lines().count() - n_test_lines },
            functions: finder.found.into_iter().map(|(_, function)| function).collect(),
            has_docs: if is_documented(path, text) { Docs::There } else { Docs::Missing },
            words,
        })
    }

    /// What is wrong with it.
    pub fn check(&self) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        if self.n_lines > MOST_LINES {
            complaints.push(format!("{}: {} lines without tests, at most {MOST_LINES}", self.path, self.n_lines));
        }
        if self.has_docs == Docs::Missing {
            complaints.push(format!("{}: begins without module docs (`//!`)", self.path));
        }
        let forbidden = self
            .words
            .iter()
            .filter_map(|word| self.why_forbidden(word).map(|why| format!("{}:{}: {why}", self.path, word.line)));
        complaints.extend(forbidden);
        complaints
    }

    fn why_forbidden(&self, word: &Word) -> Option<String> {
        let place = self.path.strip_prefix("crates/").and_then(|rest| house::find(rest.split('/').next()?))?;
        match &word.what {
            What::Keyword(keyword) => (place.nature == Nature::Pure).then(|| format!("`{keyword}` above the line")),
            What::Serialize => WITHOUT_WIRE_FORM
                .contains(&place.folder)
                .then(|| "a core type has no wire form: it belongs beside its route".to_owned()),
            What::Waived(lint) => {
                let is_free = matches!(place.nature, Nature::Binary | Nature::Outside) || word.part == Part::Tests;
                (!is_free).then(|| format!("waives `{lint}`, which holds a sentence of the design"))
            }
        }
    }
}

/// Tests, benches and examples in a file of their own.
fn is_test_file(path: &str) -> bool {
    let is_in = |folder: &str| path.split('/').rev().skip(1).any(|part| part == folder);
    path.ends_with("tests.rs")
        || is_in("benches")
        || is_in("examples")
        || (is_in("tests") && !path.starts_with("tests/src/") && !path.starts_with("tests/fake-nvml/src/"))
}

/// The tests of one file, moved out of it, are documented there.
fn is_documented(path: &str, text: &str) -> bool {
    text.lines().count() <= OF_SUBSTANCE || text.starts_with("//!") || path.ends_with("tests.rs")
}

fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(is_cfg_test)
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else { return false };
    let condition = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && condition.contains("test") && !condition.contains("not(test)")
}

fn lines_of(item: &Item) -> (usize, usize) {
    (item.span().start().line, item.span().end().line)
}

#[derive(Default)]
struct Functions {
    found: Vec<(usize, Function)>,
}

impl Functions {
    fn add(&mut self, name: &syn::Ident, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.fn_token.span.start().line, block.span().end().line);
        self.found.push((first, Function { name: name.to_string(), n_lines: last - first + 1 }));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig.ident, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(&item.sig.ident, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig.ident, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Goes through tokens, so that the insides of macros count and strings and comments do not.
fn find_words(tokens: TokenStream, found: &mut Vec<Word>) {
    let mut before = String::new();
    for tree in tokens {
        match tree {
            TokenTree::Ident(ident) => {
                before = ident.to_string();
                if matches!(before.as_str(), "unsafe" | "async" | "await") {
                    found.push(word(&ident, What::Keyword(before.clone())));
                }
            }
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Parenthesis {
                    find_in_attribute(&before, group.stream(), found);
                }
                find_words(group.stream(), found);
                before.clear();
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => before.clear(),
        }
    }
}

/// `derive(…)`, `expect(…)`, `allow(…)`. A function that is called so does no harm: its arguments name no lint.
fn find_in_attribute(name: &str, arguments: TokenStream, found: &mut Vec<Word>) {
    const HOLDING: [&str; 5] = ["disallowed_methods", "disallowed_types", "exit", "print_stderr", "print_stdout"];
    let is_lint =
        |path: &[String], lint: &str| path.first().is_some_and(|first| first == "clippy") && HOLDING.contains(&lint);
    let mut path: Vec<String> = Vec::new();
    for tree in arguments {
        match tree {
            TokenTree::Ident(ident) => {
                let last = ident.to_string();
                if name == "derive" && last == "Serialize" {
                    found.push(word(&ident, What::Serialize));
                }
                if matches!(name, "expect" | "allow") && is_lint(&path, &last) {
                    found.push(word(&ident, What::Waived(last.clone())));
                }
                path.push(last);
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ => path.clear(),
        }
    }
}

fn word(ident: &proc_macro2::Ident, what: What) -> Word {
    Word { line: ident.span().start().line, what, part: Part::Product }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<Complaint> {
        Source::read(path, text).expect("valid").check()
    }

    #[test]
    fn unsafe_and_async_above_the_line_are_found_even_inside_macros() {
        for text in ["unsafe fn f() {}", "async fn f() {}", "fn f() { m! { x.await } }"] {
            assert_eq!(complaints("crates/pool/src/a.rs", text).len(), 1, "{text}");
            assert_eq!(complaints("crates/supervisor/src/a.rs", text).len(), 0, "{text}");
        }
        let innocent = "//! async\n/// unsafe\nfn f() -> &'static str { \"unsafe\" }";
        assert_eq!(complaints("crates/pool/src/a.rs", innocent).len(), 0);
    }

    #[test]
    fn a_core_type_with_a_wire_form_is_found() {
        let text = "#[derive(Clone, serde::Serialize)] struct A;";
        assert_eq!(complaints("crates/vocab/src/a.rs", text).len(), 1);
        assert_eq!(complaints("crates/gateway/src/a.rs", text).len(), 0);
    }

    #[test]
    fn a_waived_ban_is_found_unless_it_is_in_a_test_or_in_the_binary() {
        let text = "#[expect(clippy::print_stdout, reason = \"\")]\nfn f() {}";
        assert_eq!(complaints("crates/gateway/src/a.rs", text).len(), 1);
        assert_eq!(complaints("crates/motorpool/src/a.rs", text).len(), 0);
        assert_eq!(complaints("crates/gateway/tests/a.rs", text).len(), 0);
        let text = format!("#[cfg(test)]\nmod tests {{ {text} }}");
        assert_eq!(complaints("crates/gateway/src/a.rs", &text).len(), 0);
        let other = "#[expect(clippy::too_many_lines, reason = \"\")]\nfn f() {}";
        assert_eq!(complaints("crates/gateway/src/a.rs", other).len(), 0);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let long = format!("//! Docs.\n{}", "fn f() {}\n".repeat(MOST_LINES));
        assert_eq!(complaints("crates/pool/src/a.rs", &long).len(), 1);
        let tested = format!("//! Docs.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(MOST_LINES));
        assert_eq!(complaints("crates/pool/src/a.rs", &tested).len(), 0);
    }

    #[test]
    fn a_file_of_substance_without_docs_is_found() {
        assert_eq!(complaints("crates/pool/src/a.rs", &"fn f() {}\n".repeat(21)).len(), 1);
        assert_eq!(complaints("crates/pool/src/a.rs", &"fn f() {}\n".repeat(20)).len(), 0);
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let source = Source::read("a.rs", "impl A {\n    /// Docs.\n    fn f(\n    ) {\n    }\n}\n").expect("valid");
        assert_eq!(source.functions, [Function { name: "f".into(), n_lines: 3 }]);
    }
}
