//! What a user does over the link while it is measured.

use std::time::Duration;

use bentpipe_units::{ByteCount, TimeSpan};
use serde::Deserialize;

use super::choice::{
    Background, Browser, Collection, Connections, ContentKind, Direction, HandshakeEnd, Protocol,
    Tls,
};
use crate::workload::{CONNECTIONS_PER_HOST, USUAL_TTL};

/// `[task.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// One file over one new connection, in clear; its SHA-256 is checked.
    Transfer {
        /// Length of the file.
        size: ByteCount,
        /// Direction of the file.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// True if the contender's start counts.
        #[serde(default)]
        cold: bool,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// One TCP stream of iperf3, by its own clock and count.
    Iperf {
        /// Length of the stream.
        size: ByteCount,
        /// Direction of the stream.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Small objects, one after another, each over a new connection.
    Request {
        /// Length of an object.
        #[serde(default = "small")]
        size: ByteCount,
        /// Number of objects.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// Transactions of an application, one after another: a request goes up, and when it is there, a
    /// response comes down.
    Session {
        /// Number of transactions.
        count: u32,
        /// Length of a request.
        #[serde(default = "small")]
        request: ByteCount,
        /// Length of a response.
        #[serde(default = "small")]
        response: ByteCount,
        /// Time from the beginning of one to that of the next, if it is done by then; at once if absent.
        every: Option<TimeSpan>,
        /// Use of connections.
        #[serde(default)]
        connections: Connections,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
        /// True if the contender's start counts, with the first transaction.
        #[serde(default)]
        cold: bool,
    },
    /// TLS handshakes with the web's hosts by turns, one after another, each over a new connection;
    /// or the contender's own.
    Handshake {
        /// Number of handshakes; the contender has one in each run.
        count: u32,
        /// End of the handshake.
        #[serde(default)]
        to: HandshakeEnd,
        /// Version of TLS with the web's hosts.
        #[serde(default)]
        tls: Tls,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Pages over HTTPS.
    Page {
        /// Number of pages.
        count: u32,
        /// Program that loads them.
        #[serde(default)]
        browser: Browser,
        /// From where.
        #[serde(default)]
        pages: Collection,
        /// Objects of each page, which its document names on its own host; in place of `pages`.
        objects: Option<u16>,
        /// Web servers on which sessions are by turns; of pages with `objects`.
        #[serde(default = "one_server")]
        servers: u8,
        /// Pages that each browser loads one after another from one server, over connections that it keeps; of pages with `objects`.
        #[serde(default = "one")]
        in_session: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// True if hosts' names are asked for over the link, or known.
        #[serde(default)]
        dns: bool,
        /// Time for which the answers to these questions hold, in whole seconds; longer than any run if it is not said.
        dns_ttl: Option<TimeSpan>,
        /// True if the contender's start counts, with the first page.
        #[serde(default)]
        cold: bool,
        /// Version of HTTP; of the scripted browser, as are the next four.
        #[serde(default)]
        protocol: Protocol,
        /// Use of connections.
        #[serde(default)]
        connections: Connections,
        /// Encryption of connections.
        #[serde(default)]
        tls: Tls,
        /// Connections to one host at most.
        #[serde(default = "usual_connections")]
        parallel: u8,
        /// Direction of objects; up, each is sent on a connection of its own, in clear.
        #[serde(default)]
        direction: Direction,
        /// True if all sessions, of one page each if nothing is said, are at one time, each by a browser of its own, instead of one
        /// after another.
        #[serde(default)]
        at_once: bool,
    },
    /// Several files at once, each over a new connection, in clear; their SHA-256 is checked.
    Parallel {
        /// Length of each file.
        size: ByteCount,
        /// Number of files.
        count: u32,
        /// Direction of the files.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// Small files, one after another over one connection that is kept.
    Objects {
        /// Length of each file.
        size: ByteCount,
        /// Number of files.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// Files by FTP over one control connection, one after another, each over a data connection of its own.
    Ftp {
        /// Length of the shortest file.
        size: ByteCount,
        /// Length of the longest file; all are alike if absent. Lengths between lie evenly by their logarithm.
        longest: Option<ByteCount>,
        /// Number of files.
        #[serde(default = "one")]
        count: u32,
        /// Direction of the files.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// One direction of a telephone call: a datagram every 20 ms.
    Voice {
        /// Time for which the call lasts.
        length: TimeSpan,
        /// Direction of the datagrams.
        #[serde(default)]
        direction: Direction,
    },
    /// As `request`, while a file without end is being transferred.
    Loaded {
        /// Length of an object.
        #[serde(default = "small")]
        size: ByteCount,
        /// Number of objects.
        count: u32,
        /// Direction of the file.
        background: Background,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Nature of what is sent.
        #[serde(default)]
        content: ContentKind,
    },
    /// Datagrams to the web and back, five a second.
    Echo {
        /// Number of datagrams.
        count: u32,
        /// Direction of a file without end that is on its way meanwhile.
        background: Option<Background>,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
}

/// Number of files, and of a session's pages, if nothing is said.
fn one() -> u32 {
    1
}

/// Number of web servers if nothing is said.
fn one_server() -> u8 {
    1
}

/// Connections to a host if nothing is said.
fn usual_connections() -> u8 {
    CONNECTIONS_PER_HOST as u8
}

/// Length of what a request fetches if nothing is said.
fn small() -> ByteCount {
    ByteCount::new(1000)
}

impl Task {
    /// True if the contender is started while the clock runs.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        matches!(
            self,
            Self::Transfer { cold: true, .. }
                | Self::Page { cold: true, .. }
                | Self::Session { cold: true, .. }
                | Self::Handshake {
                    to: HandshakeEnd::Contender,
                    ..
                }
        )
    }

    /// True if a real browser is needed.
    #[must_use]
    pub fn needs_chromium(&self) -> bool {
        matches!(
            self,
            Self::Page {
                browser: Browser::Chromium,
                ..
            }
        )
    }

    /// Time for which names that are asked for hold; `None` if none are asked for.
    #[must_use]
    pub fn names_hold(&self) -> Option<Duration> {
        match self {
            Self::Page {
                dns: true, dns_ttl, ..
            } => Some(dns_ttl.map_or(USUAL_TTL, TimeSpan::get)),
            _ => None,
        }
    }

    /// True if iperf3 is needed.
    #[must_use]
    pub fn needs_iperf3(&self) -> bool {
        matches!(self, Self::Iperf { .. })
    }

    /// True if it needs UDP.
    #[must_use]
    pub fn needs_udp(&self) -> bool {
        matches!(self, Self::Voice { .. } | Self::Echo { .. }) || self.is_http3()
    }

    /// True if it is about HTTP/3, so that of UDP it needs that alone.
    #[must_use]
    pub fn is_http3(&self) -> bool {
        matches!(
            self,
            Self::Page {
                protocol: Protocol::H3,
                ..
            }
        )
    }
}
