//! What the program asks of one system in another way than of the other, each under one name.
//!
//! | | `linux.rs` | `macos.rs` (type-checked, never run) |
//! | --- | --- | --- |
//! | [`hidden_address`] | an abstract socket | there are none |
//! | [`limit_of_processes`], [`limit_of_locked_memory`] | `nix` | `libc`: `nix` does not have them there |
//! | [`thread_cpu_time`] | `getrusage` | told of processes only |
//! | [`WITHOUT_SANDBOX`] | a kernel without Landlock | always so |
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
use linux as here;
#[cfg(target_os = "macos")]
use macos as here;

pub(crate) use here::{WITHOUT_SANDBOX, hidden_address, limit_of_locked_memory, limit_of_processes, thread_cpu_time};
