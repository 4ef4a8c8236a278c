//! The last ten minutes of a daemon, a sample for each second.

use std::collections::VecDeque;

use serde::Serialize;

use super::{Side, StatusReport};

/// Seconds that are kept.
const KEPT: u64 = 600;

/// Figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since the daemon started.
    pub(crate) uptime_s: u64,
    /// Sent in the last second, bit/s at the IP layer; at a server to all clients.
    pub(crate) sent_bit_s: u64,
    /// Received in the last second, bit/s at the IP layer; at a server from all clients.
    pub(crate) received_bit_s: u64,
    /// Rate that the way out is believed to have, bit/s; none at a server, whose clients have a link each.
    pub(crate) send_capacity_bit_s: Option<u64>,
    /// Rate that the way in is believed to have, bit/s.
    pub(crate) receive_capacity_bit_s: Option<u64>,
    /// Smoothed RTT of a client's tunnel, milliseconds.
    pub(crate) rtt_ms: Option<f64>,
}

impl Sample {
    /// Figures of `report`.
    pub(crate) fn of(report: &StatusReport) -> Self {
        let uptime_s = report.uptime_s;
        match &report.side {
            Side::Client(_) | Side::Pep(_) => {
                let tunnel = match &report.side {
                    Side::Pep(pep) => &pep.session.tunnel,
                    Side::Client(session) => &session.tunnel,
                    Side::Server { .. } | Side::Origin { .. } => return Self::default(),
                };
                let (send, receive) = tunnel.capacities();
                Self {
                    uptime_s,
                    sent_bit_s: tunnel.send_rate_bit_s,
                    received_bit_s: tunnel.recv_rate_bit_s,
                    send_capacity_bit_s: send,
                    receive_capacity_bit_s: receive,
                    rtt_ms: tunnel.rtt_ms,
                }
            }
            Side::Origin { .. } => Self {
                uptime_s,
                ..Self::default()
            },
            Side::Server { clients, .. } => {
                let tunnels = || clients.iter().map(|client| &client.session.tunnel);
                Self {
                    uptime_s,
                    sent_bit_s: tunnels().map(|tunnel| tunnel.send_rate_bit_s).sum(),
                    received_bit_s: tunnels().map(|tunnel| tunnel.recv_rate_bit_s).sum(),
                    ..Self::default()
                }
            }
        }
    }
}

/// Samples of the last ten minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Sample>);

impl History {
    /// Adds a sample; a second has one, and what is older than ten minutes goes. A daemon that was started anew begins anew.
    pub(crate) fn add(&mut self, sample: Sample) {
        match self.0.back() {
            Some(last) if last.uptime_s == sample.uptime_s => return,
            Some(last) if last.uptime_s > sample.uptime_s => self.0.clear(),
            _ => {}
        }
        let too_old = |one: &Sample| one.uptime_s + KEPT <= sample.uptime_s;
        while self.0.front().is_some_and(too_old) {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// All samples.
    pub(crate) fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> {
        self.0.iter()
    }

    /// Samples of later seconds than `after`, as columns.
    pub(crate) fn curves_after(&self, after: Option<u64>) -> Curves {
        let mut curves = Curves::default();
        let later = |sample: &&Sample| after.is_none_or(|after| sample.uptime_s > after);
        for sample in self.0.iter().filter(later) {
            curves.uptime_s.push(sample.uptime_s);
            curves.sent_bit_s.push(sample.sent_bit_s);
            curves.received_bit_s.push(sample.received_bit_s);
            curves.send_capacity_bit_s.push(sample.send_capacity_bit_s);
            let capacity = sample.receive_capacity_bit_s;
            curves.receive_capacity_bit_s.push(capacity);
            // Tenths of a millisecond are plenty for a curve.
            let rtt = sample.rtt_ms.map(|rtt| (rtt * 10.0).round() / 10.0);
            curves.rtt_ms.push(rtt);
        }
        curves
    }
}

/// Samples as columns of the same length, named and measured as those of [`Sample`].
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Curves {
    uptime_s: Vec<u64>,
    sent_bit_s: Vec<u64>,
    received_bit_s: Vec<u64>,
    send_capacity_bit_s: Vec<Option<u64>>,
    receive_capacity_bit_s: Vec<Option<u64>>,
    rtt_ms: Vec<Option<f64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_s: u64) -> Sample {
        Sample {
            uptime_s,
            ..Sample::default()
        }
    }

    fn kept(history: &History) -> (usize, u64, u64) {
        let curves = history.curves_after(None);
        let seconds = curves.uptime_s;
        (seconds.len(), seconds[0], seconds[seconds.len() - 1])
    }

    #[test]
    fn ten_minutes_are_kept_and_no_more() {
        let mut history = History::default();
        for second in 0..5000 {
            history.add(at(second));
            history.add(at(second));
        }
        assert_eq!(kept(&history), (600, 4400, 4999));
        // After a rest what lies before it is too old.
        history.add(at(5500));
        assert_eq!(kept(&history), (100, 4901, 5500));
        assert_eq!(history.curves_after(Some(4998)).uptime_s, [4999, 5500]);
        assert_eq!(history.curves_after(Some(5500)), Curves::default());
        // Another run of the daemon.
        history.add(at(3));
        assert_eq!(kept(&history), (1, 3, 3));
    }
}
