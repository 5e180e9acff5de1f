//! The pool from outside: one trace per edge of its diagram, and its invariants over random traces.
mod closing;
mod corrections;
mod drains;
mod fairness;
mod hosts;
mod properties;
mod traces;
mod world;
