//! We as guests on a real llama-server in router mode, with small real models.
mod leaving;
mod router;
mod served;
mod support;
