//! What the shell has seen, as plain values.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_sys::link::Port;
use bentpipe_sys::nftables::BaseChain;
use bentpipe_sys::policy_rule::StrayRoute;
use bentpipe_tunnel::engine::TrialOutcome;

use crate::authority::ValidityPhase;
use crate::config::Role;
use crate::keys::Readers;

/// Result of something that was tried; the error is the system's text, `None`: it was not tried for want of a privilege.
pub(super) type Trial<T = ()> = Option<Result<T, String>>;

/// Everything that is judged.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) machine: Machine,
    pub(super) network: NetworkFacts,
    /// One for each configuration.
    pub(super) subjects: Vec<Examined>,
}

/// The kernel and what belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Release of the kernel, such as `6.12.5`.
    pub(super) release: String,
    /// True if the network may be configured (CAP_NET_ADMIN).
    pub(super) net_admin: bool,
    /// True if everything is run as root.
    pub(super) root: bool,
    /// Programs, and what came of running them.
    pub(super) programs: Vec<(&'static str, Result<String, String>)>,
    pub(super) client_table: Trial,
    pub(super) server_table: Trial,
    pub(super) transparent_socket: Trial,
    pub(super) owned_tables: Trial<bool>,
    /// `/dev/net/tun`, opened.
    pub(super) tun: Result<(), String>,
    /// Year of the clock, of the program's sources, and whether a time service keeps the clock.
    pub(super) year: i16,
    pub(super) built: Option<i16>,
    pub(super) synchronised: Result<bool, String>,
    pub(super) time_service: TimeService,
    /// Hard limit of open files of this process.
    pub(super) open_files: u64,
    /// Settings of the kernel, by name; those that are not there are absent.
    pub(super) settings: Vec<(String, u64)>,
}

/// Program of this machine that can keep the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeService {
    /// One that `timedatectl` switches on.
    Switched,
    /// One that has to be started by itself.
    Other(&'static str),
    /// None is installed.
    Absent,
}

impl Machine {
    /// The value of a setting.
    pub(super) fn setting(&self, name: &str) -> Option<u64> {
        let mut settings = self.settings.iter();
        settings
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    }
}

/// The network around this machine.
#[derive(Clone, Debug)]
pub(super) struct NetworkFacts {
    /// True if packets to the internet have a way, IPv4 and IPv6.
    pub(super) ipv4: bool,
    pub(super) ipv6: bool,
    /// Devices of default routes.
    pub(super) uplinks: Vec<String>,
    /// Tunnels of other programs: name and kind of the device.
    pub(super) tunnels: Vec<(String, String)>,
    /// Firewalls and the like whose traces were found.
    pub(super) firewalls: Trial<Vec<&'static str>>,
    /// Chains of others that drop what is forwarded, with whether they let our device's packets pass.
    pub(super) forward_chains: Trial<Vec<(BaseChain, bool)>>,
    /// Chains of others that what comes in crosses, each with its table as `nft` lists it.
    pub(super) inward_chains: Trial<Vec<(BaseChain, String)>>,
    /// The same of what this machine sends.
    pub(super) outward_chains: Trial<Vec<(BaseChain, String)>>,
    /// The tables of iptables-legacy have rules, which nftables does not show.
    pub(super) legacy_tables: bool,
    /// Name servers of `/etc/resolv.conf`, each with whether it answers, or why the file cannot be read.
    pub(super) resolvers: Result<Vec<(IpAddr, bool)>, String>,
    /// Programs that have UDP port 53.
    pub(super) port_53: Vec<SocketHolder>,
}

/// A socket and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SocketHolder {
    pub(super) address: SocketAddr,
    /// Name and process id; `None`: it may not be looked at.
    pub(super) program: Option<String>,
}

/// A configuration.
#[derive(Clone, Debug)]
pub(super) struct Examined {
    pub(super) file: PathBuf,
    /// Content of the configuration, or its fault.
    pub(super) content: Result<Content, ConfigFault>,
}

/// Reason why a configuration could not be looked at.
#[derive(Clone, Debug)]
pub(super) enum ConfigFault {
    /// The user may not read it.
    Forbidden,
    /// The line about what is wrong with it.
    Wrong(String),
}

