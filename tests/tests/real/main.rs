//! The real llama-server and the real default model, installed by the product itself.
//!
//! The first test that runs installs both, once, and says so on standard error; that takes some minutes and a network.
#![cfg(target_os = "linux")]
mod assembled;
mod beside;
mod crash;
mod estimates;
mod families;
mod learned;
mod ledger;
mod ollama;
mod serving;
mod sessions;
mod up;
