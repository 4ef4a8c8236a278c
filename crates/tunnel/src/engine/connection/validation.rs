//! Bounds on what leaves before the peer was heard, or has proved that it is where it says (RFC 9000 §8).

use quinn_proto::Side;

/// To an address that has not proved itself a server sends so many times what came from there (RFC 9000 §8).
const UNPROVEN: u64 = 3;

/// Room for a datagram of the handshake, in bytes, whatever is in it.
pub(super) const LEAST_ROOM: u64 = 1500;

/// Bound on what a client sends to a peer that it has not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWords {
    /// Datagrams that may leave.
    pub datagrams: u64,
    /// The first ones leave three times (`handshake_copies.rs`), for a path that loses.
    pub copies: bool,
}

/// Account of what came from the peer's address and went there. quinn keeps one too, but knows of no copies.
#[derive(Debug)]
pub(super) struct AddressValidation {
    /// The address has proved itself.
    proven: bool,
    /// Bytes received, and bytes sent, copies included.
    received: u64,
    sent: u64,
    /// Bound of what may leave before the peer was heard (client).
    first: Option<FirstWords>,
    /// Nothing leaves any more.
    silenced: bool,
    /// The peer's address changed, and the new one was not asked yet.
    moved: bool,
}

impl AddressValidation {
    /// Of a peer that has sent nothing to this `side`; a client has chosen the address itself.
    pub(super) fn new(side: Side) -> Self {
        Self {
            proven: side.is_client(),
            received: 0,
            sent: 0,
            first: None,
            silenced: false,
            moved: false,
        }
    }

    /// Notes that the handshake is complete.
    pub(super) fn on_established(&mut self) {
        self.proven = true;
    }

    /// Notes that the connection began with a datagram of `size` bytes.
    pub(super) fn began_with(&mut self, size: usize) {
        self.received += size as u64;
    }

    /// Notes a datagram of `size` bytes from the peer.
    pub(super) fn on_datagram(&mut self, size: usize) {
        self.first = None;
        self.received += size as u64;
    }

    /// Notes `datagrams` of `size` bytes together that leave.
    pub(super) fn on_sent(&mut self, size: usize, datagrams: u64) {
        self.sent += size as u64;
        if let Some(first) = &mut self.first {
            first.datagrams = first.datagrams.saturating_sub(datagrams);
        }
    }

    /// Bytes that may leave for an address of which nothing is proved yet.
    pub(super) fn room(&self) -> u64 {
        if self.proven {
            return u64::MAX;
        }
        (self.received * UNPROVEN).saturating_sub(self.sent)
    }

    /// True if not even a datagram may leave before more has come.
    pub(super) fn is_muted(&self) -> bool {
        let spent = self.first.is_some_and(|first| first.datagrams == 0);
        self.silenced || spent || self.room() < LEAST_ROOM
    }

    /// Bounds what leaves before the peer was heard.
    pub(super) fn set_first_words(&mut self, first: FirstWords) {
        self.first = Some(first);
    }

    /// True if the first datagrams may leave more than once.
    pub(super) fn permits_copies(&self) -> bool {
        self.first.is_none_or(|first| first.copies)
    }

    /// True once a datagram came, unless nothing bounds what leaves before.
    pub(super) fn is_heard(&self) -> bool {
        self.first.is_none()
    }

    /// Lets nothing leave any more.
    pub(super) fn silence(&mut self) {
        self.silenced = true;
    }

    /// Notes whether a datagram has changed the peer's address.
    pub(super) fn on_address(&mut self, changed: bool) {
        self.moved |= changed;
    }

    /// True while a new address is to be asked to prove itself.
    pub(super) fn is_moved(&self) -> bool {
        self.moved
    }

    /// Notes that the new address was asked, or need not be.
    pub(super) fn end_move(&mut self) {
        self.moved = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_sends_no_more_than_three_times_what_came() {
        let mut server = AddressValidation::new(Side::Server);
        assert!(server.is_muted());
        server.began_with(1200);
        assert_eq!(server.room(), 3600);
        server.on_sent(2400, 2);
        assert!(server.is_muted());
        server.on_datagram(1200);
        assert_eq!(server.room(), 4800);
        server.on_established();
        assert_eq!(server.room(), u64::MAX);
    }

    #[test]
    fn a_client_that_hears_nobody_says_no_more_than_its_first_words() {
        let mut client = AddressValidation::new(Side::Client);
        client.set_first_words(FirstWords {
            datagrams: 2,
            copies: false,
        });
        assert!(!client.permits_copies() && !client.is_heard());
        client.on_sent(2400, 2);
        assert!(client.is_muted());
        client.on_datagram(100);
        assert!(!client.is_muted() && client.is_heard());
        client.silence();
        assert!(client.is_muted());
    }
}
