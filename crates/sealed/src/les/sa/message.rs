//! Messages with which an association begins (`PROTOCOL.md` §20.1).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::BufMut as _;
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::super::{EndToken, HeaderRoot, Spi, SpiPair, Writer};
use super::fields::{Fields, MAX_PEPS, MessageFault, message, put_address, put_selectors};

/// Random bytes of one end for one association; wiped, and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Random(Zeroizing<[u8; 32]>);

impl Random {
    /// Random bytes that were drawn elsewhere.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random(…)")
    }
}

/// Public key of a PEP, Ed25519 (RFC 8032).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PepKey(pub [u8; 32]);

/// Flow of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshake {
    /// A begins alone, and seals behind Q1.
    #[default]
    Short,
    /// Quick mode of the paper: Q1, Q2, and behind Q3 the first packet.
    Paper,
    /// Q1 and Q2 alone, under a key that both ends had before: for the lab.
    Psk,
}

impl Handshake {
    const ALL: [Self; 3] = [Self::Short, Self::Paper, Self::Psk];
}

/// Q1, from A: an association that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Number of the association in its tunnel, above all before.
    pub count: u32,
    /// Flow of messages.
    pub handshake: Handshake,
    /// True if earlier associations end at once, not when the new one has stood for a while.
    pub at_once: bool,
    /// Random bytes of A.
    pub random: Random,
    /// Name of the direction toward A. `None` in the short flow alone, which derives it.
    pub to_a: Option<Spi>,
    /// Token of the association that A has sent with: in the PSK flow, where nothing else proves
    /// that Q1 is no copy, what B ends if `at_once` asks for it.
    pub ended: Option<EndToken>,
    /// Destinations at B's side whose TCP goes this way.
    pub selectors: Vec<IpNet>,
    /// PEPs that are to have K2.
    pub peps: Vec<PepKey>,
}

impl Proposal {
    /// Bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = message();
        out.put_u32(self.count);
        out.put_u8(self.handshake as u8);
        out.put_u8(u8::from(self.at_once));
        out.put_slice(self.random.bytes());
        if let Some(spi) = self.to_a {
            out.put_u32(spi.get());
        }
        if let Some(token) = &self.ended {
            out.put_slice(token.bytes());
        }
        put_selectors(&self.selectors, &mut out);
        out.put_u8(self.peps.len() as u8);
        self.peps.iter().for_each(|key| out.put_slice(&key.0));
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// [`MessageFault`]: the message is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut fields = Fields::new(bytes, "Q1");
        let count = fields.word()?;
        let code = fields.byte()?;
        let handshake = Handshake::ALL.get(usize::from(code)).copied();
        let handshake = handshake.ok_or(fields.wrong("the flow", code))?;
        let at_once = fields.flag("the end of earlier associations")?;
        let random = Random(fields.secret()?);
        let named = handshake != Handshake::Short;
        let to_a = named.then(|| fields.spi()).transpose()?;
        let shows = handshake == Handshake::Psk && at_once;
        let ended = shows
            .then(|| fields.secret().map(EndToken::new))
            .transpose()?;
        let selectors = fields.selectors()?;
        let count_of_peps = fields.length("the number of PEPs", MAX_PEPS)?;
        let peps = (0..count_of_peps).map(|_| fields.array().map(PepKey));
        let peps = peps.collect::<Result<_, _>>()?;
        fields.end()?;
        if selectors.is_empty() {
            return Err(fields.wrong("the number of selectors", 0_u8));
        }
        Ok(Self {
            count,
            handshake,
            at_once,
            random,
            to_a,
            ended,
            selectors,
            peps,
        })
    }
}

/// Outcome of Q1 at B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCode {
    /// The association stands, or will with Q3.
    Accepted,
    /// An SPI is in use or reserved: the next count has others.
    SpiInUse,
    /// B does not know a PEP; the verdicts say which.
    PepUnknown,
    /// B does not serve a selector by LES.
    SelectorRefused,
    /// A asks for more associations than B begins in a minute.
    TooMany,
}

impl AnswerCode {
    const ALL: [Self; 5] = [
        Self::Accepted,
        Self::SpiInUse,
        Self::PepUnknown,
        Self::SelectorRefused,
        Self::TooMany,
    ];
}

