//! Process that a daemon runs in, as both need it: clock, signals, exit reasons, and its limits (`limits.rs`).

mod key_log;
mod limits;
mod suspend;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use std::{panic, process, thread};

use socket2::Socket;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::config::{ConfigError, Place, Placed, Role};
use crate::shard::Shard;
use crate::status::StatusSocket;
use bentpipe_tunnel::text::printable;

pub(crate) use key_log::open_key_log;
pub(crate) use limits::{
    file_limit, raise_file_limit, tell_of_connections, tell_of_files, tell_of_ports, total_memory,
};
pub(crate) use suspend::Sleep;
#[cfg(test)]
pub(crate) use suspend::feign_sleep;

/// Kernel buffers wanted for UDP sockets, in bytes; the kernel's own limit applies.
const SOCKET_BUFFER: usize = 8 << 20;

/// Time for the last datagrams, besides what is on its way to us.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Longest wait for what peers still send.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(2);

/// Target of log lines with which the process ends; the log waits a second for whoever reads it.
pub const FATAL: &str = "fatal";

/// Exit code after a panic: "failed while running".
const PANICKED: i32 = 1;

/// Reason why a daemon could not start or go on. Each variant is one exit code of the binary.
#[derive(Debug, Error)]
pub enum RunError {
    /// The private key or the key log cannot be used.
    #[error("{0}")]
    Key(String),
    /// A file that the configuration names cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address is taken or not ours.
    #[error("{place}: cannot listen on {what} {address}: {source}{}", mend(source))]
    Bind {
        /// Place at which the configuration asks for it.
        place: Place,
        /// The address.
        address: SocketAddr,
        /// The protocol, for the message.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A capability or a tool is missing.
    #[error("{place}: {fault}")]
    Privilege {
        /// Place at which the configuration asks for what needs it.
        place: Place,
        /// Thing that is missing, and the mend.
        fault: String,
    },
    /// Another daemon on this machine has what only one can have: interception, or a status socket.
    #[error("{}{fault}", place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
    Taken {
        /// Place at which the configuration asks for that, if it does.
        place: Option<Place>,
        /// Holder of it, and the mend.
        fault: String,
    },
    /// Anything else from the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Files that a daemon writes for those who want to know what goes on inside.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// A file that receives TLS secrets.
    pub key_log: Option<PathBuf>,
    /// A directory that receives a qlog trace of every connection.
    pub qlog: Option<PathBuf>,
}

impl RunError {
    pub(crate) fn key(error: impl Display) -> Self {
        Self::Key(error.to_string())
    }

    /// Error of an operation that needs privileges or tools.
    pub(crate) fn privilege(place: &Place, error: &io::Error) -> Self {
        Self::Privilege {
            place: place.clone(),
            fault: error.to_string(),
        }
    }
}

fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process has it (`ss -ulptn` tells which)",
        io::ErrorKind::AddrNotAvailable => "; no interface has this address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

/// The one place where the daemons read the clock.
#[expect(
    clippy::disallowed_methods,
    reason = "shells read the clock and hand it down"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// CPU time that the calling thread has used.
pub(crate) fn thread_time() -> Duration {
    since(rustix::time::clock_gettime(
        rustix::time::ClockId::ThreadCPUTime,
    ))
}

/// Time on one of the kernel's clocks, since that began.
fn since(time: rustix::time::Timespec) -> Duration {
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// The wall clock, for what outlives the process.
#[expect(
    clippy::disallowed_methods,
    reason = "shells read the clock and hand it down"
)]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// 2024-01-01: a machine without a clock starts long before, and the time is not known until it was set.
pub(crate) const PLAUSIBLE: Duration = Duration::from_secs(1_704_067_200);

/// Time since 1970 by the wall clock, for what has a validity or an expiry.
///
/// # Errors
/// The clock was not set; the text says so, and the mend.
pub fn clock() -> Result<Duration, String> {
    set_clock(since_1970())
}

fn set_clock(now: Duration) -> Result<Duration, String> {
    match now >= PLAUSIBLE {
        true => Ok(now),
        false => Err(format!(
            "the clock of this machine is not set, it says {}: what begins or expires by it would be wrong; run \
             `timedatectl set-ntp true` or `date -s`",
            date(now.as_secs())
        )),
    }
}

/// Day in UTC of a moment, seconds since 1970; empty for one that no calendar has.
pub(crate) fn date(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_second(seconds);
    moment.map_or_else(|_| String::new(), |it| it.strftime("%F").to_string())
}

/// The address that datagrams to `remote` leave from; `None` without a route.
pub(crate) fn source_address(remote: IpAddr) -> Option<IpAddr> {
    // Any port will do.
    source_towards(SocketAddr::new(remote, 9))
}

