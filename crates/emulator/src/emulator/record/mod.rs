//! What a run leaves behind: probes, a packet log, a capture. Written by a thread of its own.
//!
//! The emulator's thread never waits for a disk: it hands records over through a bounded channel, and counts those that
//! found it full. Lost records make the files incomplete, not the run invalid.
//!
//! ```text
//!  emulator ──Record──► channel ──► writer thread ──► probes (JSON lines)
//!                                                 ├──► packet log (text)
//!                                                 └──► capture (pcapng)
//! ```

mod packet_log;
mod pcap;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use bentpipe_link::{Event, Port};
use bentpipe_units::ByteCount;

use super::packet::Packet;
use super::snapshot::{Snapshot, event_line};
use packet_log::PacketLog;
use pcap::Pcap;

/// Records that may wait: half a second of a million packets per second.
const CAPACITY: usize = 1 << 16;
/// Time between two looks of the writer. It is not woken for each record: that would cost the emulator more than the record.
const PERIOD: Duration = Duration::from_millis(10);

/// Files to write.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    /// Snapshots, one line of JSON per terminal and period, and events between them.
    pub probes: Option<PathBuf>,
    /// Every packet's arrival, delivery or drop, one line each.
    pub packet_log: Option<PathBuf>,
    /// Every packet at both ends, as pcapng.
    pub pcap: Option<PathBuf>,
}

impl Outputs {
    /// Makes sure that each file can be written, and makes those that are missing. What one holds stays until the run begins.
    ///
    /// # Errors
    /// One cannot be written; the text names it.
    pub fn try_out(&self) -> Result<()> {
        let files = [&self.probes, &self.packet_log, &self.pcap];
        files
            .into_iter()
            .flatten()
            .try_for_each(|file| try_out(file))
    }
}

/// Makes sure that the file `path` can be written, and makes it if it is missing.
///
/// # Errors
/// The file cannot be written; the text names it.
pub fn try_out(path: &Path) -> Result<()> {
    let mut options = File::options();
    let opened = options.write(true).create(true).truncate(false).open(path);
    opened.map(drop).with_context(|| shown(path))
}

/// Framing of packets in a capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Framing {
    /// Packets are Ethernet frames; IP packets otherwise.
    pub(super) ethernet: bool,
    /// Bytes before the frame that no capture has.
    pub(super) skip: usize,
}

/// A packet at one end of the link.
#[derive(Debug)]
pub(super) struct Crossing {
    /// Since the start.
    pub(super) at: Duration,
    /// The packet arrives at the link there; otherwise it leaves it.
    pub(super) entering: bool,
    pub(super) port: Port,
    /// IP-layer size.
    pub(super) size: ByteCount,
    pub(super) packet: Packet,
}

/// Something to be written down.
#[derive(Debug)]
pub(super) enum Record {
    Crossing(Crossing),
    Event(Duration, Event),
    Snapshot(Box<Snapshot>),
}

/// The emulator's end of the channel.
#[derive(Debug)]
pub(super) struct Recorder {
    channel: Option<SyncSender<Record>>,
    writer: Option<JoinHandle<Result<()>>>,
    packets: bool,
    events: bool,
    lost: u64,
}

impl Recorder {
    /// Creates the files and starts the writer, if there is anything to write.
    ///
    /// # Errors
    /// A file cannot be created.
    pub(super) fn start(outputs: &Outputs, framing: Framing, terminals: &[String]) -> Result<Self> {
        let capture = |file| Pcap::start(file, framing, terminals);
        let files = Files {
            probes: Output::start(outputs.probes.as_ref(), Ok)?,
            packet_log: Output::start(outputs.packet_log.as_ref(), PacketLog::start)?,
            pcap: Output::start(outputs.pcap.as_ref(), capture)?,
        };
        let mut recorder = Self {
            channel: None,
            writer: None,
            packets: files.packet_log.is_some() || files.pcap.is_some(),
            events: files.packet_log.is_some() || files.probes.is_some(),
            lost: 0,
        };
        if recorder.packets || files.probes.is_some() {
            let (sender, receiver) = sync_channel(CAPACITY);
            let writer = thread::Builder::new().name("records".into());
            recorder.writer = Some(
                writer
                    .spawn(move || files.write(&receiver))
                    .context("cannot start a thread")?,
            );
            recorder.channel = Some(sender);
        }
        Ok(recorder)
    }

