//! The status report as OpenMetrics: each number of `bentpipe status --json`, under its name there.
//!
//! `tunnel.rtt_ms` becomes `bentpipe_tunnel_rtt_ms`, with the label `client` at a server. A truth value is 1 or 0; `state`,
//! `version` and `wire` are the label of a metric that is always 1. Whatever the report gains is exported with it.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};

use crate::status::StatusReport;

/// First word of every name.
const PREFIX: &str = "bentpipe";

/// Objects whose numbers only grow while a tunnel, or a daemon, lives, besides what is called `…_total`.
const COUNTERS: [&str; 17] = [
    "bentpipe_bytes_",
    "bentpipe_flows_refused_",
    "bentpipe_ledger_bytes_",
    "bentpipe_packets_dropped_",
    "bentpipe_packets_received",
    "bentpipe_packets_sent",
    "bentpipe_associations_dropped_",
    "bentpipe_rules_",
    "bentpipe_les_bytes_",
    "bentpipe_les_dropped_total_",
    "bentpipe_les_packets_",
    "bentpipe_les_refused_total_",
    "bentpipe_origin_refused_total_",
    "bentpipe_sle_bytes_",
    "bentpipe_sle_refused_total_",
    "bentpipe_tls_refused_total_",
    "bentpipe_web_failed_causes_",
];

/// Texts that are one of a few, and so may be labels.
const TEXTS: [&str; 3] = ["state", "version", "wire"];

/// Fields that tell the objects of a list from each other.
const IDENTITIES: [&str; 5] = ["name", "rule", "part", "protocol", "port"];

/// Labels of one sample, by name.
pub(super) type Labels = Vec<(String, String)>;

/// Histograms of one name.
#[derive(Debug)]
pub(super) struct MetricFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) members: Vec<(Labels, Histogram)>,
}

/// Samples of one moment, by metric, and histograms.
#[derive(Debug)]
pub(super) struct Export {
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
    families: Vec<MetricFamily>,
}

impl Export {
    /// Samples of `report`, beside histograms.
    pub(super) fn new(report: &StatusReport, families: Vec<MetricFamily>) -> Self {
        let mut export = Self {
            samples: BTreeMap::new(),
            families,
        };
        if let Ok(Value::Object(report)) = serde_json::to_value(report) {
            export.object(PREFIX, &Labels::new(), &report);
        }
        export
    }

    /// The text that Prometheus reads.
    pub(super) fn into_text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn object(&mut self, name: &str, labels: &Labels, object: &Map<String, Value>) {
        for (key, value) in object {
            match value {
                // A server's clients have the names that a client's own figures have.
                Value::Array(list) if name == PREFIX && key == "clients" => {
                    self.list(name, Some("client"), list);
                }
                Value::Array(list) => self.list(&format!("{name}_{key}"), None, list),
                Value::Object(inner) => self.object(&format!("{name}_{key}"), labels, inner),
                Value::String(text) if TEXTS.contains(&key.as_str()) => {
                    let mut labels = labels.clone();
                    labels.push((key.clone(), escaped(text)));
                    self.sample(format!("{name}_{key}"), labels, 1.0);
                }
                Value::Bool(truth) => {
                    self.sample(
                        format!("{name}_{key}"),
                        labels.clone(),
                        f64::from(u8::from(*truth)),
                    );
                }
                Value::Number(number) if !is_label(labels, key) => {
                    let number = number.as_f64().unwrap_or(f64::NAN);
                    self.sample(format!("{name}_{key}"), labels.clone(), number);
                }
                Value::Null | Value::String(_) | Value::Number(_) => {}
            }
        }
    }

    /// Objects of a list, told apart by labels; `called` names the label of their first identity.
    fn list(&mut self, name: &str, called: Option<&str>, list: &[Value]) {
        for object in list.iter().filter_map(Value::as_object) {
            let identities = IDENTITIES.iter().filter_map(|field| {
                let text = match object.get(*field)? {
                    Value::String(text) => text.clone(),
                    number => number.as_u64()?.to_string(),
                };
                Some((called.unwrap_or(field).to_owned(), escaped(&text)))
            });
            let labels: Labels = identities.collect();
            self.object(name, &labels, object);
        }
    }

    fn sample(&mut self, name: String, labels: Labels, value: f64) {
        self.samples.entry(name).or_default().push((labels, value));
    }
}

/// A label's value as OpenMetrics wants it (§4.3.1 of its text format), which the encoder does not see to.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// True if the field `key` of an object is one of its labels already.
fn is_label(labels: &Labels, key: &str) -> bool {
    labels.iter().any(|(name, _)| name == key)
}

