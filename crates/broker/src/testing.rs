//! What tests of plans share: a small model and the ledgers it is planned on.
use crate::{BatchRule, Beside, BudgetSetting, Choice, FixedSettings, Host, Ledger, Subject, Wishes};
use motorpool_gguf::{Calibration, Format, ModelShape, Purpose, SlidingWindow, read_header, write};
use motorpool_vocab::{Bytes, FileId};
use std::{io::Cursor, sync::Arc};

/// One pool of so much.
pub(crate) fn ledger(budget: Bytes) -> Ledger {
    let host = Host { ram: Bytes::gib(64), budget: BudgetSetting::explicit(budget), ..Host::default() };
    Ledger::new(host.bounds())
}

pub(crate) fn shape() -> ModelShape {
    shape_of(&write::Smoke::default().writer())
}

pub(crate) fn shape_of(writer: &write::Writer) -> ModelShape {
    let bytes = writer.finish();
    let length = u64::try_from(bytes.len()).expect("small");
    ModelShape::of(&[read_header(Cursor::new(bytes), length).expect("whole")]).expect("a llama")
}

/// The smoke model with a long context and an engine that takes nothing beside it.
pub(crate) fn subject() -> Subject {
    let settings = FixedSettings {
        batch: BatchRule::Fixed { logical: 512, physical: 512 },
        purpose: Purpose::Generate,
        sliding_window: SlidingWindow::Window,
        checkpoints: 0,
        prompt_cache: Bytes::mib(64),
    };
    Subject {
        wishes: Wishes { context_own: Some(1 << 20), ..Wishes::default() },
        declared: None,
        choice: Choice::default(),
        files: vec![(FileId { device: 1, inode: 2, size: 3, mtime_nanos: 4 }, Bytes::mib(500))],
        shape: Some(Arc::new(shape())),
        format: Format::default(),
        beside: Beside::default(),
        calibration: Calibration::default(),
        settings,
        lessons: Arc::default(),
    }
}