    /// True if crossings are of interest: nobody should make them for nothing.
    pub(super) fn wants_packets(&self) -> bool {
        self.packets
    }

    /// True if events are of interest.
    pub(super) fn wants_events(&self) -> bool {
        self.events
    }

    pub(super) fn add(&mut self, record: Record) {
        if let Some(channel) = &self.channel
            && channel.try_send(record).is_err()
        {
            self.lost += 1;
        }
    }

    /// Waits until all is written: how many records were lost, and what kept the files from being written.
    pub(super) fn finish(mut self) -> (u64, Option<String>) {
        self.channel.take();
        let panicked = || Err(anyhow!("the writer of records panicked"));
        let written = self.writer.take().map(JoinHandle::join);
        let written = written.map_or(Ok(()), |done| done.unwrap_or_else(|_| panicked()));
        (self.lost, written.err().map(|error| format!("{error:#}")))
    }
}

/// A file, and what writes it.
#[derive(Debug)]
struct Output<W> {
    path: PathBuf,
    writer: W,
}

impl<W> Output<W> {
    /// Makes the file `path`, if there is one, and its writer with `start`.
    fn start(
        path: Option<&PathBuf>,
        start: impl FnOnce(BufWriter<File>) -> io::Result<W>,
    ) -> Result<Option<Self>> {
        let start = |path: &PathBuf| {
            let made = File::create(path).and_then(|file| start(BufWriter::new(file)));
            let writer = made.with_context(|| shown(path))?;
            let path = path.clone();
            Ok(Self { path, writer })
        };
        path.map(start).transpose()
    }

    /// Has the writer `write`; an error names the file.
    fn write(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) -> Result<()> {
        write(&mut self.writer).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[derive(Debug)]
struct Files {
    probes: Option<Output<BufWriter<File>>>,
    packet_log: Option<Output<PacketLog>>,
    pcap: Option<Output<Pcap>>,
}

impl Files {
    fn write(mut self, records: &Receiver<Record>) -> Result<()> {
        loop {
            match records.try_recv() {
                Ok(record) => self.take(&record)?,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    // Who follows the file sees what there is.
                    if let Some(probes) = &mut self.probes {
                        probes.write(BufWriter::flush)?;
                    }
                    thread::sleep(PERIOD);
                }
            }
        }
        self.flush()
    }

    fn take(&mut self, record: &Record) -> Result<()> {
        match record {
            Record::Crossing(crossing) => {
                if let Some(log) = &mut self.packet_log {
                    log.write(|log| log.crossing(crossing))?;
                }
                if let Some(pcap) = &mut self.pcap {
                    pcap.write(|pcap| pcap.crossing(crossing))?;
                }
            }
            Record::Event(at, event) => {
                if let Some(log) = &mut self.packet_log {
                    log.write(|log| log.event(*at, event))?;
                }
                if let Some(probes) = &mut self.probes
                    && let Some(line) = event_line(*at, event)
                {
                    probes.write(|probes| writeln!(probes, "{line}"))?;
                }
            }
            Record::Snapshot(snapshot) => {
                if let Some(probes) = &mut self.probes {
                    let mut lines = snapshot.lines();
                    probes.write(|probes| lines.try_for_each(|line| writeln!(probes, "{line}")))?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let Self {
            probes,
            packet_log,
            pcap,
        } = self;
        let flush = |file: &mut Output<_>| file.write(BufWriter::flush);
        probes.as_mut().map_or(Ok(()), flush)?;
        let log = packet_log.as_mut();
        log.map_or(Ok(()), |log| log.write(PacketLog::flush))?;
        let pcap = pcap.as_mut();
        pcap.map_or(Ok(()), |pcap| pcap.write(Pcap::flush))
    }
}

fn shown(path: &Path) -> String {
    format!("cannot create {}", path.display())
}
