//! The real `motorpool` over fake engines: what its users and its operators see, whatever happens to whom.
#![cfg(target_os = "linux")]
mod bad_bodies;
mod bad_files;
mod bad_places;
mod bench;

mod clients;
mod commands;
mod crash;
mod cycles;
mod denial;
mod drained;
mod encrypted;
mod errors;
mod failing;
mod first_requests;
mod headers;
mod health;
mod hostile;
mod hostile_forms;
mod kept;
mod keys;
mod killed;
mod limits;
mod plan;
mod queues;
mod raw_paths;
mod router;
mod starting;
mod stop;
mod support;
mod swap;
mod systemd;
mod trees;
mod up;
