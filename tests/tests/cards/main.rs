//! The real `motorpool` over a driver that is not NVIDIA's: what it finds by itself, reads, and tells its engines.
#![cfg(target_os = "linux")]
mod doctor;
mod faults;
mod found;
mod memory;
mod placed;
mod support;
