//! ICMP errors about datagrams that a socket has sent, as Linux queues them. Other systems tell nothing.

#[cfg(target_os = "linux")]
pub(super) use linux::take;

/// Takes nothing: the system tells of no errors.
#[cfg(not(target_os = "linux"))]
pub(super) fn take(
    _socket: &tokio::net::UdpSocket,
    _failed: &mut impl FnMut(bentpipe_tunnel::engine::Unreachable),
) {
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
