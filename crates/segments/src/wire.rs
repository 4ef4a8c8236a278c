//! Messages of a flow between the two PEPs, on a stream of its own (`PROTOCOL.md` §20.9).

use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use thiserror::Error;

use crate::segment::{Blob, Flags};

/// Version of the messages.
const VERSION: u8 = 1;

const OPEN: u8 = 0;
const BLOB: u8 = 1;
const FIN_ACKED: u8 = 2;
const RESET: u8 = 3;

/// Length of an OPEN up to its family, and of its fields behind the addresses: ports, SYNs.
const OPEN_HEAD: usize = 20;
const OPEN_TAIL: usize = 12;

/// Length of a BLOB before its zone.
const BLOB_HEAD: usize = 11;

/// Bytes that a zone of LES has beside the payload: the SPI to which the zone is bound, its number and
/// its tag.
const ZONE: usize = 24;

/// Longest payload in LES, bytes: 1404 without the headers of IPv4 and TCP.
const LONGEST_ZONED: u16 = 1364;

/// Address and port of one end.
pub type Endpoint = (IpAddr, u16);

/// Pair of ends that a flow belongs to: inner addresses of different pairs may be the same. Zeros in
/// the clear.
pub type Scope = [u8; 16];

/// Form of the blobs of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A blob is the payload itself.
    Clear,
    /// A blob is a payload zone of LES, behind the SPI of its association.
    Zones,
}

impl Form {
    /// Length of the zone for a payload of this `length`, bytes.
    fn zone(self, length: u16) -> usize {
        usize::from(length)
            + match self {
                Self::Clear => 0,
                Self::Zones => ZONE,
            }
    }
}

/// Reason why a flow is reset or refused, as it crosses between the PEPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The end has reset the connection.
    End,
    /// The end has not answered for minutes.
    Silent,
    /// Nothing has crossed for hours.
    Idle,
    /// The PEP does not know the flow, or leaves it alone.
    Unknown,
    /// The PEP has no room for another flow.
    Room,
    /// The other PEP has broken a rule.
    Fault,
    /// The stream broke off: never written, the PEPs find out by themselves.
    Lost,
}

impl Cause {
    const ALL: [Self; 7] = [
        Self::End,
        Self::Silent,
        Self::Idle,
        Self::Unknown,
        Self::Room,
        Self::Fault,
        Self::Lost,
    ];

    /// Number of the cause on the wire.
    fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|it| *it == self);
        at.unwrap_or_default() as u8
    }
}

/// First message of each side: the flow that the stream carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Form of all blobs.
    pub form: Form,
    /// Pair of ends.
    pub scope: Scope,
    /// End that sent the SYN.
    pub initiator: Endpoint,
    /// End that answered; its address is of the same family.
    pub responder: Endpoint,
    /// Sequence numbers of SYN and SYN-ACK, which tell a connection from one before it.
    pub initial: [u32; 2],
}

/// Message between the PEPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The flow.
    Open(Opening),
    /// Payload of the segment with this sequence number.
    Blob(u32, Blob),
    /// The end behind the sending PEP has acknowledged the FIN, and so all before it.
    FinAcked,
    /// The connection is aborted.
    Reset(Cause),
}

impl Message {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Open(opening) => opening.encode(out),
            Self::Blob(number, blob) => {
                out.put_u8(BLOB);
                out.put_u16((blob.flags & Flags::OF_BLOB).bits());
                out.put_u32(*number);
                out.put_u16(blob.urgent);
                out.put_u16(blob.length);
                out.put_slice(&blob.zone);
            }
            Self::FinAcked => out.put_u8(FIN_ACKED),
            Self::Reset(cause) => {
                out.put_u8(RESET);
                out.put_u8(cause.number());
            }
        }
    }
}

impl Opening {
    fn encode(&self, out: &mut BytesMut) {
        let form = match self.form {
            Form::Clear => 0,
            Form::Zones => 1,
        };
        out.put_slice(&[OPEN, VERSION, form]);
        out.put_slice(&self.scope);
        let both = [self.initiator.0, self.responder.0];
        match both {
            [IpAddr::V4(initiator), IpAddr::V4(responder)] => {
                out.put_u8(4);
                out.put_slice(&initiator.octets());
                out.put_slice(&responder.octets());
            }
            both => {
                out.put_u8(6);
                for address in both {
                    let address = match address {
                        IpAddr::V4(address) => address.to_ipv6_mapped(),
                        IpAddr::V6(address) => address,
                    };
                    out.put_slice(&address.octets());
                }
            }
        }
        out.put_u16(self.initiator.1);
        out.put_u16(self.responder.1);
        out.put_u32(self.initial[0]);
        out.put_u32(self.initial[1]);
    }

    /// Opening of these bytes behind the kind, whose length fits the family.
    fn parse(mut body: &[u8]) -> Result<Self, WireFault> {
        let [version, form] = take(&mut body);
        let form = match (version, form) {
            (VERSION, 0) => Form::Clear,
            (VERSION, 1) => Form::Zones,
            _ => return Err(WireFault::Form(version, form)),
        };
        let scope = take(&mut body);
        let [family] = take(&mut body);
        let mut address = || match family {
            4 => IpAddr::from(take::<4>(&mut body)),
            _ => IpAddr::from(take::<16>(&mut body)),
        };
        let addresses = [address(), address()];
        let ports = [(); 2].map(|()| u16::from_be_bytes(take(&mut body)));
        let initial = [(); 2].map(|()| u32::from_be_bytes(take(&mut body)));
        Ok(Self {
            form,
            scope,
            initiator: (addresses[0], ports[0]),
            responder: (addresses[1], ports[1]),
            initial,
        })
    }
}

