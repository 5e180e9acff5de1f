//! Holds the five sentences of the design true, by what cargo, clippy's files and the sources say.
//!
//! | sentence | held by |
//! | --- | --- |
//! | 1. above the line no clock, async, I/O or unsafe | [`crates`] (dependencies), [`bans`] (clippy), [`source`] (keywords) |
//! | 2. only `supervisor` has processes, only `devices` interprets a reading | [`bans`], [`crates`] |
//! | 3. only `gateway` serves; core types are not `Serialize` | [`bans`], [`crates`], [`source`] |
//! | 4. only `motorpool` reads the environment, prints, exits | [`bans`], the lints, [`source`] (no exceptions from either) |
//! | 5. one task owns the pool | [`bans`] |
//!
//! Each checker is a function from text to complaints, and has a test that shows it a wrong text.
pub mod bans;
pub mod crates;
pub mod house;
pub mod notices;
pub mod source;
pub mod tree;
pub mod words;

/// What is wrong, where, for a person to read.
pub type Complaint = String;

/// Fails with all complaints at once.
///
/// # Panics
/// When there is any.
pub fn must_be_none(complaints: &[Complaint]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
