//! Flows and their streams as the relays know them: which table a flow is in, and how far its stream is.

use std::time::Instant;

use bentpipe_segments::{Bounds, FlowId, Form, Parser, Table};

/// Flow of one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) form: Form,
    pub(super) id: FlowId,
}

/// Use of a stream.
#[derive(Debug)]
pub(super) enum Use {
    /// The other PEP has opened it, and has not said for which flow.
    Opening(Parser),
    Flow(Member),
    /// The flow is not relayed, and the other PEP has been told.
    Refused,
}

/// A stream, and how far it is.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) used: Use,
    /// True once this side has said its last.
    pub(super) finished: bool,
    /// Instant at which an offer of the other PEP was taken here, if it is one.
    pub(super) invited: Option<Instant>,
}

impl Carried {
    pub(super) fn new(used: Use) -> Self {
        Self {
            used,
            finished: false,
            invited: None,
        }
    }
}

/// Tables of both forms.
pub(super) struct Tables([(Form, Table); 2]);

impl Tables {
    /// Empty tables with these bounds.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self([Form::Clear, Form::Zones].map(|form| (form, Table::new(form, bounds))))
    }

    /// All carried connections.
    pub(super) fn all(&self) -> impl Iterator<Item = &Table> {
        self.0.iter().map(|(_, table)| table)
    }

    /// All carried connections, to act on.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.0.iter_mut().map(|(_, table)| table)
    }

    pub(super) fn of(&self, form: Form) -> &Table {
        let [(_, clear), (_, zones)] = &self.0;
        match form {
            Form::Clear => clear,
            Form::Zones => zones,
        }
    }

    pub(super) fn get(&mut self, form: Form) -> &mut Table {
        let [(_, clear), (_, zones)] = &mut self.0;
        match form {
            Form::Clear => clear,
            Form::Zones => zones,
        }
    }
}