/// As [`source_address`], for an address whose port is not 0, and which may be behind one interface alone.
pub(crate) fn source_towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    bentpipe_tunnel::engine::random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Name that we give ourselves towards the peer.
pub(crate) fn agent() -> String {
    format!("bentpipe/{}", env!("CARGO_PKG_VERSION"))
}

pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

pub(crate) fn join<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The socket at which `bentpipe status` asks. To be called inside a tokio runtime.
///
/// # Errors
/// Another daemon serves the socket that is configured: this one was started beside it by mistake.
pub(crate) fn status_socket(
    role: Role,
    path: Option<&Placed<PathBuf>>,
) -> Result<StatusSocket, RunError> {
    let bound = StatusSocket::bind(role, path.map(|path| path.as_path()));
    bound.map_err(|error| RunError::Taken {
        place: path.map(|path| path.place.clone()),
        fault: error.to_string(),
    })
}

/// Large buffers absorb what arrives while a busy machine runs something else.
pub(crate) fn widen(socket: &Socket) {
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
}

/// Ends the process when any of its threads or tasks panics. Without this a server that has lost a shard, or a task of
/// one, would look healthy to its supervisor and serve nobody. What a client has in the kernel stays, as after SIGKILL:
/// nothing of the LAN leaves in clear.
pub fn end_on_panic() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(ToString::to_string);
        tracing::error!(
            target: FATAL,
            "internal error, the process ends: {} at {} on thread {}; please report it",
            printable(payload),
            place.as_deref().unwrap_or("an unknown place"),
            thread::current().name().unwrap_or("without a name"),
        );
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            for line in trace.to_string().lines() {
                tracing::error!(target: FATAL, "{line}");
            }
        }
        process::exit(PANICKED);
    }));
}

/// An address and port with IPv4 in its own form: a socket of both families calls 192.0.2.1
/// `::ffff:192.0.2.1`.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Waits until no flow is left on a shard, and the peers have acknowledged the end of each.
pub(crate) async fn until_idle(shard: &Shard, others: impl Fn() -> u64) {
    let flows = || shard.peek(|engine| engine.connections().any(|(_, c)| !c.tunnel.is_idle()));
    while flows() || others() > 0 {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Gives the driver time to put the last datagrams (CONNECTION_CLOSE, resets) on the wire, and takes what
/// the peers sent before they heard of it: without a socket the kernel would answer across the link. Returns the round-trip
/// time of the slowest tunnel.
pub(crate) async fn flush(shard: &Shard) -> Duration {
    let slowest = shard.peek(|engine| engine.connections().map(|(_, c)| c.rtt().0).max());
    let slowest = slowest.unwrap_or_default();
    let until = now() + LAST_WORDS + slowest.mul_f32(1.25).min(MAX_LINGER);
    while now() < until && shard.peek(|engine| engine.connections().next().is_some()) {
        shard.with(|_| ());
        sleep(Duration::from_millis(5)).await;
    }
    slowest
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    #[test]
    fn a_clock_that_is_not_set_is_told_with_its_mend() {
        for unset in [Duration::ZERO, PLAUSIBLE - Duration::from_secs(1)] {
            let fault = set_clock(unset).unwrap_err();
            assert!(
                fault.contains(&date(unset.as_secs())) && fault.contains("timedatectl"),
                "{fault}"
            );
        }
        assert_eq!(set_clock(PLAUSIBLE), Ok(PLAUSIBLE));
    }

    /// Asks [`panics`] to be what it says.
    const WHERE: &str = "BENTPIPE_TEST_PANIC";

    #[test]
    fn a_panic_anywhere_ends_the_process() {
        for place in ["task", "thread", "blocking", "main"] {
            let child = Command::new(env::current_exe().expect("this test"))
                .args([
                    "--exact",
                    "process::tests::panics",
                    "--ignored",
                    "--nocapture",
                ])
                .env(WHERE, place)
                .output()
                .expect("a process");
            let said = String::from_utf8_lossy(&child.stdout);
            assert_eq!(child.status.code(), Some(PANICKED), "{place}: {said}");
            assert!(!said.contains("still here"), "{place}: {said}");
        }
    }

    /// No test: what the one above starts.
    #[test]
    #[ignore = "started by a_panic_anywhere_ends_the_process"]
    fn panics() {
        let Some(place) = env::var_os(WHERE) else {
            return;
        };
        end_on_panic();
        let fail = || panic!("as it was told");
        let runtime = runtime().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            // Each of these would swallow the panic.
            match place.to_str() {
                Some("task") => drop(spawn_local(async move { fail() }).await),
                Some("thread") => drop(thread::spawn(fail).join()),
                Some("blocking") => drop(tokio::task::spawn_blocking(fail).await),
                _ => drop(panic::catch_unwind(fail)),
            }
        });
        println!("still here");
        process::exit(7);
    }
}
