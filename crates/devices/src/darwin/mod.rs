//! Processes as macOS tells of them: `libproc` for facts, memory, mapped files and sockets, `sysctl` for what a process
//! was started with.
//!
//! Type-checked for `aarch64-apple-darwin` and never run. To keep what was not run small, `calls.rs` only fetches bytes;
//! what they mean is read by `args.rs` and `records.rs`, which are compiled and tested everywhere.
//!
//! What differs from Linux, as far as it matters to whoever asks:
//!
//! * A program of the system itself (`/bin/sh`, `/bin/sleep`) hides its environment from everybody, the superuser
//!   included. The answer is then cut behind the arguments, without an error: no environment means hidden.
//! * Of other users' processes only id, parent, group, name and start are told.
//! * There are no resident, swapped and shared pages by kind, but one footprint: private pages, whether in memory, compressed
//!   or swapped out, and what a graphics part holds for the process.
mod args;
#[cfg(target_os = "macos")]
mod calls;
mod records;

#[cfg(target_os = "macos")]
pub(crate) use calls::{
    boot_id, clean_file_ranges, cpu_time, environment, executable, io, listener, listens, mapped_files, memory,
    n_open_fds, pids, private, process, processor_name,
};
