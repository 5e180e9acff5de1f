//! What is loaded beside a model: files made here that the real engine loads, estimated and through the daemon.
use crate::estimates::ROUNDING;
use motorpool_gguf::{
    Adapter, LaunchSettings, ModelShape, Part, Purpose, TensorType, estimate, estimate_draft, read_header,
    write::{Smoke, Writer},
};
use motorpool_tests::e2e::{
    House,
    estimates::{ByHand, calibration},
    installed::{house, model_file},
    talk::{CHAT, Said, chat},
};
use motorpool_vocab::Bytes;
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Of the smoke model.
const EMBEDDING: u64 = 64;
const FEED: u64 = 192;

/// An adapter for the feed of every layer, which changes nothing.
fn adapter(architecture: &str, (n_layers, embedding, feed): (u32, u64, u64)) -> Vec<u8> {
    const RANK: u64 = 64;
    let zeros = |n: u64| vec![0; usize::try_from(n * 4).expect("small")];
    let writer = Writer::new()
        .set("general.architecture", architecture)
        .set("general.type", "adapter")
        .set("adapter.type", "lora")
        .set("adapter.lora.alpha", 16_f32);
    let layer = |writer: Writer, n: u32| {
        let name = |which| format!("blk.{n}.ffn_up.weight.lora_{which}");
        writer.tensor(name('a'), TensorType::F32, &[embedding, RANK], zeros(embedding * RANK)).tensor(
            name('b'),
            TensorType::F32,
            &[RANK, feed],
            zeros(RANK * feed),
        )
    };
    (0..n_layers).fold(writer, layer).finish()
}

/// A projector of one layer for images of four patches, in llava's form, for embeddings of so many numbers.
fn projector(embedding: u64) -> Vec<u8> {
    const E: u64 = 64;
    const FEED: u64 = 128;
    let count = |n: u64| u32::try_from(n).expect("small");
    let zeros = |ne: &[u64]| vec![0; usize::try_from(ne.iter().product::<u64>() * 4).expect("small")];
    let half = [0.5_f32; 3];
    let writer = Writer::new()
        .set("general.architecture", "clip")
        .set("general.type", "mmproj")
        .set("clip.has_vision_encoder", true)
        .set("clip.projector_type", "mlp")
        .set("clip.vision.image_size", 28_u32)
        .set("clip.vision.patch_size", 14_u32)
        .set("clip.vision.embedding_length", count(E))
        .set("clip.vision.feed_forward_length", count(FEED))
        .set("clip.vision.block_count", 1_u32)
        .set("clip.vision.attention.head_count", 2_u32)
        .set("clip.vision.attention.layer_norm_epsilon", 1e-5_f32)
        .set("clip.vision.projection_dim", count(embedding))
        .set("clip.use_gelu", true)
        .set("clip.vision.image_mean", half.as_slice())
        .set("clip.vision.image_std", half.as_slice());
    let outside: [(&str, &[u64]); 11] = [
        ("v.patch_embd.weight", &[14, 14, 3, E]),
        ("v.class_embd", &[E]),
        ("v.position_embd.weight", &[E, 5]),
        ("v.pre_ln.weight", &[E]),
        ("v.pre_ln.bias", &[E]),
        ("v.post_ln.weight", &[E]),
        ("v.post_ln.bias", &[E]),
        ("mm.0.weight", &[E, embedding]),
        ("mm.0.bias", &[embedding]),
        ("mm.2.weight", &[embedding, embedding]),
        ("mm.2.bias", &[embedding]),
    ];
    let inside: [(&str, &[u64], u64); 8] = [
        ("attn_q", &[E, E], E),
        ("attn_k", &[E, E], E),
        ("attn_v", &[E, E], E),
        ("attn_out", &[E, E], E),
        ("ffn_up", &[E, FEED], FEED),
        ("ffn_down", &[FEED, E], E),
        ("ln1", &[E], E),
        ("ln2", &[E], E),
    ];
    let add = |writer: Writer, (name, ne): (String, &[u64])| writer.tensor(name, TensorType::F32, ne, zeros(ne));
    let writer = outside.into_iter().map(|(name, ne)| (name.to_owned(), ne)).fold(writer, add);
    let layer = |writer: Writer, (name, ne, rows): (&str, &[u64], u64)| {
        let writer = add(writer, (format!("v.blk.0.{name}.weight"), ne));
        add(writer, (format!("v.blk.0.{name}.bias"), &[rows]))
    };
    inside.into_iter().fold(writer, layer).finish()
}

fn written(house: &House, name: &str, bytes: Vec<u8>) -> PathBuf {
    let path = house.path("models").join(name);
    fs::create_dir_all(house.path("models")).expect("made");
    fs::write(&path, bytes).expect("written");
    path
}

fn shape(path: &Path) -> ModelShape {
    let file = File::open(path).expect("it is there");
    let len = file.metadata().expect("its length").len();
    ModelShape::of(&[read_header(file, len).expect("valid")]).expect("a shape")
}

