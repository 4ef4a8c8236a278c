//! Facts about a server for the doctor: what its configuration listens on, and takes in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use bentpipe_sys::link;
use socket2::{Domain, Protocol, Socket, Type};

use super::super::sockets;
use crate::config::{Placed, ServerConfig, SleIntake};
use crate::doctor::facts::{
    IntakeFacts, ListenFacts, ListenProtocol, ListenState, ServerFacts, SocketHolder,
};
use crate::server::enrolled;
use crate::status::{Side, StatusReport};

pub(super) fn server(config: &ServerConfig, running: Option<&StatusReport>) -> ServerFacts {
    let mut listen = listens(&config.listening.addresses, running, ListenProtocol::Udp);
    if let Some(tls) = &config.listening.tls {
        listen.extend(listens(&tls.addresses, running, ListenProtocol::Tcp));
    }
    if let Some(sle) = &config.sle {
        let addresses = sle.addresses.iter();
        listen.extend(addresses.flat_map(|it| listens(it, running, ListenProtocol::Tcp)));
    }
    if let Some(les) = &config.listening.les {
        listen.extend(listens(&les.addresses, running, ListenProtocol::Udp));
    }
    if let Some(responder) = &config.responder {
        listen.push(of_responder(&responder.listen, running));
    }
    let limited = running.and_then(|report| match &report.side {
        Side::Server {
            packets_limited, ..
        } => packets_limited.clone(),
        _ => None,
    });
    ServerFacts {
        listen,
        packets: config.packets.enabled,
        packets_limited: limited,
        clients: config.clients.len(),
        damage: enrolled::damage(&config.state_dir),
        intake: config
            .sle
            .as_ref()
            .and_then(|sle| Some(intake(sle.intake.as_ref()?))),
    }
}

pub(super) fn intake(intake: &SleIntake) -> IntakeFacts {
    let there = link::links().unwrap_or_default();
    let named = |wanted: &dyn Fn(&String) -> bool| {
        let interfaces = intake.interfaces.iter().filter(|name| wanted(name));
        interfaces.cloned().collect()
    };
    IntakeFacts {
        missing: named(&|name| !there.iter().any(|link| link.name == *name)),
        bridges: named(&|name| {
            Path::new("/sys/class/net")
                .join(name)
                .join("bridge")
                .exists()
        }),
    }
}

/// State of the address of the responder, of which a report does not tell: it is the running server's if that has the socket.
fn of_responder(address: &Placed<SocketAddr>, running: Option<&StatusReport>) -> ListenFacts {
    let pid = running.map(|report| format!("(pid {})", report.pid));
    let is_own = |holder: &SocketHolder| {
        let ends = |pid: &String| {
            let program = holder.program.as_ref();
            program.is_none_or(|program| program.ends_with(pid))
        };
        pid.as_ref().is_some_and(ends)
    };
    let state = match state_of(ListenProtocol::Tcp, **address) {
        ListenState::Held(holders) if holders.iter().any(is_own) => ListenState::Served,
        state => state,
    };
    ListenFacts {
        protocol: ListenProtocol::Tcp,
        address: **address,
        state,
    }
}

/// State of the addresses to listen on.
pub(super) fn listens(
    addresses: &Placed<Vec<SocketAddr>>,
    running: Option<&StatusReport>,
    protocol: ListenProtocol,
) -> Vec<ListenFacts> {
    let served = match running.map(|report| &report.side) {
        Some(Side::Server {
            listen,
            listen_tls,
            listen_sle,
            listen_les,
            ..
        }) => [&listen[..], listen_tls, listen_sle, listen_les].concat(),
        Some(Side::Pep(pep)) => pep.listen.into_iter().collect(),
        Some(Side::Origin { listen, .. }) => listen.clone(),
        _ => Vec::new(),
    };
    let state = |address: SocketAddr| {
        if served.contains(&address) {
            return ListenState::Served;
        }
        state_of(protocol, address)
    };
    let listen = |address: &SocketAddr| ListenFacts {
        protocol,
        address: *address,
        state: state(*address),
    };
    addresses.iter().map(listen).collect()
}

/// State of an address that the running daemon is not known to have.
fn state_of(protocol: ListenProtocol, address: SocketAddr) -> ListenState {
    match bind(protocol, address) {
        Ok(()) => ListenState::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let (name, _) = protocol.known_as();
            ListenState::Held(sockets::holders(name, address.port()))
        }
        Err(error) => ListenState::Cannot(error.to_string()),
    }
}

/// Tries to bind `address`.
fn bind(protocol: ListenProtocol, address: SocketAddr) -> io::Result<()> {
    if protocol == ListenProtocol::Tcp {
        return TcpListener::bind(address).map(drop);
    }
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}
