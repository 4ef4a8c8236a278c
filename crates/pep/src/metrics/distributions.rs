//! Figures whose distribution matters, as histograms: round trips, rates, and times to a request's first byte.
//!
//! What the status report tells is the present; a histogram holds all since the daemon, or a client's tunnel, began. Labels
//! are those of the report's clients, so there are never more than `[[client]]` entries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use super::export::{Labels, MetricFamily, escaped};
use crate::status::{Session, Side, StatusReport, TunnelState};

/// Upper bounds of the classes of round trips, seconds: near links, low orbits, and one geostationary hop with its queues.
const ROUND_TRIPS: [f64; 12] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 3.0];

/// Upper bounds of the classes of rates, bit/s: from a voice call to more than a satellite's beam.
const RATES: [f64; 14] = [
    64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6, 1e9,
];

/// Upper bounds of the classes of times to the first byte, seconds: a round trip of the link and what the origin takes.
const FIRST_BYTES: [f64; 14] = [
    0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 3.0, 5.0, 10.0,
];

/// Times from a request, the first bytes that an application sends at once, to the first byte of its answer.
#[derive(Clone, Debug)]
pub(crate) struct FirstByte(Histogram);

impl FirstByte {
    /// Nothing observed yet.
    pub(crate) fn new() -> Self {
        Self(Histogram::new(FIRST_BYTES))
    }

    /// Takes in one time.
    pub(crate) fn observe(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}

/// Histograms of one figure, by their labels.
#[derive(Debug)]
struct Labelled {
    /// Upper bounds of the classes.
    classes: &'static [f64],
    histograms: RefCell<BTreeMap<Labels, Histogram>>,
}

impl Labelled {
    fn new(classes: &'static [f64]) -> Self {
        Self {
            classes,
            histograms: RefCell::default(),
        }
    }

    /// Takes in one value of the histogram with these `labels`.
    fn observe(&self, labels: Labels, value: f64) {
        let mut histograms = self.histograms.borrow_mut();
        let histogram = histograms.entry(labels);
        let new = || Histogram::new(self.classes.iter().copied());
        histogram.or_insert_with(new).observe(value);
    }

    /// Forgets the histograms whose labels are not `known`.
    fn retain(&self, known: impl Fn(&Labels) -> bool) {
        self.histograms
            .borrow_mut()
            .retain(|labels, _| known(labels));
    }

    fn members(&self) -> Vec<(Labels, Histogram)> {
        let histograms = self.histograms.borrow();
        let members = histograms.iter();
        members
            .map(|(labels, one)| (labels.clone(), one.clone()))
            .collect()
    }
}

/// Histograms that are served.
#[derive(Debug)]
pub(super) struct Distributions {
    round_trips: Labelled,
    rates: Labelled,
    first_byte: Option<FirstByte>,
}

impl Distributions {
    /// Nothing observed yet; times to the first byte are observed elsewhere.
    pub(super) fn new(first_byte: Option<FirstByte>) -> Self {
        Self {
            round_trips: Labelled::new(&ROUND_TRIPS),
            rates: Labelled::new(&RATES),
            first_byte,
        }
    }

    /// Takes in the round trips and rates of `report`; to be called each second. Clients that are not in it are forgotten.
    pub(super) fn observe(&self, report: &StatusReport) {
        let seen = match &report.side {
            Side::Client(session) => vec![(Labels::new(), &**session)],
            Side::Pep(pep) => vec![(Labels::new(), &pep.session)],
            Side::Origin { .. } => Vec::new(),
            Side::Server { clients, .. } => {
                let labels = |name: &str| vec![("client".to_owned(), escaped(name))];
                let seen = clients.iter();
                seen.map(|client| (labels(&client.name), &client.session))
                    .collect()
            }
        };
        let known = |labels: &Labels| seen.iter().any(|(known, _)| labels.starts_with(known));
        self.round_trips.retain(known);
        self.rates.retain(known);
        for (labels, session) in seen {
            for (direction, rate) in busy(session) {
                let mut labels = labels.clone();
                labels.push(("direction".to_owned(), direction.to_owned()));
                self.rates.observe(labels, rate);
            }
            if let Some(rtt) = round_trip(session) {
                self.round_trips.observe(labels, rtt);
            }
        }
    }

