//! Real processes under a real keeper.
mod end;
mod leftovers;
mod output;
mod start;
mod support;
mod tools;
