//! The drawing of the house as data: which crate may use which, and what each must never do.
use Nature::{Binary, Outside, Pure, Shell};

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Above the line: no clock, async, I/O or unsafe.
    Pure,
    /// Below the line.
    Shell,
    /// The only one that reads the environment, prints and exits.
    Binary,
    /// Not part of the product.
    Outside,
}

/// One crate of the drawing.
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Its folder below `crates/`, or `tests/` for the fake library; its package is called so too, with a prefix.
    pub folder: &'static str,
    /// Where it stands.
    pub nature: Nature,
    /// Which of ours it may use.
    pub ours: &'static [&'static str],
    /// Which others it may use; pure crates only.
    pub others: &'static [&'static str],
}

const ALL: &[&str] = &[
    "vocab",
    "gguf",
    "catalog",
    "broker",
    "pool",
    "residency",
    "external",
    "devices",
    "supervisor",
    "gateway",
    "dashboard",
];

/// The drawing, from top to bottom.
pub const HOUSE: &[Crate] = &[
    Crate { folder: "vocab", nature: Pure, ours: &[], others: &["loom"] },
    Crate { folder: "gguf", nature: Pure, ours: &["vocab"], others: &["thiserror"] },
    Crate {
        folder: "catalog",
        nature: Pure,
        ours: &["vocab", "gguf"],
        others: &["bytesize", "jiff", "regex", "schemars", "serde", "serde_json", "strsim", "thiserror", "toml"],
    },
    Crate { folder: "broker", nature: Pure, ours: &["vocab", "gguf"], others: &["regex", "thiserror"] },
    Crate { folder: "pool", nature: Pure, ours: &["vocab", "catalog", "broker"], others: &["slotmap", "thiserror"] },
    Crate { folder: "residency", nature: Pure, ours: &["vocab"], others: &["thiserror"] },
    Crate { folder: "external", nature: Shell, ours: &["vocab", "residency"], others: &[] },
    Crate { folder: "devices", nature: Shell, ours: &["vocab"], others: &[] },
    Crate { folder: "supervisor", nature: Shell, ours: &["vocab", "gguf", "catalog", "pool", "devices"], others: &[] },
    Crate {
        folder: "gateway",
        nature: Shell,
        ours: &["vocab", "catalog", "pool", "supervisor", "external", "dashboard"],
        others: &[],
    },
    Crate { folder: "dashboard", nature: Shell, ours: &[], others: &[] },
    Crate { folder: "motorpool", nature: Binary, ours: ALL, others: &[] },
    Crate { folder: "testkit", nature: Outside, ours: &["vocab", "gguf"], others: &[] },
    Crate { folder: "fake-nvml", nature: Outside, ours: &[], others: &[] },
];

/// What pure crates may use in their tests, beside what they use anyway.
pub const FOR_PURE_TESTS: &[&str] = &["criterion", "insta", "jsonschema", "loom", "proptest"];

/// Dependencies that only these crates may have, outside of tests.
pub const RESERVED: &[(&str, &[&str])] = &[
    ("axum", &["gateway"]),
    ("clap", &["motorpool"]),
    ("comfy-table", &["motorpool"]),
    ("etcetera", &["motorpool"]),
    ("indicatif", &["motorpool"]),
    ("nvml-wrapper", &["devices"]),
    ("prometheus-client", &["gateway"]),
    ("opentelemetry", &["motorpool"]),
    ("opentelemetry-http", &["motorpool"]),
    ("opentelemetry-otlp", &["motorpool"]),
    ("opentelemetry_sdk", &["motorpool"]),
    ("ratatui", &["motorpool"]),
    ("rusqlite", &["motorpool", "supervisor"]),
    ("notify", &["motorpool"]),
    ("sd-notify", &["motorpool"]),
    ("sysinfo", &["devices"]),
    ("tracing-opentelemetry", &["motorpool"]),
    ("tracing-subscriber", &["motorpool"]),
];

/// Pure crates whose types are for the core alone: they have no wire form.
pub const WITHOUT_WIRE_FORM: &[&str] = &["vocab", "broker", "pool"];

/// Crates that depend on nothing at all: the library that stands in for a driver's brings only what it must.
pub const WITHOUT_DEPENDENCIES: &[&str] = &["fake-nvml"];

/// What the top level of the repository may show.
pub const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "catalog",
    "crates",
    "docs",
    "engines",
    "fuzz",
    "tests",
];

/// The crate in `folder`.
pub fn find(folder: &str) -> Option<&'static Crate> {
    HOUSE.iter().find(|one| one.folder == folder)
}

/// How the package in `folder` is called.
pub fn package_name(folder: &str) -> String {
    if folder == "motorpool" { folder.to_owned() } else { format!("motorpool-{folder}") }
}
