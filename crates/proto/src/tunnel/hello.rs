//! HELLO: the first control frame of each side, which makes the tunnel ready (`PROTOCOL.md` §5.1).
//!
//! Says what the sender is, can and wants. Parameters are TLVs in ascending order, so that a duplicate shows without
//! a set of the ids seen. Only carries wishes; who grants them is decided in the engine.

mod fields;

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_units::BitRate;
use ipnet::IpNet;

use crate::fec::Fec;

use super::address::put_ip;
use super::sle::SleHello;
use super::wire::{Reader, put_tlv, put_tlv_varint};
use super::{DecodeError, varint};
use fields::{
    agent, assigned, controller, decode_fec, encode_fec, prefixes, put_controller, put_prefixes,
};

/// Longest agent, bytes.
pub const MAX_AGENT: usize = 64;
/// Longest name of a congestion controller, bytes.
pub const MAX_CONTROLLER: usize = 32;
/// Most addresses assigned to a tunnel.
pub const MAX_ASSIGNED: usize = 8;

const AGENT: u64 = 1;
const INSTANCE: u64 = 2;
const FAMILIES: u64 = 3;
const INITIAL_CREDIT: u64 = 4;
const MAX_FLOWS: u64 = 5;
const CAPABILITIES: u64 = 6;
const ASSIGNED: u64 = 7;
const CONTROLLER: u64 = 8;
const MAX_RATE: u64 = 9;
const INITIAL_WINDOW: u64 = 10;
const RATE: u64 = 11;
const ACKS: u64 = 12;
const RETURN_CONTROLLER: u64 = 13;
const ROUTED: u64 = 16;
const CARRIED: u64 = 17;

/// Most prefixes routed to a tunnel.
pub const MAX_ROUTED: usize = 8;

/// Kinds of packets that a server carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketKinds {
    /// All of IP.
    #[default]
    All,
    /// UDP and ICMP echo: it has no device, and sends from sockets of its own.
    Sockets,
    /// UDP alone: its kernel does not let it ping.
    Udp,
}

impl PacketKinds {
    const fn number(self) -> u64 {
        match self {
            Self::All => 0,
            Self::Sockets => 1,
            Self::Udp => 2,
        }
    }
}

const REPAIR_WINDOW: u64 = 24;
const REPAIR: u64 = 25;
const SLE: u64 = 32;
const SLE_PREFIXES: u64 = 33;

/// Most prefixes to which a server takes in outer connections.
pub const MAX_SLE_PREFIXES: usize = 128;

/// Address families in which a server can reach the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl Families {
    /// Bit 0: IPv4, bit 1: IPv6.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.ipv4 as u64 | (self.ipv6 as u64) << 1
    }

    /// Other bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            ipv4: bits & 1 != 0,
            ipv6: bits & 2 != 0,
        }
    }

    /// True if `address` belongs to one of the families.
    #[must_use]
    pub const fn covers(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}

/// Settings of the forward link: from a client what it wishes, from a server what it does. Rates are of the IP layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// Congestion controller, 1 to 32 characters `a-z`, `0-9`, `-`.
    pub controller: Option<String>,
    /// Highest rate.
    pub max_rate: Option<BitRate>,
    /// First window in packets.
    pub initial_window: Option<u64>,
    /// Rate that was sold to the operator of the link.
    pub rate: Option<BitRate>,
    /// Repair of losses.
    pub fec: Option<Fec>,
}

/// Acknowledgements that a sender wants. In HELLO it repeats what QUIC itself has asked for; the
/// control frame ACKS asks for more than QUIC does (`PROTOCOL.md` §5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Packets after which an acknowledgement is due.
    pub packets: u64,
    /// Time after which an acknowledgement is due; whole microseconds.
    pub delay: Duration,
}

impl Acks {
    /// Appends both numbers.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        varint::encode(self.packets, out);
        let micros = u64::try_from(self.delay.as_micros()).unwrap_or(varint::MAX);
        varint::encode(micros, out);
    }

    /// Reads both numbers from `reader`, which may hold more.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            packets: reader.varint()?,
            delay: Duration::from_micros(reader.varint()?),
        })
    }
}

/// Introduction of one side. Absent parameters are zero, empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Client: highest version it speaks. Server: the version chosen.
    pub version: u64,
    /// Software and version, printable ASCII, at most 64 bytes; for logs only.
    pub agent: String,
    /// Names one run of the sender's process among all its runs.
    pub instance: u64,
    /// Families that the server can reach. Of no meaning from a client.
    pub families: Families,
    /// Payload bytes that the receiver may send on each flow that it opens before the REPLY.
    pub initial_credit: u64,
    /// Flows that the sender accepts at one time.
    pub max_flows: u64,
    /// Bit set of optional features (`PROTOCOL.md` §11).
    pub capabilities: u64,
    /// Addresses that the server assigns to the tunnel, at most 8.
    pub assigned: Vec<IpAddr>,
    /// Prefixes behind the client that the server routes to it as they are, at most 8.
    pub routed: Vec<IpNet>,
    /// Kinds of packets that the server carries.
    pub carried: PacketKinds,
    /// Settings of the forward link.
    pub forward: Forward,
    /// Acknowledgements that the sender wants.
    pub acks: Option<Acks>,
    /// Client: the congestion controller that it sends with; for reports only.
    pub return_controller: Option<String>,
    /// Bytes that the sender can keep of what streams bring it, to mend what is missing; 0 if it mends nothing.
    pub repair_window: u64,
    /// Facts about flows that are sealed beside the tunnel.
    pub sle: Option<SleHello>,
}

