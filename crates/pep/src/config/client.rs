//! The client's file: its servers, what it takes in (`front.rs`) and the link it crosses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::{Placed, Source};
use bentpipe_congestion::Kind;
use bentpipe_proto::fec::Fec;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::dns::{self, ClientDns};
use super::dssl::{self, ClientDsslTable};
use super::fec;
use super::front::{FrontEnds, Intercept, ProxyFrontEnd};
use super::identity::{self, Identity};
use super::les::{self, ClientLesTable};
use super::metering::{self, Metering};
use super::metrics::MetricsTable;
use super::monitoring::Monitoring;
use super::page;
use super::publish::{self, Publish};
use super::rule::Rule;
use super::sle::{self, ClientSle};
use super::value::{self, ServerAddress, Transport};
use super::web::{self, ClientWebTable};
use super::{ConfigError, DEFAULT_DRAIN, DEFAULT_MEMORY, Role, parsed, state_dir};
use crate::keys::PublicKey;
use bentpipe_tunnel::engine::{MAX_ACK_PACKETS, MAX_INITIAL_WINDOW, Profile};

/// Time for which a flow waits for the tunnel when nothing else is said.
const DEFAULT_OPEN_WAIT: Duration = Duration::from_secs(30);

/// Configuration of `bentpipe client`.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Identity of the client, and the key exchange that it allows.
    pub identity: Identity,
    /// The servers in order of preference; at least one.
    pub servers: Vec<Server>,
    /// Front ends: traffic that it takes in.
    pub front: FrontEnds,
    /// The links below the tunnel; at least one.
    pub links: Vec<Link>,
    /// Time for which a new flow waits for the tunnel before it is refused.
    pub open_wait: Duration,
    /// Time for which a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Remembers the last good server addresses and the paths to them.
    pub state_dir: PathBuf,
    /// Ceilings of buffered data.
    pub memory: MemoryCeilings,
    /// Ports of the server that deliver to hosts behind this client.
    pub publish: Vec<Publish>,
    /// Flows that it seals beside the tunnel, if it does.
    pub sle: Option<ClientSle>,
    /// Cost of the bytes on the link.
    pub metering: Metering,
    /// Settings of DNS here, if it is answered.
    pub dns: Option<Placed<ClientDns>>,
    /// The client gives up what it does not need once it runs.
    pub sandbox: bool,
    /// Places at which it tells about itself.
    pub monitoring: Monitoring,
}

/// Ceilings of buffered data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCeilings {
    /// Ceiling of one tunnel, and of the flows that are sealed beside it.
    pub tunnel: ByteCount,
    /// Ceiling of what all tunnels hold together; `None`: as the machine's memory suggests.
    pub total: Option<ByteCount>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address of the server.
    #[serde(deserialize_with = "value::text")]
    pub address: ServerAddress,
    /// Key that the server proves to hold.
    pub public_key: PublicKey,
    /// Address at which the server takes TLS connections, for networks that let no UDP pass.
    #[serde(default, deserialize_with = "value::some_text")]
    pub tls: Option<ServerAddress>,
    /// Name that the TLS connection asks for (SNI); `None`: none.
    #[serde(default)]
    pub tls_name: Option<String>,
    /// Wires that the tunnel may use.
    #[serde(default)]
    pub wire: WirePreference,
    /// File of a one-time key, with which a client that the server does not know names its own.
    pub enrolment_key_file: Option<PathBuf>,
}

