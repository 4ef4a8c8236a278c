//! Sending: packets as they are or frames filled from the FIFOs, and their fate.
//!
//! A packet is lost when a piece of it is lost. Each terminal receives each frame on its own: what rain destroys at one
//! may arrive at another.

use std::time::Instant;

use bentpipe_units::ByteCount;

use super::Channel;
use super::carrier::Carrier;
use super::errors::Unit;
use super::station::{Load, Piece};
use crate::dvbs2::PlFrames;
use crate::event::{EventKind, EventLog};
use crate::frame::Frame;
use crate::ids::{DropCause, TerminalId};
use crate::space::Space;

/// A piece in a frame, with the station that it belongs to.
type Cargo<P> = (usize, Piece<P>);

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

    /// Sends the frame that begins at `start`, or the clump of a tick.
    pub(super) fn transmit_frames(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) {
        self.learn(start, space, log);
        let Carrier::PlFrames(frames) = &mut self.carrier else {
            return;
        };
        let in_clumps = frames.in_clumps();
        frames.begin(start);
        while self.transmit_frame(start, space, log) && in_clumps {}
    }

    /// Lets the carrier learn of what the receivers have reported.
    pub(super) fn learn(&mut self, now: Instant, space: Space<'_>, log: &mut EventLog) {
        if let Carrier::PlFrames(frames) = &mut self.carrier {
            frames.learn(now, space, log);
        }
    }

    /// Sends a frame; false if none could be sent.
    fn transmit_frame(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) -> bool {
        let Some(first) = self.pick(|_| true) else {
            return false;
        };
        let Carrier::PlFrames(frames) = &mut self.carrier else {
            return false;
        };
        let modcod = frames.modcod(first);
        let Some(frame) = frames.send(start, modcod) else {
            return false;
        };
        let room = PlFrames::room(modcod);
        let cargo = self.fill(start, room, Some(modcod.id()), log);
        self.arrive(frame, cargo, space, log);
        true
    }

    /// Takes pieces from the stations that are sent to with `modcod` until nothing more fits into `room`.
    fn fill(
        &mut self,
        start: Instant,
        room: ByteCount,
        modcod: Option<u8>,
        log: &mut EventLog,
    ) -> Vec<Cargo<P>> {
        let mut space = u32::try_from(room.as_u64()).unwrap_or(u32::MAX);
        let mut cargo = Vec::new();
        while let Some(index) = self.pick(|index| self.carrier.modcod(index) == modcod) {
            let (way, terminal) = (self.way, TerminalId::new(index));
            let station = &mut self.stations[index];
            let piece = station.fill(start, self.encapsulation, space, |size| {
                let kind = EventKind::dropped(DropCause::Codel, size);
                log.add(start, way, terminal, kind);
            });
            let Some(piece) = piece else {
                // CoDel may have taken all that this station had; else the frame is full.
                if station.backlogged() {
                    break;
                }
                continue;
            };
            space -= piece.taken;
            self.virtual_time = station.serve(piece.taken.into());
            cargo.push((index, piece));
        }
        cargo
    }

    /// Decides what becomes of a frame's pieces.
    pub(super) fn arrive(
        &mut self,
        frame: Frame,
        cargo: Vec<Cargo<P>>,
        space: Space<'_>,
        log: &mut EventLog,
    ) {
        let end = frame.end;
        // Few stations share a frame, and few frames have more than one that is lost.
        let mut fates: Vec<(usize, bool)> = Vec::new();
        let mut damaged: Vec<(usize, usize)> = Vec::new();
        for (index, piece) in cargo {
            if index >= self.terminals {
                // Nobody receives the background load.
                continue;
            }
            let known = fates.iter().find(|(station, _)| *station == index);
            let frame_lost = known.map(|(_, lost)| *lost);
            let frame_lost = frame_lost.unwrap_or_else(|| {
                let path = space.state(end, index);
                let cn = space.cn_total(end + path.one_way_delay, index, self.way);
                let errors = &mut self.stations[index].errors;
                let lost = errors.frame(end, cn, frame.code) | path.outage;
                fates.push((index, lost));
                lost
            });
            let errors = &mut self.stations[index].errors;
            let mut lost = errors.one(Unit::Piece, end) | frame_lost;
            let here = (index, piece.class);
            let Some(complete) = piece.complete else {
                if lost {
                    damaged.push(here);
                }
                continue;
            };
            let train = complete.load.as_ref().and_then(|(train, _)| *train);
            lost |= errors.packet(train, complete.size, end)
                | complete.damaged
                | damaged.contains(&here);
            damaged.retain(|place| *place != here);
            self.settle(index, end, complete.size, complete.load, lost, space, log);
        }
        for (index, class) in damaged {
            self.stations[index].damage(class);
        }
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
