//! What the tests of the whole share: the checkers behind `tests/tidy.rs`, and the real program in a house of its own.
//!
//! Boundary: nothing of the product lives here, and nothing here is used by it.
#[cfg(target_os = "linux")]
pub mod e2e;
pub mod tidy;
