//! The server's file: where it listens and which clients it serves.

mod clients;
mod dialling;
mod les;
mod listening;
mod packets;
mod restart;
mod sle;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::Source;
use bentpipe_congestion::Kind;
use bentpipe_units::{ByteCount, TimeSpan};
use ipnet::Ipv6Net;
use serde::Deserialize;
use toml::Spanned;

use super::dns::ServerDns;
use super::identity::{self, Identity};
use super::metrics::MetricsTable;
use super::monitoring::Monitoring;
use super::page::{self, Page};
use super::responder::{self, Responder};
use super::value::{self, ServerAddress, Transport};
use super::web::{self, ServerWeb, ServerWebTable};
use super::{ConfigError, DEFAULT_DRAIN, Role, parsed, state_dir};
use clients::{Entry, Limits};

pub use clients::{Client, ClientKey};
pub(super) use clients::{DEFAULT_MAX_FLOWS, check_name};
pub(super) use dialling::DEFAULT_CONNECT;
pub(crate) use dialling::NAT64_LENGTHS;
pub use dialling::{Dialling, Nat64};
pub use les::LesListening;
pub use listening::{Listening, TlsListening};
pub(super) use listening::{listen, one_of_each};
pub use packets::Packets;
pub use sle::{SleIntake, SleListening};

/// Configuration of `bentpipe server`.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Identity of the server, and the key exchange that it allows.
    pub identity: Identity,
    /// Addresses that it serves, and with how many threads.
    pub listening: Listening,
    /// The clients that may connect; names and keys unique.
    pub clients: Vec<Client>,
    /// Ceiling of what all tunnels hold together; `None`: as the machine's memory suggests.
    pub total_memory: Option<ByteCount>,
    /// Pools of clients' addresses in the tunnel.
    pub packets: Packets,
    /// Settings by which it reaches destinations.
    pub dialling: Dialling,
    /// Time for which a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Remembers the paths to the clients.
    pub state_dir: PathBuf,
    /// Controller that paces the forward link unless the client asks for something else.
    pub controller: Kind,
    /// Places at which it tells about itself.
    pub monitoring: Monitoring,
    /// Responder that clients measure their link with.
    pub responder: Option<Responder>,
    /// Places for flows that are sealed beside the tunnels, if it takes some.
    pub sle: Option<SleListening>,
    /// Pages that it fetches ahead.
    pub web: ServerWeb,
    /// The server gives up what it does not need once it runs.
    pub sandbox: bool,
}

impl ServerConfig {
    /// Reads and validates `path` and the private key file it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file: QuicServerFile = parsed(source, Role::Server)?;
        one_of_each(source, "listen", &file.listen)?;
        let span = file.listen.span();
        let listen = Spanned::new(span, value::both_families(file.listen.into_inner()));
        let packets = packets::pools(source, file.packets)?;
        let keys: Vec<_> = file.client.iter().filter_map(Entry::listed).collect();
        let number = file.client.len();
        let clients = clients::clients(
            source,
            file.client,
            &file.limits,
            listen.get_ref(),
            &packets,
        )?;
        let shards = file.shards.map(|shards| listening::shards(source, &shards));
        let (identity, own) = Identity::read(source, &file.private_key_file, file.allow_classical)?;
        for key in keys {
            identity::check_peer_key(source, &own, key.get_ref(), &key.span())?;
        }
        Ok(Self {
            file: source.path().to_owned(),
            identity,
            listening: Listening {
                addresses: source.placed(listen),
                tls: listening::tls(source, file.listen_tls, file.tls)?,
                les: les::les(source, file.les, &packets, (&own, number))?,
                public_address: file.public_address,
                shards: shards.transpose()?,
            },
            clients,
            total_memory: file.limits.total(source)?,
            packets,
            dialling: Dialling {
                connect_timeout: file.connect_timeout.map_or(DEFAULT_CONNECT, TimeSpan::get),
                dns: file.dns,
                nat64: file.nat64.map_or(Ok(Nat64::Discovered), |prefixes| {
                    dialling::nat64(source, prefixes)
                })?,
            },
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            state_dir: state_dir(source, file.state_dir.as_ref())?,
            controller: file.controller,
            monitoring: Monitoring::checked(source, file.status_socket, file.metrics, file.page)?,
            responder: file.responder.map(|table| table.placed(source)),
            sle: sle::sle(source, file.sle)?,
            web: web::server(source, file.web)?,
            sandbox: file.sandbox,
        })
    }

    /// Packets of LES, if it takes some.
    #[must_use]
    pub fn les(&self) -> Option<&LesListening> {
        self.listening.les.as_ref()
    }

    /// Keys that differ in `fresh` and are read only when a server starts, by their names in the file.
    #[must_use]
    pub fn needing_restart(&self, fresh: &Self) -> Vec<&'static str> {
        restart::needed(self, fresh)
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuicServerFile {
    // Seen before this is parsed: the other transports have files of another shape.
    #[serde(default, rename = "transport")]
    _transport: Transport,
    private_key_file: Spanned<PathBuf>,
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
    listen_tls: Option<listening::ListenTls>,
    tls: Option<Spanned<listening::TlsTable>>,
    #[serde(default, deserialize_with = "value::some_text")]
    public_address: Option<ServerAddress>,
    shards: Option<Spanned<u16>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    client: Vec<Entry>,
    #[serde(default)]
    limits: Limits,
    packets: Option<Spanned<Packets>>,
    connect_timeout: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    state_dir: Option<Spanned<PathBuf>>,
    #[serde(default, deserialize_with = "value::text")]
    controller: Kind,
    #[serde(default)]
    dns: ServerDns,
    #[serde(default, deserialize_with = "dialling::nat64_prefixes")]
    nat64: Option<Spanned<Vec<Ipv6Net>>>,
    #[serde(default)]
    allow_classical: bool,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    page: Option<page::PageTable>,
    responder: Option<responder::Table>,
    sle: Option<Spanned<sle::SleTable>>,
    les: Option<Spanned<les::LesTable>>,
    web: Option<Spanned<ServerWebTable>>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}
