//! The emulator's loop, over anything that carries packets: TUN devices in use, sockets in tests.
//!
//! Each turn reads what waits, then writes what is due, then sleeps until the model's next delivery. Sleeping is one
//! `ppoll` with a nanosecond timeout. Reading comes first so that packets get their arrival stamps before the thread
//! spends time on writing. It never waits for anything else: files are written by another thread.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_link::{Link, Model, PacketHeader, Port, Probe, TerminalId};
use bentpipe_sys::schedule::go_first;
use bentpipe_units::ByteCount;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::device::{PacketDevice, descriptors};
use super::lateness::Histogram;
use super::live::Live;
use super::packet::{Packet, Segment, ip_header};
use super::record::{Crossing, Framing, Outputs, Record, Recorder};
use super::report::{Health, TOLERABLE_LATENESS};
use super::snapshot::Snapshot;
use super::trains::Trains;
use crate::router::Router;

/// Packets read from one side before deliveries get a turn; a flood must not hold up what is due.
const READ_BATCH: usize = 64;
/// The largest IP packet, behind the longest prefix of a device.
const MAX_PACKET: usize = 65_535 + 64;

/// Course of a run: what it needs beside its devices.
#[derive(Debug, Clone)]
pub struct Course {
    /// The link.
    pub model: Model,
    /// Router that finds the terminal of each packet of the gateway.
    pub router: Router,
    /// Time between two snapshots.
    pub period: Duration,
    /// Files to write.
    pub outputs: Outputs,
    /// Figures that others read while it runs.
    pub live: Live,
}

/// Result of a run, but for what only the kernel knows.
#[derive(Debug)]
pub struct Outcome {
    /// The link at the end.
    pub probe: Probe,
    /// From start to stop.
    pub duration: Duration,
    /// Health of the loop.
    pub health: Health,
    /// Reason why the files of the run are not whole, if they are not.
    pub file_fault: Option<String>,
}

/// Carries packets between the gateway's device and the terminals' until `stop` is readable. Blocks the thread.
///
/// # Errors
/// A device can no longer be read, or an output cannot be made.
pub fn run<D: PacketDevice>(
    course: &Course,
    gateway: &D,
    terminals: &[D],
    stop: BorrowedFd<'_>,
) -> Result<Outcome> {
    // The kernel may otherwise add 50 µs to each sleep.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .context("setting the timer slack")?;
    let framing = Framing {
        ethernet: D::PREFIX > 0,
        skip: D::PREFIX.saturating_sub(bentpipe_sys::ethernet::HEADER),
    };
    let recorder = Recorder::start(&course.outputs, framing, course.model.terminals())?;
    // After the recorder's thread was started. Where that is allowed: it must not wait for those whose packets it delays.
    let real_time = go_first().is_ok();
    let mut turn = Turn::new(course, recorder);
    turn.health.real_time = real_time;
    let descriptors = descriptors(stop, gateway, terminals);
    while let Some(waiting) = turn.sleep(&descriptors)? {
        let devices = std::iter::once((gateway, None)).chain(
            (0..)
                .map(TerminalId::new)
                .map(Some)
                .zip(terminals)
                .map(|(id, device)| (device, id)),
        );
        for ((device, terminal), _) in devices.zip(waiting).filter(|(_, waits)| *waits) {
            turn.take(device, terminal)
                .with_context(|| match terminal {
                    Some(terminal) => format!("device of terminal {}", terminal.index()),
                    None => "device of the gateway".to_owned(),
                })?;
        }
        turn.deliver(gateway, terminals);
        turn.note();
    }
    Ok(turn.finish())
}

/// The state between two turns.
struct Turn<'a> {
    course: &'a Course,
    start: Instant,
    link: Link<Packet>,
    recorder: Recorder,
    lateness: Histogram,
    health: Health,
    packets: u64,
    trains: Trains,
    snapshot: Option<Snapshot>,
    next_snapshot: Instant,
    buffer: Vec<u8>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the emulator is where the model meets the clock"
)]
fn now() -> Instant {
    Instant::now()
}

impl<'a> Turn<'a> {
    fn new(course: &'a Course, recorder: Recorder) -> Self {
        let start = now();
        Self {
            course,
            start,
            link: Link::new(&course.model, start),
            recorder,
            lateness: Histogram::default(),
            health: Health::default(),
            packets: 0,
            trains: Trains::default(),
            snapshot: None,
            next_snapshot: start + course.period,
            buffer: vec![0; MAX_PACKET],
        }
    }

