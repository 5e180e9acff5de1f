//! Estimates beside what the real engine reports: [`measure`] starts it by hand, [`Row`] compares part by part.
use crate::e2e::{House, installed};
use motorpool_gguf::{
    Calibration, FlashAttention, KvLayout, LaunchSettings, ModelShape, Part, Purpose, Reported, SlidingWindow,
    TensorType, estimate, read_header,
};
use motorpool_testkit::Client;
use motorpool_vocab::{Bytes, Endpoint};
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// The parts that are compared, in the order of tables.
pub const PARTS: [(&str, Part); 5] = [
    ("weights", Part::Weights),
    ("cache", Part::Cache),
    ("compute", Part::Compute),
    ("results", Part::Results),
    ("repacked", Part::Repacked),
];

/// One launch: estimated, and reported by the engine.
#[derive(Clone, Debug)]
pub struct Row {
    /// The model.
    pub name: String,
    /// How it was started.
    pub settings: LaunchSettings,
    /// By part, as [`PARTS`].
    pub estimated: [Bytes; 5],
    /// By part, as [`PARTS`].
    pub reported: [Bytes; 5],
}

impl Row {
    /// The error of the sum of all parts, in hundredths of a percent of what was reported.
    pub fn error(&self) -> u64 {
        let [estimated, reported] = [self.estimated, self.reported].map(|parts| Bytes::sum(parts).get());
        estimated.abs_diff(reported) * 10_000 / reported.max(1)
    }

    /// Whether more was estimated than reported.
    pub fn is_above(&self) -> bool {
        Bytes::sum(self.estimated) > Bytes::sum(self.reported)
    }
}

/// The error that so many percent of the rows do not exceed.
///
/// # Panics
/// Without rows.
pub fn percentile<'a>(rows: impl IntoIterator<Item = &'a Row>, percent: usize) -> u64 {
    let mut errors: Vec<u64> = rows.into_iter().map(Row::error).collect();
    errors.sort_unstable();
    errors[(errors.len() * percent).div_ceil(100).max(1) - 1]
}

/// What the installation measured of the engine, from its record.
///
/// # Panics
/// When nothing was measured.
pub fn calibration() -> Calibration {
    let measured = &record()["calibration"];
    let names: Vec<&str> =
        measured["repacked"].as_array().expect("measured").iter().filter_map(Value::as_str).collect();
    let repacked = TensorType::ALL.iter().filter(|kind| kind.name().is_some_and(|name| names.contains(&name)));
    Calibration {
        activations_per_mille: measured["activations_per_mille"].as_u64().expect("measured"),
        repacked: repacked.copied().collect(),
        ..Calibration::default()
    }
}

fn record() -> Value {
    let versions = fs::read_dir(installed::data().join("motorpool/engines/llama-server")).expect("installed");
    let records = versions.flatten().map(|version| version.path().join("install.json"));
    let newest = records.filter(|record| record.exists()).max().expect("a record");
    serde_json::from_slice(&fs::read(newest).expect("read")).expect("JSON")
}

/// The installed engine with one model.
#[derive(Debug)]
pub struct ByHand {
    child: Child,
    client: Client,
    /// The buffers it made.
    pub reported: Reported,
}

impl ByHand {
    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// When it ends instead; with what it said.
    pub async fn start(house: &House, model: &Path, settings: &LaunchSettings) -> Self {
        Self::start_with(house, model, settings, &[]).await
    }

    /// The same with more arguments.
    ///
    /// # Panics
    /// When it ends instead; with what it said.
    pub async fn start_with(house: &House, model: &Path, settings: &LaunchSettings, more: &[&OsStr]) -> Self {
        let program = record()["program"].as_str().map(PathBuf::from).expect("its path");
        let socket = house.path("hand.sock");
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(program);
        command.arg("-m").arg(model).arg("--host").arg(&socket).args(arguments(settings)).args(more);
        command.env_clear().env("XDG_CONFIG_HOME", house.path("config")).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (mut reported, mut said) = (Reported::default(), Vec::new());
        loop {
            let line = lines.next_line().await.expect("read");
            let line = line.unwrap_or_else(|| panic!("{}: it ended: {said:#?}", model.display()));
            reported.on_line(&line);
            if line.contains("listening on") {
                break;
            }
            said.push(line);
        }
        // What it says of requests is not read, and must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, client: Client::new(Endpoint::Unix(socket)), reported }
    }

    /// Asks once, for what the model is for.
    ///
    /// # Panics
    /// When the answer is not one.
    pub async fn ask(&self, purpose: Purpose) {
        let (path, body, found) = match purpose {
            Purpose::Generate => ("/completion", json!({"prompt": "a pool of", "n_predict": 4}), "/tokens_predicted"),
            Purpose::Embed => ("/v1/embeddings", json!({"input": "a pool of"}), "/data/0/embedding/0"),
        };
        let answer = self.client.post(path, &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.json().pointer(found).is_some_and(Value::is_number), "{}", answer.text());
    }

    /// Ends it.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub async fn end(mut self) {
        self.child.kill().await.expect("ours");
    }
}

fn arguments(settings: &LaunchSettings) -> Vec<String> {
    let kind = |kind: TensorType| kind.to_string().to_lowercase();
    let context = u64::from(settings.context_per_slot) * u64::from(settings.slots);
    let mut arguments: Vec<String> = [
        ("-c", context.to_string()),
        ("-np", settings.slots.to_string()),
        ("-b", settings.batch.to_string()),
        ("-ub", settings.physical_batch.to_string()),
        ("-ctk", kind(settings.kv_keys)),
        ("-ctv", kind(settings.kv_values)),
        ("-fa", if settings.flash_attention == FlashAttention::On { "on" } else { "off" }.to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect();
    arguments.push(if settings.kv_layout == KvLayout::Unified { "-kvu" } else { "--no-kv-unified" }.to_owned());
    arguments.extend((settings.sliding_window == SlidingWindow::Full).then(|| "--swa-full".to_owned()));
    arguments.extend((settings.purpose == Purpose::Embed).then(|| "--embeddings".to_owned()));
    let same = ["-t", "1", "-cram", "0", "-fit", "off", "--no-warmup", "--load-mode", "mmap", "--offline", "--no-ui"];
    arguments.extend(same.iter().chain(&["-lv", "4"]).map(|word| (*word).to_owned()));
    arguments
}

/// Starts the engine once and compares.
///
/// # Panics
/// When the model has no shape or the engine does not start.
pub async fn measure(house: &House, (name, model): (&str, &Path), settings: &LaunchSettings) -> Row {
    let engine = ByHand::start(house, model, settings).await;
    let row = compare((name, model), settings, &engine.reported);
    engine.end().await;
    row
}

/// What is estimated for a model beside what was reported.
///
/// # Panics
/// When the model has no shape.
pub fn compare((name, model): (&str, &Path), settings: &LaunchSettings, reported: &Reported) -> Row {
    let file = File::open(model).expect("it is there");
    let len = file.metadata().expect("its length").len();
    let shape = ModelShape::of(&[read_header(file, len).expect("valid")]).expect("a shape");
    let footprint = estimate(&shape, settings, &calibration());
    let repacked = footprint.layers.iter().flat_map(|layer| [layer.dense.repacked, layer.experts.repacked]);
    let repacked = Bytes::sum(repacked.chain([footprint.output.repacked]));
    Row {
        name: name.to_owned(),
        settings: settings.clone(),
        estimated: [footprint.weights(), footprint.cache(), footprint.compute_host, footprint.results, repacked],
        reported: PARTS.map(|(_, part)| reported.part(part)),
    }
}
