//! A configuration, the files that it names, the daemon that runs on it, and the way to its servers.

mod far;
mod origin;
mod pep;
mod server;

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bentpipe_sys::link;
use bentpipe_tunnel::engine::TrialOutcome;

use super::handshake::{self, HandshakeAsker};
use crate::authority::{Files, Signer};
use crate::client::frontend::own_mark;
use crate::client::intercept::{RuleAhead, ahead_of, is_guard_on, strays_of};
use crate::config::{
    self, Action, AnyFile, ClientConfig, ClientFile, FrontEnds, Intercept, OtherTraffic,
    PlainClient, Role, Server, ServerAddress, ServerFile,
};
use crate::doctor::facts::{
    AuthorityFacts, ClientFacts, ConfigFault, Content, Daemon, Examined, FarFacts, GuardFacts,
    HandshakeResult, ListenProtocol, Owned, Ownership, ServerFacts, SideFacts,
};
use crate::keys::{self, PrivateKey, Readers};
use crate::status::{self, Side, StatusReport, TunnelState};
use far::{far, resolve};
use server::{listens, server};

pub(super) fn collect(file: &Path) -> Examined {
    let forbidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let content = match File::open(file) {
        Err(error) if forbidden(&error) => Err(ConfigFault::Forbidden),
        _ => config::load(file, None)
            .map(|content| examine(file, content))
            .map_err(|error| ConfigFault::Wrong(error.to_string())),
    };
    Examined {
        file: file.to_owned(),
        content,
    }
}

fn examine(file: &Path, content: AnyFile) -> Content {
    let role = content.role();
    let report = query(&content, role).map(|report| report.runs_on(file).then_some(report));
    let running = report.as_ref().ok().and_then(Option::as_ref);
    let user = owner_of_directory(file);
    let certified = match &content {
        AnyFile::Origin(config) => Some(config.key.as_path()),
        AnyFile::Server(file) => match &**file {
            ServerFile::Tunnel(config) => config.listening.certified_key(),
            ServerFile::Plain(_) => None,
        },
        AnyFile::Client(_) | AnyFile::Pep(_) => None,
    };
    let (plain, secrets, state_dir, side) = match &content {
        AnyFile::Client(ClientFile::Tunnel(config)) => (
            false,
            secrets(config),
            Some(config.state_dir.as_path()),
            SideFacts::Client(client(config, running)),
        ),
        AnyFile::Client(ClientFile::Plain(config)) => (
            true,
            Vec::new(),
            None,
            SideFacts::Client(plain_client(config)),
        ),
        AnyFile::Pep(config) => (
            false,
            vec![config.identity.private_key_file.as_path()],
            Some(config.state_dir.as_path()),
            SideFacts::Pep(pep::pep(config, running)),
        ),
        AnyFile::Origin(config) => (
            false,
            Vec::new(),
            None,
            SideFacts::Origin(origin::origin(config, running)),
        ),
        AnyFile::Server(file) => match &**file {
            ServerFile::Tunnel(config) => (
                false,
                vec![config.identity.private_key_file.as_path()],
                Some(config.state_dir.as_path()),
                SideFacts::Server(server(config, running)),
            ),
            ServerFile::Plain(config) => {
                let listen = listens(&config.listen, running, ListenProtocol::Tcp);
                let side = ServerFacts {
                    listen,
                    packets: false,
                    packets_limited: None,
                    clients: config.clients.len(),
                    damage: None,
                    intake: None,
                };
                (true, Vec::new(), None, SideFacts::Server(side))
            }
        },
    };
    Content {
        role,
        plain,
        daemon: daemon(report),
        secrets: secrets
            .into_iter()
            .map(|path| owned(path, user))
            .chain(certified.map(|path| Owned {
                readers: Readers::Group,
                ..owned(path, user)
            }))
            .collect(),
        state_dir: state_dir.map(|path| owned(path, user)),
        side,
    }
}

fn query(content: &AnyFile, role: Role) -> Result<StatusReport, status::QueryError> {
    let socket = match content {
        AnyFile::Client(ClientFile::Tunnel(config)) => config.monitoring.status_socket.as_ref(),
        AnyFile::Client(ClientFile::Plain(config)) => config.status_socket.as_ref(),
        AnyFile::Pep(config) => config.monitoring.status_socket.as_ref(),
        AnyFile::Origin(config) => config.monitoring.status_socket.as_ref(),
        AnyFile::Server(file) => match &**file {
            ServerFile::Tunnel(config) => config.monitoring.status_socket.as_ref(),
            ServerFile::Plain(config) => config.status_socket.as_ref(),
        },
    };
    status::query(socket.map(|socket| socket.as_path()), Some(role))
}

