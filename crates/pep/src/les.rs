//! Parts that both ends of LES (`PROTOCOL.md` §20) share: which packets are led to it, inputs of associations, and the count of
//! packets.

use std::net::SocketAddr;
use std::path::Path;

use bentpipe_proto::packets::Header;
use bentpipe_sealed::Exporter;
use bentpipe_sealed::les::sa::{Material, Psk, Random, Unopened};
use bentpipe_sealed::les::{Discarded, EXPORTER, Spi};
use zeroize::Zeroizing;

use crate::config::read_psk;
use crate::status;
use bentpipe_tunnel::engine::{Connection, headers, random};

/// Number of TCP among IP protocols.
const TCP: u8 = 6;

/// Packets that are taken from a socket before any is handed on.
pub(crate) const BATCH: usize = 64;

/// Largest datagram that is read: no packet of LES is as long, and a longer one is refused as such.
pub(crate) const READ: usize = 2048;

/// Head of a packet of TCP; `None`: `packet` is none.
pub(crate) fn tcp(packet: &[u8]) -> Option<Header> {
    Header::parse(packet).filter(|header| header.protocol == TCP)
}

/// Says whether `packet`, which is TCP, begins a connection: a SYN without ACK.
pub(crate) fn begins_connection(packet: &[u8]) -> bool {
    const FLAGS: usize = 13;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let flags = tcp(packet)
        .filter(|header| !header.later_fragment)
        .and_then(|header| packet.get(header.offset + FLAGS));
    flags.is_some_and(|flags| flags & (SYN | ACK) == SYN)
}

/// Inputs of association `count` of the tunnel `connection`; `None` before its handshake is complete.
pub(crate) fn material(connection: &Connection, count: u32) -> Option<Material> {
    let exporter = connection.exporter(EXPORTER, &count.to_be_bytes())?;
    Some(fresh(Exporter::new(exporter)))
}

/// Inputs of an association with this `exporter`, and random bytes of its own.
pub(crate) fn fresh(exporter: Exporter) -> Material {
    let mut bytes = Zeroizing::new([0; 32]);
    random(&mut *bytes);
    let mut spi = [0; 4];
    random(&mut spi);
    // Never one of those that are reserved.
    let spi = u32::from_be_bytes(spi) | 0x100;
    Material {
        exporter,
        random: Random::new(bytes),
        spi: Spi::new(spi).expect("not reserved"),
    }
}

/// Messages of the PSK flow without a sign that the other end has the same key, after which that is told.
pub(crate) const UNFIT: u32 = 10;

/// Pre-shared key of a laboratory, from its file; `None` without one.
///
/// # Errors
/// The file holds none any more.
pub(crate) fn psk(file: Option<&Path>) -> Result<Option<Psk>, String> {
    let Some(file) = file else { return Ok(None) };
    tracing::warn!(
        "LES has a pre-shared key, without forward secrecy: it is for laboratories alone; remove [les.laboratory] elsewhere"
    );
    let secret = read_psk(file)?;
    Ok(Some(Psk::new(&secret)))
}

/// Packets of one end, counted.
#[derive(Debug, Default)]
pub(crate) struct LesTraffic {
    figures: status::Les,
    /// Bytes on the link, IP packets whole.
    crossed: u64,
}

impl LesTraffic {
    /// One more association stands.
    pub(crate) fn begun(&mut self) {
        self.figures.associations_total += 1;
    }

    /// A packet of so many bytes came from `peer` and was opened.
    pub(crate) fn received(&mut self, bytes: usize, peer: SocketAddr) {
        self.figures.packets_in += 1;
        self.figures.bytes_in += bytes as u64;
        self.crossed += on_link(bytes, peer);
    }

    /// A packet of so many bytes was sent to `peer`.
    pub(crate) fn sent(&mut self, bytes: usize, peer: SocketAddr) {
        self.figures.packets_out += 1;
        self.figures.bytes_out += bytes as u64;
        self.crossed += on_link(bytes, peer);
    }

