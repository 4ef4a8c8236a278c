//! Control frames that overtook the OPEN of their flow: it was lost, they were not (PROTOCOL.md §5.2, §8).
//!
//! Kept by the side whose peer opens the flow, and only for the newest of them.

use std::collections::BTreeMap;

use bentpipe_proto::tunnel::{AbortCode, FlowId};

/// FLOW_CREDITs that are kept, and FLOW_ABORTs at least.
const MOST: usize = 1024;

/// Frames about one flow that came before it was seen.
#[derive(Debug, Default)]
pub(super) struct SaidEarly {
    /// The offset up to which may be sent.
    pub(super) credit: Option<u64>,
    /// The offset up to which is to be delivered, and why no further.
    pub(super) abort: Option<(u64, AbortCode)>,
}

/// Frames about flows that have not been seen.
#[derive(Debug, Default)]
pub(super) struct Early {
    credit: BTreeMap<FlowId, u64>,
    aborts: BTreeMap<FlowId, (u64, AbortCode)>,
}

impl Early {
    pub(super) fn on_credit(&mut self, flow: FlowId, max_offset: u64) {
        keep(&mut self.credit, MOST, flow, max_offset);
    }

    /// A peer that may have `limit` flows open can reset all of them before any OPEN has come.
    pub(super) fn on_abort(
        &mut self,
        limit: u64,
        flow: FlowId,
        (final_offset, code): (u64, AbortCode),
    ) {
        let most = usize::try_from(limit).unwrap_or(usize::MAX).max(MOST);
        keep(&mut self.aborts, most, flow, (final_offset, code));
    }

    /// The flow has come.
    pub(super) fn take(&mut self, flow: FlowId) -> SaidEarly {
        SaidEarly {
            credit: self.credit.remove(&flow),
            abort: self.aborts.remove(&flow),
        }
    }
}

fn keep<T>(early: &mut BTreeMap<FlowId, T>, most: usize, flow: FlowId, news: T) {
    if early.len() >= most {
        early.pop_first();
    }
    early.insert(flow, news);
}
