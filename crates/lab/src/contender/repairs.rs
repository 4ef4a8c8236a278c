//! What a tunnel of bentpipe has repaired, by the word of both its ends.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Cost and yield of repairs, both directions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Repairs {
    /// Repairs, and what left twice as a precaution.
    pub sent_bytes: u64,
    /// Share of repairs in the bytes of all that both ends have sent.
    pub overhead: f64,
    /// Bytes of streams that were lost and mended.
    pub recovered_bytes: u64,
    /// Repairs that came and were not needed.
    pub wasted_bytes: u64,
}

impl Repairs {
    /// From the documents of both ends' `bentpipe status --json`.
    pub(super) fn of(ends: &[Value]) -> Self {
        let mut repairs = Self::default();
        let mut all = 0;
        for session in ends.iter().flat_map(sessions) {
            let fec = &session["tunnel"]["fec"];
            let bytes = |key: &str| fec[key].as_u64().unwrap_or_default();
            repairs.sent_bytes += bytes("sent_bytes");
            repairs.recovered_bytes += bytes("recovered_bytes");
            repairs.wasted_bytes += bytes("wasted_bytes");
            let sent = session["ledger_bytes"]["sent"].as_object();
            let sent = sent.into_iter().flat_map(|account| account.values());
            all += sent.filter_map(Value::as_u64).sum::<u64>();
        }
        repairs.overhead = repairs.sent_bytes as f64 / all.max(1) as f64;
        repairs
    }
}

/// A client has one session, a server one for each client.
fn sessions(end: &Value) -> impl Iterator<Item = &Value> {
    let clients = end["clients"].as_array();
    let own = clients.is_none().then_some(end);
    clients.into_iter().flatten().chain(own)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_ends_count() {
        let session = |sent: u64, recovered: u64, wasted: u64| {
            let fec =
                json!({ "sent_bytes": sent, "recovered_bytes": recovered, "wasted_bytes": wasted });
            let account = json!({ "streams": 900 - sent, "repair": sent, "ip_headers": 100 });
            json!({ "tunnel": { "fec": fec }, "ledger_bytes": { "sent": account, "received": account } })
        };
        let server = json!({ "clients": [session(90, 0, 7)] });
        let repairs = Repairs::of(&[session(10, 40, 2), server]);
        let expected = Repairs {
            sent_bytes: 100,
            overhead: 0.05,
            recovered_bytes: 40,
            wasted_bytes: 9,
        };
        assert_eq!(repairs, expected);
    }

    #[test]
    fn a_path_without_losses_costs_nothing() {
        let end = json!({ "tunnel": {}, "ledger_bytes": { "sent": { "streams": 5 } } });
        assert_eq!(
            Repairs::of(&[end, json!({ "clients": [] })]),
            Repairs::default()
        );
    }
}
