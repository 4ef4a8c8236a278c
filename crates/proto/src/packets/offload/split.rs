//! What was read, in single packets, as they would have come without an offload: with lengths, numbers and checksums.

use bytes::Bytes;

use super::{DATAGRAMS, NEEDS_CHECKSUM, ONE, PREFIX, Prefix, UDP_CHECKSUM, UDP_HEAD};
use super::{put, set_lengths};
use crate::packets::build::{Pair, checksum};
use crate::packets::ip::UDP;
use crate::packets::{Header, MTU};

/// What was read is no packet of this device, or not the one that the prefix describes; nothing of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet that its prefix does not describe")]
pub struct Mismatch;

/// Hands on the packets of one read, none of it larger than [`MTU`]. Each has storage of its own: what waits long must not
/// keep that of others.
///
/// # Errors
/// [`Mismatch`]: then nothing was handed on.
pub fn split(read: &[u8], mut emit: impl FnMut(Bytes)) -> Result<(), Mismatch> {
    let (prefix, packet) = read.split_first_chunk::<PREFIX>().ok_or(Mismatch)?;
    let prefix = Prefix::read(*prefix);
    match prefix.kind {
        ONE if packet.len() <= MTU => emit(one(prefix, packet)?),
        DATAGRAMS => datagrams(prefix, packet, emit)?,
        _ => return Err(Mismatch),
    }
    Ok(())
}

/// A single packet, whose checksum the kernel may have left to us.
fn one(prefix: Prefix, packet: &[u8]) -> Result<Bytes, Mismatch> {
    if prefix.flags & NEEDS_CHECKSUM == 0 {
        return Ok(Bytes::copy_from_slice(packet));
    }
    let start = usize::from(prefix.start);
    let place = start + usize::from(prefix.place);
    let mut whole = packet.to_vec();
    if place + 2 > whole.len() {
        return Err(Mismatch);
    }
    // The sum of the pseudo-header stands where the checksum is to be, and so it is part of the sum.
    let sum = transmitted(checksum(0, &packet[start..]));
    put(&mut whole, place, sum);
    Ok(whole.into())
}

/// The packets whose content stands behind one header, each with a copy of that.
fn datagrams(prefix: Prefix, packet: &[u8], mut emit: impl FnMut(Bytes)) -> Result<(), Mismatch> {
    let header = Header::parse(packet).ok_or(Mismatch)?;
    let pair = Pair::new(header.source, header.destination).ok_or(Mismatch)?;
    let (size, heads) = (usize::from(prefix.size), header.offset + UDP_HEAD);
    let fits = size > 0 && heads + size <= MTU && heads < packet.len();
    if header.protocol != UDP || header.fragment || !fits {
        return Err(Mismatch);
    }
    for (number, content) in packet[heads..].chunks(size).enumerate() {
        let mut single = Vec::with_capacity(heads + content.len());
        single.extend_from_slice(&packet[..heads]);
        single.extend_from_slice(content);
        let length = single.len();
        set_lengths(&mut single, &header, length, number);
        let place = header.offset + UDP_CHECKSUM;
        put(&mut single, place, 0);
        let datagram = &single[header.offset..];
        let sum = transmitted(checksum(pair.sum(UDP, datagram.len()), datagram));
        put(&mut single, place, sum);
        emit(single.into());
    }
    Ok(())
}

/// The checksum as it is sent: 0 would say that there is none (RFC 768).
const fn transmitted(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}
