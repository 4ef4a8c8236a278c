//! Facts about a server for the doctor: what its configuration listens on, and takes in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use bentpipe_sys::link;
use socket2::{Domain, Protocol, Socket, Type};

use super::super::sockets;
use crate::config::{Placed, ServerConfig, SleIntake};
use crate::doctor::facts::{IntakeFacts, ListenFacts, ListenProtocol, ListenState, ServerFacts};
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
    ServerFacts {
        listen,
        packets: config.packets.enabled,
        clients: config.clients.len(),
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
        match bind(protocol, address) {
            Ok(()) => ListenState::Free,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let (name, _) = protocol.known_as();
                ListenState::Held(sockets::holders(name, address.port()))
            }
            Err(error) => ListenState::Cannot(error.to_string()),
        }
    };
    let listen = |address: &SocketAddr| ListenFacts {
        protocol,
        address: *address,
        state: state(*address),
    };
    addresses.iter().map(listen).collect()
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
