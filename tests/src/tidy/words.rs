//! Checks files that people read: reasons beside dependencies, commands that agree, manifests that inherit.
use super::Complaint;

/// Every shared dependency in the root's `Cargo.toml` that gives no reason, beside it or on the line above.
pub fn dependencies_without_reason(manifest: &str) -> Vec<Complaint> {
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let mut above = "";
    let mut complaints = Vec::new();
    for line in section.lines() {
        let is_dependency = line.contains('=') && !line.trim_start().starts_with('#');
        let is_ours = line.starts_with("motorpool");
        if is_dependency && !is_ours && !line.contains('#') && !above.trim_start().starts_with('#') {
            complaints.push(format!("Cargo.toml: `{line}` gives no reason"));
        }
        above = line;
    }
    complaints
}

/// What a member's manifest does not take from the workspace: its lints, the versions of its dependencies.
pub fn not_inherited(path: &str, manifest: &str) -> Vec<Complaint> {
    let table: toml::Table = match manifest.parse() {
        Ok(table) => table,
        Err(e) => return vec![format!("{path}: {e}")],
    };
    let mut complaints = Vec::new();
    let lints = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
    if lints != Some(true) {
        complaints.push(format!("{path}: does not take the lints of the workspace"));
    }
    for (name, value) in ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| table.get(*section).and_then(toml::Value::as_table))
        .flatten()
    {
        if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
            complaints.push(format!("{path}: `{name}` has a version of its own"));
        }
    }
    complaints
}

/// The command behind the step called `name` in `.ci/run`.
pub fn ci_step<'a>(script: &'a str, name: &str) -> Option<&'a str> {
    let step = format!("step {name} ");
    script.lines().find_map(|line| line.trim_start().strip_prefix(step.as_str())).map(str::trim)
}

/// Whether the README tells people to test as `.ci/run` does.
pub fn readme_agrees(readme: &str, script: &str) -> Vec<Complaint> {
    let Some(command) = ci_step(script, "tests") else {
        return vec![".ci/run: has no line `step tests …`".to_owned()];
    };
    let told: Vec<&str> = readme.lines().filter_map(test_command).collect();
    if told.is_empty() {
        return vec![format!("README.md: does not say how to test: `{command}`")];
    }
    let other = told.iter().filter(|told| **told != command);
    other.map(|told| format!("README.md: says `{told}`, .ci/run does `{command}`")).collect()
}

/// `cargo test …` on a line of its own or between backticks.
fn test_command(line: &str) -> Option<&str> {
    let from = line.find("cargo test")?;
    let rest = &line[from..];
    let end = rest.find(['`', '#']).unwrap_or(rest.len());
    Some(rest[..end].trim())
}

/// Tests and files that `documentation` names in backticks and that are not there. `sources` is all that may hold a test.
pub fn named_in_vain(documentation: &str, sources: &str, is_there: &dyn Fn(&str) -> bool) -> Vec<Complaint> {
    let named = documentation.split('`').skip(1).step_by(2);
    let is_sentence = |name: &&str| {
        !name.starts_with("motorpool_")
            && name.matches('_').count() > 2
            && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let is_file = |name: &&str| name.starts_with("tests/") || name.starts_with("crates/");
    let tests = named.clone().filter(is_sentence).filter(|name| !sources.contains(&format!("fn {name}")));
    let files = named.filter(is_file).filter(|name| !is_there(name.trim_end_matches('/')));
    tests.chain(files).map(|name| format!("the documentation names `{name}`, which is not there")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\nmotorpool = { path = \"x\" }\na = \"1\" # why\n# why\nb = \"1\"\nc = \"1\"\n[profile.dev]\nd = 1\n";
        assert_eq!(dependencies_without_reason(manifest), ["Cargo.toml: `c = \"1\"` gives no reason"]);
    }

    #[test]
    fn a_manifest_that_goes_its_own_way_is_found() {
        let good =
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [] }\n[lints]\nworkspace = true\n";
        assert_eq!(not_inherited("x", good), Vec::<String>::new());
        assert_eq!(not_inherited("x", "[dev-dependencies]\na = \"1\"\n").len(), 2);
    }

    #[test]
    fn a_readme_that_tests_otherwise_is_found() {
        let script = "step format cargo fmt --all --check\n  step tests cargo test --workspace\n";
        assert_eq!(readme_agrees("```\ncargo test --workspace # two minutes\n```", script), Vec::<String>::new());
        assert_eq!(readme_agrees("run `cargo test --all`", script).len(), 1);
        assert_eq!(readme_agrees("no word", script).len(), 1);
        assert_eq!(readme_agrees("cargo test --workspace", "").len(), 1);
    }

    #[test]
    fn a_test_or_a_file_that_is_not_there_is_found() {
        let text =
            "as `a_test_of_this_kind` and `another_one_of_this` show, in `tests/a.rs` and `tests/b.rs` by `cargo`";
        let complaints = named_in_vain(text, "fn a_test_of_this_kind() {}", &|path| path == "tests/a.rs");
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("another_one_of_this") && complaints[1].contains("tests/b.rs"));
    }
}
