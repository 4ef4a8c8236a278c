//! Daemons on loopback addresses, and the peers that these tests play: listed clients, and strangers.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::keys;
use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bytes::BytesMut;
use quinn::{Connection, VarInt};
use quinn_proto::{DatagramEvent, EndpointConfig};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::BENTPIPE;
use crate::SOON;

/// Starts a daemon in a directory of its own, with `config` besides what each needs.
fn start(role: &str, home: TempDir, config: &str) -> Daemon {
    let own = format!(
        "private_key_file = \"own.key\"\nstatus_socket = \"status.sock\"\nstate_dir = \"state\"\n{config}"
    );
    fs::write(home.path().join("daemon.toml"), own).expect("a file");
    Daemon::start(BENTPIPE, role, home.path(), "daemon")
        .expect("a daemon")
        .keeping(home)
}

/// A server with `shards` shards that knows clients with these keys.
pub(crate) fn server(address: SocketAddr, clients: &[PrivateKey], shards: usize) -> Daemon {
    let mut config = format!(
        "listen = \"{address}\"\nshards = {shards}\n[dns]\nenabled = false\n[packets]\nenabled = false\n"
    );
    for (number, key) in clients.iter().enumerate() {
        let key = key.public();
        write!(
            config,
            "[[client]]\nname = \"c{number}\"\npublic_key = \"{key}\"\n"
        )
        .expect("text");
    }
    start("server", home(), &config)
}

/// A client that looks for a server there.
pub(crate) fn client(server: SocketAddr, key: &PublicKey) -> Daemon {
    let config = format!(
        "[server]\naddress = \"{server}\"\npublic_key = \"{key}\"\n[socks5]\nlisten = \"127.0.0.1:{}\"\n",
        free_port()
    );
    start("client", home(), &config)
}

/// A directory with a private key.
fn home() -> TempDir {
    let home = tempfile::tempdir().expect("a directory");
    keys::generate(BENTPIPE, &home.path().join("own.key")).expect("a key");
    home
}

/// A server that is ready.
pub(crate) struct Server {
    pub(crate) daemon: Daemon,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(clients: &[PrivateKey]) -> Self {
        // All of 127.0.0.0/8 leads here.
        let address = ([127, 0, 0, 1], free_port()).into();
        let daemon = server(address, clients, 2);
        daemon.wait_for("ready", SOON);
        Self { daemon, address }
    }

    pub(crate) fn public_key(&self) -> PublicKey {
        let file = self.daemon.directory().join("own.key");
        bentpipe_pep::keys::read(&file).expect("a key").public()
    }
}

/// Connections of listed clients, each with a key of its own, that have said HELLO and then nothing.
pub(crate) struct Tunnels(Vec<Connection>);

/// Control stream, and a HELLO that says its version (`PROTOCOL.md` §5.1).
const HELLO: [u8; 4] = [0x00, 0x01, 0x01, 0x01];

impl Tunnels {
    pub(crate) fn connect(server: &Server, source: Ipv4Addr, keys: &[PrivateKey]) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (address, public) = (server.address, server.public_key());
        let connections = runtime.block_on(async {
            let endpoint = quinn::Endpoint::client((source, 0).into()).expect("a socket");
            let mut connections = Vec::new();
            for key in keys {
                let crypto = identity::client_crypto(key, public, false, None).expect("TLS");
                let config = quinn::ClientConfig::new(crypto);
                let connecting = endpoint.connect_with(config, address, "bentpipe");
                let connection = connecting.expect("an address").await.expect("let in");
                let (mut control, mut answer) = connection.open_bi().await.expect("a stream");
                control.write_all(&HELLO).await.expect("HELLO");
                answer.read(&mut [0; 64]).await.expect("an answer");
                // Neither end of the stream ends with this.
                std::mem::forget((control, answer));
                connections.push(connection);
            }
            connections
        });
        // The connections answer until the process ends.
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self(connections)
    }

    /// Connections that have not ended.
    pub(crate) fn alive(&self) -> usize {
        let open = |connection: &&Connection| connection.close_reason().is_none();
        self.0.iter().filter(open).count()
    }

    /// Closes every connection, for this reason.
    pub(crate) fn close(&self, reason: &str) {
        for connection in &self.0 {
            connection.close(VarInt::from_u32(0), reason.as_bytes());
        }
    }
}

/// Begins handshakes without a key that anybody knows, and leaves them alone.
pub(crate) struct Stranger {
    socket: UdpSocket,
    endpoint: quinn_proto::Endpoint,
    config: quinn_proto::ClientConfig,
    server: SocketAddr,
    begun: usize,
}

impl Stranger {
    pub(crate) fn new(source: Ipv4Addr, server: SocketAddr, public: PublicKey) -> Self {
        let socket = UdpSocket::bind((source, 0)).expect("a socket");
        let patience = Duration::from_millis(2);
        socket.set_read_timeout(Some(patience)).expect("a socket");
        let own = PrivateKey::generate().expect("a key");
        let crypto = identity::client_crypto(&own, public, false, None).expect("TLS");
        Self {
            socket,
            endpoint: quinn_proto::Endpoint::new(
                Arc::new(EndpointConfig::default()),
                None,
                true,
                None,
            ),
            config: quinn_proto::ClientConfig::new(crypto),
            server,
            begun: 0,
        }
    }

    /// Sends a first flight; answers a Retry, and nothing else.
    pub(crate) fn begin(&mut self) {
        let now = now();
        let connecting = self
            .endpoint
            .connect(now, self.config.clone(), self.server, "bentpipe");
        let (handle, mut connection) = connecting.expect("an address");
        self.flush(&mut connection);
        let mut buffer = [0; 2000];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            // Long header, type Retry; anything else belongs to a handshake that is left alone.
            if buffer[0] & 0xf0 != 0xf0 {
                continue;
            }
            let (data, mut answer) = (BytesMut::from(&buffer[..length]), Vec::new());
            let event = self
                .endpoint
                .handle(now, self.server, None, None, data, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(to, event)) = event
                && to == handle
            {
                connection.handle_event(event);
                self.flush(&mut connection);
                break;
            }
        }
        self.begun += 1;
        self.endpoint
            .handle_event(handle, quinn_proto::EndpointEvent::drained());
    }

    fn flush(&self, connection: &mut quinn_proto::Connection) {
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now(), 1, &mut buffer) {
            let _ = self.socket.send_to(&buffer[..transmit.size], self.server);
            buffer.clear();
        }
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun
    }
}

fn now() -> Instant {
    Instant::now()
}
