//! Control frames and their incremental reader (`PROTOCOL.md` §5).
//!
//! Both sides write frames to the control stream and feed what they read from it to a [`ControlReader`]. Frames of
//! unknown type are skipped. That HELLO comes first, and once, is checked by the engine, which knows whose turn it is.

use bentpipe_units::BitRate;

use zeroize::Zeroizing;

use super::wire::{Reader, put_sized, split_sized};
use super::{
    AbortCode, Acks, DecodeError, ENROL_KEY, EnrolCode, EpochRandom, Families, FlowId, Hello,
    LesBody, LesKind, Publish, PublishCode, WipedBytes, varint,
};

/// Longest value of a control frame, bytes.
pub const MAX_FRAME: usize = 4096;

/// Longest type and length of a control frame, bytes.
const MAX_HEAD: usize = 16;

/// Length that most control frames do not exceed, SLE_EPOCH among them, bytes.
const SHORT: usize = 64;

const HELLO: u64 = 1;
const FLOW_CREDIT: u64 = 2;
const FLOW_ABORT: u64 = 3;
const GOAWAY: u64 = 4;
const RATE_HINT: u64 = 5;
const FAMILIES: u64 = 6;
const PUBLISH: u64 = 0x14;
const PUBLISHED: u64 = 0x15;
const KEEP: u64 = 0x18;
const ACKS: u64 = 0x19;
const ENROL: u64 = 0x1c;
const ENROLLED: u64 = 0x1d;
const SLE_EPOCH: u64 = 0x20;

/// One frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "frames are read and gone")]
pub enum Control {
    /// The sender introduces itself; first and once.
    Hello(Hello),
    /// The receiver may send payload of `flow` up to `max_offset`. Never lowers what it has.
    FlowCredit {
        /// The flow.
        flow: FlowId,
        /// Total payload bytes since the start of the flow.
        max_offset: u64,
    },
    /// The sender's side of `flow` broke: deliver its payload up to `final_offset`, then reset. Ends both directions.
    FlowAbort {
        /// The flow.
        flow: FlowId,
        /// Payload bytes that the sender of this frame has sent or will still send on the flow.
        final_offset: u64,
        /// Reason of the end.
        code: AbortCode,
    },
    /// Drain: open no new flows on this tunnel.
    Goaway,
    /// Address families that the server can reach from now on, in place of those of its HELLO.
    Families(Families),
    /// Rate at which the receiver's train of packets arrived.
    RateHint {
        /// At the IP layer.
        rate: BitRate,
        /// Packets of the train that came.
        packets: u64,
    },
    /// The client asks for a port.
    Publish(Publish),
    /// Outcome of PUBLISH; the last word counts.
    Published {
        /// The client's number for the port.
        entry: u64,
        /// Code that says whether the port is open.
        code: PublishCode,
    },
    /// Repairs may follow: keep what streams bring.
    Keep {
        /// The newest bytes of all streams together; 0: nothing any more.
        bytes: u64,
    },
    /// The sender wants to be acknowledged so from now on; the last word counts.
    Acks(Acks),
    /// A client with an enrolment key names the key that it connects with from now on.
    Enrol {
        /// Ed25519 public key.
        key: [u8; ENROL_KEY],
    },
    /// Outcome of ENROL.
    Enrolled {
        /// Code that says whether the key is the client's.
        code: EnrolCode,
        /// Time at which the enrolment key was used or has expired, seconds since 1970; else 0.
        at: u64,
    },
    /// Next epoch of SLE.
    SleEpoch {
        /// Number of the epoch.
        epoch: u16,
        /// Random bytes, from a client; a server says that it has begun the epoch.
        random: Option<EpochRandom>,
    },
    /// Message of LES; its body is read where the keys are made.
    Les(LesKind, LesBody),
}

