//! The file of an operator's PEP: the other PEP, the interfaces towards both sides, and the TCP that is relayed between them.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::{Place, Placed, Source};
use bentpipe_units::{ByteCount, TimeSpan};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::client::Link;
use super::front::interfaces;
use super::identity::{self, Identity};
use super::les::LES_PORT;
use super::metrics::MetricsTable;
use super::monitoring::Monitoring;
use super::page;
use super::server;
use super::value::{self, ServerAddress};
use super::{ConfigError, DEFAULT_DRAIN, Role, parsed, state_dir};
use crate::keys::PublicKey;

/// Flows that are relayed at one time when nothing else is said.
const DEFAULT_FLOWS: u32 = 4096;

/// Memory of one direction of a relayed flow when nothing else is said: what 50 Mbit/s bring in 160 ms.
const DEFAULT_FLOW_MEMORY: ByteCount = ByteCount::new(1 << 20);

/// Least memory of one direction of a relayed flow: a window of TCP without a scale.
const LEAST_FLOW_MEMORY: ByteCount = ByteCount::new(64 << 10);

/// UDP port at which clients hand over keys of headers, unless the file says otherwise.
const LES_KEYS_PORT: u16 = 4502;

/// Most clients whose packets of LES are relayed.
const MAX_CLIENTS: usize = 1024;

/// Configuration of `bentpipe pep`.
#[derive(Clone, Debug)]
pub struct PepConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Identity of this PEP, and the key exchange that it allows.
    pub identity: Identity,
    /// The PEP on the other side of the link.
    pub peer: OtherPep,
    /// The link between the two.
    pub link: Link,
    /// Interfaces of both sides.
    pub sides: Sides,
    /// TCP that is relayed without zones, if some is to be.
    pub clear: Option<ClearTcp>,
    /// Packets of LES that are relayed, if some are to be.
    pub les: Option<PepLes>,
    /// Ceilings of what is relayed.
    pub limits: PepLimits,
    /// Time for which a stop waits for relayed flows.
    pub drain_timeout: Duration,
    /// Remembers relayed flows, and the path to the other PEP.
    pub state_dir: PathBuf,
    /// Places at which it tells about itself.
    pub monitoring: Monitoring,
    /// The PEP gives up what it does not need once it runs.
    pub sandbox: bool,
}

/// The PEP on the other side of the link.
#[derive(Clone, Debug)]
pub struct OtherPep {
    /// Key that it proves to hold.
    pub public_key: PublicKey,
    /// Place at which the two meet.
    pub meeting: MeetingPlace,
}

/// Place at which two PEPs meet: one of them listens, the other connects.
#[derive(Clone, Debug)]
pub enum MeetingPlace {
    /// UDP address at which the PEP waits.
    Here(Placed<SocketAddr>),
    /// The other PEP waits at this address.
    There(ServerAddress),
}

/// Interfaces of a PEP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Place at which the file names them.
    pub place: Place,
    /// Interfaces towards the hosts of its own side.
    pub lan: Vec<String>,
    /// Interfaces towards the other PEP, and the hosts behind it.
    pub wan: Vec<String>,
}

/// TCP that is relayed in clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearTcp {
    /// Prefixes of which one end has to be; empty: all.
    pub prefixes: Vec<IpNet>,
}

/// Packets of LES that are relayed.
#[derive(Clone, Debug)]
pub struct PepLes {
    /// Keys of the clients that may hand this PEP their header keys.
    pub clients: Vec<PublicKey>,
    /// UDP port of the packets.
    pub port: u16,
    /// UDP address at which clients hand them over.
    pub listen: Placed<SocketAddr>,
}

/// Ceilings of what a PEP relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PepLimits {
    /// Flows at one time; more pass untouched.
    pub flows: u32,
    /// Memory of one direction of a flow.
    pub flow_memory: ByteCount,
    /// Ceiling of what tunnel and flows hold together; `None`: as the machine's memory suggests.
    pub total_memory: Option<ByteCount>,
}

impl PepConfig {
    /// Reads and validates `path` and the private key file it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file: PepFile = parsed(source, Role::Pep)?;
        let (identity, own) = Identity::read(source, &file.private_key_file, file.allow_classical)?;
        let key = &file.peer.public_key;
        identity::check_peer_key(source, &own, key, &source.span_of(&key.to_string()))?;
        let peer = OtherPep {
            public_key: *key,
            meeting: meeting(source, file.listen, file.peer)?,
        };
        let les = file.les.map(|les| checked_les(source, les)).transpose()?;
        if file.clear.is_none() && les.is_none() {
            let fault =
                "nothing is relayed; add `[clear]` for TCP as it is, or `[les]` for packets of LES";
            return Err(source.error_at_line(1, fault));
        }
        Ok(Self {
            file: source.path().to_owned(),
            identity,
            peer,
            link: file.link,
            sides: sides(source, file.lan, file.wan)?,
            clear: file.clear.map(|clear| ClearTcp {
                prefixes: clear.prefixes.iter().map(IpNet::trunc).collect(),
            }),
            les,
            limits: limits(source, file.limits)?,
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            state_dir: state_dir(source, file.state_dir.as_ref())?,
            monitoring: Monitoring::checked(source, file.status_socket, file.metrics, file.page)?,
            sandbox: file.sandbox,
        })
    }
}

