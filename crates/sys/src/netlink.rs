//! Netlink: questions to the kernel and its answers, in the calling thread's network namespace.
//!
//! ```text
//!   ask ──► request, sequence n ──► kernel ──► messages of n … done ──► Vec<Reply>
//! ```
//!
//! One socket serves one question: control path, some tens of microseconds each. Which messages mean what stands in
//! [`crate::policy_rule`], [`crate::link`], [`crate::nft`] and [`crate::watch`].

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Length of a message's header, bytes.
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The dump's objects changed while it ran.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// Answers to one request before it is taken for endless: a dump of a large table of others is no use to us.
const MAX_REPLIES: usize = 100_000;

/// One message of an answer: its type and what follows the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

/// A socket to one netlink family.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket of `protocol` (`NETLINK_ROUTE`, `NETLINK_NETFILTER`).
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Dumps then heed the filter in their request; kernels before 4.20 do not know it and dump all.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Asks for all objects of a kind: `body` follows the header of a message of type `kind`. A list that changed while
    /// it was read is read again.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Reply>> {
        self.dump_some(kind, body, |_| true)
    }

    /// As [`Self::dump`], of the objects of which `is_wanted` says so of what follows the header: a list may have a million others.
    pub(crate) fn dump_some(
        &mut self,
        kind: u16,
        body: &[u8],
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<Reply>> {
        let mut interrupted = io::Error::other("the kernel's list changes too often to be read");
        for _ in 0..5 {
            match self.exchange(kind, NLM_F_REQUEST | NLM_F_DUMP, body, &is_wanted) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupted = error,
                outcome => return outcome,
            }
        }
        Err(interrupted)
    }

    /// Has something done; `flags` say whether it may replace or must be new.
    pub(crate) fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.exchange(kind, NLM_F_REQUEST | NLM_F_ACK | flags, body, |_| true)
            .map(drop)
    }

    /// Has a transaction of nfnetlink done: `encoded` makes its messages, numbered from its argument on, of which each asks
    /// for an acknowledgement. The last message but one is the last that changes anything.
    pub(crate) fn transact(&mut self, encoded: impl FnOnce(u32) -> Vec<u8>) -> io::Result<()> {
        let first = self.sequence.wrapping_add(1);
        let batch = encoded(first);
        let last = messages(&batch)
            .flatten()
            .map(|message| message.sequence_number())
            .max()
            .unwrap_or(first);
        self.sequence = last;
        self.socket.send(&batch, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let message = message?;
                let of_batch = (first..=last).contains(&message.sequence_number());
                if !of_batch || message.message_type() != NLMSG_ERROR {
                    continue;
                }
                outcome(message.payload())?;
                // Kernels before 6.10 do not acknowledge the frame around the changes.
                if message.sequence_number() + 1 == last {
                    return Ok(());
                }
            }
        }
    }

    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<Reply>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket
            .send(&framed(kind, flags, self.sequence, body), 0)?;
        let mut replies = Vec::new();
        let mut interrupted = false;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    continue;
                }
                interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                let body = message.payload();
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => {
                        outcome(body)?;
                        return match interrupted {
                            true => Err(io::ErrorKind::Interrupted.into()),
                            false => Ok(replies),
                        };
                    }
                    _ if !is_wanted(body) => {}
                    kind if replies.len() < MAX_REPLIES => replies.push(Reply {
                        kind,
                        body: body.to_vec(),
                    }),
                    _ => return Err(io::Error::other("an endless answer of the kernel")),
                }
            }
        }
    }
}

/// The messages of one datagram.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = io::Result<NetlinkBuffer<&[u8]>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.len() < HEADER {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            let text = "a malformed netlink message";
            return Some(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        };
        // Messages begin at multiples of four bytes.
        let length = (message.length() as usize).next_multiple_of(4).max(HEADER);
        rest = rest.get(length..).unwrap_or_default();
        Some(Ok(message))
    })
}

/// The error code of an acknowledgement or of a dump's end.
fn outcome(body: &[u8]) -> io::Result<()> {
    let code = body
        .first_chunk::<4>()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
    }
}

fn framed(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = HEADER + body.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A message of rtnetlink as type and body.
fn parts(message: RouteNetlinkMessage) -> (u16, Vec<u8>) {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    (message.header.message_type, bytes.split_off(HEADER))
}

/// Asks rtnetlink for all objects that `message` describes.
pub(crate) fn list(message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    list_some(message, |_| true)
}

/// As [`list`], of the objects of which `is_wanted` says so of what follows the header.
pub(crate) fn list_some(
    message: RouteNetlinkMessage,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let (kind, body) = parts(message);
    let replies = Netlink::open(NETLINK_ROUTE)?.dump_some(kind, &body, is_wanted)?;
    // What this library cannot read is of a kind that nobody here asks for.
    Ok(replies
        .iter()
        .filter_map(|reply| parse(reply.kind, &reply.body))
        .collect())
}

/// Asks rtnetlink for the one object that `message` describes.
pub(crate) fn ask(message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let (kind, body) = parts(message);
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    let replies = Netlink::open(NETLINK_ROUTE)?.exchange(kind, flags, &body, |_| true)?;
    Ok(replies
        .iter()
        .filter_map(|reply| parse(reply.kind, &reply.body))
        .collect())
}

/// Reads a message of rtnetlink; `None` if it is none that the library knows.
pub(crate) fn parse(kind: u16, body: &[u8]) -> Option<RouteNetlinkMessage> {
    let bytes = framed(kind, 0, 0, body);
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
        .ok()?
        .payload
    {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    }
}

/// Has rtnetlink do what `message` says.
pub(crate) fn change(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let (kind, body) = parts(message);
    Netlink::open(NETLINK_ROUTE)?.request(kind, flags, &body)
}
