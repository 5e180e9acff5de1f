//! The manifests and models that are part of the program.
use crate::{Manifest, Model, Source, parse_manifest, parse_model};

/// File name and text of every manifest that is part of the program.
pub fn embedded_manifests() -> &'static [(&'static str, &'static str)] {
    &[
        ("engines/llama-server.toml", include_str!("../engines/llama-server.toml")),
        ("engines/mlx-lm.toml", include_str!("../engines/mlx-lm.toml")),
        ("engines/vllm.toml", include_str!("../engines/vllm.toml")),
        ("engines/whisper-server.toml", include_str!("../engines/whisper-server.toml")),
    ]
}

/// File name and text of every model that is part of the program.
pub fn embedded_models() -> &'static [(&'static str, &'static str)] {
    &[("catalog/gemma3-270m.toml", include_str!("../catalog/gemma3-270m.toml"))]
}

/// The manifests and models that are part of the program, read.
pub fn shipped() -> (Vec<Manifest>, Vec<Model>) {
    let none = |_: &str| None;
    let manifests = embedded_manifests().iter().map(|(file, text)| parse_manifest(Source { file, text }, &none));
    let models = embedded_models().iter().map(|(file, text)| parse_model(Source { file, text }, &none));
    let valid = "a test reads every embedded file";
    (manifests.collect::<Result<_, _>>().expect(valid), models.collect::<Result<_, _>>().expect(valid))
}
