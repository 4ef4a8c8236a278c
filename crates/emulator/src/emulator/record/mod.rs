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
        let files = Files {
            probes: outputs.probes.as_deref().map(create).transpose()?,
            packet_log: outputs
                .packet_log
                .as_deref()
                .map(|path| PacketLog::start(create(path)?).with_context(|| shown(path)))
                .transpose()?,
            pcap: outputs
                .pcap
                .as_deref()
                .map(|path| {
                    Pcap::start(create(path)?, framing, terminals).with_context(|| shown(path))
                })
                .transpose()?,
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

    /// Waits until all is written; how many records were lost.
    ///
    /// # Errors
    /// A file could not be written.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.channel.take();
        if let Some(writer) = self.writer.take() {
            writer
                .join()
                .map_err(|_| anyhow!("the writer of records panicked"))??;
        }
        Ok(self.lost)
    }
}

#[derive(Debug)]
struct Files {
    probes: Option<BufWriter<File>>,
    packet_log: Option<PacketLog>,
    pcap: Option<Pcap>,
}

impl Files {
    fn write(mut self, records: &Receiver<Record>) -> Result<()> {
        loop {
            match records.try_recv() {
                Ok(record) => self.take(&record).context("cannot write a record")?,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    // Who follows the file sees what there is.
                    if let Some(probes) = &mut self.probes {
                        probes.flush().context("cannot write probes")?;
                    }
                    thread::sleep(PERIOD);
                }
            }
        }
        self.flush().context("cannot write records")
    }

    fn take(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Crossing(crossing) => {
                if let Some(log) = &mut self.packet_log {
                    log.crossing(crossing)?;
                }
                if let Some(pcap) = &mut self.pcap {
                    pcap.crossing(crossing)?;
                }
            }
            Record::Event(at, event) => {
                if let Some(log) = &mut self.packet_log {
                    log.event(*at, event)?;
                }
                if let Some(probes) = &mut self.probes
                    && let Some(line) = event_line(*at, event)
                {
                    writeln!(probes, "{line}")?;
                }
            }
            Record::Snapshot(snapshot) => {
                if let Some(probes) = &mut self.probes {
                    for line in snapshot.lines() {
                        writeln!(probes, "{line}")?;
                    }
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(probes) = &mut self.probes {
            probes.flush()?;
        }
        if let Some(log) = &mut self.packet_log {
            log.flush()?;
        }
        self.pcap.as_mut().map_or(Ok(()), Pcap::flush)
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path)
        .map(BufWriter::new)
        .with_context(|| shown(path))
}

fn shown(path: &Path) -> String {
    format!("cannot create {}", path.display())
}