fn meeting(
    source: &Source,
    listen: Option<ListenAddresses>,
    peer: PeerTable,
) -> Result<MeetingPlace, ConfigError> {
    match (listen, peer.address) {
        (None, Some(address)) => Ok(MeetingPlace::There(address)),
        (Some(ListenAddresses(listen)), None) => {
            let span = listen.span();
            match listen.into_inner()[..] {
                [one] => Ok(MeetingPlace::Here(source.placed(Spanned::new(span, one)))),
                _ => Err(source.error(&span, "`listen` of a PEP is one address")),
            }
        }
        (Some(ListenAddresses(listen)), Some(_)) => Err(source.error(
            &listen.span(),
            "one PEP listens and the other connects; remove `listen`, or `address` of `[peer]`",
        )),
        (None, None) => Err(source.error_at_key(
            "peer",
            "one PEP listens and the other connects; add `listen`, or `address` to `[peer]`",
        )),
    }
}

fn sides(
    source: &Source,
    lan: Spanned<Interfaces>,
    wan: Spanned<Interfaces>,
) -> Result<Sides, ConfigError> {
    if let Some(both) = lan
        .get_ref()
        .0
        .iter()
        .find(|it| wan.get_ref().0.contains(it))
    {
        let fault = format!("`{both}` is in `lan` and in `wan`; a PEP stands between two sides");
        return Err(source.error(&wan.span(), fault));
    }
    let placed = source.placed(lan);
    Ok(Sides {
        place: placed.place.clone(),
        lan: placed.0.clone(),
        wan: wan.into_inner().0,
    })
}

fn checked_les(source: &Source, les: Spanned<PepLesTable>) -> Result<PepLes, ConfigError> {
    let span = les.span();
    let les = les.into_inner();
    let count = les.clients.len();
    let (key, fault) = match les.port {
        _ if count > MAX_CLIENTS => (
            "les.clients",
            format!("`clients` of `[les]` has {count} entries; at most {MAX_CLIENTS} are possible"),
        ),
        0 => (
            "les.port",
            format!("`port` of `[les]` is 0; name the server's, usually {LES_PORT}"),
        ),
        port => {
            return Ok(PepLes {
                clients: les.clients,
                port,
                listen: keys_listen(source, &span, les.listen)?,
            });
        }
    };
    Err(source.error_at_key(key, fault))
}

/// Address at which clients hand keys over.
fn keys_listen(
    source: &Source,
    table: &Range<usize>,
    listen: Option<ListenAddresses>,
) -> Result<Placed<SocketAddr>, ConfigError> {
    let Some(ListenAddresses(listen)) = listen else {
        let usual = (Ipv6Addr::UNSPECIFIED, LES_KEYS_PORT).into();
        return Ok(source.placed(Spanned::new(table.clone(), usual)));
    };
    let span = listen.span();
    match listen.into_inner()[..] {
        [one] => Ok(source.placed(Spanned::new(span, one))),
        _ => Err(source.error(&span, "`listen` of a PEP's `[les]` is one address")),
    }
}

fn limits(source: &Source, written: LimitsTable) -> Result<PepLimits, ConfigError> {
    let flow_memory = match written.flow_memory {
        Some(memory) if *memory.get_ref() < LEAST_FLOW_MEMORY => {
            return Err(source.error(
                &memory.span(),
                "`flow_memory` of `[limits]` is too small; choose 64 KiB or more",
            ));
        }
        Some(memory) => memory.into_inner(),
        None => DEFAULT_FLOW_MEMORY,
    };
    Ok(PepLimits {
        flows: written.max_flows.unwrap_or(DEFAULT_FLOWS),
        flow_memory,
        total_memory: value::total_memory(source, written.total_memory.as_ref())?,
    })
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PepFile {
    private_key_file: Spanned<PathBuf>,
    listen: Option<ListenAddresses>,
    peer: PeerTable,
    lan: Spanned<Interfaces>,
    wan: Spanned<Interfaces>,
    clear: Option<ClearTable>,
    les: Option<Spanned<PepLesTable>>,
    #[serde(default)]
    link: Link,
    #[serde(default)]
    limits: LimitsTable,
    drain_timeout: Option<TimeSpan>,
    state_dir: Option<Spanned<PathBuf>>,
    #[serde(default)]
    allow_classical: bool,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    page: Option<page::PageTable>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}

/// `listen` as written.
struct ListenAddresses(Spanned<Vec<SocketAddr>>);

impl<'de> Deserialize<'de> for ListenAddresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        server::listen(deserializer).map(Self)
    }
}

/// `lan` and `wan` as written.
#[derive(Deserialize)]
#[serde(transparent)]
struct Interfaces(#[serde(deserialize_with = "interfaces")] Vec<String>);

/// `[peer]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerTable {
    public_key: PublicKey,
    #[serde(default, deserialize_with = "value::some_text")]
    address: Option<ServerAddress>,
}

/// `[clear]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearTable {
    #[serde(default, deserialize_with = "value::texts")]
    prefixes: Vec<IpNet>,
}

/// `[les]` of a PEP as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PepLesTable {
    clients: Vec<PublicKey>,
    #[serde(default = "default_port")]
    port: u16,
    listen: Option<ListenAddresses>,
}

/// `[limits]` as written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    #[serde(default, deserialize_with = "value::some_count")]
    max_flows: Option<u32>,
    flow_memory: Option<Spanned<ByteCount>>,
    total_memory: Option<Spanned<ByteCount>>,
}

const fn default_port() -> u16 {
    LES_PORT
}
