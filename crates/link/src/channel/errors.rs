//! What the channel destroys: by the C/N, by chance, or by a record of what was lost elsewhere.
//!
//! The three come together: a frame that its C/N allows may still be hit by chance. Chance hits frames, pieces of
//! packets (GSE packets, fragments), whole packets or trains of them; the C/N always hits frames.

use std::sync::Arc;
use std::time::Instant;

use bentpipe_units::{ByteCount, Decibel, Seed};

use crate::frame::Code;
use crate::loss::{LossModel, LossProcess};
use crate::random::Random;

/// Effect of the C/N on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    /// Nothing.
    None,
    /// Destroys it below the threshold of its code, and only there.
    Gate,
    /// Destroys it with a probability that falls by decades per decibel.
    Steep,
}

/// Unit that chance hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Frame,
    /// A packet or fragment of the encapsulation.
    Piece,
    Packet,
    /// Packets that came in one piece.
    Train,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chance {
    Model(LossModel),
    /// Unit by unit, true if lost; begins again at its end.
    Trace(Arc<[bool]>),
}

/// Way in which a direction loses what it sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ErrorModel {
    pub(crate) curve: Curve,
    pub(crate) chance: Chance,
    pub(crate) unit: Unit,
}

/// Errors of a direction at work, for one terminal.
#[derive(Debug)]
pub(crate) struct ErrorProcess {
    curve: Curve,
    unit: Unit,
    by_cn: Random,
    by_chance: LossProcess,
    trace: Option<Arc<[bool]>>,
    position: usize,
    /// The last train, and whether it was lost.
    last: Option<(u64, bool)>,
}

impl ErrorProcess {
    /// The first terminal's chances are those of a pipe, so that a link of one terminal loses what a pipe would.
    pub(crate) fn new(model: &ErrorModel, terminal: usize, seed: Seed) -> Self {
        let own = |name: &str| match terminal {
            0 => seed.stream(name),
            _ => seed.stream(name).stream(&format!("terminal {terminal}")),
        };
        let (loss, trace) = match &model.chance {
            Chance::Model(loss) => (*loss, None),
            Chance::Trace(trace) => (LossModel::None, Some(trace.clone())),
        };
        Self {
            curve: model.curve,
            unit: model.unit,
            by_cn: Random::new(own("channel")),
            by_chance: LossProcess::new(loss, own("loss")),
            trace,
            position: 0,
            last: None,
        }
    }

    /// Changes what chance does; a record ends.
    pub(crate) fn set_chance(&mut self, model: LossModel) {
        self.trace = None;
        self.by_chance.set_model(model);
    }

    /// True if a frame that ends at `end` is destroyed as a whole.
    pub(crate) fn frame(&mut self, end: Instant, cn: Option<Decibel>, code: Code) -> bool {
        let by_cn = match (self.curve, cn) {
            (Curve::None, _) | (_, None) => false,
            (Curve::Gate, Some(cn)) => cn < code.threshold,
            (Curve::Steep, Some(cn)) => self.by_cn.chance(code.loss(cn)),
        };
        // Both are asked always: what one destroys does not change the numbers of the other.
        self.one(Unit::Frame, end) | by_cn
    }

    /// True if one `unit` that leaves at `end` is hit by chance.
    pub(crate) fn one(&mut self, unit: Unit, end: Instant) -> bool {
        // Bit errors count in packets alone: of no other unit does the length matter.
        unit == self.unit && self.next(ByteCount::ZERO, end)
    }

    /// True if a packet of `train`, of `length` and that leaves at `end`, is hit by chance.
    pub(crate) fn packet(&mut self, train: Option<u64>, length: ByteCount, end: Instant) -> bool {
        if self.unit != Unit::Train {
            return self.unit == Unit::Packet && self.next(length, end);
        }
        let known = self.last.filter(|(last, _)| Some(*last) == train);
        let lost = known.map_or_else(|| self.next(length, end), |(_, lost)| lost);
        self.last = train.map(|train| (train, lost));
        lost
    }

    fn next(&mut self, length: ByteCount, end: Instant) -> bool {
        let Some(trace) = &self.trace else {
            return self.by_chance.step(end, length);
        };
        let lost = trace.get(self.position).copied().unwrap_or_default();
        self.position = (self.position + 1) % trace.len().max(1);
        lost
    }
}
