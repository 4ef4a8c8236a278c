//! One QUIC stream between two threads: quinn-proto and quinn-udp as they come, with GSO and GRO, the
//! same keys and the same packet size as bentpipe, and windows that never bind.

use std::io::{ErrorKind, IoSliceMut};
use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::usage::cpu_seconds;
use bentpipe_tunnel::engine::identity::{self, PrivateKey};
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, MtuDiscoveryConfig, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
    WriteError,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};

use crate::Run;

/// What the quinn crate sends in one go.
const SEGMENTS: usize = 10;

/// Sends `bytes` from one thread to another; counts this process's CPU seconds.
pub(crate) fn run(bytes: u64) -> Run {
    let key = PrivateKey::generate().expect("random numbers");
    let public = key.public();
    let server_crypto = identity::server_crypto(&key, Arc::new(|_| true), false, None);
    let mut server = ServerConfig::new(server_crypto.expect("TLS"), identity::token_key(&key));
    server.transport_config(transport());
    let client_crypto = identity::client_crypto(&key, public, false, None).expect("TLS");
    let mut client = ClientConfig::new(client_crypto);
    client.transport_config(transport());

    let endpoint = |server| {
        Endpoint::new(
            Arc::new(EndpointConfig::new(identity::reset_key(&key))),
            server,
            true,
            None,
        )
    };
    let mut sender = Peer::new(endpoint(Some(Arc::new(server))));
    let mut receiver = Peer::new(endpoint(None));
    let remote = sender.socket.local_addr().expect("an address");
    let (handle, connection) = receiver
        .endpoint
        .connect(Instant::now(), client, remote, "plain")
        .expect("a connection");
    receiver.connection = Some((handle, connection));

    let (before, began) = (own_cpu(), Instant::now());
    let sending = thread::spawn(move || sender.run(Job::Send(bytes)));
    receiver.run(Job::Receive(bytes));
    let run = Run {
        seconds: began.elapsed().as_secs_f64(),
        cpu: own_cpu() - before,
    };
    sending.join().expect("the sender lives");
    run
}

fn own_cpu() -> f64 {
    cpu_seconds(std::process::id()).expect("we live")
}

fn transport() -> Arc<TransportConfig> {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(1472);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(1 << 30))
        .receive_window(VarInt::MAX)
        .send_window(8 << 20)
        .mtu_discovery_config(Some(mtu));
    Arc::new(transport)
}

/// What a peer does once it is connected.
#[derive(Clone, Copy)]
enum Job {
    Send(u64),
    Receive(u64),
}

struct Peer {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    socket: UdpSocket,
    state: UdpSocketState,
    stream: Option<StreamId>,
    buffer: Vec<u8>,
}

impl Peer {
    fn new(endpoint: Endpoint) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).expect("a UDP socket");
        let wide = socket2::SockRef::from(&socket);
        let _ = wide.set_recv_buffer_size(8 << 20);
        let _ = wide.set_send_buffer_size(8 << 20);
        Self {
            endpoint,
            connection: None,
            socket,
            state,
            stream: None,
            buffer: vec![0; BATCH_SIZE * 65_536],
        }
    }

    /// Until the job is done, or the other side has gone.
    fn run(&mut self, mut job: Job) {
        let block = Bytes::from(vec![0x5a; 1 << 16]);
        loop {
            let over = self.work(&mut job, &block);
            self.transmit();
            if over {
                return;
            }
            self.receive();
        }
    }

    fn work(&mut self, job: &mut Job, block: &Bytes) -> bool {
        let Some((handle, connection)) = &mut self.connection else {
            return false;
        };
        let now = Instant::now();
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if matches!(job, Job::Send(_)) => {
                    self.stream = connection.streams().open(Dir::Uni);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.stream = connection.streams().accept(Dir::Uni);
                }
                Event::ConnectionLost { .. } => return true,
                _ => {}
            }
        }
        let Some(stream) = self.stream else {
            return false;
        };
        match job {
            Job::Send(left) => {
                while *left > 0 {
                    let size = block
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    match connection
                        .send_stream(stream)
                        .write_chunks(&mut [block.slice(..size)])
                    {
                        Ok(written) => *left -= written.bytes as u64,
                        Err(WriteError::Blocked) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                false
            }
            Job::Receive(left) => {
                let mut stream = connection.recv_stream(stream);
                let mut chunks = stream.read(true).expect("the stream is open");
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    *left -= chunk.bytes.len() as u64;
                }
                let _ = chunks.finalize();
                if *left == 0 {
                    connection.close(now, VarInt::from_u32(0), Bytes::new());
                }
                *left == 0
            }
        }
    }

    fn transmit(&mut self) {
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        let mut buffer = Vec::with_capacity(SEGMENTS * 1472);
        while let Some(transmit) = connection.poll_transmit(Instant::now(), SEGMENTS, &mut buffer) {
            let out = quinn_udp::Transmit {
                destination: transmit.destination,
                ecn: None,
                contents: &buffer[..transmit.size],
                segment_size: transmit.segment_size,
                src_ip: None,
            };
            while let Err(error) = self.state.try_send(UdpSockRef::from(&self.socket), &out) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                thread::yield_now();
            }
            buffer.clear();
        }
    }

    /// Waits for datagrams, at most until the next timer.
    fn receive(&mut self) {
        let due = self
            .connection
            .as_mut()
            .and_then(|(_, connection)| connection.poll_timeout());
        let wait = due.map_or(Duration::from_millis(100), |due| {
            due.saturating_duration_since(Instant::now())
        });
        wait_readable(&self.socket, wait);
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut parts = self.buffer.chunks_mut(65_536).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| parts.next().expect("one part for each"));
        let Ok(count) = self
            .state
            .recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas)
        else {
            return;
        };
        drop(parts);
        for (index, meta) in metas[..count].iter().enumerate() {
            let bytes = &self.buffer[index * 65_536..][..meta.len];
            for datagram in bytes.chunks(meta.stride.max(1)) {
                take(&mut self.endpoint, &mut self.connection, meta, datagram);
            }
        }
    }
}

fn take(
    endpoint: &mut Endpoint,
    connection: &mut Option<(ConnectionHandle, Connection)>,
    meta: &RecvMeta,
    datagram: &[u8],
) {
    let now = Instant::now();
    let mut answer = Vec::new();
    match endpoint.handle(
        now,
        meta.addr,
        meta.dst_ip,
        None,
        BytesMut::from(datagram),
        &mut answer,
    ) {
        Some(DatagramEvent::ConnectionEvent(_, event)) => {
            if let Some((_, connection)) = connection {
                connection.handle_event(event);
            }
        }
        Some(DatagramEvent::NewConnection(incoming)) => {
            let accepted = endpoint.accept(incoming, now, &mut answer, None);
            *connection = Some(accepted.unwrap_or_else(|error| panic!("{}", error.cause)));
        }
        Some(DatagramEvent::Response(_)) | None => {}
    }
}

fn wait_readable(socket: &UdpSocket, wait: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let wait = Timespec::try_from(wait).expect("a short time");
    let _ = poll(&mut fds, Some(&wait));
}
