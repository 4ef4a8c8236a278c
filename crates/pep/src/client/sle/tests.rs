//! Epochs of sealed flows as client and server live through them, on loopback.
//!
//! ```text
//!   application ─SOCKS5─ client ══ QUIC, 127.0.0.2 ═════════════════ server ── echo
//!                           └───── TCP, 127.0.0.2 ─ box ─ 127.0.0.1 ────┘
//! ```

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::in_own_process;
use bentpipe_testbed::peer::{Service, echo, listen, read_exactly, set_patience};
use bentpipe_testbed::proxy::Proxy;
use bentpipe_testbed::route::Place;
use tempfile::TempDir;

use crate::config::{ClientFile, ServerFile};
use crate::keys::PrivateKey;
use crate::process::{self, Diagnosis};

/// Address at which the client finds tunnel and box; the server's own port for outer connections is at 127.0.0.1.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Time from one epoch to the next, in place of an hour.
const SPAN: Duration = Duration::from_secs(1);

/// Epochs that the test lives through after the first.
const EPOCHS: u16 = 4;

/// Time in which all of that is over on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Epochs that prefaces have named, in the order of their connections.
type Named = Arc<Mutex<Vec<u16>>>;

/// Files of both daemons, and the ports at which they are reached.
struct Scene {
    home: TempDir,
    tunnel: SocketAddr,
    sealed: SocketAddr,
    socks: SocketAddr,
}

impl Scene {
    fn write() -> Self {
        let scene = Self {
            home: tempfile::tempdir().expect("a directory"),
            tunnel: (PUBLIC, free_port()).into(),
            sealed: (Ipv4Addr::LOCALHOST, free_port()).into(),
            socks: (Ipv4Addr::LOCALHOST, free_port()).into(),
        };
        let [client_key, server_key] = ["client", "server"].map(|role| {
            let key = PrivateKey::generate().expect("random numbers");
            let file = scene.home.path().join(format!("{role}.key"));
            fs::write(&file, key.to_base64()).expect("a key file");
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
            key.public()
        });
        let Self {
            tunnel,
            sealed,
            socks,
            ..
        } = &scene;
        let own = |role: &str| {
            format!(
                "private_key_file = \"{role}.key\"\nstatus_socket = \"{role}.sock\"\n\
                 state_dir = \"{role}-state\"\nsandbox = false\n"
            )
        };
        let server = format!(
            "{}listen = \"{tunnel}\"\n[dns]\nenabled = false\n[packets]\nenabled = false\n\
             [sle]\nlisten = \"{sealed}\"\n\
             [[client]]\nname = \"one\"\npublic_key = \"{client_key}\"\nallow = [\"127.0.0.0/8\"]\n",
            own("server")
        );
        let client = format!(
            "{}[server]\naddress = \"{tunnel}\"\npublic_key = \"{server_key}\"\n\
             [socks5]\nlisten = \"{socks}\"\n[sle]\n",
            own("client")
        );
        fs::write(scene.file("server"), server).expect("a file");
        fs::write(scene.file("client"), client).expect("a file");
        scene
    }

    fn file(&self, role: &str) -> PathBuf {
        self.home.path().join(format!("{role}.toml"))
    }

    /// Starts the server, a box before its port for outer connections, and the client; they end with the process.
    fn run(&self) -> Named {
        let (named, file) = (Named::default(), self.file("server"));
        thread::spawn(move || serve(&file));
        until_open(self.sealed);
        let before = listen((PUBLIC, self.sealed.port()).into()).expect("a port");
        let (seen, server) = (named.clone(), self.sealed);
        thread::spawn(move || pass_on(&before, server, &seen));
        let file = self.file("client");
        thread::spawn(move || connect(&file));
        until_open(self.socks);
        named
    }
}

fn serve(file: &Path) {
    let file = ServerFile::load(file).expect("a server's file");
    crate::server::run(file, &Diagnosis::default()).expect("a server");
}

fn connect(file: &Path) {
    let mut file = ClientFile::load(file).expect("a client's file");
    if let ClientFile::Tunnel(config) = &mut file {
        config.sle.as_mut().expect("[sle]").set_epoch_span(SPAN);
    }
    crate::client::run(file, &Diagnosis::default()).expect("a client");
}

/// Waits until somebody listens.
fn until_open(address: SocketAddr) {
    let began = process::now();
    while TcpStream::connect(address).is_err() {
        assert!(
            began.elapsed() < PATIENCE,
            "nobody listens on TCP {address}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Takes outer connections, and has them go on to the server.
fn pass_on(listener: &TcpListener, server: SocketAddr, named: &Named) {
    for client in listener.incoming() {
        let (client, named) = (client.expect("a connection"), named.clone());
        thread::spawn(move || relay(&client, server, &named));
    }
}

/// Notes the epoch that the preface names, and relays both directions (PROTOCOL.md §18.2).
fn relay(mut client: &TcpStream, server: SocketAddr, named: &Named) -> io::Result<()> {
    let mut preface = [0; 16];
    client.read_exact(&mut preface)?;
    let epoch = u16::from_be_bytes([preface[2], preface[3]]);
    named.lock().expect("no panic").push(epoch);
    let server = TcpStream::connect(server)?;
    (&server).write_all(&preface)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &server, &mut &*client);
            client.shutdown(Shutdown::Write)
        });
        let _ = io::copy(&mut &*client, &mut &server);
        server.shutdown(Shutdown::Write)
    })
}

/// Has an application say something and hear it.
fn exchange(socks: SocketAddr, echo: SocketAddr) {
    let mut stream = TcpStream::connect(socks).expect("a proxy");
    set_patience(&stream, PATIENCE).expect("a socket");
    let answer = Proxy::Socks5.ask(&mut stream, "127.0.0.1", echo.port());
    assert_eq!(answer.expect("an answer"), Proxy::Socks5.success());
    stream.write_all(b"who is there?").expect("a connection");
    let heard = read_exactly(&mut stream, 13).expect("an echo");
    assert_eq!(heard, b"who is there?");
}

/// Each flow is sealed in the epoch of its time, the tunnel stays, and no flow has to go through it.
#[test]
fn flows_are_sealed_in_one_epoch_after_the_other() {
    if !in_own_process() {
        return;
    }
    let scene = Scene::write();
    let named = scene.run();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let echo = Service::start(&Place::here(), local, echo).expect("a server");
    let (began, mut flows) = (process::now(), 0);
    let named = loop {
        exchange(scene.socks, echo.address);
        flows += 1;
        let named = named.lock().expect("no panic").clone();
        assert_eq!(named.len(), flows, "sealed flows, epochs {named:?}");
        if named.last() == Some(&EPOCHS) {
            break named;
        }
        assert!(began.elapsed() < PATIENCE, "{named:?}");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(named[0], 0);
    let follows = |pair: &[u16]| pair[1] == pair[0] || pair[1] == pair[0] + 1;
    assert!(named.windows(2).all(follows), "{named:?}");
    let lasted = began.elapsed();
    assert!(lasted >= SPAN * u32::from(EPOCHS - 1), "{lasted:?}");
}
