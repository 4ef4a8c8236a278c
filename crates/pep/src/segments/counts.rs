//! Figures of a PEP's relays, as `status` tells them.

use bentpipe_segments::{Cause, Counts, Table};

use crate::status::{Segments, SegmentsPassed, SegmentsRefused, SegmentsReset};

/// Packets that passed a PEP untouched, by cause.
pub(super) type Passed = SegmentsPassed;

/// Figures of the tables of both forms, and of flows that were not relayed for what they do not know of.
pub(super) fn report(tables: [&Table; 2], hindered: SegmentsRefused, passed: Passed) -> Segments {
    let mut all = Segments {
        refused_total: hindered,
        passed_total: passed,
        ..Segments::default()
    };
    for table in tables {
        let (known, relayed) = table.flows();
        let counts = table.counts();
        all.known += known as u64;
        all.relayed += relayed as u64;
        all.memory_bytes += table.memory() as u64;
        all.relayed_total += counts.relayed;
        count(&mut all.refused_total, &mut all.reset_total, counts);
    }
    all
}

fn count(refused: &mut SegmentsRefused, reset: &mut SegmentsReset, counts: &Counts) {
    for (cause, number) in &counts.refused {
        *match cause {
            Cause::Room => &mut refused.room,
            Cause::Lost => &mut refused.no_tunnel,
            _ => &mut refused.unknown,
        } += number;
    }
    for (cause, number) in &counts.reset {
        *match cause {
            Cause::End => &mut reset.end,
            Cause::Silent => &mut reset.silent,
            Cause::Idle => &mut reset.idle,
            Cause::Lost => &mut reset.tunnel,
            Cause::Fault => &mut reset.fault,
            Cause::Unknown | Cause::Room => &mut reset.other,
        } += number;
    }
    reset.earlier += counts.strays;
}
