//! What a PEP is made of when it starts: bounds, its socket, its engine.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bentpipe_proto::tunnel::{Forward, Hello, VERSION, capability};
use bentpipe_segments::Bounds;
use bentpipe_units::Seed;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{MeetingPlace, PepConfig, Placed};
use crate::keys::PrivateKey;
use crate::process::{self, RunError};
use crate::wishes;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Engine, EngineConfig, ServerSetup};
use bentpipe_tunnel::transport::MemoryPool;

/// First credit of a stream, announced before anything is known of the path, in bytes.
const INITIAL_CREDIT: u64 = 1 << 20;

/// Flows that are known besides those that are relayed, for each of these.
const KNOWN: usize = 8;

/// Bounds of the relays, which may hold `memory` bytes.
pub(super) fn bounds(config: &PepConfig, memory: u64) -> Bounds {
    let room = usize::try_from(config.limits.flow_memory.as_u64()).unwrap_or(usize::MAX);
    let fit = usize::try_from(memory / 2).unwrap_or(usize::MAX) / room.max(1);
    let wanted = usize::try_from(config.limits.flows).unwrap_or(usize::MAX);
    if fit < wanted {
        tracing::info!(
            "memory for {fit} flows, of {wanted}: more pass untouched; lower `flow_memory` or raise `total_memory` of `[limits]`"
        );
    }
    let relayed = wanted.min(fit).max(1);
    Bounds {
        known: relayed.saturating_mul(KNOWN),
        relayed,
        room,
    }
}

/// Socket at which this PEP waits for the other one, or by which it connects.
pub(super) fn socket(config: &PepConfig) -> Result<UdpSocket, RunError> {
    match &config.peer.meeting {
        MeetingPlace::Here(address) => bound(address),
        MeetingPlace::There(_) => {
            let any = open(([0_u16; 8], 0).into());
            Ok(any.or_else(|_| open(([0, 0, 0, 0], 0).into()))?)
        }
    }
}

/// UDP socket at an address of the file; `[::]` is for both families.
pub(super) fn bound(address: &Placed<SocketAddr>) -> Result<UdpSocket, RunError> {
    let either = open(**address).or_else(|error| match address.ip().is_unspecified() {
        // A kernel without IPv6.
        true => open((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        false => Err(error),
    });
    either.map_err(|source| RunError::Bind {
        place: address.place.clone(),
        address: **address,
        what: "UDP",
        source,
    })
}

fn open(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    process::widen(&socket);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// TLS of the PEP that waits for the other one.
pub(super) fn setup(
    config: &PepConfig,
    key: &PrivateKey,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<ServerSetup, RunError> {
    let peer = config.peer.public_key;
    let crypto = identity::server_crypto(
        key,
        Arc::new(move |shown| *shown == peer),
        config.identity.allow_classical,
        key_log,
    );
    Ok(ServerSetup {
        crypto: crypto.map_err(RunError::key)?,
        token_key: identity::token_key(key),
    })
}

/// Engine of the tunnel between the PEPs.
pub(super) fn engine(
    config: &PepConfig,
    key: &PrivateKey,
    setup: Option<ServerSetup>,
    pool: &Arc<MemoryPool>,
) -> Engine {
    // Each PEP has its own file and sets its own direction: `return` as at a client that connects, `forward` as a server's.
    let (own, other) = match setup {
        None => (&config.link.return_link, &config.link.forward),
        Some(_) => (&config.link.forward, &config.link.return_link),
    };
    Engine::new(EngineConfig {
        reset_key: identity::reset_key(key),
        shard: setup.as_ref().map(|_| 0),
        hello: Hello {
            version: VERSION,
            agent: process::agent(),
            instance: process::random_u64() >> 2,
            forward: match setup {
                None => wishes::forward(other),
                Some(_) => Forward::default(),
            },
            initial_credit: INITIAL_CREDIT,
            max_flows: config.limits.flows.into(),
            capabilities: capability::SEGMENTS,
            return_controller: Some(own.controller.unwrap_or_default().name().to_owned()),
            ..Hello::default()
        },
        server: setup,
        memory: pool.ceiling(),
        pool: pool.clone(),
        wishes: wishes::own(own),
        seed: Seed::new(process::random_u64()),
        deterministic: false,
    })
}
