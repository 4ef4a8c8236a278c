//! Errors of a UDP socket: what one in place of datagrams means, and ICMP errors about datagrams that were sent, as Linux queues them.
//! Other systems queue none.
//!
//! An ICMP error is believed by the kernel if it quotes the ports of a datagram, which anybody may forge. None of them ends a wire.

use std::io;

use rustix::io::Errno;

#[cfg(target_os = "linux")]
pub(super) use linux::take;

/// Takes nothing: the system tells of no errors.
#[cfg(not(target_os = "linux"))]
pub(super) fn take(
    _socket: &tokio::net::UdpSocket,
    _failed: &mut impl FnMut(bentpipe_tunnel::engine::Unreachable),
) {
}

/// Errors that the kernel makes of ICMP errors about earlier datagrams, and those that a firewall makes.
const OF_DATAGRAMS: &[Errno] = &[
    Errno::CONNREFUSED,
    Errno::CONNRESET,
    Errno::HOSTUNREACH,
    Errno::HOSTDOWN,
    Errno::NETUNREACH,
    Errno::NETDOWN,
    // "Source host isolated" (type 3, code 8), which routers have not sent for decades.
    #[cfg(target_os = "linux")]
    Errno::NONET,
    Errno::ACCESS,
    Errno::PERM,
    Errno::PROTO,
    Errno::NOPROTOOPT,
    Errno::OPNOTSUPP,
    Errno::MSGSIZE,
];

/// Errors after which no call on the socket can succeed.
const OF_SOCKETS: [Errno; 5] = [
    Errno::BADF,
    Errno::NOTSOCK,
    Errno::FAULT,
    Errno::INVAL,
    Errno::NOSYS,
];

/// Meaning of an error that stands where datagrams were to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveError {
    /// ICMP error about an earlier datagram, or what could be one.
    Earlier,
    /// Error of this machine's that may be over the next time.
    Passing,
    /// Error of the socket itself, from which nothing will be read.
    Useless,
}

impl ReceiveError {
    /// Meaning of `error`. One that is not known passes: a wire that ends takes the process with it.
    pub(super) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) if OF_SOCKETS.contains(&errno) => Self::Useless,
            Some(errno) if OF_DATAGRAMS.contains(&errno) => Self::Earlier,
            _ => Self::Passing,
        }
    }
}

/// True if an error of the socket is an ICMP error about an earlier datagram, or could be.
pub(super) fn is_about_another(error: &io::Error) -> bool {
    ReceiveError::of(error) == ReceiveError::Earlier
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::{IpAddr, SocketAddr};

    use bentpipe_sys::datagram::{self, Queue};
    use bentpipe_tunnel::engine::{Unreachable, UnreachableCause};
    use tokio::net::UdpSocket;

    /// ICMP errors that are read in one go.
    const MOST_ERRORS: usize = 64;

    /// Gives `failed` what the kernel has queued for `socket`.
    pub(in super::super) fn take(socket: &UdpSocket, failed: &mut impl FnMut(Unreachable)) {
        for _ in 0..MOST_ERRORS {
            // Nothing of the datagram is needed but where it was sent.
            let Ok(error) = datagram::receive(socket, Queue::Failures, &mut []) else {
                return;
            };
            let Some(failure) = error.failure else {
                continue;
            };
            let Some(cause) = cause(error.peer.ip(), failure.said) else {
                continue;
            };
            failed(Unreachable {
                cause,
                from: failure.from,
                to: SocketAddr::new(error.peer.ip().to_canonical(), error.peer.port()),
            });
        }
    }

    /// Cause that an ICMP message of this type and code gives about a datagram sent `to` an address.
    fn cause(to: IpAddr, said: (u8, u8)) -> Option<UnreachableCause> {
        Some(match (to.to_canonical(), said) {
            (IpAddr::V4(_), (3, 3)) | (IpAddr::V6(_), (1, 4)) => UnreachableCause::Port,
            (IpAddr::V4(_), (3, 9 | 10 | 13)) | (IpAddr::V6(_), (1, 1 | 5 | 6)) => {
                UnreachableCause::Prohibited
            }
            (IpAddr::V4(_), (3, 0 | 6 | 11)) | (IpAddr::V6(_), (1, 0)) => UnreachableCause::Network,
            (IpAddr::V4(_), (3, 1 | 7 | 8 | 12)) | (IpAddr::V6(_), (1, 2 | 3)) => {
                UnreachableCause::Host
            }
            _ => return None,
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn meaning(number: i32) -> ReceiveError {
        ReceiveError::of(&io::Error::from_raw_os_error(number))
    }

    #[test]
    fn errors_that_icmp_can_cause_are_about_earlier_datagrams() {
        // `icmp_err_convert` and `tab_unreach` of Linux, and what time exceeded and parameter problems become.
        let of_icmp = [
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::NOPROTOOPT,
            Errno::CONNREFUSED,
            Errno::MSGSIZE,
            Errno::OPNOTSUPP,
            Errno::HOSTDOWN,
            Errno::NONET,
            Errno::ACCESS,
            Errno::PROTO,
        ];
        for errno in of_icmp {
            assert_eq!(
                meaning(errno.raw_os_error()),
                ReceiveError::Earlier,
                "{errno}"
            );
        }
    }

    #[test]
    fn an_error_ends_a_wire_only_if_it_is_the_sockets_own() {
        let useless = (1..=133).filter(|number| meaning(*number) == ReceiveError::Useless);
        let mut known = OF_SOCKETS.map(Errno::raw_os_error);
        known.sort_unstable();
        assert_eq!(useless.collect::<Vec<_>>(), known);
        let memory = Errno::NOMEM.raw_os_error();
        assert_eq!(meaning(memory), ReceiveError::Passing);
    }
}
