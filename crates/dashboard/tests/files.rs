//! What the files of the page must be, looked at in the folder where they lie.
use flate2::{Compression, write::GzEncoder};
use motorpool_dashboard::{FILES, FOLDER, File, POLICY, edition, file, page};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

/// All that the page loads, compressed together.
const MOST_BYTES: usize = 60_000;

fn assets() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/assets"))
}

fn names_below(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("read").map(|entry| entry.expect("read").path());
    let mut names = BTreeSet::new();
    for path in entries {
        if path.is_dir() {
            names.extend(names_below(&path));
        } else {
            let name = path.strip_prefix(assets()).expect("it lies there").to_str().expect("UTF-8");
            names.insert(name.to_owned());
        }
    }
    names
}

fn compressed(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("it is memory");
    encoder.finish().expect("it is memory").len()
}

fn text(file: &File) -> &'static str {
    std::str::from_utf8(file.bytes).expect("UTF-8")
}

fn ours() -> impl Iterator<Item = File> {
    FILES.iter().copied().chain([page()]).filter(|file| !file.name.starts_with("vendor/"))
}

/// What stands between quotes behind `before`.
fn quoted<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
#[expect(clippy::print_stdout, reason = "the number is the point, seen with --nocapture")]
fn all_that_the_page_loads_is_small() {
    // The page never loads licences.
    let is_loaded = |file: &File| !file.name.contains("LICENSE");
    let files: Vec<File> = FILES.iter().copied().chain([page()]).filter(is_loaded).collect();
    let all: Vec<u8> = files.iter().flat_map(|file| file.bytes).copied().collect();
    let (together, single) = (compressed(&all), files.iter().map(|file| compressed(file.bytes)).sum::<usize>());
    println!("{} files, {} bytes: {together} compressed together, {single} one by one", files.len(), all.len());
    assert!(together < MOST_BYTES, "{together} bytes compressed, at most {MOST_BYTES}");
}

#[test]
fn what_is_packed_is_the_same_and_smaller() {
    let mut n_packed = 0;
    for file in FILES.iter().copied().chain([page()]) {
        let Some(packed) = file.packed() else { continue };
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("it is packed");
        assert!(bytes == file.bytes && packed.len() < bytes.len(), "{}", file.name);
        n_packed += 1;
    }
    assert!(n_packed > 20, "{n_packed}");
}

#[test]
fn every_file_that_lies_there_is_served_and_no_other() {
    let mut there = names_below(assets());
    for beside in ["index.html", "vendor/README.md", "vendor/SHA256SUMS"] {
        assert!(there.remove(beside), "{beside} is there");
    }
    let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(there, served);
}

#[test]
fn files_of_others_are_those_of_the_list() {
    let list = fs::read_to_string(assets().join("vendor/SHA256SUMS")).expect("read");
    let listed: BTreeSet<String> = list
        .lines()
        .map(|line| {
            let (sum, name) = line.split_once("  ").expect("a sum and a name");
            let bytes = fs::read(assets().join("vendor").join(name)).expect("it is there");
            let digit = |at: usize| u8::from_str_radix(&sum[at..at + 2], 16).expect("two digits");
            let wanted: Vec<u8> = (0..sum.len()).step_by(2).map(digit).collect();
            assert_eq!(Sha256::digest(bytes).to_vec(), wanted, "{name} is not what its package holds");
            format!("vendor/{name}")
        })
        .collect();
    let served = FILES.iter().map(|file| file.name.to_owned()).filter(|name| name.starts_with("vendor/"));
    assert_eq!(listed, served.collect::<BTreeSet<_>>());
}

#[test]
fn the_page_names_only_files_of_its_edition() {
    let page = page();
    let page = text(&page);
    let named: Vec<&str> =
        quoted(page, "src=\"").chain(quoted(page, "href=\"")).filter(|n| !n.starts_with('#')).collect();
    assert!(named.len() > 3, "{named:?}");
    for name in named {
        let path = name.strip_prefix(FOLDER).unwrap_or_else(|| panic!("{name} is somebody else's"));
        assert!(file(path).is_some(), "{name} leads nowhere");
    }
    assert_eq!(file("app.css"), None, "no file without its edition");
    assert_eq!(file(&format!("{}/none.css", edition())), None);
}

#[test]
fn modules_name_each_other_by_relative_paths_that_are_there() {
    for file in ours().filter(|file| Path::new(file.name).extension().is_some_and(|end| end == "js")) {
        let folder = Path::new(file.name).parent().expect("a folder");
        for wanted in quoted(text(&file), " from \"") {
            assert!(wanted.starts_with("./") || wanted.starts_with("../"), "{}: {wanted}", file.name);
            let path = match wanted.strip_prefix("../") {
                Some(rest) => folder.parent().expect("views lie below").join(rest),
                None => folder.join(&wanted[2..]),
            };
            assert!(FILES.iter().any(|file| Path::new(file.name) == path), "{} wants {wanted}", file.name);
        }
    }
}

#[test]
fn nothing_of_ours_is_what_the_policy_refuses() {
    assert!(!POLICY.contains("unsafe") && POLICY.starts_with("default-src 'none'"), "{POLICY}");
    for file in ours() {
        for bad in ["http://", "https://", "innerHTML", "eval(", "new Function", "style=\"", "<style", "onclick=\""] {
            let holds = text(&file).replace("http://www.w3.org/2000/svg", "").contains(bad);
            assert!(!holds, "{} holds `{bad}`", file.name);
        }
    }
}

#[test]
fn modules_are_short() {
    for file in ours() {
        let n = text(&file).lines().count();
        assert!(n <= 340, "{} has {n} lines, at most 340", file.name);
    }
}
