//! Devices that an engine died of: lost, whatever their drivers show (supervisor.md §4, `device-lost`).
//!
//! ```text
//!   an engine ends with device-lost ─► Condemned: nothing is admitted there, others go on
//!                                          └─ its driver calls it lost and then shows it ─┐
//!                                          └─ a reset, or five minutes ───────────────────┴─► as its driver shows it
//! ```
//!
//! A driver often goes on telling figures of a card on which nothing can be computed any more, so that its word alone does
//! not end this. Time does: the next engine there is the proof.
use crate::Pool;
use motorpool_broker::{Place, Reading, Sight};
use motorpool_vocab::{DeviceId, EventKind, Now};
use std::time::Duration;

/// A device is given another chance after so long.
const CHANCE_AFTER: Duration = Duration::from_mins(5);

impl Pool {
    /// Nothing goes to these devices.
    pub(crate) fn condemn(&mut self, now: Now, devices: &[DeviceId]) {
        for device in devices {
            if self.condemned.insert(device.clone(), now.after(CHANCE_AFTER)).is_none() {
                self.publish(now, EventKind::DeviceLost { device: device.clone() });
            }
            let _ = self.ledger.observe(Reading { place: Place::Card(device.clone()), sight: Sight::Unknown });
        }
        self.readmit(now);
    }

    /// Whether nothing goes there for what an engine said.
    pub(crate) fn is_condemned(&self, device: &DeviceId) -> bool {
        self.condemned.contains_key(device)
    }

    /// They are what their drivers show.
    pub(crate) fn pardon_cards(&mut self, now: Now, is_it: impl Fn(&DeviceId, Now) -> bool) {
        let pardoned: Vec<_> = self.condemned.extract_if(.., |device, until| is_it(device, *until)).collect();
        for (device, _) in pardoned {
            let place = Place::Card(device.clone());
            let sight = self.sight_of(&place);
            let _ = self.ledger.observe(Reading { place, sight });
            self.publish(now, EventKind::DeviceBack { device });
        }
    }

    pub(crate) fn on_due_chances(&mut self, now: Now) {
        self.pardon_cards(now, |_, until| until <= now);
    }
}
