//! What tests of Motorpool are made of: a fake engine, models that tell it how to behave, a small HTTP client.
//!
//! Boundary: a dev-dependency only. The fake engine is a real program (`motorpool-fake-engine`) that looks like
//! llama-server to whoever supervises it or sends it requests. How it behaves lies beside its model file, so each
//! model of a catalog can fail in its own way:
//!
//! ```text
//! FakeModel ──writes──► a.gguf                 the model file, valid
//!                       a.gguf.fake.toml       Behaviour: read at each start
//!                       a.gguf.fake.starts     one line per start, written by the engine
//!                       a.gguf.fake.strays     one process id per line: grandchildren it left
//! ```
//!
//! Tests steer phases by files, not by time: a [`Gate`] is a file that the engine waits for, a [`Switch`] a file
//! that turns a fault on for as long as it exists. Model servers that somebody else runs are in [`servers`]. Benchmarks have an
//! engine of their own, `motorpool-trivial-engine`, which only answers: [`trivial`].
mod await_file;
mod behaviour;
mod binary;
mod client;
pub mod corpus;
mod eventually;
mod model;
pub mod servers;
mod text;
pub mod trivial;

pub use await_file::await_file;
pub use behaviour::{
    Aborts, Behaviour, Bind, ClaimTime, Deaf, End, Environment, Exit, Flood, Grandchild, GraphicsClaim, Health,
    Inference, LineEnd, Load, Moment, Session, State, Stop, Switch, TokenGate, Tokens,
};
pub use binary::binary;
pub use client::{Answer, Client, Incoming};
pub use eventually::eventually;
pub use model::{FakeModel, Gate, ModelFiles, Start};
pub use text::{embedding, fingerprint, text, token};
