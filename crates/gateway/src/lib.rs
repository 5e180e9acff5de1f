//! HTTP in, an engine's HTTP out.
pub mod assemble;
pub mod errors;
pub mod headers;
pub mod origin;
pub mod retain;
pub mod scan;
pub mod splice;
pub mod sse;