impl Server {
    /// Refuses settings of a TLS connection that there is not, and a name that no server can have.
    fn check(&self, source: &Source, index: usize) -> Result<(), ConfigError> {
        let fault = |key: &str, text: String| {
            Err(source.error_at_key(&format!("server.{index}.{key}"), text))
        };
        if self.tls.is_none() && self.wire == WirePreference::Tls {
            return fault(
                "wire",
                "`wire = \"tls\"` needs `tls = \"HOST:PORT\"`, where the server has `listen_tls`"
                    .into(),
            );
        }
        match (&self.tls, &self.tls_name) {
            (None, Some(_)) => fault("tls_name", "`tls_name` needs `tls = \"HOST:PORT\"`".into()),
            (Some(_), Some(name)) if !is_dns_name(name) => fault(
                "tls_name",
                format!("`tls_name` is {name:?}; expected a DNS name such as \"www.example.com\""),
            ),
            _ => Ok(()),
        }
    }
}

fn is_dns_name(name: &str) -> bool {
    rustls::pki_types::DnsName::try_from(name).is_ok()
}

/// Wires below the tunnel that a client may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WirePreference {
    /// UDP, and TLS where UDP does not pass, if the server has an address for that.
    #[default]
    Auto,
    /// UDP alone.
    Udp,
    /// TLS alone.
    Tls,
}

/// Facts about the link below the tunnel, and settings of its directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Kind of link.
    pub profile: Profile,
    /// Settings that the server is asked to send with.
    pub forward: Direction,
    /// Settings that this client sends with.
    pub return_link: Direction,
}

impl Link {
    /// True if one of its directions has a highest rate.
    fn is_paced(&self) -> bool {
        self.forward.max_rate.is_some() || self.return_link.max_rate.is_some()
    }
}

/// Settings of one direction; `None`: as the sender thinks best. Rates are of the IP layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Congestion controller.
    #[serde(default, deserialize_with = "value::some_text")]
    pub controller: Option<Kind>,
    /// Initial congestion window in packets.
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_INITIAL_WINDOW }>"
    )]
    pub initial_window: Option<u64>,
    /// Never faster than this.
    #[serde(default, deserialize_with = "value::positive_rate")]
    pub max_rate: Option<BitRate>,
    /// The rate that the link's operator has been sold: taken for true before it was measured.
    #[serde(default, deserialize_with = "value::positive_rate")]
    pub rate: Option<BitRate>,
    /// Packets per ACK, fixed.
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_ACK_PACKETS as u64 }>"
    )]
    pub ack_packets: Option<u64>,
    /// Repair of losses.
    #[serde(default, deserialize_with = "fec::some")]
    pub fec: Option<Fec>,
}

impl Direction {
    /// Settings of this, and of `common` where this has none.
    fn or(self, common: Self) -> Self {
        Self {
            controller: self.controller.or(common.controller),
            initial_window: self.initial_window.or(common.initial_window),
            max_rate: self.max_rate.or(common.max_rate),
            rate: self.rate.or(common.rate),
            ack_packets: self.ack_packets.or(common.ack_packets),
            fec: self.fec.or(common.fec),
        }
    }

    /// The fixed ratio of packets to ACKs.
    #[must_use]
    pub fn ack_ratio(&self) -> Option<u8> {
        self.ack_packets.and_then(|packets| packets.try_into().ok())
    }
}

/// `[link]` as written: what stands in it directly holds for both directions that do not say otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    #[serde(default)]
    profile: Profile,
    #[serde(default, deserialize_with = "value::some_text")]
    controller: Option<Kind>,
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_INITIAL_WINDOW }>"
    )]
    initial_window: Option<u64>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    rate: Option<BitRate>,
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_ACK_PACKETS as u64 }>"
    )]
    ack_packets: Option<u64>,
    #[serde(default, deserialize_with = "fec::some")]
    fec: Option<Fec>,
    #[serde(default)]
    forward: Direction,
    #[serde(default, rename = "return")]
    return_link: Direction,
}

impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = LinkTable::deserialize(deserializer)?;
        let common = Direction {
            controller: table.controller,
            initial_window: table.initial_window,
            max_rate: table.max_rate,
            rate: table.rate,
            ack_packets: table.ack_packets,
            fec: table.fec,
        };
        Ok(Self {
            profile: table.profile,
            forward: table.forward.or(common),
            return_link: table.return_link.or(common),
        })
    }
}

