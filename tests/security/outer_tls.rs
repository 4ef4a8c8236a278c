//! A box that ends the TLS around the tunnel towards both sides, as a firewall with an authority of its own does: it sees what an
//! observer of UDP sees, and what it changes is lost (PROTOCOL.md §17.1).
//!
//! ```text
//!   application ─SOCKS5─ client ══ TLS ══ box ══ TLS ══ server ── echo          all on loopback
//! ```

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bentpipe_lab::workload::MARKER;
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::{
    PATIENCE, Service, digest, echo, listen, payload, read_to_eof, set_patience,
};
use bentpipe_testbed::proxy::Proxy;
use bentpipe_testbed::route::Place;
use bentpipe_tunnel::engine::identity::unverified_client;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{BENTPIPE, SOON};

/// Bytes that an application says, and hears again.
const LENGTH: usize = 1_000_000;

/// Datagrams of which one is altered.
const ALTERED_OF: usize = 25;

/// What the box has seen inside TLS, from the client and from the server, and what it does to that.
#[derive(Default)]
struct Seen {
    bytes: [Mutex<Vec<u8>>; 2],
    alters: AtomicBool,
    altered: AtomicUsize,
}

/// Ends the TLS of connections at `address`, and speaks TLS to `server`; lasts until the process ends.
fn start_box(address: SocketAddr, server: SocketAddr) -> Result<Arc<Seen>> {
    let listener = listen(address)?;
    listener.set_nonblocking(true)?;
    let seen = Arc::<Seen>::default();
    let (acceptor, connector) = (acceptor()?, connector()?);
    let counted = seen.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((client, _)) = listener.accept().await {
                let ends = (acceptor.clone(), connector.clone());
                tokio::spawn(carry(client, server, ends, counted.clone()));
            }
        });
    });
    Ok(seen)
}

/// TLS towards clients, with a certificate that nobody has signed.
fn acceptor() -> Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["box.example".to_owned()])?.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector() -> Result<TlsConnector> {
    let config = unverified_client(Arc::new(default_provider()))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn carry(
    client: tokio::net::TcpStream,
    server: SocketAddr,
    (acceptor, connector): (TlsAcceptor, TlsConnector),
    seen: Arc<Seen>,
) -> io::Result<()> {
    let client = acceptor.accept(client).await?;
    let tcp = tokio::net::TcpStream::connect(server).await?;
    let server = connector.connect(server.ip().into(), tcp).await?;
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    tokio::try_join!(
        pass(from_client, to_server, &seen, 0),
        pass(from_server, to_client, &seen, 1),
    )?;
    Ok(())
}

/// Passes on the datagrams of one direction, and has a bit of some changed.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    seen: &Seen,
    way: usize,
) -> io::Result<()> {
    let note = |bytes: &[u8]| {
        let seen = seen.bytes[way].lock();
        seen.unwrap_or_else(PoisonError::into_inner).extend(bytes);
    };
    let mut preface = [0; 4];
    from.read_exact(&mut preface).await?;
    note(&preface);
    to.write_all(&preface).await?;
    for number in 1.. {
        let length = from.read_u16().await?;
        let mut datagram = vec![0; length.into()];
        from.read_exact(&mut datagram).await?;
        note(&datagram);
        if number % ALTERED_OF == 0 && seen.alters.load(Ordering::Relaxed) {
            // Here and there: in headers, payload and tags.
            let at = number * 37 % datagram.len();
            datagram[at] ^= 1 << (number % 8);
            seen.altered.fetch_add(1, Ordering::Relaxed);
        }
        to.write_u16(length).await?;
        to.write_all(&datagram).await?;
        to.flush().await?;
    }
    Ok(())
}

/// Has an application say `LENGTH` bytes to an echo, and hear them all.
fn converse(socks: SocketAddr, echo: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(socks)?;
    set_patience(&stream, PATIENCE)?;
    let answer = Proxy::Socks5.ask(&mut stream, &echo.ip().to_string(), echo.port())?;
    ensure!(answer == Proxy::Socks5.success(), "{answer:?}");
    let words = payload(LENGTH);
    let heard = thread::scope(|scope| {
        let mut speaker = &stream;
        let words = &words;
        let speaks = scope.spawn(move || {
            speaker.write_all(words)?;
            speaker.shutdown(Shutdown::Write)
        });
        let heard = read_to_eof(&mut &stream);
        speaks.join().expect("no panic")?;
        heard
    })?;
    ensure!(digest(&heard) == digest(&words), "{} bytes", heard.len());
    Ok(())
}

#[test]
fn who_ends_the_outer_tls_reads_nothing_and_alters_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let [tunnel, door, front, socks] =
        [(); 4].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
    let [client_key, server_key] = ["client", "server"].map(|role| {
        let file = home.path().join(format!("{role}.key"));
        keys::generate(BENTPIPE, &file).expect("a key")
    });
    let own = |role: &str| {
        format!(
            "private_key_file = \"{role}.key\"\nstatus_socket = \"{role}.sock\"\nstate_dir = \"{role}-state\"\n"
        )
    };
    let server = format!(
        "{}listen = \"{tunnel}\"\nlisten_tls = \"{door}\"\n[dns]\nenabled = false\n[packets]\nenabled = false\n\
         [[client]]\nname = \"terminal-1\"\npublic_key = \"{client_key}\"\nallow = [\"127.0.0.0/8\"]\n",
        own("server")
    );
    let client = format!(
        "{}[server]\naddress = \"{tunnel}\"\npublic_key = \"{server_key}\"\ntls = \"{front}\"\nwire = \"tls\"\n\
         [socks5]\nlisten = \"{socks}\"\n",
        own("client")
    );
    for (role, text) in [("server", server), ("client", client)] {
        fs::write(home.path().join(format!("{role}.toml")), text).expect("a file");
    }
    let seen = start_box(front, door).expect("a box");
    let start = |role: &str| Daemon::start(BENTPIPE, role, home.path(), role).expect("a daemon");
    let server = start("server");
    server.wait_for("ready", SOON);
    let client = start("client");
    client.wait_for("ready: tunnel to", SOON);
    let result = is_blind_and_harmless(&seen, socks);
    assert!(
        result.is_ok(),
        "{:#}\n{}\n{}",
        result.unwrap_err(),
        client.log(),
        server.log()
    );
}

fn is_blind_and_harmless(seen: &Seen, socks: SocketAddr) -> Result<()> {
    let place = Place::here();
    let echo = Service::start(&place, (Ipv4Addr::LOCALHOST, 0).into(), echo)?;
    converse(socks, echo.address)?;
    seen.alters.store(true, Ordering::Relaxed);
    converse(socks, echo.address)?;
    seen.alters.store(false, Ordering::Relaxed);
    converse(socks, echo.address).context("afterwards")?;
    let altered = seen.altered.load(Ordering::Relaxed);
    println!("{altered} datagrams altered");
    // Those of one direction alone are more than 700.
    ensure!(altered >= 2 * 700 / ALTERED_OF, "{altered} altered");
    for bytes in &seen.bytes {
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(bytes.starts_with(b"bpt1"), "begins with {:?}", &bytes[..4]);
        ensure!(bytes.len() > 3 * LENGTH, "{} bytes were seen", bytes.len());
        let mut parts = bytes.windows(MARKER.len());
        ensure!(!parts.any(|part| part == MARKER), "content can be read");
    }
    Ok(())
}
