//! Motorpool as a library: what a program needs that embeds the pool.
//!
//! Engines run below a keeper, which is this program started again: call [`keeper_if_asked`] first thing in `main`,
//! before a runtime, a thread, or anything that reads arguments. The rest is the crates, by their names.
mod slim;

pub use motorpool_catalog as catalog;
pub use motorpool_gguf as gguf;
pub use motorpool_supervisor as supervisor;
pub use motorpool_vocab as vocab;

/// The first argument that makes a keeper of this program.
pub const KEEPER: &str = "keeper";

/// Becomes a keeper, and ends the program with it, when the first argument is [`KEEPER`]; else returns.
///
/// It must come before everything else: a keeper is one thread, and small.
#[expect(clippy::exit, reason = "a keeper is the whole program")]
pub fn keeper_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|first| first == KEEPER) {
        slim::drop_clean_pages();
        std::process::exit(supervisor::keeper_on_stdin());
    }
}
