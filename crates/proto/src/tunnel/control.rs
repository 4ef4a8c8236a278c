//! Control frames and their incremental reader (`PROTOCOL.md` §5).
//!
//! Both sides write frames to the control stream and feed what they read from it to a [`ControlReader`]. Frames of
//! unknown type are skipped. That HELLO comes first, and once, is checked by the engine, which knows whose turn it is.

use bentpipe_units::BitRate;

use zeroize::Zeroizing;

use super::wire::{Reader, put_sized, split_sized};
use super::{
    AbortCode, Acks, DecodeError, ENROL_KEY, EnrolCode, EpochRandom, Families, FlowId, Hello,
    LesBody, LesKind, Publish, PublishCode, varint,
};

/// Longest value of a control frame, bytes.
pub const MAX_FRAME: usize = 4096;

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
    /// Appends type, length and value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        let kind = match self {
            Self::Hello(hello) => {
                hello.encode(&mut value);
                HELLO
            }
            Self::FlowCredit { flow, max_offset } => {
                varint::encode(flow.0, &mut value);
                varint::encode(*max_offset, &mut value);
                FLOW_CREDIT
            }
            Self::FlowAbort {
                flow,
                final_offset,
                code,
            } => {
                varint::encode(flow.0, &mut value);
                varint::encode(*final_offset, &mut value);
                varint::encode(code.code(), &mut value);
                FLOW_ABORT
            }
            Self::Goaway => GOAWAY,
            Self::RateHint { rate, packets } => {
                varint::encode(rate.as_u64(), &mut value);
                varint::encode(*packets, &mut value);
                RATE_HINT
            }
            Self::Families(families) => {
                varint::encode(families.bits(), &mut value);
                FAMILIES
            }
            Self::Publish(publish) => {
                publish.encode(&mut value);
                PUBLISH
            }
            Self::Published { entry, code } => {
                varint::encode(*entry, &mut value);
                varint::encode(code.code(), &mut value);
                PUBLISHED
            }
            Self::Keep { bytes } => {
                varint::encode(*bytes, &mut value);
                KEEP
            }
            Self::Acks(acks) => {
                acks.encode(&mut value);
                ACKS
            }
            Self::Enrol { key } => {
                value.extend_from_slice(key);
                ENROL
            }
            Self::Enrolled { code, at } => {
                varint::encode(code.code(), &mut value);
                varint::encode(*at, &mut value);
                ENROLLED
            }
            Self::SleEpoch { epoch, random } => {
                value.extend_from_slice(&epoch.to_be_bytes());
                if let Some(random) = random {
                    random.encode(&mut value);
                }
                SLE_EPOCH
            }
            Self::Les(kind, body) => {
                value.extend_from_slice(body.as_ref());
                u64::from(kind.code())
            }
        };
        varint::encode(kind, out);
        put_sized(&value, out);
    }

    /// `None`: a type that this version does not know.
    fn decode(kind: u64, value: &[u8]) -> Result<Option<Self>, DecodeError> {
        match kind {
            HELLO => Hello::decode(value).map(|hello| Some(Self::Hello(hello))),
            FLOW_CREDIT => {
                let mut reader = Reader::new(value, "FLOW_CREDIT");
                let flow = FlowId(reader.varint()?);
                let max_offset = reader.varint()?;
                reader.end()?;
                Ok(Some(Self::FlowCredit { flow, max_offset }))
            }
            FLOW_ABORT => {
                let mut reader = Reader::new(value, "FLOW_ABORT");
                let flow = FlowId(reader.varint()?);
                let final_offset = reader.varint()?;
                let code = AbortCode::from_code(reader.varint()?);
                reader.end()?;
                Ok(Some(Self::FlowAbort {
                    flow,
                    final_offset,
                    code,
                }))
            }
            GOAWAY => Reader::new(value, "GOAWAY")
                .end()
                .map(|()| Some(Self::Goaway)),
            RATE_HINT => {
                let mut reader = Reader::new(value, "RATE_HINT");
                let rate = BitRate::bits_per_second(reader.varint()?);
                let packets = reader.varint()?;
                reader.end()?;
                Ok(Some(Self::RateHint { rate, packets }))
            }
            FAMILIES => {
                let mut reader = Reader::new(value, "FAMILIES");
                let families = Families::from_bits(reader.varint()?);
                reader.end()?;
                Ok(Some(Self::Families(families)))
            }
            PUBLISH => Publish::decode(value).map(|publish| Some(Self::Publish(publish))),
            PUBLISHED => {
                let mut reader = Reader::new(value, "PUBLISHED");
                let entry = reader.varint()?;
                let code = PublishCode::from_code(reader.varint()?);
                reader.end()?;
                Ok(Some(Self::Published { entry, code }))
            }
            KEEP => {
                let mut reader = Reader::new(value, "KEEP");
                let bytes = reader.varint()?;
                reader.end()?;
                Ok(Some(Self::Keep { bytes }))
            }
            ACKS => {
                let mut reader = Reader::new(value, "ACKS");
                let acks = Acks::read(&mut reader)?;
                reader.end()?;
                Ok(Some(Self::Acks(acks)))
            }
            ENROL => {
                let mut reader = Reader::new(value, "ENROL");
                let key = reader.array()?;
                reader.end()?;
                Ok(Some(Self::Enrol { key }))
            }
            ENROLLED => {
                let mut reader = Reader::new(value, "ENROLLED");
                let code = EnrolCode::from_code(reader.varint()?);
                let at = reader.varint()?;
                reader.end()?;
                Ok(Some(Self::Enrolled { code, at }))
            }
            SLE_EPOCH => {
                let mut reader = Reader::new(value, "SLE_EPOCH");
                let epoch = u16::from_be_bytes(reader.array()?);
                let random = match reader.is_empty() {
                    true => None,
                    false => Some(EpochRandom::read(&mut reader)?),
                };
                reader.end()?;
                Ok(Some(Self::SleEpoch { epoch, random }))
            }
            kind => {
                let les = u8::try_from(kind).ok().and_then(LesKind::from_code);
                let body = || LesBody::new(Zeroizing::new(value.to_vec()));
                Ok(les.map(|kind| Self::Les(kind, body())))
            }
        }
    }
}

/// Cuts the control stream into frames, however the stream was cut into reads.
///
/// After every [`push`](Self::push) call [`next_frame`](Self::next_frame) until it yields `None`: then no more than one
/// unfinished frame stays in memory, less than [`MAX_FRAME`] + 16 bytes. The first error is final: every later call
/// repeats it, and the tunnel is to be closed with [`CloseCode::ProtocolViolation`](super::CloseCode).
#[derive(Debug, Default)]
pub struct ControlReader {
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that belong to frames already yielded.
    consumed: usize,
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
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
            self.buffer.extend_from_slice(bytes);
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
            self.buffer = Vec::new();
        })
    }

    fn advance(&mut self) -> Result<Option<Control>, DecodeError> {
        loop {
            let rest = self.buffer.get(self.consumed..).unwrap_or_default();
            let Some((kind, start)) = varint::decode(rest) else {
                return Ok(None);
            };
            let framed = rest.get(start..).unwrap_or_default();
            let Some((value, used)) = split_sized(framed, "control frame", MAX_FRAME)? else {
                return Ok(None);
            };
            let frame = Control::decode(kind, value)?;
            self.consumed += start + used;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}
