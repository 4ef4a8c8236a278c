//! The wire below QUIC that is a UDP socket: where datagrams leave and arrive, in batches.
//!
//! A wire knows neither flows nor keys nor connections. What arrives is taken by a closure, so that no datagram is copied twice.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::task::{Context, Poll};
use std::time::Instant;

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use bentpipe_tunnel::engine::{LEAST_MTU, Output, Unreachable, UnreachableCause, headers};

use super::exits::Exits;
use super::failures::{self, ReceiveError, is_about_another};
use crate::throttle::Throttle;

/// Receive buffer per message: a whole GRO batch.
pub(super) const RECEIVE_SIZE: usize = 64 * 1024;

/// Bytes that one read should take at most, while messages are as large as those of the read before.
const READ_BYTES: usize = 128 * 1024;

/// Fewest messages that one read asks for.
const FEWEST: usize = 2;

/// Fate of a batch that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The batch has left, or the operator was told why not.
    Done,
    /// The wire was full; `again` if it has room by now. Else the task is woken once it has.
    Full { again: bool },
}

/// Socket that is registered with the runtime.
struct Registered {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Registered {
    fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self {
            state: UdpSocketState::new(UdpSockRef::from(&socket))?,
            socket: UdpSocket::from_std(socket)?,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_io(Interest::WRITABLE, || {
            self.state
                .try_send(UdpSockRef::from(&self.socket), transmit)
        })
    }
}

/// UDP socket that moves datagrams in batches, by GSO and GRO where the kernel has them.
pub(crate) struct UdpWire {
    own: Registered,
    /// Address that the own socket is bound to.
    local: SocketAddr,
    exits: Exits,
    /// Those of the exits that have been needed. Registered with the runtime, they wake it for what others read.
    opened: BTreeMap<usize, Registered>,
    receive: Box<[u8]>,
    /// Messages that the next read asks for.
    messages: usize,
    /// Throttle of the line about failures to send: on a server they may be one client's only.
    complaint: Throttle,
    /// Throttle of the line about failures to receive.
    receive_complaint: Throttle,
    /// ICMP errors are reported by the kernel.
    hears_failures: bool,
    /// An error was reported on the socket since it was registered with the runtime.
    failed: Cell<bool>,
}

impl UdpWire {
    /// A wire of a bound, non-blocking socket; datagrams that this cannot send leave by `exits`.
    pub(crate) fn new(socket: std::net::UdpSocket, exits: Exits) -> io::Result<Self> {
        Ok(Self {
            local: socket.local_addr()?,
            own: Registered::new(socket)?,
            exits,
            opened: BTreeMap::new(),
            receive: vec![0; RECEIVE_SIZE * BATCH_SIZE].into_boxed_slice(),
            messages: BATCH_SIZE,
            complaint: Throttle::new(),
            receive_complaint: Throttle::new(),
            hears_failures: false,
            failed: Cell::new(false),
        })
    }

    /// Has the kernel report ICMP errors.
    pub(super) fn hear_failures(&mut self) {
        let Registered { socket, state } = &self.own;
        self.hears_failures = state
            .enable_transport_errors(UdpSockRef::from(socket))
            .is_ok();
    }

