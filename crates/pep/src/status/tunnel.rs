//! A tunnel: where it stands, what its link was taken for, and how either end sends.

use std::fmt::{self, Display, Formatter};

use bentpipe_tunnel::engine::Profile;
use serde::{Deserialize, Serialize};

/// State of a tunnel; what is not known yet is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tunnel {
    /// State of the tunnel.
    pub state: TunnelState,
    /// Address of the other end, as `IP:PORT` or, unresolved, `NAME:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Wire below the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireKind>,
    /// Seconds in this state.
    pub since_s: u64,
    /// Seconds since the other end was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard_s: Option<u64>,
    /// Seconds until the next attempt to reach a server, while one is wanted (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_s: Option<u64>,
    /// Reason why the last attempt or session ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Smoothed RTT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Lowest RTT of this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Sent in the last second, bit/s at the IP layer.
    pub send_rate_bit_s: u64,
    /// Received in the last second, bit/s at the IP layer.
    pub recv_rate_bit_s: u64,
    /// Packets lost of those sent in this connection, 0 to 1.
    pub loss_ratio: f64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Rate the controller paces at, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bit_s: Option<u64>,
    /// Rate known from an earlier connection over this path that the controller goes by, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_rate_bit_s: Option<u64>,
    /// Key exchange agreed on, by its TLS name, such as `X25519MLKEM768`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_exchange: Option<String>,
    /// Largest UDP payload that the path takes, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Class that the link was taken for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkClass>,
    /// Sending of this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<Sending>,
    /// Sending of the other end, as far as it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<Receiving>,
    /// Address families that the server reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub families: Option<Families>,
    /// Losses repaired without retransmission, in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fec: Option<Repairs>,
}

/// True if the other end of a tunnel that has been silent for so `long` is heard all the same, last so many seconds ago: the path is
/// blocked in one direction. Else both times count from the last datagram, each in whole seconds.
pub(crate) fn is_heard_in_silence(last_heard_s: Option<u64>, long: u64) -> bool {
    last_heard_s.is_some_and(|heard| heard < 5 && heard + 2 <= long)
}

impl Tunnel {
    /// True if the other end of a silent tunnel is heard all the same: the path is blocked in one direction.
    #[must_use]
    pub(crate) fn is_heard_in_silence(&self) -> bool {
        self.state == TunnelState::Silent && is_heard_in_silence(self.last_heard_s, self.since_s)
    }

    /// Rates that the ways out and in are believed to have, bit/s: as measured, else as sold, and no more than is allowed. An
    /// end measures its own way out.
    #[must_use]
    pub fn capacities(&self) -> (Option<u64>, Option<u64>) {
        let allowed = |known: Option<u64>, most: Option<u64>| match (known, most) {
            (Some(known), Some(most)) => Some(known.min(most)),
            (known, most) => known.or(most),
        };
        let send = self.sending.as_ref().and_then(|sending| {
            let known = sending.bottleneck_rate_bit_s.or(sending.rate_bit_s);
            allowed(known, sending.max_rate_bit_s)
        });
        let receive = self
            .receiving
            .as_ref()
            .and_then(|receiving| allowed(receiving.rate_bit_s, receiving.max_rate_bit_s));
        (send, receive)
    }
}

/// State of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelState {
    /// Not up; a client is trying, a server is waiting.
    #[default]
    Connecting,
    /// HELLO received; flows cross.
    Ready,
    /// The tunnel is up, and an answer of the other end is overdue.
    Silent,
    /// The other end does not know this key; a client keeps trying.
    Refused,
    /// Stopping; open flows may end, no new ones start.
    Draining,
}

/// Wire below a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireKind {
    /// Each datagram in a UDP packet.
    Udp,
    /// All datagrams in one TLS connection over TCP: each loss holds up everything behind it for a round trip.
    Tls,
}