impl ClientConfig {
    /// Reads and validates `path` and the private key file it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let mut file: QuicClientFile = parsed(source, Role::Client)?;
        for (index, server) in file.server.iter_mut().enumerate() {
            server.check(source, index)?;
            let key_file = server.enrolment_key_file.take();
            server.enrolment_key_file = key_file.map(|path| source.resolve(&path));
        }
        let paced = file.link.iter().any(Link::is_paced);
        let intercept = file.intercept.as_ref().map(Spanned::get_ref);
        let web = web::client(source, file.web)?;
        let front = FrontEnds {
            dssl: dssl::client(source, file.dssl, &web.names)?,
            web,
            les: les::client(source, file.les, intercept, paced)?,
            ..FrontEnds::new(source, file.intercept, file.socks5, file.http, file.rule)?
        };
        if file.publish.is_empty() {
            front.check_any(source, "`[socks5]`, `[http]` or `[[publish]]`")?;
        }
        let (identity, own) = Identity::read(source, &file.private_key_file, file.allow_classical)?;
        for server in &file.server {
            let key = &server.public_key;
            identity::check_peer_key(source, &own, key, &source.span_of(&key.to_string()))?;
        }
        if let Some(les) = &front.les {
            let servers: Vec<_> = file.server.iter().map(|server| server.public_key).collect();
            les.check_keys(source, &own, &servers)?;
        }
        let dns = dns::client(
            source,
            file.dns,
            front.intercept.as_ref(),
            front.socks5.as_ref(),
        )?;
        Ok(Self {
            file: source.path().to_owned(),
            identity,
            servers: file.server,
            publish: publish::asked(source, file.publish, &front)?,
            sle: sle::client(source, file.sle, paced)?,
            front,
            dns,
            metering: metering::checked(source, file.metering)?,
            links: file.link,
            open_wait: file.open_wait.map_or(DEFAULT_OPEN_WAIT, TimeSpan::get),
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            state_dir: state_dir(source, file.state_dir.as_ref())?,
            memory: MemoryCeilings {
                tunnel: file.limits.memory.unwrap_or(DEFAULT_MEMORY),
                total: value::total_memory(source, file.limits.total_memory.as_ref())?,
            },
            sandbox: file.sandbox,
            monitoring: Monitoring::checked(source, file.status_socket, file.metrics, file.page)?,
        })
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuicClientFile {
    // Seen before this is parsed: the other transports have files of another shape.
    #[serde(default, rename = "transport")]
    _transport: Transport,
    private_key_file: Spanned<PathBuf>,
    #[serde(deserialize_with = "value::one_or_many")]
    server: Vec<Server>,
    intercept: Option<Spanned<Intercept>>,
    #[serde(default = "default_links", deserialize_with = "value::one_or_many")]
    link: Vec<Link>,
    socks5: Option<Spanned<ProxyFrontEnd>>,
    http: Option<Spanned<ProxyFrontEnd>>,
    sle: Option<Spanned<ClientSle>>,
    les: Option<Spanned<ClientLesTable>>,
    web: Option<Spanned<ClientWebTable>>,
    dssl: Option<Spanned<ClientDsslTable>>,
    dns: Option<Spanned<ClientDns>>,
    metering: Option<Spanned<Metering>>,
    open_wait: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    state_dir: Option<Spanned<PathBuf>>,
    #[serde(default)]
    limits: ClientLimits,
    #[serde(default)]
    allow_classical: bool,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    page: Option<page::PageTable>,
    #[serde(default = "value::yes")]
    sandbox: bool,
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
    #[serde(default)]
    publish: Vec<Spanned<Publish>>,
}

/// `[limits]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientLimits {
    memory: Option<ByteCount>,
    total_memory: Option<Spanned<ByteCount>>,
}

fn default_links() -> Vec<Link> {
    vec![Link::default()]
}
