//! The reader and writer under every header of the tunnel: a cursor over a complete body, and `length, body` framing.
//!
//! Runs on bytes just read from a QUIC stream, therefore on hostile input: nothing here indexes, allocates by a length
//! from the network, or panics. Knows integers, bytes and TLVs; what they mean is the business of the other files.

use super::{DecodeError, varint};

/// Cursor over one complete body. Running out of bytes is [`DecodeError::Truncated`], never "need more".
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// `what` names the body in errors.
    pub(super) const fn new(body: &'a [u8], what: &'static str) -> Self {
        Self { rest: body, what }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        varint::take(&mut self.rest).ok_or(DecodeError::Truncated(self.what))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated(self.what))?;
        self.rest = rest;
        Ok(*head)
    }

    /// `length, value`; the value can be no longer than what is left.
    pub(super) fn sized(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        self.take(usize::try_from(len).map_err(|_| DecodeError::Truncated(self.what))?)
    }

    /// The next `id, length, value`, or `None` at the end.
    pub(super) fn tlv(&mut self) -> Result<Option<(u64, &'a [u8])>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let id = self.varint()?;
        Ok(Some((id, self.sized()?)))
    }

    /// Skips a TLV tail to the end, checking only that it is well formed.
    pub(super) fn skip_tail(&mut self) -> Result<(), DecodeError> {
        while self.tlv()?.is_some() {}
        Ok(())
    }

    /// The end of a body that has no tail.
    pub(super) const fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes(self.what))
        }
    }
}

/// Splits `length, body` off the start of `buf`: the body and the bytes used. `None`: need more bytes.
/// A length above `max` is an error at once, before any of the body has arrived.
pub(super) fn split_sized<'a>(
    buf: &'a [u8],
    what: &'static str,
    max: usize,
) -> Result<Option<(&'a [u8], usize)>, DecodeError> {
    let Some((length, used)) = varint::decode(buf) else {
        return Ok(None);
    };
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    if len > max {
        return Err(DecodeError::TooLong { what, length, max });
    }
    Ok(buf.get(used..used + len).map(|body| (body, used + len)))
}

/// Appends `length, bytes`.
pub(super) fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    varint::encode(u64::try_from(bytes.len()).unwrap_or(varint::MAX), out);
    out.extend_from_slice(bytes);
}

/// Appends `id, length, value`.
pub(super) fn put_tlv(id: u64, value: &[u8], out: &mut Vec<u8>) {
    varint::encode(id, out);
    put_sized(value, out);
}

/// Appends `id, length, value` with an integer as value.
pub(super) fn put_tlv_varint(id: u64, value: u64, out: &mut Vec<u8>) {
    let mut bytes = Vec::with_capacity(8);
    varint::encode(value, &mut bytes);
    put_tlv(id, &bytes, out);
}