    /// Gives `take` the datagrams that have arrived, several of one size in a piece perhaps; true if there were any, or an error stood
    /// before them. `failed` hears of datagrams that did not get anywhere.
    ///
    /// # Errors
    /// The wire is of no use any more.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        mut take: impl FnMut(&RecvMeta, &[u8]),
        mut failed: impl FnMut(Unreachable),
    ) -> io::Result<bool> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        self.register_anew();
        while self.own.socket.poll_recv_ready(cx)?.is_ready() {
            let mut parts = self.receive.chunks_mut(RECEIVE_SIZE).map(IoSliceMut::new);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| parts.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            let wanted = &mut slices[..self.messages];
            let Registered { socket, state } = &self.own;
            let result = socket.try_io(Interest::READABLE, || {
                state.recv(UdpSockRef::from(socket), wanted, &mut metas)
            });
            drop(parts);
            match result {
                Ok(count) => {
                    self.messages = next_messages(&metas[..count]);
                    for (index, meta) in metas[..count].iter().enumerate() {
                        take(meta, &self.receive[index * RECEIVE_SIZE..][..meta.len]);
                    }
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    let meaning = ReceiveError::of(&error);
                    if meaning == ReceiveError::Useless {
                        return Err(error);
                    }
                    if meaning == ReceiveError::Passing && self.receive_complaint.is_due(now) {
                        tracing::warn!("cannot receive datagrams: {error}; trying on");
                    }
                    // The engine's timers deal with silence.
                    self.take_failures(&mut failed);
                    self.register_anew();
                    // Whoever sends ICMP errors without a pause does not keep the caller from its timers.
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Sends a batch of datagrams. `failed` hears of earlier ones that did not get anywhere.
    ///
    /// # Errors
    /// The wire is of no use any more.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        (output, bytes): (&Output, &[u8]),
        failed: impl FnMut(Unreachable),
    ) -> io::Result<Sent> {
        let place = self
            .exits
            .choose(self.local, output.destination, output.src_ip);
        if let Some((place, socket)) = place.and_then(|place| Some((place, self.exits.get(place)?)))
            && !self.opened.contains_key(&place)
        {
            match socket.try_clone().and_then(Registered::new) {
                Ok(registered) => drop(self.opened.insert(place, registered)),
                // No descriptor is free: this batch is lost, as on any link.
                Err(error) => {
                    self.complain(now, output.destination, &error.to_string());
                    return Ok(Sent::Done);
                }
            }
        }
        let exit = place.and_then(|place| self.opened.get(&place));
        let by = exit.unwrap_or(&self.own);
        let room = by.socket.poll_send_ready(cx)?.is_ready();
        if room && self.send(now, by, (output, bytes), failed) {
            return Ok(Sent::Done);
        }
        // Registers for the next time the socket has room.
        let again = by.socket.poll_send_ready(cx)?;
        Ok(Sent::Full {
            again: matches!(again, Poll::Ready(())),
        })
    }

    /// Sends a batch `by` this socket; false if that was full.
    fn send(
        &self,
        now: Instant,
        by: &Registered,
        (output, bytes): (&Output, &[u8]),
        mut failed: impl FnMut(Unreachable),
    ) -> bool {
        let bytes = &bytes[..output.size];
        let segment = output.segment_size.unwrap_or(bytes.len()).max(1);
        let whole = bytes.len().div_ceil(segment) <= by.state.max_gso_segments();
        let step = if whole { bytes.len().max(1) } else { segment };
        for part in bytes.chunks(step) {
            let transmit = Transmit {
                destination: output.destination,
                ecn: output
                    .ecn
                    .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                contents: part,
                segment_size: (part.len() > segment).then_some(segment),
                src_ip: output.src_ip,
            };
            let mut sent = by.try_send(&transmit);
            if self.hears_failures && sent.as_ref().is_err_and(is_about_another) {
                // The kernel reports an earlier datagram's error once, in place of sending.
                self.take_failures(&mut failed);
                sent = by.try_send(&transmit);
            }
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    let size = part.len().min(segment);
                    let (own, to) = (
                        own_fault(&error, size, output.destination),
                        output.destination,
                    );
                    if self.hears_failures {
                        own.into_iter().for_each(&mut failed);
                    }
                    if let Some(reason) = reason(&error, own) {
                        self.complain(now, to, &reason);
                    }
                }
                Ok(()) => {}
            }
        }
        true
    }

    /// Reads what the kernel knows of datagrams that did not arrive.
    fn take_failures(&self, failed: &mut impl FnMut(Unreachable)) {
        if self.hears_failures {
            self.failed.set(true);
            failures::take(&self.own.socket, failed);
        }
    }

    /// Registers the socket with the runtime once more after an error. To the runtime an error that was reported on it means that it is
    /// closed for writing, which it then holds to be ready for ever: a full socket would be tried without a pause.
    fn register_anew(&mut self) {
        if !self.failed.take() {
            return;
        }
        let again = self.own.socket.as_fd().try_clone_to_owned();
        if let Ok(Ok(again)) = again.map(|again| UdpSocket::from_std(again.into())) {
            self.own.socket = again;
        }
    }