    /// A packet of the device found no association.
    pub(crate) fn without_association(&mut self) {
        self.figures.dropped_total.no_association += 1;
    }

    /// A packet of the device found no room in the socket.
    pub(crate) fn without_room(&mut self) {
        self.figures.dropped_total.no_room += 1;
    }

    /// A packet that came was refused.
    pub(crate) fn refused(&mut self, why: &Unopened) {
        let refused = &mut self.figures.refused_total;
        let cause = match why {
            Unopened::Unknown(_) | Unopened::Discarded(Discarded::Spi(_)) => {
                &mut refused.association
            }
            Unopened::Selector(_) => &mut refused.selector,
            Unopened::Discarded(Discarded::HeaderTag | Discarded::PayloadTag) => {
                &mut refused.forged
            }
            Unopened::Discarded(
                Discarded::Packet(_) | Discarded::Payload(_) | Discarded::OldPayload(..),
            ) => &mut refused.replayed,
            Unopened::Discarded(_) => &mut refused.malformed,
        };
        *cause += 1;
    }

    /// A message of the PSK flow came a second time.
    pub(crate) fn repeated(&mut self) {
        self.figures.refused_total.replayed += 1;
    }

    /// A datagram came that is to be a message of the PSK flow, and has not its form, or was not made with the key, or for another question.
    pub(crate) fn unfit(&mut self, has_form: bool) {
        let refused = &mut self.figures.refused_total;
        match has_form {
            true => refused.forged += 1,
            false => refused.malformed += 1,
        }
    }

    /// Packets that were sealed and sent, and that were opened.
    pub(crate) fn packets(&self) -> (u64, u64) {
        (self.figures.packets_out, self.figures.packets_in)
    }

    /// Bytes that have crossed the link, IP packets whole.
    pub(crate) fn crossed(&self) -> u64 {
        self.crossed
    }

    /// Figures that `status` tells; `stands` says that an association does.
    pub(crate) fn report(&self, stands: bool) -> status::Les {
        status::Les {
            stands,
            ..self.figures.clone()
        }
    }
}

/// Length on the link of a datagram of so many bytes to or from `peer`.
fn on_link(bytes: usize, peer: SocketAddr) -> u64 {
    let ipv6 = matches!(peer, SocketAddr::V6(peer) if peer.ip().to_ipv4_mapped().is_none());
    bytes as u64 + headers(ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted_with_their_headers() {
        let mut traffic = LesTraffic::default();
        traffic.received(100, "[::ffff:192.0.2.1]:4501".parse().unwrap());
        traffic.sent(100, "192.0.2.1:4501".parse().unwrap());
        traffic.sent(100, "[2001:db8::1]:4501".parse().unwrap());
        assert_eq!(traffic.crossed(), 128 + 128 + 148);
        let report = traffic.report(true);
        assert_eq!((report.bytes_in, report.packets_out), (100, 2));
    }

    #[test]
    fn a_syn_alone_begins_a_connection() {
        let with = |flags: u8| {
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
            packet.extend([10, 0, 0, 1, 192, 0, 2, 1, 0, 80, 0, 81]);
            packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
            packet
        };
        assert!(begins_connection(&with(2)) && begins_connection(&with(0xc2)));
        for other in [0x12, 0x10, 0x04, 0x11, 0x18] {
            assert!(!begins_connection(&with(other)), "{other:#x}");
        }
        let mut udp = with(2);
        udp[9] = 17;
        assert!(!begins_connection(&udp));
    }

    #[test]
    fn refusals_are_counted_by_cause() {
        let mut traffic = LesTraffic::default();
        let spi = Spi::new(300).unwrap();
        traffic.refused(&Unopened::Unknown(spi));
        traffic.refused(&Discarded::HeaderTag.into());
        traffic.refused(&Discarded::OldPayload(1, 2).into());
        traffic.refused(&Discarded::Size(3).into());
        let refused = traffic.report(false).refused_total;
        let counts = [
            refused.association,
            refused.forged,
            refused.replayed,
            refused.malformed,
        ];
        assert_eq!(counts, [1; 4]);
    }
}
