//! We as guests: on a real llama-server in router mode, with small real models, and on servers that look like Ollama and
//! LM Studio.
#![cfg(target_os = "linux")]
mod connections;
mod embedded;
mod fakes;
mod leaving;
mod lmstudio;
mod ollama;
mod processes;
mod races;
mod reloaded;
mod router;
mod scenes;
mod scripted;
mod served;
mod served_fakes;
mod shared;
mod support;
mod told;
