//! [`settle`]: ids that the catalog takes, and names of files that no two entries share.
use super::{Remark, draft::Draft};
use std::collections::BTreeSet;

/// Gives each entry an id and a file of its own. One whose id cannot stand in the catalog answers to it all the same: it
/// is an alias, as long as it means nothing else there.
pub(super) fn settle(drafts: &mut [Draft]) {
    let mut taken: BTreeSet<String> =
        drafts.iter().flat_map(|draft| draft.aliases.iter().chain([&draft.id]).cloned()).collect();
    for draft in drafts.iter_mut() {
        if let Some(id) = other_id(&draft.id, &taken) {
            taken.insert(id.clone());
            rename(draft, id);
        }
    }
    let mut files = BTreeSet::new();
    for draft in drafts {
        let twins = [None].into_iter().chain((2..).map(Some));
        // Some file systems do not tell capitals apart.
        let free =
            twins.map(|twin| Draft { twin, ..draft.clone() }).find(|one| files.insert(one.file_name().to_lowercase()));
        draft.twin = free.and_then(|one| one.twin);
    }
}

/// The id in place of one that the catalog does not take.
fn other_id(id: &str, taken: &BTreeSet<String>) -> Option<String> {
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, ':' | ',' | '*'));
    if id.is_empty() || id.chars().all(fits) {
        return None;
    }
    let plain: String = id.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    let numbered = (2_u32..).map(|n| format!("{plain}-{n}"));
    [plain.clone()].into_iter().chain(numbered).find(|id| !taken.contains(id))
}

fn rename(draft: &mut Draft, id: String) {
    let old = std::mem::replace(&mut draft.id, id);
    let new = &draft.id;
    // A star would stand for other names too.
    let text = if old.contains(|c: char| c.is_control() || c == '*') {
        format!("the id {old:?} cannot stand in the catalog, nor as an alias: it is `{new}` here")
    } else {
        if !draft.aliases.contains(&old) {
            draft.aliases.insert(0, old.clone());
        }
        format!("the id `{old}` cannot stand in the catalog: it is `{new}` here, and answers to `{old}` as an alias")
    };
    draft.remarks.insert(0, Remark::new(draft.line, text));
}