/// Wishes of a configuration, and what came of them.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) role: Role,
    /// Nothing is encrypted.
    pub(super) plain: bool,
    /// The daemon's word: healthy, not healthy, or why it does not answer.
    pub(super) daemon: Daemon,
    pub(super) secrets: Vec<Owned>,
    pub(super) state_dir: Option<Owned>,
    pub(super) side: SideFacts,
}

/// Answer of a running daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Daemon {
    Healthy(String),
    Unhealthy(String),
    /// None runs; the text says where one was looked for.
    Absent,
    /// Something answers, or several do.
    Unclear(String),
}

/// A file or directory, with who may use it.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned {
    pub(super) path: PathBuf,
    /// `None`: it does not exist.
    pub(super) found: Option<Ownership>,
    /// Owner of the directory of the configuration: the user of the daemon.
    pub(super) daemon_user: Option<u32>,
    /// Users who may read it, if it is a secret.
    pub(super) readers: Readers,
}

/// Owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    pub(super) owner: u32,
    pub(super) mode: u32,
}

/// Facts that depend on the role.
#[derive(Clone, Debug)]
pub(super) enum SideFacts {
    Client(ClientFacts),
    Server(ServerFacts),
    Pep(PepFacts),
    Origin(OriginFacts),
}

/// Surroundings of an operator's PEP.
#[derive(Clone, Debug)]
pub(super) struct PepFacts {
    /// Interfaces of `lan` and `wan` that do not exist.
    pub(super) missing: Vec<String>,
    /// The kernel takes the table.
    pub(super) table: Trial,
    /// Lines about settings for which the kernel does not forward, each with its mend behind a semicolon.
    pub(super) forwarding: Vec<String>,
    /// Chains of others that drop what is forwarded and accept nothing of the PEP's devices, each with the mend.
    pub(super) closed_chains: Trial<Vec<(BaseChain, String)>>,
    /// Public key of this PEP.
    pub(super) public_key: Option<String>,
    pub(super) meeting: MeetingFacts,
}

/// Place at which two PEPs meet.
#[derive(Clone, Debug)]
pub(super) enum MeetingFacts {
    /// Addresses at which the PEP listens.
    Here(Vec<ListenFacts>),
    /// Place to which the PEP connects.
    There(FarFacts),
}

/// Surroundings of an origin.
#[derive(Clone, Debug)]
pub(super) struct OriginFacts {
    pub(super) listen: Vec<ListenFacts>,
    /// The certificate, or why it cannot be used.
    pub(super) certificate: Result<CertificateFacts, String>,
    /// Web server behind, and whether it accepts TCP.
    pub(super) upstream: (SocketAddr, HandshakeResult),
    /// Hubs that are listed.
    pub(super) hubs: usize,
}

/// A site's certificate.
#[derive(Clone, Debug)]
pub(super) struct CertificateFacts {
    pub(super) file: PathBuf,
    /// Host names that it is for.
    pub(super) names: Vec<String>,
    /// First and last day of its life.
    pub(super) begins: String,
    pub(super) expires: String,
    /// Seconds until it is good, and until it is no more; negative once that is over.
    pub(super) seconds_to_begin: i64,
    pub(super) seconds_left: i64,
}

/// A client's surroundings.
#[derive(Clone, Debug)]
pub(super) struct ClientFacts {
    pub(super) servers: Vec<FarFacts>,
    /// Guard beside the interception, if there is one.
    pub(super) intercepts: Option<GuardFacts>,
    /// Questions of this machine's name servers leave in clear.
    pub(super) own_names_in_clear: bool,
    /// Everything but TCP is led into the device.
    pub(super) needs_device: bool,
    /// True if the machine's own traffic is taken in.
    pub(super) local: bool,
    /// Interfaces that it takes in.
    pub(super) interfaces: Vec<String>,
    /// Interfaces that it takes in and that do not exist.
    pub(super) missing: Vec<String>,
    /// Interfaces that it takes in and that are ports of others.
    pub(super) ports: Vec<Port>,
    /// Routes that lead hosts of these interfaces elsewhere.
    pub(super) strays: Vec<StrayRoute>,
    /// Rules of other programs that take away what is to be carried: each fault with its mend.
    pub(super) rules_ahead: Vec<[String; 2]>,
    /// Something is forwarded in clear: `bypass`, `other = "direct"` or a rule.
    pub(super) forwards: Option<&'static str>,
    /// The server, which does not know the client's key, takes the code that the client has.
    pub(super) enrols: bool,
    /// The client's public key.
    pub(super) public_key: Option<String>,
    /// Line about packets that the server of the running client's tunnel does not carry.
    pub(super) packets_limited: Option<String>,
    /// The local CA, where hosts are listed for one.
    pub(super) authority: Option<AuthorityFacts>,
}