    /// The histograms as they are now.
    pub(super) fn families(&self) -> Vec<MetricFamily> {
        let mut families = vec![
            MetricFamily {
                name: "bentpipe_tunnel_rtt_seconds",
                help: "smoothed round-trip time of the tunnel, once a second while it is ready",
                members: self.round_trips.members(),
            },
            MetricFamily {
                name: "bentpipe_tunnel_rate_bits_per_second",
                help: "rate of the tunnel in each direction, once for each second in which bytes crossed",
                members: self.rates.members(),
            },
        ];
        families.extend(self.first_byte.as_ref().map(|one| MetricFamily {
            name: "bentpipe_flow_first_byte_seconds",
            help: "time from a request to the first byte of its answer, once for each connection",
            members: vec![(Labels::new(), one.0.clone())],
        }));
        families
    }
}

/// Smoothed RTT of a tunnel that is up, seconds.
fn round_trip(session: &Session) -> Option<f64> {
    let up = session.tunnel.state == TunnelState::Ready;
    session.tunnel.rtt_ms.filter(|_| up).map(|ms| ms / 1e3)
}

/// Rates of a tunnel that is up, bit/s, in the directions in which bytes crossed.
fn busy(session: &Session) -> impl Iterator<Item = (&'static str, f64)> {
    let tunnel = &session.tunnel;
    let up = tunnel.state == TunnelState::Ready;
    let rates = [
        ("sent", tunnel.send_rate_bit_s),
        ("received", tunnel.recv_rate_bit_s),
    ];
    let busy = rates.into_iter().filter(move |(_, rate)| up && *rate > 0);
    busy.map(|(direction, rate)| (direction, rate as f64))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::export::Export;
    use super::*;
    use crate::status::ClientStatus;

    fn report(names: &[&str]) -> StatusReport {
        let client = |name: &&str| {
            let mut session = Session::default();
            session.tunnel.state = TunnelState::Ready;
            session.tunnel.rtt_ms = Some(550.0);
            session.tunnel.recv_rate_bit_s = 3_000_000;
            ClientStatus {
                name: (*name).to_owned(),
                shard: None,
                session,
            }
        };
        let side = Side::Server {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            listen_sle: Vec::new(),
            listen_les: Vec::new(),
            families: None,
            packets_limited: None,
            sle: None,
            les: None,
            tls: None,
            clients: names.iter().map(client).collect(),
        };
        StatusReport::new(PathBuf::from("x.toml"), 1, side)
    }

    fn text(distributions: &Distributions, report: &StatusReport) -> String {
        let export = Export::new(report, distributions.families());
        export.into_text().expect("text")
    }

    #[test]
    fn each_client_has_a_histogram_while_it_is_connected() {
        let distributions = Distributions::new(None);
        distributions.observe(&report(&["a", "b"]));
        distributions.observe(&report(&["a"]));
        let report = report(&["a"]);
        let text = text(&distributions, &report);
        for line in [
            "# TYPE bentpipe_tunnel_rtt_seconds histogram",
            "bentpipe_tunnel_rtt_seconds_count{client=\"a\"} 2",
            "bentpipe_tunnel_rtt_seconds_bucket{le=\"0.5\",client=\"a\"} 0",
            "bentpipe_tunnel_rtt_seconds_bucket{le=\"0.6\",client=\"a\"} 2",
            "bentpipe_tunnel_rtt_seconds_bucket{le=\"+Inf\",client=\"a\"} 2",
            "bentpipe_tunnel_rate_bits_per_second_bucket{le=\"2000000.0\",client=\"a\",direction=\"received\"} 0",
            "bentpipe_tunnel_rate_bits_per_second_bucket{le=\"5000000.0\",client=\"a\",direction=\"received\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!text.contains("client=\"b\""), "{text}");
        // Nothing was sent.
        assert!(!text.contains("direction=\"sent\""), "{text}");
    }

    #[test]
    fn first_bytes_have_a_histogram_where_they_are_observed() {
        let report = report(&[]);
        assert!(!text(&Distributions::new(None), &report).contains("first_byte"));
        let first_byte = FirstByte::new();
        first_byte.observe(Duration::from_millis(700));
        let text = text(&Distributions::new(Some(first_byte)), &report);
        let sum = text
            .lines()
            .find(|line| line.starts_with("bentpipe_flow_first_byte_seconds_sum"));
        assert!(sum.is_some_and(|line| line.ends_with(" 0.7")), "{text}");
    }
}