/// Repairs in this connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repairs {
    /// Repairs sent, and what left a second time as a precaution: voice, handshakes, requests, DNS.
    pub sent_bytes: u64,
    /// Share of repairs in all bytes sent, 0 to 1.
    pub overhead_ratio: f64,
    /// Repairs received, without such copies.
    pub received_bytes: u64,
    /// Bytes of streams that they mended.
    pub recovered_bytes: u64,
    /// Repairs received that were not needed.
    pub wasted_bytes: u64,
}

/// Class that a link was taken for when the tunnel began, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkClass {
    /// The profile configured, or that the client has hinted at.
    pub profile: Profile,
    /// The class in force; `auto` while it is unknown.
    pub class: Profile,
    /// Source of the class.
    pub source: ClassSource,
    /// The RTT that it rests on, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// The class that was measured meanwhile, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_class: Option<Profile>,
}

/// Source of the class of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassSource {
    /// The configuration.
    Configured,
    /// An earlier connection over the same path.
    Remembered,
    /// The connection's handshake.
    Measured,
    /// The client's first packet (server).
    Hinted,
    /// Nowhere yet.
    Unknown,
}

/// Sending over the link; rates in bit/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// Congestion controller.
    pub controller: String,
    /// Rate it paces at, UDP payload.
    pub pacing_rate_bit_s: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Sent and neither acknowledged nor lost.
    pub in_flight_bytes: u64,
    /// Rate that the path was measured to deliver, UDP payload; absent until it was used enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck_rate_bit_s: Option<u64>,
    /// Lowest RTT of this connection.
    pub min_rtt_ms: f64,
    /// Packets lost of those sent, 0 to 1.
    pub loss_ratio: f64,
    /// Packets sent in this connection.
    #[serde(default)]
    pub packets_total: u64,
    /// Packets of this connection that were lost.
    #[serde(default)]
    pub lost_packets_total: u64,
    /// Datagrams sent a second time, beyond the retransmissions of what was lost.
    #[serde(default)]
    pub repeated_datagrams: u64,
    /// Highest rate allowed, IP layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bit_s: Option<u64>,
    /// Rate that was sold, IP layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// Acknowledgements that the other end was asked for.
    pub acks: Acks,
}

/// The other end's sending, and how it comes; rates in bit/s at the IP layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiving {
    /// Congestion controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Highest rate allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bit_s: Option<u64>,
    /// Rate that was sold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// Acknowledgements that this end was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<Acks>,
    /// Share of the TCP segments received over TLS that came behind a missing one, and waited for that, 0 to 1 (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ratio: Option<f64>,
}

/// Bounds of an acknowledgement's delay: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acks {
    /// After so many packets.
    pub packets: u64,
    /// After this time, or one RTT.
    pub delay_ms: f64,
}

/// Address families that the server reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl From<bentpipe_proto::tunnel::Families> for Families {
    fn from(families: bentpipe_proto::tunnel::Families) -> Self {
        Self {
            ipv4: families.ipv4,
            ipv6: families.ipv6,
        }
    }
}

impl Display for TunnelState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Draining => "draining",
        })
    }
}

impl Display for Families {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.ipv4, self.ipv6) {
            (true, true) => "IPv4 and IPv6",
            (true, false) => "IPv4 only: no IPv6 route, IPv6 is refused",
            (false, true) => "IPv6 only: no IPv4 route, IPv4 is refused",
            (false, false) => "nothing: no route, connections are refused",
        })
    }
}

impl Display for LinkClass {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.profile != self.class {
            write!(f, "{}: ", self.profile)?;
        }
        match self.source {
            ClassSource::Configured => write!(f, "{}, configured", self.class)?,
            ClassSource::Remembered => write!(f, "{}, remembered", self.class)?,
            ClassSource::Measured => write!(f, "{}, measured", self.class)?,
            ClassSource::Hinted => write!(f, "{}, as the client says", self.class)?,
            ClassSource::Unknown => return write!(f, "{}, not known yet", self.class),
        }
        if let Some(rtt) = self
            .rtt_ms
            .filter(|_| self.source != ClassSource::Configured)
        {
            write!(f, " {rtt:.0} ms")?;
        }
        match self.next_class {
            Some(next) => write!(f, "; from the next connection on {next}"),
            None => Ok(()),
        }
    }
}
