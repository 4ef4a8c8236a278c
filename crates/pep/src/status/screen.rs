//! The report as one screen of a terminal, 80 by 24 and without colours, redrawn as it changes.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::iter;

use super::format::{rate, size, span};
use super::history::{History, Sample};
use super::{ClientStatus, Event, EventLevel, Session, Side, StatusReport, Tunnel, TunnelState};

/// Columns and rows of a screen; the last row is left to the cursor.
const WIDTH: usize = 80;
const ROWS: usize = 23;

/// Width of labels on the left.
const LABEL: usize = 11;

/// Rows of a server's clients.
const CLIENTS: usize = 9;

/// Events that are shown, and the width of their times.
const EVENTS: usize = 6;
const TIME: usize = 10;

/// Seconds that one column of a curve stands for, and columns of a curve.
const STEP: usize = 15;
const COLUMNS: usize = 40;

/// Characters of a curve, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Eighths of a block, for terminals that have Unicode.
    Unicode,
    /// ASCII, for all others.
    Ascii,
}

impl Blocks {
    fn levels(self) -> &'static [char] {
        match self {
            Self::Unicode => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Ascii => &['_', '.', ',', '-', '=', '+', '*', '#'],
        }
    }
}

/// Screens of one daemon, with what was seen of it since the first.
#[derive(Debug)]
pub struct Screen {
    blocks: Blocks,
    history: History,
}

impl Screen {
    /// Screens that draw curves with `blocks`.
    #[must_use]
    pub fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            history: History::default(),
        }
    }

    /// The screen that shows `report`: at most 23 lines of at most 80 characters.
    pub fn draw(&mut self, report: &StatusReport) -> String {
        self.history.add(Sample::of(report));
        let mut rows = vec![format!(
            "bentpipe {} {}, pid {}, up {}",
            report.role(),
            report.version,
            report.pid,
            span(report.uptime_s)
        )];
        match &report.side {
            Side::Client(session) => self.client(&mut rows, session),
            Side::Pep(pep) => {
                self.client(&mut rows, &pep.session);
                rows.push(labelled("relays", &pep.segments.to_string(), ""));
            }
            Side::Server { clients, .. } => self.server(&mut rows, report, clients),
            Side::Origin { origin, .. } => {
                rows.push(labelled("connections", &origin.to_string(), ""));
                rows.push(labelled("objects", &origin.objects(), ""));
                let refused = origin.refused_total.to_string();
                rows.extend((!refused.is_empty()).then(|| labelled("refused", &refused, "")));
            }
        }
        events(&mut rows, &report.events);
        rows.truncate(ROWS);
        let mut text = String::new();
        for row in rows {
            text.push_str(&cut(&row, WIDTH));
            text.push('\n');
        }
        text
    }

    fn client(&self, rows: &mut Vec<String>, session: &Session) {
        let Session { tunnel, flows, .. } = session;
        let peer = tunnel.peer.as_deref().unwrap_or("no server yet");
        rows.push(format!(
            "{} for {}, {peer}",
            word(tunnel.state),
            span(tunnel.since_s)
        ));
        let fault = tunnel.last_error.as_deref().unwrap_or_default();
        rows.extend(wrapped(fault, WIDTH, 3));
        rows.push(String::new());
        let (send, receive) = tunnel.capacities();
        self.rates(
            rows,
            ("received", tunnel.recv_rate_bit_s, receive),
            ("sent", tunnel.send_rate_bit_s, send),
        );
        let rtts = |sample: &Sample| sample.rtt_ms.unwrap_or_default();
        rows.push(labelled("RTT", &rtt(tunnel), &self.curve(rtts)));
        rows.push(labelled("loss", &loss(tunnel), ""));
        if let Some(metering) = &session.metering {
            rows.push(labelled("metered", &metering.to_string(), ""));
        }
        if let Some(measured) = &session.measured {
            let lines = wrapped(&measured.to_string(), WIDTH - LABEL, 2);
            let labels = ["measured", ""].iter();
            rows.extend(
                labels
                    .zip(lines)
                    .map(|(label, line)| labelled(label, &line, "")),
            );
        }
        let [received, sent] = session.crossed();
        let crossed = format!("{} received, {} sent", size(received), size(sent));
        rows.push(labelled("link", &crossed, ""));
        rows.push(labelled(
            "flows",
            &format!(
                "{} open, {} waiting; {} opened, {} refused so far",
                flows.active, flows.waiting, flows.opened_total, flows.refused_total
            ),
            "",
        ));
    }

    fn server(&self, rows: &mut Vec<String>, report: &StatusReport, clients: &[ClientStatus]) {
        rows.push(match report.health() {
            Ok(health) | Err(health) => health,
        });
        rows.push(String::new());
        let now = Sample::of(report);
        self.rates(
            rows,
            ("received", now.received_bit_s, None),
            ("sent", now.sent_bit_s, None),
        );
        if let Some(memory) = &report.all_tunnels_memory {
            let memory = format!("{} of {}", size(memory.used), size(memory.ceiling));
            rows.push(labelled("memory", &memory, ""));
        }
        rows.push(String::new());
        rows.push(format!(
            "{:18} {:10} {:>12} {:>12} {:>8} {:>7} {:>6}",
            "client", "state", "sent", "received", "RTT", "loss", "flows"
        ));
        let mut busiest: Vec<_> = clients.iter().collect();
        busiest.sort_by_key(|client| (Reverse(client.rate_bit_s()), &client.name));
        rows.extend(busiest.iter().take(CLIENTS).map(|client| row(client)));
        match busiest.len() {
            0 => rows.push("none is connected".to_owned()),
            all if all > CLIENTS => rows.push(format!("and {} less busy ones", all - CLIENTS)),
            _ => {}
        }
    }

    /// Rates of both directions with their curves; each is a label, bit/s, and what the way is believed to carry.
    fn rates(
        &self,
        rows: &mut Vec<String>,
        received: (&str, u64, Option<u64>),
        sent: (&str, u64, Option<u64>),
    ) {
        let curves = [
            self.curve(|sample| sample.received_bit_s as f64),
            self.curve(|sample| sample.sent_bit_s as f64),
        ];
        for ((label, now, capacity), curve) in [received, sent].into_iter().zip(curves) {
            let of = capacity.map(|capacity| format!(" of {}", rate(capacity)));
            let text = rate(now) + &of.unwrap_or_default();
            rows.push(labelled(label, &text, &curve));
        }
    }

    /// A curve of the last ten minutes, as high as its highest value; each column shows the highest of its seconds.
    fn curve(&self, value: impl Fn(&Sample) -> f64) -> String {
        let Some(last) = self.history.samples().next_back() else {
            return String::new();
        };
        let mut columns = [None::<f64>; COLUMNS];
        for sample in self.history.samples() {
            let age = usize::try_from(last.uptime_s - sample.uptime_s).unwrap_or(usize::MAX) / STEP;
            if let Some(column) = COLUMNS.checked_sub(age + 1) {
                let highest = columns[column].unwrap_or(0.0).max(value(sample));
                columns[column] = Some(highest);
            }
        }
        let top = columns
            .iter()
            .flatten()
            .fold(0.0, |top: f64, one| top.max(*one));
        let levels = self.blocks.levels();
        let block = |column: &Option<f64>| match column {
            None => ' ',
            Some(value) if top > 0.0 => {
                let level = (value / top * (levels.len() - 1) as f64).round();
                levels[(level as usize).min(levels.len() - 1)]
            }
            Some(_) => levels[0],
        };
        columns.iter().map(block).collect()
    }
}

