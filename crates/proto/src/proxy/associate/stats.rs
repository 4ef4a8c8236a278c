//! What associations have carried, and what not, for `status`.

/// Reason why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Not from the application that has the association.
    Stranger,
    /// Without a head that can be read, or a packet with wrong lengths or checksums.
    Malformed,
    /// One part of several.
    Fragment,
    /// Longer than a packet has room for.
    Large,
    /// To an address of a family of which the server has assigned none.
    Family,
    /// To a name that has no address.
    Unresolved,
    /// No room among those that wait for names, or in the application's socket.
    Overflow,
    /// A rule keeps it from the tunnel.
    Rule,
    /// No tunnel.
    NoTunnel,
}

/// Datagrams that were dropped, by [`Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the causes are named alike")]
pub struct Drops {
    pub stranger: u64,
    pub malformed: u64,
    pub fragment: u64,
    pub large: u64,
    pub family: u64,
    pub unresolved: u64,
    pub overflow: u64,
    pub rule: u64,
    pub no_tunnel: u64,
}

/// Counters for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssociateStats {
    /// Associations since the start.
    pub opened: u64,
    /// Datagrams that became packets.
    pub sent: u64,
    /// Datagrams that came for applications.
    pub received: u64,
    /// The others.
    pub dropped: Drops,
}

impl Drops {
    pub(super) fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Stranger => &mut self.stranger,
            Cause::Malformed => &mut self.malformed,
            Cause::Fragment => &mut self.fragment,
            Cause::Large => &mut self.large,
            Cause::Family => &mut self.family,
            Cause::Unresolved => &mut self.unresolved,
            Cause::Overflow => &mut self.overflow,
            Cause::Rule => &mut self.rule,
            Cause::NoTunnel => &mut self.no_tunnel,
        } += 1;
    }
}
