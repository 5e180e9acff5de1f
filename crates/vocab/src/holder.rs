//! Who asks, and how urgently: [`Holder`], [`Lane`]; who holds and who waits, as outsiders see it.
use crate::Now;
use std::sync::Arc;

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody watches: it may use every slot.
    #[default]
    Interactive,
    /// Nobody watches: it leaves a slot to those who do.
    Background,
    /// It is done when there is nothing else to do.
    Ambient,
}

impl Lane {
    /// Every lane, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Background, Self::Ambient];

    /// The stable name in headers and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Background => "background",
            Self::Ambient => "ambient",
        }
    }

    /// The lane of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == name)
    }
}

/// Who holds a lease, or waits for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The request's id.
    pub request: String,
    /// How urgent it is.
    pub lane: Lane,
    /// Its session, when it names one.
    pub session: Option<String>,
    /// The job that it is part of, when it names one; for people.
    pub job: Option<String>,
    /// Who acts, when it says so.
    pub actor: Option<String>,
    /// The request that waits for this one, when it names one.
    pub parent: Option<String>,
    /// The access key that it came with, by name, if it came with one.
    pub owner: Option<Arc<str>>,
    /// Under which number whoever brought it in can end it; names are chosen by clients, and may be others' too.
    pub entry: Option<u64>,
    /// Since when.
    pub since: Now,
}

/// A lease, as outsiders see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its number, unique over the pool.
    pub id: u64,
    /// Which slot of its engine, where that is known.
    pub slot: Option<u32>,
    /// Who holds it, since when.
    pub holder: Holder,
}

/// A request that waits for a lease, as outsiders see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingView {
    /// Its number, unique over the pool.
    pub id: u64,
    /// Who waits, since when.
    pub holder: Holder,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_found_by_its_name_and_the_first_is_the_most_urgent() {
        for lane in Lane::ALL {
            assert_eq!(Lane::from_name(lane.as_str()), Some(lane));
        }
        assert_eq!(Lane::from_name("Interactive"), None);
        assert!(Lane::ALL.is_sorted() && Lane::default() == Lane::ALL[0]);
    }
}