/// A client of a server in one line.
fn row(client: &ClientStatus) -> String {
    let tunnel = &client.session.tunnel;
    format!(
        "{:18} {:10} {:>12} {:>12} {:>8} {:>7} {:>6}",
        cut(&client.name, 18),
        tunnel.state.to_string(),
        rate(tunnel.send_rate_bit_s),
        rate(tunnel.recv_rate_bit_s),
        tunnel
            .rtt_ms
            .map_or("-".to_owned(), |rtt| format!("{rtt:.0} ms")),
        format!("{:.2} %", tunnel.loss_ratio * 100.0),
        client.session.flows.active
    )
}

/// The last events, newest first, as far as there is room.
fn events(rows: &mut Vec<String>, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    rows.push(String::new());
    rows.push("last events (UTC)".to_owned());
    for event in events.iter().rev().take(EVENTS) {
        let time = event.at.get(11..19).unwrap_or_default();
        let level = match event.level {
            EventLevel::Info => "",
            EventLevel::Warn => "warning: ",
            EventLevel::Error => "error: ",
        };
        let text = format!("{level}{}", event.text);
        let lines = wrapped(&text, WIDTH - TIME, 3);
        let times = iter::once(time).chain(iter::repeat(""));
        rows.extend(
            times
                .zip(lines)
                .map(|(time, line)| format!("{time:TIME$}{line}")),
        );
    }
}

fn word(state: TunnelState) -> &'static str {
    match state {
        TunnelState::Ready => "UP",
        TunnelState::Silent => "SILENT",
        TunnelState::Connecting => "DOWN",
        TunnelState::Refused => "REFUSED",
        TunnelState::Draining => "STOPPING",
    }
}

fn rtt(tunnel: &Tunnel) -> String {
    let now = tunnel.rtt_ms.map(|rtt| format!("{rtt:.0} ms"));
    let lowest = tunnel.min_rtt_ms.map(|rtt| format!(", lowest {rtt:.0} ms"));
    now.map_or("-".to_owned(), |now| now + &lowest.unwrap_or_default())
}

/// Losses, and what repair did about them.
fn loss(tunnel: &Tunnel) -> String {
    let mut text = format!("{:.2} % of packets", tunnel.loss_ratio * 100.0);
    if let Some(repairs) = &tunnel.fec {
        let overhead = repairs.overhead_ratio * 100.0;
        let back = size(repairs.recovered_bytes);
        // A string takes whatever is written.
        let _ = write!(
            text,
            "; repairs brought back {back}, were {overhead:.1} % of bytes"
        );
    }
    text
}

/// A label, a text, and what comes to the right of it.
fn labelled(label: &str, text: &str, right: &str) -> String {
    let room = WIDTH - LABEL - COLUMNS - 2;
    let row = match right {
        "" => format!("{label:LABEL$}{text}"),
        right => format!("{label:LABEL$}{:room$}  {right}", cut(text, room)),
    };
    row.trim_end().to_owned()
}

/// `text` in at most `rows` lines of `width`.
fn wrapped(text: &str, width: usize, rows: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if line.is_empty() {
            *line = word.to_owned();
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            *line = format!("{line} {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.truncate(rows);
    lines
}

/// `text` in at most `width` characters, with a mark where something was left out.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width - 1).collect();
    kept + "~"
}
