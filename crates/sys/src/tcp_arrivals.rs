//! Counters that the kernel keeps of what a TCP connection has received (`TCP_INFO`).
#![expect(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd as _};

/// Segments with data that a TCP connection has received; the counters wrap around.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpArrivals {
    /// Number of them all.
    pub segments: u32,
    /// Number of those that came while one before them was missing.
    pub out_of_order: u32,
}

impl TcpArrivals {
    /// Reads the counters of a connection.
    ///
    /// # Errors
    /// The descriptor is no TCP socket, or the kernel does not count (before Linux 5.4).
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut info = [0_u32; size_of::<libc::tcp_info>() / size_of::<u32>()];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: `info` has room for `length` bytes, of which the kernel writes no more.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let known = info.get(..length as usize / size_of::<u32>());
        let counter = |offset: usize| known?.get(offset / size_of::<u32>()).copied();
        let segments = counter(offset_of!(libc::tcp_info, tcpi_data_segs_in));
        let out_of_order = counter(offset_of!(libc::tcp_info, tcpi_rcv_ooopack));
        match (segments, out_of_order) {
            (Some(segments), Some(out_of_order)) => Ok(Self {
                segments,
                out_of_order,
            }),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn segments_are_counted_where_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut sender = TcpStream::connect(address).expect("a connection");
        let (mut receiver, _) = listener.accept().expect("a connection");
        for number in 1..=3 {
            sender.write_all(b"hello").expect("sent");
            receiver.read_exact(&mut [0; 5]).expect("received");
            let arrivals = TcpArrivals::of(&receiver).expect("counters");
            assert_eq!((arrivals.segments, arrivals.out_of_order), (number, 0));
        }
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        TcpArrivals::of(&datagrams).expect_err("no TCP");
    }
}
