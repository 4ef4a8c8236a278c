//! Traces of connections for qvis: one qlog file (JSON-SEQ) for each, if the operator asked for them.
//!
//! quinn writes the events: packets sent, received and lost, RTT, and what our controller says of window and rate. Here
//! they get a file of their own, an end when it grows too large, and two corrections on the way (`Corrected`). A trace
//! holds sizes and times, no content and no secret.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use bentpipe_tunnel::engine::Engine;
use quinn_proto::{QlogConfig, QlogStream};
use serde_json::{Value, json};

use crate::config::Role;
use crate::process::{self, RunError};

/// A trace ends at this size: some 200 MB of payload.
const MAX_FILE: u64 = 64 << 20;

/// Most traces of one process: strangers can begin connections.
const MAX_FILES: u32 = 256;

/// Longer than any record of quinn's; what exceeds it is passed on uncorrected.
const MAX_RECORD: usize = 64 << 10;

/// Makes the traces of one process.
#[derive(Clone, Debug)]
pub(crate) struct Qlog {
    directory: PathBuf,
    role: Role,
    /// Files made so far, by all shards.
    count: Arc<AtomicU32>,
}

impl Qlog {
    /// Traces go to `directory`, which is made if need be; `None` if there is none.
    pub(crate) fn open(directory: Option<&Path>, role: Role) -> Result<Option<Self>, RunError> {
        let Some(directory) = directory else {
            return Ok(None);
        };
        fs::create_dir_all(directory).map_err(|error| {
            let fault = format!("cannot write qlog to {}: {error}", directory.display());
            io::Error::new(error.kind(), fault)
        })?;
        tracing::info!("every connection is traced in {}", directory.display());
        Ok(Some(Self {
            directory: directory.to_owned(),
            role,
            count: Arc::default(),
        }))
    }

    /// Traces the connections of `engine`.
    pub(crate) fn follow(self, engine: &mut Engine) {
        engine.trace_with(Box::new(move |now| self.trace(now)));
    }

    /// The trace of a connection that begins `now`.
    fn trace(&self, now: Instant) -> Option<QlogStream> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number >= MAX_FILES {
            self.count.store(MAX_FILES + 1, Ordering::Relaxed);
            if number == MAX_FILES {
                tracing::warn!("{MAX_FILES} connections were traced; later ones are not");
            }
            return None;
        }
        let started = process::since_1970().as_secs();
        let name = format!(
            "{}-{started}-{}-{number}.sqlog",
            self.role,
            std::process::id()
        );
        let path = self.directory.join(&name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = file
            .inspect_err(|error| tracing::warn!("cannot write {}: {error}", path.display()))
            .ok()?;
        let mut config = QlogConfig::default();
        config
            .writer(Box::new(Corrected::new(self.role, path, file)))
            .title(Some(format!("bentpipe {}", self.role)))
            .description(Some(name))
            .start_time(now);
        config.into_stream()
    }
}

/// Passes records on until the file is full, or cannot be written. In the first one it names the vantage point, which quinn does not know; in
/// metrics it writes times in milliseconds, as qlog has them, where quinn writes seconds.
struct Corrected<W: Write = BufWriter<File>> {
    to: W,
    /// Path of the file, for the log.
    path: PathBuf,
    role: Role,
    record: Vec<u8>,
    first: bool,
    left: u64,
}

impl Corrected {
    fn new(role: Role, path: PathBuf, file: File) -> Self {
        Self {
            to: BufWriter::new(file),
            path,
            role,
            record: Vec::new(),
            first: true,
            left: MAX_FILE,
        }
    }
}

impl<W: Write> Corrected<W> {
    /// A record is complete, with its separator in front and its newline.
    fn pass_on(&mut self) {
        let first = std::mem::take(&mut self.first);
        if let Some(corrected) = correct(&self.record, self.role, first) {
            self.record = corrected;
        }
        let length = self.record.len() as u64;
        // Once one does not fit, none does: a trace with holes would mislead.
        self.left = self.left.saturating_sub(length);
        if self.left > 0
            && let Err(error) = self.to.write_all(&self.record)
        {
            self.end(&error);
        }
        self.record.clear();
    }