/// First bytes of `body`, which is long enough: its length was checked before.
fn take<const N: usize>(body: &mut &[u8]) -> [u8; N] {
    match body.split_first_chunk() {
        Some((first, rest)) => {
            *body = rest;
            *first
        }
        None => [0; N],
    }
}

/// Fault of a stream: the PEP at its other end breaks the protocol, and the flow is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireFault {
    /// A kind that no message has.
    #[error("kind {0} of a message; known are 0 to 3")]
    Kind(u8),
    /// OPEN has another version or form.
    #[error("OPEN has version {0} and form {1}; known are version {VERSION}, forms 0 and 1")]
    Form(u8, u8),
    /// OPEN has another address family.
    #[error("OPEN names address family {0}; known are 4 and 6")]
    Family(u8),
    /// The first message is another one, or a later one is OPEN.
    #[error("kind {0} of a message out of order: OPEN comes first, and once")]
    Order(u8),
    /// A blob without bytes and FIN, or with more bytes than a packet of LES holds.
    #[error("a blob of {0} bytes, which no segment has")]
    Length(u16),
    /// A blob with flags that do not travel.
    #[error("a blob with flags {0:#05x}; allowed are {allowed:#05x}", allowed = Flags::OF_BLOB.bits())]
    Flags(u16),
    /// RESET has a cause that is unknown.
    #[error("RESET names cause {0}")]
    Cause(u8),
}

/// Reader of one side of a stream, however that is cut. Holds less than one message.
#[derive(Debug, Default)]
pub struct Parser {
    rest: BytesMut,
    form: Option<Form>,
}

impl Parser {
    /// The next message, once its last byte has come; takes no byte behind it from `input`.
    ///
    /// # Errors
    /// [`WireFault`]: nothing after it can be read.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, WireFault> {
        loop {
            let length = self.length()?;
            if self.rest.len() == length {
                let whole = self.rest.split().freeze();
                return self.parse(&whole).map(Some);
            }
            let missing = input.len().min(length - self.rest.len());
            if missing == 0 {
                return Ok(None);
            }
            let (taken, rest) = input.split_at(missing);
            self.rest.put_slice(taken);
            *input = rest;
        }
    }

    /// Bytes that the message has as far as can be seen: checks each part before the next is waited
    /// for.
    fn length(&self) -> Result<usize, WireFault> {
        let Some(&kind) = self.rest.first() else {
            return Ok(1);
        };
        match (kind, self.form) {
            (OPEN, Some(_)) | (BLOB | FIN_ACKED, None) => Err(WireFault::Order(kind)),
            (OPEN, None) => match self.rest.get(OPEN_HEAD - 1) {
                None => Ok(OPEN_HEAD),
                Some(4) => Ok(OPEN_HEAD + 8 + OPEN_TAIL),
                Some(6) => Ok(OPEN_HEAD + 32 + OPEN_TAIL),
                Some(family) => Err(WireFault::Family(*family)),
            },
            (BLOB, Some(form)) => match self.rest.first_chunk() {
                None => Ok(BLOB_HEAD),
                Some(head) => Ok(BLOB_HEAD + form.zone(blob_head(head, form)?.1.length)),
            },
            (FIN_ACKED, Some(_)) => Ok(1),
            (RESET, _) => Ok(2),
            (kind, _) => Err(WireFault::Kind(kind)),
        }
    }

    fn parse(&mut self, whole: &Bytes) -> Result<Message, WireFault> {
        match (whole[0], self.form) {
            (OPEN, _) => {
                let opening = Opening::parse(&whole[1..])?;
                self.form = Some(opening.form);
                Ok(Message::Open(opening))
            }
            (BLOB, Some(form)) if let Some(head) = whole.first_chunk() => {
                let (number, mut blob) = blob_head(head, form)?;
                blob.zone = whole.slice(BLOB_HEAD..);
                Ok(Message::Blob(number, blob))
            }
            (RESET, _) => {
                let known = Cause::ALL.get(usize::from(whole[1]));
                // The last one is never written.
                let known = known.filter(|cause| **cause != Cause::Lost);
                let cause = known.ok_or(WireFault::Cause(whole[1]))?;
                Ok(Message::Reset(*cause))
            }
            _ => Ok(Message::FinAcked),
        }
    }
}

/// Number and blob of the first bytes of a BLOB; its zone is empty yet.
fn blob_head(head: &[u8; BLOB_HEAD], form: Form) -> Result<(u32, Blob), WireFault> {
    let [_, a, b, number @ .., c, d, e, f] = *head;
    let bits = u16::from_be_bytes([a, b]);
    let blob = Blob {
        flags: Flags::new(bits),
        urgent: u16::from_be_bytes([c, d]),
        length: u16::from_be_bytes([e, f]),
        zone: Bytes::new(),
    };
    if bits & !Flags::OF_BLOB.bits() != 0 {
        return Err(WireFault::Flags(bits));
    }
    let long = form == Form::Zones && blob.length > LONGEST_ZONED;
    if blob.span() == 0 || long {
        return Err(WireFault::Length(blob.length));
    }
    Ok((u32::from_be_bytes(number), blob))
}

#[cfg(test)]
mod tests;
