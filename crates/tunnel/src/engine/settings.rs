//! How each direction of a tunnel is to be sent on: what its operator wishes, what the server allows, what comes of it.
//!
//! The client's configuration holds both directions. Its own is applied when a connection begins; the server's travels in
//! HELLO ([`Forward`]) and is applied when that arrives (`connection.rs`). What the numbers mean for the sender is the
//! business of crate `congestion`.

use std::time::{Duration, Instant};

use bentpipe_congestion::{Config, Kind as ControllerKind};
use bentpipe_proto::fec::Fec;
use bentpipe_proto::tunnel::Forward;
use bentpipe_units::BitRate;

use super::gate::Gate;
use super::profile::{Link, Path};
use super::reliable::HEADERS;

/// Largest first window that may be asked for, in packets.
pub const MAX_INITIAL_WINDOW: u64 = 1000;

/// Length of the headers of IPv4 or IPv6 with UDP, bytes.
pub const fn headers(ipv6: bool) -> u64 {
    if ipv6 { 48 } else { 28 }
}

/// `rate` of the IP layer in UDP payload, which is what controllers count.
fn payload(rate: BitRate, ipv6: bool) -> BitRate {
    let mtu = u64::from(super::tuning::mtu(ipv6));
    let bits = u128::from(rate.as_u64()) * u128::from(mtu) / u128::from(mtu + headers(ipv6));
    BitRate::bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// Settings that the operator may make for one direction of a tunnel. Rates are of the IP layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Congestion controller.
    pub controller: ControllerKind,
    /// First window in packets.
    pub initial_window: Option<u64>,
    /// Never send faster.
    pub max_rate: Option<BitRate>,
    /// The rate that was sold to the operator.
    pub rate: Option<BitRate>,
    /// Fixed number of packets per ACK, 1 to 200.
    pub ack_packets: Option<u8>,
    /// Repair of losses.
    pub fec: Fec,
}

impl Wishes {
    /// Settings of a server whose own are these, for a client that wishes `forward` and may have `ceiling`.
    pub fn granted(self, forward: &Forward, ceiling: Option<BitRate>) -> Self {
        let controller = forward.controller.as_deref();
        let max_rate = [self.max_rate, forward.max_rate, ceiling]
            .into_iter()
            .flatten()
            .min();
        let rate = forward.rate.or(self.rate);
        Self {
            controller: controller
                .and_then(|name| name.parse().ok())
                .unwrap_or(self.controller),
            initial_window: forward
                .initial_window
                .map(|packets| packets.clamp(1, MAX_INITIAL_WINDOW))
                .or(self.initial_window),
            max_rate,
            rate: rate.map(|rate| max_rate.map_or(rate, |max| rate.min(max))),
            ack_packets: self.ack_packets,
            fec: match self.fec {
                Fec::Off => Fec::Off,
                own => forward.fec.unwrap_or(own),
            },
        }
    }

    /// Settings over a TCP connection, which has a congestion control of its own and repeats what is lost. `satellite` takes the
    /// time that its bytes wait for that one's window for a queue of the path, and yields: 10 MB over 500 ms take it 21 s, BBR 7.5.
    fn over_tcp(self) -> Self {
        Self {
            controller: match self.controller {
                ControllerKind::Satellite => ControllerKind::Bbr3,
                chosen => chosen,
            },
            fec: Fec::Off,
            ..self
        }
    }

    /// The first window on `link`, in packets.
    pub(super) fn window(self, link: Link) -> u64 {
        self.initial_window.unwrap_or_else(|| link.initial_window())
    }

    /// Settings as a server announces them.
    pub(super) fn announced(self, link: Link) -> Forward {
        Forward {
            controller: Some(self.controller.name().to_owned()),
            max_rate: self.max_rate,
            initial_window: Some(self.window(link)),
            rate: self.rate,
            fec: Some(self.fec),
        }
    }

    /// Configuration that the controller is started with.
    pub(super) fn config(self, link: Link, ipv6: bool) -> Config {
        let mtu = u64::from(super::tuning::mtu(ipv6));
        let payload = |rate| payload(rate, ipv6);
        Config {
            initial_window: self.window(link) * mtu,
            mtu: 1200,
            initial_rtt: link.initial_rtt(),
            max_rate: self.max_rate.map(payload),
            provisioned: self.rate.map(payload),
            in_order: false,
        }
    }
}

/// One connection's sending: the gate with its controller, and the settings that it was given.
pub(super) struct SendControl {
    pub(super) gate: Gate,
    pub(super) path: Path,
    /// Own settings.
    own: Wishes,
    /// The peer's wishes (server).
    forward: Forward,
    /// The server's limit for this client.
    ceiling: Option<BitRate>,
    /// In force.
    pub(super) current: Wishes,
    /// The wire below delivers in order whatever it takes.
    reliable: bool,
}