#[tokio::test]
async fn a_draft_model_and_an_adapter_take_what_is_estimated() {
    let house = house().await;
    let n_blocks = 4;
    let model = written(&house, "model.gguf", Smoke { n_blocks, ..Smoke::default() }.writer().finish());
    let small = written(&house, "small.gguf", Smoke::default().writer().finish());
    let lora = written(&house, "lora.gguf", adapter("llama", (n_blocks, EMBEDDING, FEED)));
    let settings = LaunchSettings {
        slots: 2,
        kv_keys: TensorType::Q8_0,
        kv_values: TensorType::Q8_0,
        context_per_slot: 4096,
        ..LaunchSettings::default()
    };
    let mut more: Vec<&OsStr> = ["--spec-type", "draft-simple", "--spec-draft-type-k", "f16"].map(OsStr::new).into();
    more.extend(["--spec-draft-type-v", "f16", "--spec-draft-n-max", "3", "--spec-draft-model"].map(OsStr::new));
    more.extend([small.as_os_str(), OsStr::new("--lora"), lora.as_os_str()]);
    let engine = ByHand::start_with(&house, &model, &settings, &more).await;
    engine.ask(Purpose::Generate).await;

    let file = File::open(&lora).expect("just written");
    let length = file.metadata().expect("its length").len();
    let adapter = Adapter::of(&read_header(file, length).expect("valid")).expect("an adapter");
    let own = estimate(&shape(&model), &settings, &calibration()).with_adapters([&adapter]);
    let draft = estimate_draft(&shape(&small), &settings, &calibration());
    let adapters = Bytes::sum(own.layers.iter().map(|layer| layer.adapters));
    assert!(adapters > Bytes::new(200 << 10) && own.adapters.is_zero(), "{adapters}");
    for (part, estimated) in [
        (Part::Weights, [own.weights(), draft.weights()]),
        (Part::Cache, [own.cache(), draft.cache()]),
        (Part::Results, [own.results, draft.results]),
        (Part::Adapters, [adapters, Bytes::ZERO]),
    ] {
        let (estimated, reported) = (Bytes::sum(estimated), engine.reported.part(part));
        assert!(estimated.get().abs_diff(reported.get()) <= ROUNDING, "{part:?}: {estimated} for {reported}");
    }
    let compute = own.compute_host.saturating_add(draft.compute_host);
    let reported = engine.reported.part(Part::Compute);
    let tenth = reported.per_mille(100).get();
    assert!(compute.get().abs_diff(reported.get()) <= tenth, "compute: {compute} for {reported}");
    engine.end().await;
}

fn part(sheet: &Value, name: &str) -> u64 {
    let parts = sheet["launches"][0]["parts"].as_array().expect("a list");
    let found = parts.iter().find(|part| part["part"] == name);
    found.map_or(0, |part| part["systemMemory"].as_u64().expect("bytes"))
}

#[tokio::test]
async fn a_model_with_all_of_it_is_planned_loaded_and_answers() {
    let mut house = house().await;
    let model = model_file();
    let embedding = 640;
    let clip = written(&house, "clip.gguf", projector(embedding));
    let lora = written(&house, "lora.gguf", adapter("gemma3", (18, embedding, 2048)));
    let lines = format!(
        "slots = 1\ncpu_tensors = [\"ffn_(up|down)\"]\nprojector = {{ file = \"{}\" }}\n\
         draft = {{ file = \"{}\", tokens = 2 }}\nadapters = [{{ file = \"{}\" }}]\n\
         extra_args = [\"--jinja\", \"--temp\", \"0\"]\n",
        clip.display(),
        model.display(),
        lora.display()
    );
    house.add_model("all", &model, &lines);
    house.add_model("plain", &model, "slots = 1\n");
    house.set("capacity.budget", "4GiB");
    let daemon = house.start().await;
    let sheet = daemon.cli(&["plan", "all", "--json"]).await.json();
    let plain = daemon.cli(&["plan", "plain", "--json"]).await.json();
    assert!(part(&sheet, "projector") > 384 << 20, "{sheet:#}");
    assert_eq!(part(&sheet, "adapters"), 18 * 4 * 64 * (640 + 2048), "{sheet:#}");
    assert!(part(&sheet, "draft model") > part(&plain, "weights"), "{sheet:#}");
    assert_eq!(part(&sheet, "weights"), part(&plain, "weights"), "what stays in system memory is there anyway");
    let mut question = chat("all", "Count from one to five.");
    question["max_tokens"] = 4.into();
    let answer = daemon.http().post(CHAT, &question).await.expect("an answer");
    let said = Said::read(&answer.text());
    assert!(answer.status == 200 && said.is_done && said.error.is_none(), "{}\n{}", answer.text(), daemon.log());
    daemon.stop().await;
}