impl Control {
    /// Type, length and value.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut value = self.room();
        self.encode_value(&mut value);
        let mut frame = self.room();
        varint::encode(self.kind(), &mut frame);
        put_sized(&value, &mut frame);
        frame
    }

    /// Room for the whole frame, if it can hold random bytes of a key: a vector that grows leaves them where they were.
    fn room(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(Vec::with_capacity(match self {
            Self::Hello(_) | Self::Les(..) => MAX_FRAME + MAX_HEAD,
            _ => SHORT,
        }))
    }

    /// Type of the frame on the wire.
    fn kind(&self) -> u64 {
        match self {
            Self::Hello(_) => HELLO,
            Self::FlowCredit { .. } => FLOW_CREDIT,
            Self::FlowAbort { .. } => FLOW_ABORT,
            Self::Goaway => GOAWAY,
            Self::RateHint { .. } => RATE_HINT,
            Self::Families(_) => FAMILIES,
            Self::Publish(_) => PUBLISH,
            Self::Published { .. } => PUBLISHED,
            Self::Keep { .. } => KEEP,
            Self::Acks(_) => ACKS,
            Self::Enrol { .. } => ENROL,
            Self::Enrolled { .. } => ENROLLED,
            Self::SleEpoch { .. } => SLE_EPOCH,
            Self::Les(kind, _) => u64::from(kind.code()),
        }
    }

    fn encode_value(&self, value: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.encode(value),
            Self::FlowCredit { flow, max_offset } => put_all([flow.0, *max_offset], value),
            Self::FlowAbort {
                flow,
                final_offset,
                code,
            } => put_all([flow.0, *final_offset, code.code()], value),
            Self::Goaway => {}
            Self::RateHint { rate, packets } => put_all([rate.as_u64(), *packets], value),
            Self::Families(families) => varint::encode(families.bits(), value),
            Self::Publish(publish) => publish.encode(value),
            Self::Published { entry, code } => put_all([*entry, code.code()], value),
            Self::Keep { bytes } => varint::encode(*bytes, value),
            Self::Acks(acks) => acks.encode(value),
            Self::Enrol { key } => value.extend_from_slice(key),
            Self::Enrolled { code, at } => put_all([code.code(), *at], value),
            Self::SleEpoch { epoch, random } => {
                value.extend_from_slice(&epoch.to_be_bytes());
                if let Some(random) = random {
                    random.encode(value);
                }
            }
            Self::Les(_, body) => value.extend_from_slice(body.as_ref()),
        }
    }

    /// `None`: a type that this version does not know.
    fn decode(kind: u64, value: &[u8]) -> Result<Option<Self>, DecodeError> {
        let frame = match kind {
            HELLO => Hello::decode(value).map(Self::Hello),
            FLOW_CREDIT => read(value, "FLOW_CREDIT", |it| {
                let (flow, max_offset) = (FlowId(it.varint()?), it.varint()?);
                Ok(Self::FlowCredit { flow, max_offset })
            }),
            FLOW_ABORT => read(value, "FLOW_ABORT", |it| {
                Ok(Self::FlowAbort {
                    flow: FlowId(it.varint()?),
                    final_offset: it.varint()?,
                    code: AbortCode::from_code(it.varint()?),
                })
            }),
            GOAWAY => read(value, "GOAWAY", |_| Ok(Self::Goaway)),
            RATE_HINT => read(value, "RATE_HINT", |it| {
                let rate = BitRate::bits_per_second(it.varint()?);
                let packets = it.varint()?;
                Ok(Self::RateHint { rate, packets })
            }),
            FAMILIES => read(value, "FAMILIES", |it| {
                Ok(Self::Families(Families::from_bits(it.varint()?)))
            }),
            PUBLISH => Publish::decode(value).map(Self::Publish),
            PUBLISHED => read(value, "PUBLISHED", |it| {
                let (entry, code) = (it.varint()?, PublishCode::from_code(it.varint()?));
                Ok(Self::Published { entry, code })
            }),
            KEEP => read(value, "KEEP", |it| {
                let bytes = it.varint()?;
                Ok(Self::Keep { bytes })
            }),
            ACKS => read(value, "ACKS", |it| Ok(Self::Acks(Acks::read(it)?))),
            ENROL => read(value, "ENROL", |it| Ok(Self::Enrol { key: it.array()? })),
            ENROLLED => read(value, "ENROLLED", |it| {
                let (code, at) = (EnrolCode::from_code(it.varint()?), it.varint()?);
                Ok(Self::Enrolled { code, at })
            }),
            SLE_EPOCH => read(value, "SLE_EPOCH", |it| {
                let epoch = u16::from_be_bytes(it.array()?);
                let random = match it.is_empty() {
                    true => None,
                    false => Some(EpochRandom::read(it)?),
                };
                Ok(Self::SleEpoch { epoch, random })
            }),
            kind => {
                let les = u8::try_from(kind).ok().and_then(LesKind::from_code);
                let body = || LesBody::new(Zeroizing::new(value.to_vec()));
                return Ok(les.map(|kind| Self::Les(kind, body())));
            }
        };
        frame.map(Some)
    }
}

/// Appends numbers, one after the other.
fn put_all<const N: usize>(numbers: [u64; N], out: &mut Vec<u8>) {
    for number in numbers {
        varint::encode(number, out);
    }
}

/// Reads all of the `value` of the frame `name`: bytes that are left over are a fault.
fn read<'a>(
    value: &'a [u8],
    name: &'static str,
    fields: impl FnOnce(&mut Reader<'a>) -> Result<Control, DecodeError>,
) -> Result<Control, DecodeError> {
    let mut reader = Reader::new(value, name);
    let frame = fields(&mut reader)?;
    reader.end()?;
    Ok(frame)
}

/// Cuts the control stream into frames, however the stream was cut into reads.
///
/// After every [`push`](Self::push) call [`next_frame`](Self::next_frame) until it yields `None`: then no more than one
/// unfinished frame stays in memory, less than [`MAX_FRAME`] + 16 bytes. The first error is final: every later call
/// repeats it, and the tunnel is to be closed with [`CloseCode::ProtocolViolation`](super::CloseCode).
#[derive(Debug, Default)]
pub struct ControlReader {
    buffer: WipedBytes,
    failed: Option<DecodeError>,
}

impl ControlReader {
    /// A reader at the start of the frames, past the stream kind if there is one (client to server).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream, in order.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.buffer.push(bytes);
        }
    }

    /// The next frame of a known type; `None`: need more bytes.
    ///
    /// # Errors
    /// [`DecodeError`]: a value above [`MAX_FRAME`] bytes or a malformed frame of a known type.
    pub fn next_frame(&mut self) -> Result<Option<Control>, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.advance().inspect_err(|error| {
            self.failed = Some(*error);
            self.buffer = WipedBytes::default();
        })
    }

    fn advance(&mut self) -> Result<Option<Control>, DecodeError> {
        loop {
            let Some((kind, start)) = varint::decode(&self.buffer) else {
                return Ok(None);
            };
            let framed = self.buffer.get(start..).unwrap_or_default();
            let Some((value, used)) = split_sized(framed, "control frame", MAX_FRAME)? else {
                return Ok(None);
            };
            let frame = Control::decode(kind, value)?;
            self.buffer.consume(start + used);
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}
