//! Packets sent as they are, one after the other, and what becomes of packets that have been sent to their end.

use std::time::Instant;

use bentpipe_units::ByteCount;

use super::Channel;
use super::carrier::Carrier;
use super::station::Load;
use crate::event::{EventKind, EventLog};
use crate::ids::{DropCause, TerminalId};
use crate::space::Space;

impl<P> Channel<P> {
    /// Sends one packet as it is.
    pub(super) fn transmit_packet(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) {
        let Some(index) = self.pick(|_| true) else {
            return;
        };
        let (way, terminal) = (self.way, TerminalId::new(index));
        let station = &mut self.stations[index];
        let packet = station.pop(start, |size| {
            let kind = EventKind::dropped(DropCause::Codel, size);
            log.add(start, way, terminal, kind);
        });
        let Some((size, load)) = packet else {
            return;
        };
        self.virtual_time = station.serve(size.as_u64());
        let end = match &mut self.carrier {
            Carrier::Constant(clock) => {
                // The background's way is nobody's; any terminal's will do.
                let path = space.state(start, index.min(self.terminals - 1));
                clock.send_at(path.capacity, start, size);
                clock.idle_at()
            }
            Carrier::Opportunities(clock) => {
                clock.send(start, size);
                clock.idle_at()
            }
            // Frames have senders of their own.
            Carrier::PlFrames(_) | Carrier::Bursts(_) => return,
        };
        self.change(end);
        let train = load.as_ref().and_then(|(train, _)| *train);
        let lost = self.stations[index].errors.packet(train, size, end);
        self.settle(index, end, size, load, lost, space, log);
    }

    /// Sends a packet on its way, or not.
    #[expect(clippy::too_many_arguments, reason = "what is known of one packet")]
    pub(super) fn settle(
        &mut self,
        index: usize,
        end: Instant,
        size: ByteCount,
        load: Load<P>,
        lost: bool,
        space: Space<'_>,
        log: &mut EventLog,
    ) {
        let Some((_, packet)) = load else { return };
        let station = &mut self.stations[index];
        let path = space.state(end, index);
        let delay = match &self.carrier {
            Carrier::Constant(_) | Carrier::Opportunities(_) | Carrier::Bursts(_) => {
                path.one_way_delay
            }
            Carrier::PlFrames(frames) => frames.delay(end, path.one_way_delay, space),
        };
        let cause = match (path.outage, lost) {
            (true, _) => Some(DropCause::Outage),
            (false, true) => Some(DropCause::Channel),
            (false, false) => None,
        };
        if let Some(cause) = cause {
            station.count_drop(cause);
            let kind = EventKind::dropped(cause, size);
            log.add(end + delay, self.way, TerminalId::new(index), kind);
        } else {
            station.send(end, delay, size, packet);
        }
    }
}
