//! Reads the journal of a daemon: what it wrote down before it did it.
use crate::e2e::house::read;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Every whole line, oldest first.
pub fn records(path: &Path) -> Vec<Value> {
    read(path).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The marks of every tree that it knows.
pub fn nonces(path: &Path) -> Vec<String> {
    records(path).iter().filter_map(|record| Some(record["nonce"].as_str()?.to_owned())).collect()
}

/// The control groups of the trees that it knows.
pub fn groups(path: &Path) -> Vec<PathBuf> {
    records(path).iter().filter_map(|record| Some(record["group"].as_str()?.into())).collect()
}

/// How many records of this kind there are: `intent`, `born`, `gone`.
pub fn count(path: &Path, kind: &str) -> usize {
    records(path).iter().filter(|record| record["record"] == kind).count()
}
