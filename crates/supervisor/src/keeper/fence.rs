//! What an engine is held to, entered by its first process right before exec and kept by all that descends from it.
//!
//! Everywhere: no core is written, which could be as large as a model, and where memory ends the kernel (Linux's) takes an
//! engine before it takes us. With a [`Fence`], and where the kernel has Landlock: it writes only where it may, listens only on its
//! port, signals nobody outside. Reading is left alone: programs, libraries, drivers and models lie anywhere. So are ioctls:
//! drivers of graphics cards are spoken to by them.
//!
//! A process that is held so gains no rights by exec. NVIDIA's driver makes its device files by a program that needs some;
//! they are there by then, because engines were asked for their devices before, without a fence.
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(not(target_os = "linux"))]
mod none;

#[cfg(target_os = "linux")]
pub(super) use landlock::enter;
#[cfg(not(target_os = "linux"))]
pub(super) use none::enter;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

/// Added to how soon the kernel takes a process when memory ends; the most is 1000.
const SOONER: i32 = 300;
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// What holds for every engine, as far as it is ours to say. Only Linux has the second file.
pub(super) fn limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, hard);
    }
    let score = fs::read_to_string(OOM_SCORE).ok().and_then(|score| score.trim().parse::<i32>().ok());
    if let Some(score) = score {
        let _ = fs::write(OOM_SCORE, score.saturating_add(SOONER).min(1000).to_string());
    }
}