    /// Sleeps until a packet waits, one is due, a snapshot is, or the end. At which devices something waits, the gateway's
    /// first; none at the end.
    fn sleep(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<Option<Vec<bool>>> {
        let due = self
            .link
            .poll_timeout()
            .map_or(self.next_snapshot, |due| due.min(self.next_snapshot));
        let timeout = timespec(due.saturating_duration_since(now()));
        let mut wanted: Vec<_> = descriptors
            .iter()
            .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
            .collect();
        match poll(&mut wanted, Some(&timeout)) {
            Ok(0) => {
                let late = now().saturating_duration_since(due) > TOLERABLE_LATENESS;
                self.health.late_wakeups += u64::from(late);
            }
            Ok(_) if !wanted[0].revents().is_empty() => return Ok(None),
            // A signal: the caller's handler makes `stop` readable if it is meant to end us.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
        Ok(Some(
            wanted[1..]
                .iter()
                .map(|device| !device.revents().is_empty())
                .collect(),
        ))
    }

    /// Offers what waits at the device to the link; `terminal` is whose device it is, if not the gateway's.
    fn take<D: PacketDevice>(
        &mut self,
        device: &D,
        terminal: Option<TerminalId>,
    ) -> io::Result<()> {
        for _ in 0..READ_BATCH {
            match device.read_packet(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.offer::<D>(length, terminal),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn offer<D: PacketDevice>(&mut self, length: usize, terminal: Option<TerminalId>) {
        let at = now();
        let bytes = Bytes::copy_from_slice(&self.buffer[..length]);
        self.health.merged_frames += u64::from(D::is_merged(&bytes));
        let ip = bytes.get(D::PREFIX..).unwrap_or_default();
        let (header, segment) = (ip_header(ip), Segment::read(ip));
        let from = match terminal {
            Some(terminal) => Port::Terminal(terminal),
            None => {
                let destination = header.map(|header| header.destination);
                let Some(terminal) = self.course.router.terminal(destination) else {
                    self.health.unroutable += 1;
                    return;
                };
                Port::Gateway { terminal }
            }
        };
        let size = ByteCount::from_usize(length.saturating_sub(D::PREFIX));
        self.packets += 1;
        let packet = Packet {
            number: self.packets,
            bytes,
        };
        self.record(at, true, from, size, &packet);
        let header = PacketHeader {
            size,
            dscp: header.map_or(0, |header| header.dscp),
            train: self.trains.of(at, self.packets, segment),
        };
        self.link.handle_packet(at, from, header, packet);
    }

    /// Writes what is due.
    fn deliver<D: PacketDevice>(&mut self, gateway: &D, terminals: &[D]) {
        let until = now();
        while let Some(delivery) = self.link.poll_output(until) {
            let device = match delivery.to {
                Port::Gateway { .. } => Some(gateway),
                Port::Terminal(terminal) => terminals.get(terminal.index()),
            };
            let written = device.map(|device| device.write_packet(&delivery.packet.bytes));
            let at = now();
            if let Some(Ok(())) = written {
                self.lateness
                    .record(at.saturating_duration_since(delivery.at));
                self.record(at, false, delivery.to, delivery.size, &delivery.packet);
            } else {
                self.health.write_errors += 1;
            }
        }
    }

    fn record(
        &mut self,
        at: Instant,
        entering: bool,
        port: Port,
        size: ByteCount,
        packet: &Packet,
    ) {
        if self.recorder.wants_packets() {
            self.recorder.add(Record::Crossing(Crossing {
                at: at.saturating_duration_since(self.start),
                entering,
                port,
                size,
                packet: packet.clone(),
            }));
        }
    }

    /// Collects events, and takes a snapshot when it is time.
    fn note(&mut self) {
        while let Some(event) = self.link.poll_event() {
            if self.recorder.wants_events() {
                let at = event.at.saturating_duration_since(self.start);
                self.recorder.add(Record::Event(at, event));
            }
        }
        let at = now();
        if at >= self.next_snapshot {
            // What was missed is not made up for.
            while self.next_snapshot <= at {
                self.next_snapshot += self.course.period;
            }
            self.take_snapshot(at);
        }
    }

    fn take_snapshot(&mut self, at: Instant) {
        let probe = self.link.probe(at);
        let since = at.saturating_duration_since(self.start);
        let snapshot = Snapshot::new(
            since,
            probe,
            self.lateness.summary(),
            self.snapshot.as_ref(),
        );
        self.course.live.show(&snapshot);
        self.recorder
            .add(Record::Snapshot(Box::new(snapshot.clone())));
        self.snapshot = Some(snapshot);
    }

    fn finish(mut self) -> Outcome {
        let end = now();
        self.take_snapshot(end);
        let probe = self.link.probe(end);
        let mut health = self.health;
        health.lateness = self.lateness.summary();
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::try_from(cpu).unwrap_or_default();
        health.cpu = cpu.into();
        let delivered = health.lateness.packets.max(1) as f64;
        health.cpu_us_per_packet = cpu.as_secs_f64() * 1e6 / delivered;
        let (lost, file_fault) = self.recorder.finish();
        health.records_lost = lost;
        Outcome {
            probe,
            duration: end.saturating_duration_since(self.start),
            health,
            file_fault,
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
