//! Calls of Ollama's API: any bytes. What is asked of the engine is JSON that names the model and streams, and is not
//! much longer than the call.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gateway::ollama::{Asked, Call, translate};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    for call in [Call::Chat, Call::Generate, Call::Embed, Call::Embeddings] {
        let Ok(Asked::Engine(request)) = translate(call, data, "m") else { continue };
        assert!(request.body.len() < 1000 + 40 * data.len(), "{} of {}", request.body.len(), data.len());
        // What is passed on as it is may nest deeper than this reader goes.
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else { continue };
        assert_eq!(body["model"], "m");
        assert_eq!(body["stream"] == true, request.path != "/v1/embeddings");
    }
});
