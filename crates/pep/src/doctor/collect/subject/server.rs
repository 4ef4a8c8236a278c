//! Facts about a server for the doctor: what its configuration listens on, and takes in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use bentpipe_sys::link;
use socket2::{Domain, Protocol, Socket, Type};

use super::super::sockets;
use crate::config::{Placed, ServerConfig, SleIntake};
use crate::doctor::facts::{IntakeFacts, ListenFacts, ListenState, ServerFacts};
use crate::status::{Side, StatusReport};

pub(super) fn server(config: &ServerConfig, running: Option<&StatusReport>) -> ServerFacts {
    let mut listen = listens(&config.listening.addresses, running, udp);
    if let Some(tls) = &config.listening.tls {
        listen.extend(listens(&tls.addresses, running, tcp));
    }
    if let Some(sle) = &config.sle {
        let addresses = sle.addresses.iter();
        listen.extend(addresses.flat_map(|it| listens(it, running, tcp)));
    }
    if let Some(les) = &config.listening.les {
        listen.extend(listens(&les.addresses, running, udp));
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

/// State of the addresses to listen on; `bind` tries one, and names the protocol.
pub(super) fn listens(
    addresses: &Placed<Vec<SocketAddr>>,
    running: Option<&StatusReport>,
    bind: fn(SocketAddr) -> (&'static str, io::Result<()>),
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
        match bind(address) {
            (_, Ok(())) => ListenState::Free,
            (protocol, Err(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                ListenState::Held(sockets::holders(protocol, address.port()))
            }
            (_, Err(error)) => ListenState::Cannot(error.to_string()),
        }
    };
    let listen = |address: &SocketAddr| ListenFacts {
        address: *address,
        state: state(*address),
    };
    addresses.iter().map(listen).collect()
}

pub(super) fn udp(address: SocketAddr) -> (&'static str, io::Result<()>) {
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())
    };
    ("udp", open())
}

pub(super) fn tcp(address: SocketAddr) -> (&'static str, io::Result<()>) {
    ("tcp", TcpListener::bind(address).map(drop))
}
