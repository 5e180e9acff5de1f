//! The pages of the dashboard, as bytes in the program.
//!
//! They are served as they lie in `assets/`: no build step makes them, and they load nothing from anywhere else. All but
//! the page itself lie under a name made of the content of all, the [`edition`], so that a browser may keep them for
//! ever; modules name each other by relative paths, and so stay in one edition.
//!
//! ```text
//! /                             page()       asks each time, and is told when nothing changed
//! /dashboard/<edition>/<name>   file(path)   kept for ever; another edition's name leads nowhere
//! ```
//!
//! Boundary: who may see them, and the headers around them, are the gateway's. They are packed when the first one is asked
//! for by somebody who unpacks, once for all.
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, io::Write, sync::OnceLock};

/// What the browser may do with the page: run and show what comes from us, ask us, and nothing else.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                          img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where the files of the page lie; their edition comes behind it.
pub const FOLDER: &str = "/dashboard/";

/// What stands in the page where the edition belongs.
const BLANK: &str = "{edition}";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the edition, such as `views/chat.js`.
    pub name: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}

impl File {
    /// Its bytes, packed by gzip; `None` where that saves nothing.
    pub fn packed(&self) -> Option<&'static [u8]> {
        static PACKED: OnceLock<BTreeMap<&'static str, Vec<u8>>> = OnceLock::new();
        let all = PACKED.get_or_init(|| {
            let packed = |file: File| Some((file.name, pack(file.bytes)?));
            FILES.iter().copied().chain([page()]).filter_map(packed).collect()
        });
        all.get(self.name).map(Vec::as_slice)
    }
}

fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() < bytes.len())
}

macro_rules! files {
    ($($kind:ident $name:literal)*) => {
        &[$(File { name: $name, content_type: $kind, bytes: include_bytes!(concat!("../assets/", $name)) }),*]
    };
}

const SVG: &str = "image/svg+xml";

/// All but the page itself.
pub const FILES: &[File] = files! {
    STYLE "app.css"
    STYLE "parts.css"
    SVG "icon.svg"
    SCRIPT "api.js"
    SCRIPT "actions.js"
    SCRIPT "attention.js"
    SCRIPT "denials.js"
    SCRIPT "format.js"
    SCRIPT "history.js"
    SCRIPT "live.js"
    SCRIPT "main.js"
    SCRIPT "memory.js"
    SCRIPT "news.js"
    SCRIPT "sse.js"
    SCRIPT "state.js"
    SCRIPT "store.js"
    SCRIPT "views/chat.js"
    SCRIPT "views/denials.js"
    SCRIPT "views/dialog.js"
    SCRIPT "views/engine.js"
    SCRIPT "views/engines.js"
    SCRIPT "views/events.js"
    SCRIPT "views/frame.js"
    SCRIPT "views/key.js"
    SCRIPT "views/logs.js"
    SCRIPT "views/memory.js"
    SCRIPT "views/parts.js"
    SCRIPT "views/usage.js"
    SCRIPT "views/waiters.js"
    SCRIPT "vendor/preact-htm.js"
    SCRIPT "vendor/uplot.js"
    STYLE "vendor/uplot.css"
    TEXT "vendor/LICENSE-htm"
    TEXT "vendor/LICENSE-preact"
    TEXT "vendor/LICENSE-uplot"
};

const PAGE: &str = include_str!("../assets/index.html");

/// The name of what all files hold together: 16 digits, another one when any byte changes.
pub fn edition() -> &'static str {
    static EDITION: OnceLock<String> = OnceLock::new();
    EDITION.get_or_init(|| {
        let mut hash = Sha256::new();
        let all = FILES.iter().map(|file| (file.name, file.bytes)).chain([("", PAGE.as_bytes())]);
        for (name, bytes) in all {
            // Lengths stand before what they measure: two lists of files are never one row of bytes.
            for part in [name.as_bytes(), bytes] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
        }
        let begin = hash.finalize().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        format!("{begin:016x}")
    })
}

/// The page itself.
pub fn page() -> File {
    static FILLED: OnceLock<String> = OnceLock::new();
    let filled = FILLED.get_or_init(|| PAGE.replace(BLANK, edition()));
    File { name: "index.html", content_type: HTML, bytes: filled.as_bytes() }
}

/// The file at `path`, which is what stands behind [`FOLDER`]: `<edition>/<name>`.
pub fn file(path: &str) -> Option<File> {
    let name = path.strip_prefix(edition())?.strip_prefix('/')?;
    FILES.iter().find(|file| file.name == name).copied()
}