    /// Unreachable, filtered, interface down: the engine's timers deal with silence, but the operator wants to know.
    fn complain(&self, now: Instant, destination: SocketAddr, reason: &str) {
        if self.complaint.is_due(now) {
            let address = destination.ip().to_canonical();
            tracing::warn!("cannot send to {address}: {reason}");
        }
    }
}

/// Report of a datagram of `size` bytes that did not leave this machine for `destination`; `None` if `error` does not say why, or is
/// about a probe of a larger MTU, to which it is an answer like any other.
fn own_fault(error: &io::Error, size: usize, destination: SocketAddr) -> Option<Unreachable> {
    let address = destination.ip().to_canonical();
    let headers = headers(address.is_ipv6()) as usize;
    let least = usize::from(LEAST_MTU);
    let cause = match Errno::from_io_error(error)? {
        Errno::PERM => UnreachableCause::Barred,
        Errno::NETUNREACH => UnreachableCause::NoRoute,
        Errno::MSGSIZE if size <= least => UnreachableCause::TooLarge {
            packet: size + headers,
            least: least + headers,
        },
        _ => return None,
    };
    Some(Unreachable {
        cause,
        from: None,
        to: SocketAddr::new(address, destination.port()),
    })
}

/// Reason, for the operator, why a datagram was not sent, where this machine's `own` fault is known or not; `None` for a probe of a larger MTU.
fn reason(error: &io::Error, own: Option<Unreachable>) -> Option<String> {
    let is_probe = || error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error());
    match own {
        Some(own) => Some(own.to_string()),
        None => (!is_probe()).then(|| error.to_string()),
    }
}

/// Messages to be read next, after these were read: few large ones, which hold many datagrams each, or many small ones.
fn next_messages(read: &[RecvMeta]) -> usize {
    let bytes: usize = read.iter().map(|meta| meta.len).sum();
    let mean = bytes / read.len().max(1);
    (READ_BYTES / mean.max(1)).clamp(FEWEST, BATCH_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_where_no_tunnel_can_live_with_it() {
        let too_large = io::Error::from_raw_os_error(Errno::MSGSIZE.raw_os_error());
        let to = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (four, six) = (to("192.0.2.1:443"), to("[2001:db8::1]:443"));
        let reason = |error: &io::Error, size, to| reason(error, own_fault(error, size, to));
        assert_eq!(reason(&too_large, 1201, four), None, "a probe");
        let said = reason(&too_large, 1200, four).unwrap();
        assert!(said.contains("an MTU of 1228"), "{said}");
        assert_eq!(
            Some(said),
            reason(&too_large, 1200, to("[::ffff:192.0.2.1]:443"))
        );
        let said = reason(&too_large, 100, six).unwrap();
        assert!(
            said.contains("of 148 bytes") && said.contains("1248"),
            "{said}"
        );
        let refused = io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
        let said = reason(&refused, 1400, six).unwrap();
        assert!(said.contains("chains of the hook `output`"), "{said}");
        let away = io::Error::from_raw_os_error(Errno::NETUNREACH.raw_os_error());
        let said = reason(&away, 1400, six).unwrap();
        assert!(said.contains("no route of this machine"), "{said}");
        let down = io::Error::from_raw_os_error(Errno::NETDOWN.raw_os_error());
        assert_eq!(reason(&down, 1400, six), Some(down.to_string()));
    }

    #[test]
    fn a_read_takes_few_large_messages_or_many_small_ones() {
        let of_size = |len, count| {
            let mut meta = RecvMeta::default();
            meta.len = len;
            next_messages(&vec![meta; count])
        };
        assert_eq!(of_size(1472, 32), BATCH_SIZE);
        assert_eq!(of_size(32 << 10, 9), 4);
        assert_eq!(of_size(63 << 10, 2), FEWEST);
        assert_eq!(of_size(0, 1), BATCH_SIZE);
    }
}
