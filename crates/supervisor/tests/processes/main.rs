//! Real processes under a real keeper.
#![cfg(target_os = "linux")]

mod end;
mod fences;
mod groups;
mod leftovers;
mod orphans;
mod output;
mod start;
mod steps;
mod support;
mod tools;

/// The program that becomes a keeper.
const KEEPER: &str = env!("CARGO_BIN_EXE_keeper-under-test");