impl Collector for Export {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, samples) in &self.samples {
            let grows =
                name.ends_with("_total") || COUNTERS.iter().any(|one| name.starts_with(one));
            // The encoder adds the ending of a counter.
            let bare = name.strip_suffix("_total").unwrap_or(name);
            let kind = if grows {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let field = name.trim_start_matches(PREFIX).trim_start_matches('_');
            let help = format!("{field} of bentpipe status --json");
            let mut family = encoder.encode_descriptor(bare, &help, None, kind)?;
            for (labels, value) in samples {
                let metric = family.encode_family(labels)?;
                match grows {
                    true => ConstCounter::new(*value).encode(metric)?,
                    false => ConstGauge::new(*value).encode(metric)?,
                }
            }
        }
        for MetricFamily {
            name,
            help,
            members,
        } in &self.families
        {
            let kind = MetricType::Histogram;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, histogram) in members {
                histogram.encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use bentpipe_tunnel::engine::Ledger;

    use super::*;
    use crate::status::{
        ClientStatus, KernelRepair, Memory, Metering, Session, Side, TlsEntrance, TlsRefused, tests,
    };

    fn lines(side: Side) -> Vec<String> {
        let report = StatusReport::new(PathBuf::from("/etc/bentpipe/x.toml"), 17, side);
        let text = Export::new(&report, Vec::new()).into_text().expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn session() -> Session {
        let mut session = Session::default();
        session.tunnel.rtt_ms = Some(512.5);
        session.flows.opened_total = 7;
        session.bytes.wire_in = 1_000_000;
        session
    }

    #[test]
    fn a_clients_numbers_have_their_names() {
        let lines = lines(Side::Client(Box::new(session())));
        for wanted in [
            "# TYPE bentpipe_tunnel_rtt_ms gauge",
            "bentpipe_tunnel_rtt_ms{} 512.5",
            "# TYPE bentpipe_flows_opened counter",
            "bentpipe_flows_opened_total{} 7.0",
            "bentpipe_bytes_wire_in_total{} 1000000.0",
            "bentpipe_uptime_s{} 17.0",
            "bentpipe_tunnel_state{state=\"connecting\"} 1.0",
            "# EOF",
        ] {
            assert!(
                lines.iter().any(|line| line == wanted),
                "{wanted}: {lines:#?}"
            );
        }
    }

    #[test]
    fn a_servers_clients_are_labels() {
        let client = |name: &str| ClientStatus {
            name: name.to_owned(),
            shard: Some(1),
            session: session(),
        };
        let lines = lines(Side::Server {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            listen_sle: Vec::new(),
            listen_les: Vec::new(),
            families: None,
            packets_limited: None,
            sle: None,
            les: None,
            tls: Some(Box::new(TlsEntrance {
                refused_total: TlsRefused {
                    handshake: 3,
                    ..TlsRefused::default()
                },
                ..TlsEntrance::default()
            })),
            clients: vec![client("one"), client("a \"b\"\n")],
        });
        let of = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!(
            of("bentpipe_tls_refused_total_handshake_total{} 3.0"),
            1,
            "{lines:#?}"
        );
        assert_eq!(of("bentpipe_tunnel_rtt_ms{"), 2, "{lines:#?}");
        assert_eq!(of("# TYPE bentpipe_tunnel_rtt_ms "), 1);
        assert!(
            lines
                .iter()
                .any(|line| line.contains(r#"{client="a \"b\"\n"}"#)),
            "{lines:#?}"
        );
    }

    /// The alerts and the dashboard ask for nothing that no daemon serves.
    #[test]
    fn what_is_asked_for_is_exported() {
        let mut reports = [tests::client_report(), tests::server_report()];
        reports[0].kernel.push(KernelRepair {
            part: "table inet bentpipe_client".to_owned(),
            repairs_total: 1,
            last_s: None,
            last_by: None,
            fault: None,
            of_others: false,
        });
        reports[0].all_tunnels_memory = Some(Memory::default());
        if let Side::Client(session) = &mut reports[0].side {
            session.ledger_bytes = Some(Ledger::default());
            session.metering = Some(Metering {
                cap_bytes: Some(1),
                ..Metering::default()
            });
        }
        let served: BTreeSet<String> = reports
            .iter()
            .flat_map(|report| Export::new(report, Vec::new()).samples.into_keys())
            .collect();
        let part = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        for file in ["alerts.yml", "grafana-dashboard.json"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
            let text = fs::read_to_string(path.join(file)).unwrap();
            for word in text.split(|byte| !part(byte)) {
                let asked = word.starts_with("bentpipe_");
                // A counter's ending is the encoder's; a bare beginning asks for all of an object.
                let meant = |name: &String| {
                    name == word
                        || word.strip_suffix("_total") == Some(name)
                        || word.ends_with('_') && name.starts_with(word)
                };
                let found = || served.iter().any(meant);
                assert!(!asked || found(), "{word} in {file}: {served:#?}");
            }
        }
    }
}
