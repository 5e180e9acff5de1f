//! Real processes under a real keeper.
mod end;
mod fences;
mod groups;
mod leftovers;
mod output;
mod start;
mod steps;
mod support;
mod tools;
