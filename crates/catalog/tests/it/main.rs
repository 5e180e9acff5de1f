//! The catalog from outside: texts in, checked values or shown errors out.
mod errors;
mod external;
mod files;
mod llama_server;
mod names;
mod properties;
mod schemas;
