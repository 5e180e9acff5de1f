//! What the tests of the whole share: the checkers behind `tests/tidy.rs`.
//!
//! Boundary: nothing of the product lives here, and nothing here is used by it.
pub mod tidy;