/// State of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardFacts {
    On,
    Off,
    /// The kernel does not say.
    Unknown,
}

/// Local CA of a client that answers for HTTPS hosts.
#[derive(Clone, Debug)]
pub(super) enum AuthorityFacts {
    /// No CA is in this directory.
    Absent(PathBuf),
    /// Files that cannot be used, and why.
    Unfit(String),
    Present {
        /// Name, as browsers list it.
        subject: String,
        /// Last day of its life.
        expires: String,
        /// Part of that by this machine's clock.
        phase: ValidityPhase,
        /// Listed hosts that it is not for.
        lacking: Vec<String>,
    },
}

/// A server's surroundings.
#[derive(Clone, Debug)]
pub(super) struct ServerFacts {
    pub(super) listen: Vec<ListenFacts>,
    /// Packets are forwarded.
    pub(super) packets: bool,
    /// Line of the running server about packets that it does not carry.
    pub(super) packets_limited: Option<String>,
    pub(super) clients: usize,
    /// Line about a damaged list of clients that joined by a code, and its mend.
    pub(super) damage: Option<[String; 2]>,
    /// Outer connections are taken in on their way.
    pub(super) intake: Option<IntakeFacts>,
}

/// Interfaces by which a server takes in outer connections.
#[derive(Clone, Debug, Default)]
pub(super) struct IntakeFacts {
    /// Interfaces that do not exist.
    pub(super) missing: Vec<String>,
    /// Interfaces that are bridges.
    pub(super) bridges: Vec<String>,
}

/// An address that a server is to listen on.
#[derive(Clone, Debug)]
pub(super) struct ListenFacts {
    pub(super) protocol: ListenProtocol,
    pub(super) address: SocketAddr,
    pub(super) state: ListenState,
}

/// Protocol that a daemon listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenProtocol {
    Udp,
    Tcp,
}

impl ListenProtocol {
    /// Name of the protocol in small letters, and its number in IP.
    pub(super) const fn known_as(self) -> (&'static str, &'static str) {
        match self {
            Self::Udp => ("udp", "17"),
            Self::Tcp => ("tcp", "6"),
        }
    }
}

/// State of such an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenState {
    /// The running server has it.
    Served,
    /// The port can be bound.
    Free,
    /// The port is held by other programs.
    Held(Vec<SocketHolder>),
    /// The port cannot be bound for another reason.
    Cannot(String),
}

/// A server as its client sees it.
#[derive(Clone, Debug)]
pub(super) struct FarFacts {
    /// Address as the file has it.
    pub(super) name: String,
    /// Addresses of the name, or why there are none.
    pub(super) addresses: Result<Vec<SocketAddr>, String>,
    /// The first one that has a route, and what is known of it.
    pub(super) way: Option<WayThere>,
    /// Addresses at which it takes TLS in place of UDP.
    pub(super) tls: Vec<SocketAddr>,
}

/// The way to a server, and what came of going it.
#[derive(Clone, Debug)]
pub(super) struct WayThere {
    pub(super) to: SocketAddr,
    /// Interface that packets leave by.
    pub(super) device: Option<String>,
    /// Largest packet that the kernel sends there, bytes.
    pub(super) mtu: Option<u32>,
    pub(super) reached: HandshakeResult,
}

/// Outcome of an attempt to reach a server.
#[derive(Clone, Debug)]
pub(super) enum HandshakeResult {
    /// The running client's tunnel is up: its word is taken.
    TunnelUp(String),
    /// A handshake has ended so.
    Shaken(TrialOutcome),
    /// TCP was accepted.
    Connected(Duration),
    /// The network says that nobody can be reached.
    Unreachable(String),
    /// Nothing has left this machine, for this reason.
    Unsent(String),
    /// Nothing came back in this time.
    Silent(Duration),
    /// UDP has led nowhere, and the server's TLS address accepts TCP.
    TlsAlone(SocketAddr),
    /// Something came back, and the handshake did not end.
    Unfinished(Duration),
    /// The attempt could not begin.
    NotTried(String),
}