fn daemon(report: Result<Option<StatusReport>, status::QueryError>) -> Daemon {
    match report.map(|report| report.map(|report| report.health())) {
        Ok(Some(Ok(text))) => Daemon::Healthy(text),
        Ok(Some(Err(text))) => Daemon::Unhealthy(text),
        // Another file's is running.
        Ok(None) => Daemon::Absent,
        Err(error) if error.is_no_daemon() => Daemon::Absent,
        Err(error) => Daemon::Unclear(error.to_string()),
    }
}

fn secrets(config: &ClientConfig) -> Vec<&Path> {
    let enrolments = config
        .servers
        .iter()
        .filter_map(|server| server.enrolment_key_file.as_deref());
    // One that was used may be deleted.
    let enrolments = enrolments.filter(|file| file.exists());
    enrolments
        .chain([config.identity.private_key_file.as_path()])
        .collect()
}

fn owner_of_directory(file: &Path) -> Option<u32> {
    let file = fs::canonicalize(file).ok()?;
    Some(fs::metadata(file.parent()?).ok()?.uid())
}

fn owned(path: &Path, daemon_user: Option<u32>) -> Owned {
    let found = fs::metadata(path).ok().map(|metadata| Ownership {
        owner: metadata.uid(),
        mode: metadata.mode() & 0o777,
    });
    Owned {
        path: path.to_owned(),
        found,
        daemon_user,
        readers: Readers::Owner,
    }
}

fn client(config: &ClientConfig, running: Option<&StatusReport>) -> ClientFacts {
    let key = keys::read(&config.identity.private_key_file);
    let tunnel = running.and_then(|report| match &report.side {
        Side::Client(session) => Some((session.tunnel.peer.clone()?, report.health().ok()?)),
        Side::Server { .. } | Side::Pep(_) | Side::Origin { .. } => None,
    });
    let enrols = Cell::new(false);
    let servers = config.servers.iter().map(|server| {
        let up = tunnel
            .as_ref()
            .filter(|(peer, _)| is_at(&server.address, peer));
        let found = far(
            &server.address.to_string(),
            resolve(&server.address),
            |to| match (up, &key) {
                (Some((_, health)), _) => HandshakeResult::TunnelUp(health.clone()),
                (None, Ok(key)) => {
                    let reached = handshake::shake(&asker(config, key, server), to);
                    let reached = over_tls(server, reached);
                    enrols
                        .set(enrols.get() || is_unknown(&reached) && has_code(config, server, to));
                    reached
                }
                (None, Err(fault)) => HandshakeResult::NotTried(fault.clone()),
            },
        );
        let tls = server.tls.as_ref().filter(|_| up.is_none());
        FarFacts {
            tls: tls.and_then(|tls| resolve(tls).ok()).unwrap_or_default(),
            ..found
        }
    });
    ClientFacts {
        servers: servers.collect(),
        enrols: enrols.get(),
        public_key: key.as_ref().ok().map(|key| key.public().to_string()),
        packets_limited: running.and_then(packets_limited),
        authority: authority(config),
        own_names_in_clear: own_names_in_clear(config),
        ..front(&config.front)
    }
}

/// Line about packets that the server of a running client's tunnel does not carry.
fn packets_limited(report: &StatusReport) -> Option<String> {
    let Side::Client(session) = &report.side else {
        return None;
    };
    let is_ready = session.tunnel.state == TunnelState::Ready;
    let packets = session.packets.as_ref().filter(|_| is_ready)?;
    packets.carried.lack().map(str::to_owned)
}

/// The local CA for the hosts that `config` lists, if it lists some.
fn authority(config: &ClientConfig) -> Option<AuthorityFacts> {
    let names = &config.front.web.names;
    if names.is_empty() {
        return None;
    }
    let files = Files::of_state(&config.state_dir);
    Some(match Signer::read(&files) {
        Ok(None) => AuthorityFacts::Absent(files.directory().to_owned()),
        Err(fault) => AuthorityFacts::Unfit(fault),
        Ok(Some(signer)) => {
            let authority = signer.authority();
            let lacking = names.iter().filter(|name| !authority.is_for(name));
            AuthorityFacts::Present {
                subject: authority.subject().to_owned(),
                expires: authority.expires(),
                phase: authority.present_phase(),
                lacking: lacking.map(ToString::to_string).collect(),
            }
        }
    })
}

