//! The last report as JSON, written once for everybody who asks for it.

use std::cell::OnceCell;
use std::cmp::Reverse;

use bytes::Bytes;
use serde::Serialize;

use crate::status::{Curves, Side, StatusReport};

/// Clients of a server that the page shows; the others are counted.
const SHOWN: usize = 100;

/// The last report, and its texts as far as somebody has asked for them.
#[derive(Debug)]
pub(super) struct Latest {
    report: StatusReport,
    whole: OnceCell<Bytes>,
    shown: OnceCell<String>,
}

/// The report as the page shows it.
#[derive(Serialize)]
struct Shown {
    /// The report, with the busiest clients alone.
    report: StatusReport,
    /// Clients that are connected.
    clients_total: usize,
    /// True if the server of a client's silent tunnel is heard all the same.
    server_heard: bool,
    healthy: bool,
    /// Words of `bentpipe status --check`.
    health: String,
}

impl Latest {
    pub(super) fn new(report: StatusReport) -> Self {
        Self {
            report,
            whole: OnceCell::new(),
            shown: OnceCell::new(),
        }
    }

    /// The document of `bentpipe status --json`.
    pub(super) fn report(&self) -> Bytes {
        let text = || Bytes::from(self.report.to_json() + "\n");
        self.whole.get_or_init(text).clone()
    }

    /// The document that the page draws: what [`Shown`] holds, and `samples`.
    pub(super) fn live(&self, samples: &Curves) -> String {
        let shown = self.shown.get_or_init(|| to_json(&Shown::of(&self.report)));
        format!("{{\"shown\":{shown},\"samples\":{}}}", to_json(samples))
    }
}

impl Shown {
    fn of(report: &StatusReport) -> Self {
        let (healthy, health) = match report.health() {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        let mut shown = report.clone();
        let mut clients_total = 0;
        let server_heard =
            matches!(&report.side, Side::Client(session) if session.tunnel.is_heard_in_silence());
        if let Side::Server { clients, .. } = &mut shown.side {
            clients_total = clients.len();
            clients
                .sort_by_cached_key(|client| (Reverse(client.rate_bit_s()), client.name.clone()));
            clients.truncate(SHOWN);
        }
        Self {
            report: shown,
            clients_total,
            server_heard,
            healthy,
            health,
        }
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("string keys only")
}
