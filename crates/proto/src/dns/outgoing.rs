//! A query on its way to a resolver that may be spoofed, and what comes back.
//!
//! An answer counts only if identifier, question and the random case of its letters (draft-vixie-dnsext-dns0x20) are
//! those of the query; that it came from the resolver's address to the query's own random port is the socket's business. Everything
//! else is dropped, and the wait goes on.

use domain::base::Message;

use super::answer::Answer;
use super::query::{self, Query, RD};
use super::rcode;

/// Use of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer, with identifier 0 and the name as it was asked for.
    Answer(Vec<u8>),
    /// The resolver failed or refuses: another may know.
    Failed(Vec<u8>),
    /// The resolver does not speak EDNS: ask without.
    WithoutEdns,
    /// To be asked for again over TCP: the answer is cut off, or it has lost the letters' case, which honest resolvers may do.
    Tcp,
    /// No answer to this.
    Drop,
}

/// A query to a resolver.
#[derive(Clone, Debug)]
pub struct Outgoing {
    message: Vec<u8>,
    id: u16,
    /// Name, type and class as sent.
    sent: Vec<u8>,
    query: Query,
}

impl Outgoing {
    /// `id` and the bits of `case` must be unpredictable; `case` is used letter by letter, as often as it takes.
    #[must_use]
    pub fn new(query: &Query, id: u16, case: u64, edns: bool) -> Self {
        let mut sent = query.question.clone();
        let name = sent.len().saturating_sub(4);
        let letters = sent
            .iter_mut()
            .take(name)
            .filter(|b| b.is_ascii_alphabetic());
        for (index, letter) in letters.enumerate() {
            if case.rotate_right(u32::try_from(index % 64).unwrap_or(0)) & 1 == 1 {
                *letter ^= 0x20;
            }
        }
        let flags = RD | 0x0020 | if query.unchecked { 0x0010 } else { 0 };
        let dnssec_ok = edns.then(|| query.dnssec_ok());
        Self {
            message: query::encode(id, flags, &sent, dnssec_ok),
            id,
            sent,
            query: query.clone(),
        }
    }

    /// The message.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.message
    }

    /// Looks at what came back; `tcp`: over a connection, where nobody else can have said it.
    #[must_use]
    pub fn judge(&self, bytes: &[u8], tcp: bool) -> Verdict {
        let Ok(message) = Message::from_slice(bytes) else {
            return Verdict::Drop;
        };
        let header = message.header();
        if header.id() != self.id || !header.qr() {
            return Verdict::Drop;
        }
        // Without a question there are only complaints about EDNS (RFC 6891 §7).
        let complains = [rcode::FORMERR, rcode::NOTIMP].contains(&header.rcode().to_int().into());
        if complains && message.opt().is_none() && tcp_or_same(message, &self.sent, tcp) {
            return Verdict::WithoutEdns;
        }
        let Ok(answer) = Answer::decode(bytes, &self.query) else {
            return Verdict::Drop;
        };
        if header.tc() && !tcp {
            return Verdict::Tcp;
        }
        if !tcp_or_same(message, &self.sent, tcp) {
            return Verdict::Tcp;
        }
        let mut out = bytes.to_vec();
        restore(&mut out, &self.query.question);
        if answer.is_failure() {
            Verdict::Failed(out)
        } else {
            Verdict::Answer(out)
        }
    }
}

/// The question is the one sent, letter by letter; a connection need not be as strict.
fn tcp_or_same(message: &Message<[u8]>, sent: &[u8], tcp: bool) -> bool {
    tcp || query::question(message).is_some_and(|question| question == sent)
}

/// Identifier 0 and the letters that the client sent.
fn restore(out: &mut [u8], question: &[u8]) {
    if let Some(id) = out.get_mut(..2) {
        id.fill(0);
    }
    if let Some(place) = out.get_mut(super::HEADER..super::HEADER + question.len()) {
        place.copy_from_slice(question);
    }
}