/// Tries the server's TLS address where UDP leads nowhere.
fn over_tls(server: &Server, by_udp: HandshakeResult) -> HandshakeResult {
    let blocked = matches!(
        by_udp,
        HandshakeResult::Silent(_) | HandshakeResult::Unreachable(_) | HandshakeResult::Unsent(_)
    );
    let tls = server.tls.as_ref().filter(|_| blocked);
    let addresses = tls.and_then(|tls| resolve(tls).ok()).unwrap_or_default();
    let accepts = |address: &SocketAddr| {
        let tried = handshake::connect(*address);
        matches!(tried, HandshakeResult::Connected(_))
    };
    match addresses.into_iter().find(accepts) {
        Some(address) => HandshakeResult::TlsAlone(address),
        None => by_udp,
    }
}

/// True if what name servers of this machine ask in their turn leaves in clear: its own traffic is not taken in, and the client answers
/// at none of its addresses.
fn own_names_in_clear(config: &ClientConfig) -> bool {
    let intercept = config.front.intercept.as_deref();
    let dns = config.dns.as_deref();
    intercept.is_some_and(|it| !it.local) && dns.is_none_or(|dns| dns.listen.is_empty())
}

/// A client of this key at the door of `server`.
fn asker<'a>(config: &ClientConfig, key: &'a PrivateKey, server: &Server) -> HandshakeAsker<'a> {
    HandshakeAsker {
        key,
        peer: server.public_key,
        allow_classical: config.identity.allow_classical,
        profile: config.links[0].profile,
        mark: own_mark(&config.front),
    }
}

fn is_unknown(reached: &HandshakeResult) -> bool {
    matches!(
        reached,
        HandshakeResult::Shaken(TrialOutcome::UnknownClient)
    )
}

/// True if the client has a code that the server at `to` still takes.
fn has_code(config: &ClientConfig, server: &Server, to: SocketAddr) -> bool {
    let code = server.enrolment_key_file.as_deref().map(keys::read);
    let reached = code
        .and_then(Result::ok)
        .map(|code| handshake::shake(&asker(config, &code, server), to));
    matches!(
        reached,
        Some(HandshakeResult::Shaken(TrialOutcome::Known { .. }))
    )
}

/// True if the tunnel's other end `peer` may be the server at `address`.
fn is_at(address: &ServerAddress, peer: &str) -> bool {
    match address {
        ServerAddress::Ip(address) => peer.parse().is_ok_and(|peer: SocketAddr| {
            (peer.ip().to_canonical(), peer.port()) == (address.ip(), address.port())
        }),
        ServerAddress::Name { port, .. } => peer.ends_with(&format!(":{port}")),
    }
}

fn plain_client(config: &PlainClient) -> ClientFacts {
    let servers = config.server.iter();
    let servers =
        servers.map(|server| far(&server.to_string(), Ok(vec![*server]), handshake::connect));
    ClientFacts {
        servers: servers.collect(),
        ..front(&config.front)
    }
}

fn rules_ahead(front: &FrontEnds, intercept: &Intercept) -> Vec<[String; 2]> {
    let wanted = crate::client::frontend::wanted::interception(front, intercept);
    let rules = ahead_of(&wanted).unwrap_or_default();
    rules.iter().map(RuleAhead::faults).collect()
}

fn guard() -> GuardFacts {
    match is_guard_on() {
        Ok(true) => GuardFacts::On,
        Ok(false) => GuardFacts::Off,
        Err(_) => GuardFacts::Unknown,
    }
}

/// Facts that do not depend on the transport.
fn front(front: &FrontEnds) -> ClientFacts {
    let intercept = front.intercept.as_deref();
    let there = link::links().unwrap_or_default();
    let missing = |name: &&String| !there.iter().any(|link| link.name == **name);
    let interfaces = intercept
        .map(|it| it.interfaces.as_slice())
        .unwrap_or_default();
    let direct = front
        .rules
        .iter()
        .any(|rule| rule.action == Some(Action::Direct));
    ClientFacts {
        servers: Vec::new(),
        intercepts: intercept.map(|_| guard()),
        own_names_in_clear: false,
        needs_device: front.tunnels_packets().is_some(),
        local: intercept.is_some_and(|it| it.local),
        interfaces: interfaces.to_vec(),
        missing: interfaces.iter().filter(missing).cloned().collect(),
        ports: link::ports(&there, interfaces),
        strays: strays_of(interfaces).unwrap_or_default(),
        rules_ahead: intercept
            .map(|it| rules_ahead(front, it))
            .unwrap_or_default(),
        forwards: match intercept {
            None => None,
            Some(it) if it.other == OtherTraffic::Direct => Some("other = \"direct\""),
            Some(it) if !it.bypass.is_empty() => Some("bypass"),
            Some(_) => direct.then_some("a rule with action = \"direct\""),
        },
        enrols: false,
        public_key: None,
        packets_limited: None,
        authority: None,
    }
}
