//! The packet log: one line per arrival, delivery and drop, made to be cut at blanks.
//!
//! ```text
//! # nanoseconds event direction terminal packet bytes [cause]
//! 1000250 + forward 0 17 1500
//! 251200250 - forward 0 17 1500
//! 1300250 d forward 0 * 1500 queue_full
//! ```
//! Times count from the start of the link. `+` is a packet's arrival at the link, `-` its delivery, with the same
//! number; `d` is a drop, whose number the link does not tell.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::time::Duration;

use bentpipe_link::{Event, EventKind, Port, Way};

use super::Crossing;

const TITLE: &str = "# nanoseconds event direction terminal packet bytes [cause]";

#[derive(Debug)]
pub(super) struct PacketLog(BufWriter<File>);

impl PacketLog {
    pub(super) fn start(mut file: BufWriter<File>) -> io::Result<Self> {
        writeln!(file, "{TITLE}")?;
        Ok(Self(file))
    }

    pub(super) fn crossing(&mut self, crossing: &Crossing) -> io::Result<()> {
        let (from_gateway, terminal) = match crossing.port {
            Port::Gateway { terminal } => (crossing.entering, terminal),
            Port::Terminal(terminal) => (!crossing.entering, terminal),
        };
        let way = if from_gateway {
            Way::Forward
        } else {
            Way::Return
        };
        writeln!(
            self.0,
            "{} {} {} {} {} {}",
            crossing.at.as_nanos(),
            if crossing.entering { '+' } else { '-' },
            way.name(),
            terminal.index(),
            crossing.packet.number,
            crossing.size.as_u64(),
        )
    }

    pub(super) fn event(&mut self, at: Duration, event: &Event) -> io::Result<()> {
        // What else happens is among the probes.
        if let EventKind::Dropped { cause, size } = &event.kind {
            let cause = serde_json::to_value(cause)?;
            writeln!(
                self.0,
                "{} d {} {} * {} {}",
                at.as_nanos(),
                event.way.name(),
                event.terminal.index(),
                size.as_u64(),
                cause.as_str().unwrap_or("unknown"),
            )?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
