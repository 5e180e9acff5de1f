//! [`Answer`]: what operators are told, and [`Held`]: whom a drain waits for.
use crate::{Outlook, Reloaded};
use motorpool_vocab::{EngineKey, Holder, ModelId};
use std::time::Duration;

/// The answer to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is gone; its bytes are back.
    Unloaded,
    /// There was nothing to unload.
    NotResident,
    /// Somebody uses it: nothing changed.
    Serving(EngineKey),
    /// It did not drain in time: nothing changed.
    Busy {
        /// The engine.
        key: EngineKey,
        /// How long was waited.
        within: Duration,
    },
    /// It cannot be killed and stays charged.
    Stuck(EngineKey),
    /// What would become of the launches.
    Outlook(Vec<Outlook>),
    /// Everything idle is gone; these were busy.
    Released(Vec<EngineKey>),
    /// Everything is gone; these could not be killed.
    Ended(Vec<EngineKey>),
    /// What was begun so that there are as many engines as are wanted.
    Reconciled(Reconciled),
    /// The new catalog is taken over.
    Reloaded(Reloaded),
    /// Failures are forgotten; these engines had some that counted.
    Reset(Vec<EngineKey>),
    /// The ticket is where it was wanted: out, or moved.
    Requeued,
    /// The ticket is at that end of its lane already: nothing changed.
    AtTheEnd,
    /// No such ticket waits.
    NoTicket,
}

/// What was begun so that there are as many engines as are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Builds that were begun; what became of each is an event.
    pub starting: Vec<EngineKey>,
    /// Engines that are being stopped.
    pub stopping: Vec<EngineKey>,
    /// Engines that are too many and stay because they are used.
    pub busy: Vec<EngineKey>,
    /// Names that no model has, and numbers beyond 64.
    pub refused: Vec<ModelId>,
}

/// One lease that a drain waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The engine.
    pub key: EngineKey,
    /// Who holds it.
    pub holder: Holder,
}
