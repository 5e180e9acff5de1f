//! HTTP in, an engine's HTTP out.
pub mod scan;