impl fmt::Display for AnswerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::SpiInUse => "an SPI is in use at the server",
            Self::PepUnknown => "the server does not list a PEP: add its key to the server's list",
            Self::SelectorRefused => "the server does not serve a prefix by LES: list it there",
            Self::TooMany => "the server begins no more associations in this minute",
        })
    }
}

/// Q2, from B: whether the association begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the association.
    pub count: u32,
    /// Outcome.
    pub code: AnswerCode,
    /// For each PEP of Q1, whether B knows it.
    pub known: Vec<bool>,
    /// Random bytes of B, and the name of the direction toward B: if accepted, but for the short
    /// flow.
    pub own: Option<(Random, Spi)>,
}

impl Answer {
    /// Bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = message();
        out.put_u32(self.count);
        out.put_u8(self.code as u8);
        out.put_u8(self.known.len() as u8);
        self.known
            .iter()
            .for_each(|known| out.put_u8(u8::from(*known)));
        if let Some((random, spi)) = &self.own {
            out.put_slice(random.bytes());
            out.put_u32(spi.get());
        }
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// [`MessageFault`]: the message is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut fields = Fields::new(bytes, "Q2");
        let (count, code) = (fields.word()?, fields.byte()?);
        let known_code = AnswerCode::ALL.get(usize::from(code)).copied();
        let code = known_code.ok_or(fields.wrong("the outcome", code))?;
        let peps = fields.length("the number of PEPs", MAX_PEPS)?;
        let known = (0..peps).map(|_| fields.flag("a verdict"));
        let known = known.collect::<Result<_, _>>()?;
        let own = if fields.is_empty() {
            None
        } else {
            Some((Random(fields.secret()?), fields.spi()?))
        };
        fields.end()?;
        Ok(Self {
            count,
            code,
            known,
            own,
        })
    }
}

/// Q3, from A in the paper's flow: A has the keys that B has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Number of the association.
    pub count: u32,
    /// HMAC of Q1 and Q2.
    pub code: [u8; 32],
}

impl Proof {
    /// Bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = message();
        out.put_u32(self.count);
        out.put_slice(&self.code);
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// [`MessageFault`]: the message is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut fields = Fields::new(bytes, "Q3");
        let (count, code) = (fields.word()?, fields.array()?);
        fields.end()?;
        Ok(Self { count, code })
    }
}

/// Q4, from A to one PEP: K2 of an association, and a writer's number of its own.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Names of both directions.
    pub spis: SpiPair,
    /// Outer addresses of A and B.
    pub ends: [IpAddr; 2],
    /// Destinations at B's side whose TCP goes this way.
    pub selectors: Vec<IpNet>,
    /// Number of the PEP, once given out in an association.
    pub writer: Writer,
    /// K2.
    pub root: HeaderRoot,
    /// Time after which the PEP erases K2, in whole seconds on the wire.
    pub lifetime: Duration,
    /// True if the PEP may have acknowledged bytes of flows before, in this association or an
    /// earlier one: if it knows nothing of them, it resets them.
    pub renewed: bool,
}

impl Grant {
    /// Bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = message();
        out.put_u32(self.spis.to_b.get());
        out.put_u32(self.spis.to_a.get());
        self.ends.iter().for_each(|end| put_address(*end, &mut out));
        put_selectors(&self.selectors, &mut out);
        out.put_u8(self.writer.get());
        out.put_slice(self.root.bytes());
        out.put_u32(self.lifetime.as_secs().try_into().unwrap_or(u32::MAX));
        out.put_u8(u8::from(self.renewed));
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// [`MessageFault`]: the message is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut fields = Fields::new(bytes, "Q4");
        let (to_b, to_a) = (fields.spi()?, fields.spi()?);
        let ends = [fields.address()?, fields.address()?];
        let selectors = fields.selectors()?;
        let writer = Writer::new(fields.byte()?);
        if writer < Writer::FIRST_PEP {
            return Err(fields.wrong("the writer", writer.get()));
        }
        let root = HeaderRoot::new(fields.secret()?);
        let lifetime = Duration::from_secs(fields.word()?.into());
        let renewed = fields.flag("renewed")?;
        fields.end()?;
        Ok(Self {
            spis: SpiPair { to_b, to_a },
            ends,
            selectors,
            writer,
            root,
            lifetime,
            renewed,
        })
    }
}