impl SendControl {
    pub(super) fn new(gate: Gate, path: Path, own: Wishes) -> Self {
        Self {
            gate,
            path,
            own,
            forward: Forward::default(),
            ceiling: None,
            current: own,
            reliable: false,
        }
    }

    /// True if the wire below delivers in order whatever it takes: nothing is to be sent twice.
    pub(super) fn is_reliable(&self) -> bool {
        self.reliable
    }

    /// Headers of each datagram below QUIC, in bytes.
    pub(super) fn headers(&self) -> u64 {
        match self.is_reliable() {
            true => HEADERS,
            false => self.path.headers(),
        }
    }

    /// Notes that the wire below delivers in order whatever it takes from now on, or no more.
    pub(super) fn set_reliable(&mut self, now: Instant, reliable: bool, rtt: Duration) {
        self.reliable = reliable;
        self.put_in_force(now, self.granted(), rtt);
    }

    /// Server: the client's wishes came; `rtt` is what the handshake has measured. Returns what is done about them.
    pub(super) fn grant(&mut self, now: Instant, forward: Forward, rtt: Duration) -> Forward {
        self.forward = forward;
        self.apply(now, rtt);
        self.current.announced(self.path.link)
    }

    /// Server: this client is sent to no faster than `ceiling`.
    pub(super) fn limit(&mut self, now: Instant, ceiling: Option<BitRate>, rtt: Duration) {
        self.ceiling = ceiling;
        self.apply(now, rtt);
    }

    /// The peer saw a train arrive at `rate`, of the IP layer.
    pub(super) fn hint(&mut self, now: Instant, rate: BitRate) {
        let rate = payload(rate, self.path.ipv6);
        self.gate.flight().hint(now, rate);
    }

    fn apply(&mut self, now: Instant, rtt: Duration) {
        let granted = self.granted();
        // A controller that has learned its path is not exchanged for nothing.
        if granted != self.current {
            self.put_in_force(now, granted, rtt);
        }
    }

    fn granted(&self) -> Wishes {
        let granted = self.own.granted(&self.forward, self.ceiling);
        match self.reliable {
            true => granted.over_tcp(),
            false => granted,
        }
    }

    fn put_in_force(&mut self, now: Instant, granted: Wishes, rtt: Duration) {
        self.current = granted;
        let link = Link {
            rtt: Some(rtt),
            ..self.path.link
        };
        let config = Config {
            in_order: self.reliable,
            ..granted.config(link, self.path.ipv6)
        };
        self.gate.reconfigure(now, granted.controller, config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mbit(rate: u64) -> BitRate {
        BitRate::megabits_per_second(rate)
    }

    #[test]
    fn a_servers_limits_win() {
        let own = Wishes {
            controller: ControllerKind::CubicNoHystart,
            ..Wishes::default()
        };
        let wished = Forward {
            controller: Some("satellite".to_owned()),
            max_rate: Some(mbit(50)),
            initial_window: Some(5000),
            rate: Some(mbit(40)),
            fec: None,
        };
        let free = own.granted(&wished, None);
        assert_eq!(free.controller, ControllerKind::Satellite);
        assert_eq!((free.max_rate, free.rate), (Some(mbit(50)), Some(mbit(40))));
        assert_eq!(free.initial_window, Some(MAX_INITIAL_WINDOW));
        let capped = own.granted(&wished, Some(mbit(30)));
        assert_eq!(
            (capped.max_rate, capped.rate),
            (Some(mbit(30)), Some(mbit(30)))
        );
        let unknown = Forward {
            controller: Some("warp-9".to_owned()),
            ..Forward::default()
        };
        assert_eq!(own.granted(&unknown, None), own);
        assert_eq!(own.granted(&unknown, Some(mbit(9))).max_rate, Some(mbit(9)));
    }

    #[test]
    fn rates_of_the_ip_layer_leave_room_for_headers() {
        let wishes = Wishes {
            max_rate: Some(mbit(15)),
            ..Wishes::default()
        };
        let config = wishes.config(Link::default(), false);
        assert_eq!(config.max_rate, Some(BitRate::bits_per_second(14_720_000)));
    }

    #[test]
    fn over_tcp_satellite_gives_way_and_nothing_is_repaired() {
        let over = Wishes::default().over_tcp();
        assert_eq!(
            (over.controller, over.fec),
            (ControllerKind::Bbr3, Fec::Off)
        );
        let chosen = Wishes {
            controller: ControllerKind::NewReno,
            ..Wishes::default()
        };
        assert_eq!(chosen.over_tcp().controller, ControllerKind::NewReno);
    }
}