    /// Ends the trace: quinn would warn of each record that fails, several for each packet.
    fn end(&mut self, error: &io::Error) {
        self.left = 0;
        tracing::warn!(
            "the trace {} ends here: {error}; make room, later connections are traced again",
            self.path.display()
        );
    }
}

/// The record as it should be; `None` if it is right already.
fn correct(record: &[u8], role: Role, first: bool) -> Option<Vec<u8>> {
    const METRICS: &[u8] = b"metrics_updated";
    if !first && !record.windows(METRICS.len()).any(|part| part == METRICS) {
        return None;
    }
    let mut value: Value = serde_json::from_slice(record.strip_prefix(b"\x1e")?).ok()?;
    if first {
        value["trace"]["vantage_point"] =
            json!({ "name": format!("bentpipe {role}"), "type": role.to_string() });
    } else {
        let data = value.get_mut("data")?.as_object_mut()?;
        for key in ["min_rtt", "smoothed_rtt", "latest_rtt", "rtt_variance"] {
            if let Some(seconds) = data.get(key).and_then(Value::as_f64) {
                data.insert(key.to_owned(), json!((seconds * 1e6).round() / 1e3));
            }
        }
    }
    let mut corrected = vec![0x1e];
    serde_json::to_writer(&mut corrected, &value).ok()?;
    corrected.push(b'\n');
    Some(corrected)
}

impl<W: Write> Write for Corrected<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(bytes.len());
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.record.extend_from_slice(part);
            if part.ends_with(b"\n") || self.record.len() > MAX_RECORD {
                self.pass_on();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.left > 0
            && let Err(error) = self.to.flush()
        {
            self.end(&error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer<W: Write + Default>(left: u64) -> Corrected<W> {
        Corrected {
            to: W::default(),
            path: PathBuf::new(),
            role: Role::Server,
            record: Vec::new(),
            first: false,
            left,
        }
    }

    #[test]
    fn a_full_trace_ends_with_a_whole_record() {
        let mut writer = writer::<Vec<u8>>(100);
        let record = b"\x1e{\"name\":\"packet_sent\"}\n";
        for part in record.repeat(9).chunks(7) {
            writer.write_all(part).expect("memory");
        }
        assert_eq!(writer.to, record.repeat(4));
    }

    /// Disk without room.
    #[derive(Default)]
    struct Full {
        tried: u32,
    }

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.tried += 1;
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.write(b"").map(drop)
        }
    }

    #[test]
    fn a_disk_without_room_ends_a_trace_and_is_tried_once() {
        let mut writer = writer::<Full>(MAX_FILE);
        let record = b"\x1e{\"name\":\"packet_sent\"}\n";
        for _ in 0..9 {
            writer
                .write_all(record)
                .expect("no error for quinn to tell");
            writer.flush().expect("no error for quinn to tell");
        }
        assert_eq!((writer.to.tried, writer.left), (1, 0));
    }

    #[test]
    fn times_are_milliseconds_and_the_vantage_point_is_named() {
        let mut writer = writer::<Vec<u8>>(1000);
        writer.first = true;
        writer
            .write_all(b"\x1e{\"trace\":{\"vantage_point\":{\"type\":\"unknown\"}}}\n")
            .expect("memory");
        writer
            .write_all(b"\x1e{\"name\":\"recovery:metrics_updated\",\"data\":{\"min_rtt\":0.6,\"congestion_window\":5}}\n")
            .expect("memory");
        let text = String::from_utf8(writer.to).expect("text");
        let records: Vec<Value> = text
            .split('\x1e')
            .skip(1)
            .map(|record| serde_json::from_str(record).expect("JSON"))
            .collect();
        let point = &records[0]["trace"]["vantage_point"];
        assert_eq!(
            point,
            &json!({ "name": "bentpipe server", "type": "server" })
        );
        let data = &records[1]["data"];
        assert_eq!(data, &json!({ "min_rtt": 600.0, "congestion_window": 5 }));
    }
}
