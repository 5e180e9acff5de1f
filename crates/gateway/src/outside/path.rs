//! `/m/<server>/<model>/<path>`: which model of somebody else's server a raw path names.
//!
//! No manifest lists what such a server may be asked: it is asked what its models are offered for, the paths of the table
//! that take a JSON object and need no translation. The longest name that is known there is the model; before a server was
//! ever seen, any name may be one of its, and the longest path counts.
use super::{Chosen, Foreign};
use crate::{
    context::Context,
    raw::decoded,
    route::{Served, Way, served_at},
};

/// The model and the path, if `rest` names such a model.
pub(crate) fn take_apart(context: &Context, rest: &str) -> Option<(Foreign, &'static Served)> {
    let mut unseen = None;
    for (at, _) in rest.match_indices('/').collect::<Vec<_>>().into_iter().rev() {
        let Some(served) = served_at(&rest[at..]).filter(|served| is_offered(served.way)) else { continue };
        let Ok(Chosen::Foreign(foreign)) = context.mean(&decoded(&rest[..at])) else { continue };
        if foreign.is_seen() {
            return Some((foreign, served));
        }
        unseen = Some((foreign, served));
    }
    unseen
}

fn is_offered(way: Way) -> bool {
    match way {
        Way::Assembled(_) | Way::Streamed | Way::Whole | Way::Counted | Way::Aside => true,
        Way::Form | Way::Translated(_) => false,
    }
}
