//! Real processes under a keeper with the means of macOS, on Linux: all that is asked of the other one too, but for what only
//! a subreaper and a control group can do, and what the guard does.
#![cfg(target_os = "linux")]

#[path = "../processes/end.rs"]
mod end;
mod guard;
#[path = "../processes/output.rs"]
mod output;
#[path = "../processes/start.rs"]
mod start;
#[path = "../processes/steps.rs"]
mod steps;
#[path = "../processes/support.rs"]
mod support;
#[path = "../processes/tools.rs"]
mod tools;

/// The program that becomes a keeper.
const KEEPER: &str = env!("CARGO_BIN_EXE_plain-keeper-under-test");
