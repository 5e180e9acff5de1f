//! We as guests on a real llama-server in router mode, with small real models.
mod router;
mod support;
