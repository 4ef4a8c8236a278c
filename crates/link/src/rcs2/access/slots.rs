//! The timeslots that a terminal may use, in its own time: what the gateway is to receive in a slot leaves a delay before.

use std::time::Duration;

use super::Access;
use crate::ids::Way;
use crate::propagation::Propagation;
use crate::rcs2::waveform::Waveform;

/// One timeslot of one terminal, in the terminal's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slot {
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) waveform: &'static Waveform,
}

impl Access {
    /// The first slot of a terminal that begins at `from` or later, as far as is decided.
    pub(crate) fn next_slot(
        &mut self,
        terminal: usize,
        from: Duration,
        propagation: &Propagation,
    ) -> Option<Slot> {
        let total = self.model.sharing.slots;
        let (ticks, duration) = (self.model.sharing.opensand, self.model.sharing.superframe);
        let cursor = &mut self.terminals[terminal].cursor;
        for superframe in &mut self.superframes {
            let index = superframe.index;
            if index < cursor.0 {
                continue;
            }
            if index > cursor.0 {
                *cursor = (index, 0);
            }
            if superframe.grants[terminal].slots == 0 {
                continue;
            }
            let received = self.model.beginning(index);
            let delay = propagation.one_way_delay(received, terminal, Way::Return);
            let (Some(waveform), Some(sent)) = (
                superframe.grants[terminal].waveform,
                received.checked_sub(delay),
            ) else {
                continue;
            };
            for slot in superframe.slots(terminal, total).iter().skip(cursor.1) {
                let edge = |slot: u32| sent + duration.mul_f64(f64::from(slot) / f64::from(total));
                // OpenSAND sends all of a superframe at its tick.
                let (start, end) = if ticks {
                    (sent, sent)
                } else {
                    (edge(*slot), edge(slot + 1))
                };
                let held = || propagation.state(start, terminal).held_until.is_some();
                if start >= from && !held() {
                    return Some(Slot {
                        start,
                        end,
                        waveform,
                    });
                }
                cursor.1 += 1;
            }
        }
        None
    }

    /// Goes past the slot that `next_slot` gave.
    pub(crate) fn use_slot(&mut self, terminal: usize) {
        self.terminals[terminal].cursor.1 += 1;
    }
}
