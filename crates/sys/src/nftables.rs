//! What nftables holds, by netlink: whether a table of ours is as we left it, and which chains of others drop.
//!
//! It reads. What changes tables is text, through `nft` ([`crate::nft`]).

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::io;

use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::netlink::{Netlink, Reply};

/// Messages of nftables among those of nfnetlink: the upper byte of their type.
pub(crate) const SUBSYSTEM: u16 = 10 << 8;
/// The message after a transaction; it names the process.
pub(crate) const GENERATION: u16 = 15;
/// Messages that say that a table, chain, rule, set or element is gone.
pub(crate) const REMOVALS: [u16; 5] = [2, 5, 8, 11, 14];

const GET_TABLE: u16 = 1;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_SET: u16 = 10;
const GET_ELEMENTS: u16 = 13;

/// `NFPROTO_INET`, and any.
const INET: u8 = 1;
const ANY: u8 = 0;

/// Sets whose elements come and go by themselves, or never change: those with time limits, dynamic and anonymous ones.
const CHANGING_SETS: u32 = 0x01 | 0x10 | 0x20;

/// `NF_INET_LOCAL_IN`.
pub const INPUT: u32 = 1;

/// `NF_INET_PRE_ROUTING`.
pub const PREROUTING: u32 = 0;

/// `NF_INET_FORWARD`.
pub const FORWARD: u32 = 2;

/// `NF_INET_LOCAL_OUT`.
pub const OUTPUT: u32 = 3;

/// `NF_INET_POST_ROUTING`.
pub const POSTROUTING: u32 = 4;

/// Fingerprint of what a table holds: two equal ones of a table mean that nobody has changed it in between. Packets do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// The fingerprint of the table `inet NAME`; `None` if there is none.
///
/// # Errors
/// The privilege is missing.
pub fn fingerprint(name: &str) -> io::Result<Option<Fingerprint>> {
    let mut outcome = Ok(None);
    for _ in 0..3 {
        outcome = taken(name);
        // A set may go while the list of sets is read: then the table is on its way out, or is being replaced.
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if !outcome.as_ref().is_err_and(absent) {
            break;
        }
    }
    outcome
}

fn taken(name: &str) -> io::Result<Option<Fingerprint>> {
    let mut netlink = Netlink::open(NETLINK_NETFILTER)?;
    let mut ask = |kind, body: &[u8]| netlink.dump(SUBSYSTEM | kind, body);
    let of_table = |reply: &Reply| named(reply, 1) == Some(name.as_bytes());
    let all = header(INET);
    if !ask(GET_TABLE, &all)?.iter().any(of_table) {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    // Handles are never used twice: an object that was replaced has another.
    for chain in ask(GET_CHAIN, &all)?.iter().filter(|reply| of_table(reply)) {
        hash(&mut hasher, chain, &[2, 3, 4, 5]);
    }
    let ours = with_attribute(all.to_vec(), 1, name);
    for rule in ask(GET_RULE, &ours)?.iter().filter(|reply| of_table(reply)) {
        hash(&mut hasher, rule, &[2, 3]);
    }
    for set in ask(GET_SET, &ours)?.iter().filter(|reply| of_table(reply)) {
        hash(&mut hasher, set, &[2, 3]);
        let flags = attribute(&set.body, 3).and_then(|flags| flags.first_chunk::<4>());
        let flags = flags.map_or(0, |flags| u32::from_be_bytes(*flags));
        let Some(set_name) = attribute(&set.body, 2).and_then(text) else {
            continue;
        };
        if flags & CHANGING_SETS != 0 {
            continue;
        }
        for elements in ask(GET_ELEMENTS, &with_attribute(ours.clone(), 2, &set_name))? {
            attribute(&elements.body, 3).hash(&mut hasher);
        }
    }
    Ok(Some(Fingerprint(hasher.finish())))
}

fn hash(hasher: &mut DefaultHasher, reply: &Reply, attributes: &[u16]) {
    for kind in attributes {
        attribute(&reply.body, *kind).hash(hasher);
    }
}

/// A chain that the kernel hands packets to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// Family of its table, as `nft` names it.
    pub family: &'static str,
    /// Table of the chain.
    pub table: String,
    /// Name of the chain.
    pub name: String,
    /// Place of the chain on the way of packets, as a number of the kernel such as [`FORWARD`].
    pub hook: u32,
    /// The chain drops what no rule decides on.
    pub drops: bool,
}

/// All base chains for IPv4 and IPv6.
///
/// # Errors
/// The privilege is missing.
pub fn base_chains() -> io::Result<Vec<BaseChain>> {
    let mut netlink = Netlink::open(NETLINK_NETFILTER)?;
    let listed = netlink.dump(SUBSYSTEM | GET_CHAIN, &header(ANY))?;
    Ok(listed.iter().filter_map(base_chain).collect())
}

fn base_chain(reply: &Reply) -> Option<BaseChain> {
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(*bytes.first_chunk::<4>()?));
    let hook = find(attribute(&reply.body, 4)?, 1).and_then(number)?;
    Some(BaseChain {
        family: match reply.body.first()? {
            1 => "inet",
            2 => "ip",
            10 => "ip6",
            _ => return None,
        },
        table: attribute(&reply.body, 1).and_then(text)?,
        name: attribute(&reply.body, 3).and_then(text)?,
        hook,
        drops: attribute(&reply.body, 5).and_then(number) == Some(0),
    })
}

/// `struct nfgenmsg`.
const fn header(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

/// Appends a text as attribute.
fn with_attribute(mut body: Vec<u8>, kind: u16, value: &str) -> Vec<u8> {
    let length = u16::try_from(4 + value.len() + 1).unwrap_or(u16::MAX);
    body.extend_from_slice(&length.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value.as_bytes());
    body.push(0);
    body.resize(body.len().next_multiple_of(4), 0);
    body
}

/// An attribute's value in a message of nfnetlink.
pub(crate) fn attribute(body: &[u8], kind: u16) -> Option<&[u8]> {
    find(body.get(4..)?, kind)
}

fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(attributes).flatten();
    let found = attributes.find(|attribute| attribute.kind() == kind)?;
    let length = usize::from(found.length());
    found.into_inner().get(4..length)
}

fn named(reply: &Reply, kind: u16) -> Option<&[u8]> {
    let value = attribute(&reply.body, kind)?;
    value.strip_suffix(&[0])
}

/// A text that ends with a zero, without what would disturb a log: processes name themselves as they like.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    Some(text.chars().filter(|c| !c.is_control()).collect())
}
