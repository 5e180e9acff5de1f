//! The loop and its handle, over real keepers and the smallest of engines.
mod house;
mod learned;
mod lives;
mod measured;
mod reloads;
mod requests;
