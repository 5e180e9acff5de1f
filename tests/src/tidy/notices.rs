//! `THIRD-PARTY.md`: what of others is in the program, and under which licence. A test compares it with what cargo says;
//! `MOTORPOOL_BLESS=1` writes it. Versions are those of `Cargo.lock`, so that the list changes only with what is used.
use super::Complaint;
use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path, process::Command};

const PLACE: &str = "crates/motorpool/THIRD-PARTY.md";

const HEAD: &str = "# What of others is in the program

Written by `MOTORPOOL_BLESS=1 cargo test -p motorpool-tests --test tidy`. Crates that the program is built from on Linux with its default
features, each under the licence that it names; their texts are in the crates themselves. The page in the browser has files of others,
too: `crates/dashboard` lists them with their licences. SQLite, inside libsqlite3-sys, is in the public domain.

| crate | licence | source |
| --- | --- | --- |
";

/// What the file must say.
///
/// # Panics
/// When cargo fails; it runs this test, so it can.
fn wanted(root: &Path) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--package", "motorpool", "--edges", "normal", "--prefix", "none"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}|{l}|{r}"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rendered(&String::from_utf8_lossy(&output.stdout))
}

/// One row for each crate of `tree` that is not ours.
fn rendered(tree: &str) -> String {
    let row = |line: &str| {
        let mut parts = line.split('|');
        let name = parts.next()?.split(' ').next().filter(|name| !name.starts_with("motorpool"))?.to_owned();
        let (licence, source) = (parts.next()?.to_owned(), parts.next()?.trim_end_matches(" (*)").to_owned());
        Some((name, (licence, source)))
    };
    let rows: BTreeMap<_, _> = tree.lines().filter_map(row).collect();
    let mut text = HEAD.to_owned();
    for (name, (licence, source)) in rows {
        writeln!(text, "| {name} | {licence} | {source} |").expect("a string takes all");
    }
    text
}

/// Writes the file.
pub fn bless(root: &Path) -> io::Result<()> {
    fs::write(root.join(PLACE), wanted(root))
}

/// Whether it says what it must.
pub fn check(root: &Path) -> Vec<Complaint> {
    let is_so = fs::read_to_string(root.join(PLACE)).is_ok_and(|found| found == wanted(root));
    if is_so { Vec::new() } else { vec![format!("{PLACE}: lacks something; MOTORPOOL_BLESS=1 writes it")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_stands_there_once_and_none_of_ours() {
        let tree = "motorpool v0.1.0 (/x)|MIT|\nb v1.0.0|MIT|https://b (*)\na v2.0.0|ISC|\nb v1.0.0|MIT|https://b\n";
        assert_eq!(rendered(tree).strip_prefix(HEAD), Some("| a | ISC |  |\n| b | MIT | https://b |\n"));
    }
}
