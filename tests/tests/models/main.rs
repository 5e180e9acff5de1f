//! Models and where they come from: the hub, other programs' caches, folders; fetched, found, checked, removed.
#![cfg(target_os = "linux")]
mod caches;
mod gpu;
mod hub;
mod hub_troubles;
mod packages;
mod removed;
mod support;
