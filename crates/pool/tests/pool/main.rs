//! The pool from outside: one trace per edge of its diagram, and its invariants over random traces.
mod admissions;
mod cards;
mod closing;
mod corrections;
mod drains;
mod fairness;
mod fallbacks;
mod hosts;
mod learned;
mod machine;
mod pressures;
mod properties;
mod reclaims;
mod restless;
mod slots;
mod traces;
mod world;