impl Hello {
    /// Appends the value of a HELLO frame. What the peer would have to refuse is mended instead of sent: an agent is
    /// cut and its strange characters replaced, a controller that is no valid name and addresses past the eighth are
    /// left out.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::encode(self.version, out);
        let printable = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        let agent: String = self.agent.chars().take(MAX_AGENT).map(printable).collect();
        put_tlv(AGENT, agent.as_bytes(), out);
        put_tlv(INSTANCE, &self.instance.to_be_bytes(), out);
        put_tlv_varint(FAMILIES, self.families.bits(), out);
        put_tlv_varint(INITIAL_CREDIT, self.initial_credit, out);
        put_tlv_varint(MAX_FLOWS, self.max_flows, out);
        put_tlv(CAPABILITIES, &self.capabilities.to_be_bytes(), out);
        if !self.assigned.is_empty() {
            let mut addresses = Vec::new();
            for address in self.assigned.iter().take(MAX_ASSIGNED) {
                put_ip(*address, &mut addresses);
            }
            put_tlv(ASSIGNED, &addresses, out);
        }
        self.forward.encode(out);
        if let Some(acks) = self.acks {
            let mut value = Vec::new();
            acks.encode(&mut value);
            put_tlv(ACKS, &value, out);
        }
        put_controller(RETURN_CONTROLLER, self.return_controller.as_deref(), out);
        put_prefixes(ROUTED, &self.routed, MAX_ROUTED, out);
        if self.carried != PacketKinds::All {
            put_tlv_varint(CARRIED, self.carried.number(), out);
        }
        if self.repair_window > 0 {
            put_tlv_varint(REPAIR_WINDOW, self.repair_window, out);
        }
        if let Some(fec) = self.forward.fec {
            put_tlv(REPAIR, &encode_fec(fec), out);
        }
        if let Some(sle) = &self.sle {
            put_tlv(SLE, &sle.encode(), out);
        }
        if let Some(SleHello::Server { prefixes, .. }) = &self.sle {
            put_prefixes(SLE_PREFIXES, prefixes, MAX_SLE_PREFIXES, out);
        }
    }

    /// Reads the value of a HELLO frame.
    pub(super) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body, "HELLO");
        let mut hello = Self {
            version: reader.varint()?,
            ..Self::default()
        };
        let mut last = None;
        while let Some((id, value)) = reader.tlv()? {
            if last.is_some_and(|last| id <= last) {
                return Err(DecodeError::ParameterOrder(id));
            }
            last = Some(id);
            hello.parameter(id, value)?;
        }
        Ok(hello)
    }

    fn parameter(&mut self, id: u64, value: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(value, "HELLO parameter");
        match id {
            AGENT => self.agent = agent(value)?,
            INSTANCE => self.instance = u64::from_be_bytes(reader.array()?),
            FAMILIES => self.families = Families::from_bits(reader.varint()?),
            INITIAL_CREDIT => self.initial_credit = reader.varint()?,
            MAX_FLOWS => self.max_flows = reader.varint()?,
            CAPABILITIES => self.capabilities = u64::from_be_bytes(reader.array()?),
            ASSIGNED => self.assigned = assigned(&mut reader)?,
            CONTROLLER => self.forward.controller = Some(controller(value)?),
            MAX_RATE => self.forward.max_rate = Some(BitRate::bits_per_second(reader.varint()?)),
            INITIAL_WINDOW => self.forward.initial_window = Some(reader.varint()?),
            RATE => self.forward.rate = Some(BitRate::bits_per_second(reader.varint()?)),
            ACKS => self.acks = Some(Acks::read(&mut reader)?),
            RETURN_CONTROLLER => self.return_controller = Some(controller(value)?),
            ROUTED => self.routed = prefixes(&mut reader, MAX_ROUTED)?,
            CARRIED => {
                self.carried = match reader.varint()? {
                    0 => PacketKinds::All,
                    2 => PacketKinds::Udp,
                    _ => PacketKinds::Sockets,
                };
            }
            REPAIR_WINDOW => self.repair_window = reader.varint()?,
            REPAIR => self.forward.fec = Some(decode_fec(&mut reader)?),
            SLE => {
                self.sle = Some(SleHello::decode(value)?);
                return Ok(());
            }
            SLE_PREFIXES => {
                let read = prefixes(&mut reader, MAX_SLE_PREFIXES)?;
                // Parameter 32 came before, if it is there.
                if let Some(SleHello::Server { prefixes, .. }) = &mut self.sle {
                    *prefixes = read;
                }
            }
            _ => return Ok(()),
        }
        if matches!(id, AGENT | CONTROLLER | RETURN_CONTROLLER) {
            Ok(())
        } else {
            reader.end()
        }
    }
}

impl Forward {
    fn encode(&self, out: &mut Vec<u8>) {
        put_controller(CONTROLLER, self.controller.as_deref(), out);
        let numbers = [
            (MAX_RATE, self.max_rate.map(BitRate::as_u64)),
            (INITIAL_WINDOW, self.initial_window),
            (RATE, self.rate.map(BitRate::as_u64)),
        ];
        for (id, number) in numbers {
            if let Some(number) = number {
                put_tlv_varint(id, number, out);
            }
        }
    }
}
