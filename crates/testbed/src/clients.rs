//! Many clients of one server, as connections of this process: they say HELLO and then nothing, and connect anew when their
//! connection has ended.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

/// Addresses that clients come from, each of a network of its own.
const SOURCES: usize = 100;

/// Control stream, and a HELLO that says its version (`PROTOCOL.md` §5.1).
const HELLO: [u8; 4] = [0x00, 0x01, 0x01, 0x01];

/// An idle client asks after its server so often; then it learns that a restarted one does not know its connection.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// A client that has asked in vain asks again so often, where quinn's pauses double; here it connects anew instead.
const ASK: Duration = Duration::from_secs(5);

/// Time after which an attempt is given up, and the pause before the next.
const ATTEMPT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// Clients of one server, in a thread of their own until the process ends.
#[derive(Debug)]
pub struct Clients {
    /// Times that each client has been let in.
    entries: Arc<Vec<AtomicUsize>>,
}

impl Clients {
    /// Starts a client for each of `keys`.
    pub fn start(server: SocketAddr, public: PublicKey, keys: Vec<PrivateKey>) -> Self {
        let entries: Arc<Vec<AtomicUsize>> = Arc::new(keys.iter().map(|_| 0.into()).collect());
        let counts = entries.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let endpoints: Vec<_> = (0..SOURCES).map(endpoint).collect();
                for (number, key) in keys.into_iter().enumerate() {
                    let endpoint = endpoints[number % SOURCES].clone();
                    let (config, counts) = (config(&key, public), counts.clone());
                    tokio::spawn(async move {
                        loop {
                            let entering = enter(&endpoint, &config, server);
                            match timeout(ATTEMPT, entering).await {
                                Ok(Some(entered)) => {
                                    counts[number].fetch_add(1, Ordering::Relaxed);
                                    entered.until_lost().await;
                                }
                                _ => sleep(PAUSE).await,
                            }
                        }
                    });
                }
                std::future::pending::<()>().await;
            });
        });
        Self { entries }
    }

    /// Clients that have been let in `times` times and no more.
    pub fn entered(&self, times: usize) -> usize {
        let entries = self.entries.iter();
        entries
            .filter(|count| count.load(Ordering::Relaxed) == times)
            .count()
    }

    /// Waits until each client has been let in `times` times.
    pub fn wait_for(&self, times: usize, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.entered(times) < self.entries.len() {
            let entered = self.entered(times);
            assert!(Instant::now() < deadline, "{entered} are in");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A connection whose client has been greeted. Neither end of its control stream ends before it does.
struct Entered {
    connection: Connection,
    _control: (SendStream, RecvStream),
}

impl Entered {
    /// Waits until the connection has ended, or nothing has come for longer than a living server is silent.
    async fn until_lost(&self) {
        let received = || self.connection.stats().udp_rx.datagrams;
        let mut last = received();
        while timeout(KEEP_ALIVE + ASK, self.connection.closed())
            .await
            .is_err()
        {
            let now = received();
            if now == last {
                self.connection.close(VarInt::from_u32(0), b"silent");
                return;
            }
            last = now;
        }
    }
}

async fn enter(endpoint: &Endpoint, config: &ClientConfig, server: SocketAddr) -> Option<Entered> {
    let connecting = endpoint.connect_with(config.clone(), server, "bentpipe");
    let connection = connecting.ok()?.await.ok()?;
    let (mut control, mut answer) = connection.open_bi().await.ok()?;
    control.write_all(&HELLO).await.ok()?;
    answer.read(&mut [0; 64]).await.ok()??;
    Some(Entered {
        connection,
        _control: (control, answer),
    })
}

/// A socket on an address of a /24 of its own.
fn endpoint(number: usize) -> Endpoint {
    let network = u8::try_from(number).expect("few sources");
    let source = Ipv4Addr::new(127, 1, network, 1);
    Endpoint::client((source, 0).into()).expect("a socket")
}

fn config(key: &PrivateKey, public: PublicKey) -> ClientConfig {
    let crypto = identity::client_crypto(key, public, false, None).expect("TLS");
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    let idle = Duration::from_secs(300);
    transport.max_idle_timeout(Some(idle.try_into().expect("short enough")));
    let mut config = ClientConfig::new(crypto);
    config.transport_config(Arc::new(transport));
    config
}
