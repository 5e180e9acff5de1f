//! Looks at the files that an engine loads beside a model's own: projector, draft model, adapters. They are checked like
//! the model itself, before anything is evicted for them. Touches nothing; blocks.
use crate::check::{Judged, Seen, about, fault, read_one, seen};
use motorpool_catalog::Model;
use motorpool_gguf::{Adapter, GgufError, Header};
use motorpool_pool::{Beside, DraftModel, StartFault};
use motorpool_vocab::{Bytes, FailureClass, FileId};
use std::{path::Path, sync::Arc};

/// What projectors say of themselves.
const PROJECTOR: &str = "clip";

/// What `model` is to be loaded with, and the files of its draft model. `judge` reads a model, or remembers it.
pub(crate) fn look(
    model: &Model,
    judge: &dyn Fn(&Seen) -> Result<Judged, StartFault>,
) -> Result<(Beside, Vec<(FileId, Bytes)>), StartFault> {
    let projector = model.projector.as_ref().map(|side| projector(&side.file)).transpose()?;
    let mut files = Vec::new();
    let draft = match &model.draft {
        None => None,
        Some(draft) => {
            let seen = seen(&draft.file)?;
            let Judged { shape, .. } = judge(&seen)?;
            files.extend(seen.sizes());
            Some(DraftModel { shape, size: seen.size(), tokens: draft.tokens })
        }
    };
    let adapters = model.adapters.iter().map(|side| adapter(&side.file)).collect::<Result<_, _>>()?;
    Ok((Beside { projector, draft, adapters }, files))
}

/// The size of a projector's file.
fn projector(path: &Path) -> Result<Bytes, StartFault> {
    let (header, size) = header_of(path)?;
    match header.architecture() {
        Some(PROJECTOR) => Ok(size),
        other => {
            let what = other.unwrap_or("nothing");
            Err(fault(
                FailureClass::ModelUnsupported,
                format!("projector {}: it says that it is {what}", path.display()),
            ))
        }
    }
}

fn adapter(path: &Path) -> Result<Arc<Adapter>, StartFault> {
    let (header, _) = header_of(path)?;
    Adapter::of(&header).map(Arc::new).map_err(|error| said(path, &error))
}

fn header_of(path: &Path) -> Result<(Header, Bytes), StartFault> {
    let seen = seen(path)?;
    let size = seen.size();
    read_one(path, size.get()).map(|header| (header, size)).map_err(|error| said(path, &error))
}

fn said(path: &Path, error: &GgufError) -> StartFault {
    fault(error.class(), about(path, error))
}
