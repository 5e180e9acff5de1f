//! The sentences of the design and the rules of style that a machine can hold.
use motorpool_tests::tidy::{bans, crates, must_be_none, notices, source::Source, tree, words};
use std::fs;

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let members = crates::members(&tree::root());
    assert!(members.len() > 5, "the workspace was found");
    must_be_none(&crates::check(&members));
}

#[test]
fn each_crate_has_its_bans() {
    let root = tree::root();
    if std::env::var_os("MOTORPOOL_BLESS").is_some() {
        bans::bless(&root).expect("written");
    }
    must_be_none(&bans::check(&root).expect("read"));
}

#[test]
fn sources_keep_to_their_place_and_size() {
    let sources = tree::sources(&tree::root()).expect("read");
    let mut complaints = Vec::new();
    let mut read = Vec::new();
    for source in sources {
        match source {
            Ok(source) => read.push(source),
            Err(complaint) => complaints.push(complaint),
        }
    }
    report(&read);
    complaints.extend(read.iter().flat_map(Source::check));
    must_be_none(&complaints);
}

#[test]
fn shared_dependencies_say_why_and_members_share_them() {
    let root = tree::root();
    let mut complaints =
        words::dependencies_without_reason(&fs::read_to_string(root.join("Cargo.toml")).expect("read"));
    for package in crates::members(&root) {
        let manifest = fs::read_to_string(&package.manifest_path).expect("read");
        complaints.extend(words::not_inherited(&package.manifest_path, &manifest));
    }
    must_be_none(&complaints);
}

#[test]
fn what_of_others_is_in_the_program_is_listed_with_its_licence() {
    let root = tree::root();
    if std::env::var_os("MOTORPOOL_BLESS").is_some() {
        notices::bless(&root).expect("written");
    }
    must_be_none(&notices::check(&root));
}

#[test]
fn the_top_level_shows_only_what_is_drawn() {
    must_be_none(&tree::unexpected_at_top(&tree::root()).expect("read"));
}

#[test]
fn the_readme_tests_as_ci_does() {
    let root = tree::root();
    let script = fs::read_to_string(root.join(".ci/run")).expect("read");
    let readme = fs::read_to_string(root.join("README.md")).expect("read");
    must_be_none(&words::readme_agrees(&readme, &script));
}

#[test]
fn the_tests_that_the_documentation_names_are_there() {
    let root = tree::root();
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("read");
    let documentation: String = ["README.md", "docs/guarantees.md", "docs/operating.md"].map(read).concat();
    let sources = tree::texts(&root).expect("read");
    must_be_none(&words::named_in_vain(&documentation, &sources, &|path| root.join(path).exists()));
}

/// Seen with `--nocapture`.
#[expect(clippy::print_stdout, reason = "a report for whoever asks for it")]
fn report(sources: &[Source]) {
    let mut functions: Vec<(usize, &str, &str)> = sources
        .iter()
        .flat_map(|s| s.functions.iter().map(|f| (f.n_lines, f.name.as_str(), s.path.as_str())))
        .collect();
    functions.sort_unstable();
    let at = |per_mille: usize| functions[(functions.len() - 1) * per_mille / 1000].0;
    println!("{} functions: median {}, 90 % {}, longest {}", functions.len(), at(500), at(900), at(1000));
    for (n_lines, name, path) in functions.iter().filter(|(n, ..)| *n > 60) {
        println!("  {path}: `{name}` has {n_lines} lines");
    }
    for source in sources.iter().filter(|source| source.n_lines > 340) {
        println!("  {}: {} lines without tests", source.path, source.n_lines);
    }
}
