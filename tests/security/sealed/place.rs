//! Client, middle box, server and destination on loopback.
//!
//! ```text
//!   application ─SOCKS5─ client ══ QUIC, 127.0.0.2 ════════════════════ server ── destination
//!                           └──── TCP, 127.0.0.2 ─ middle ─ 127.0.0.1 ──┘
//! ```

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::{listen, read_to_the_end, set_patience};
use bentpipe_testbed::proxy::{Answer, Proxy};
use bentpipe_testbed::status::report;
use serde_json::Value;
use tempfile::TempDir;

use super::middle::{Middle, Plan, Recorded};
use crate::{BENTPIPE, SOON};

/// Address at which the client finds tunnel and middle box; the server's own port for outer connections is at 127.0.0.1.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Time that an application waits for a word.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time that the client may take to see the end of a flow whose application has seen it; some wait for a minute.
const ENDS: Duration = Duration::from_secs(2);

/// How an application fared.
#[derive(Debug)]
pub(super) enum Heard {
    /// Its proxy did not connect it.
    Refused,
    /// These bytes came, then this end.
    Bytes(Vec<u8>, io::Result<()>),
}

impl Heard {
    /// What it is about in a few words.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Refused => "refused".to_owned(),
            Self::Bytes(bytes, end) => format!("{} bytes, then {end:?}", bytes.len()),
        }
    }
}

/// What the destination has got by one connection that has ended.
#[derive(Debug, Clone)]
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    /// It ended in order.
    pub(super) whole: bool,
}

/// What comes of what the destination gets: it is sent back once it is whole.
#[derive(Debug, Default)]
struct Destination {
    dialled: AtomicUsize,
    arrived: Mutex<Vec<Arrived>>,
}

/// Counts of outer connections that were refused, by cause, and of flows that broke, at both ends together.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    refused: Value,
    pub(super) broken: u64,
}

impl Counted {
    /// Refusals for one of these causes.
    pub(super) fn refused(&self, causes: &[&str]) -> u64 {
        let of = |cause: &&str| self.refused[*cause].as_u64();
        causes.iter().filter_map(of).sum()
    }

    /// Refusals for whatever cause.
    pub(super) fn refused_in_all(&self) -> u64 {
        let counts = self.refused.as_object().into_iter().flatten();
        counts.filter_map(|(_, count)| count.as_u64()).sum()
    }
}

/// All that a test needs. Daemons come first: they end before their files do.
pub(super) struct Scene {
    client: Option<Daemon>,
    server: Daemon,
    home: TempDir,
    socks: SocketAddr,
    pub(super) middle: Middle,
    /// Port of the server for outer connections.
    sealed: SocketAddr,
    address: SocketAddr,
    destination: Arc<Destination>,
}

impl Scene {
    /// Starts the server and what is around it; no client runs.
    pub(super) fn start() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let sealed: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
        let before: SocketAddr = (PUBLIC, sealed.port()).into();
        let middle = Middle::start(listen(before)?, sealed);
        let tunnel = SocketAddr::from((PUBLIC, free_port()));
        let socks = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let keys = ["client", "server"].map(|role| {
            let file = home.path().join(format!("{role}.key"));
            keys::generate(BENTPIPE, &file)
        });
        let [client_key, server_key] = keys;
        let own = |role: &str| {
            format!(
                "private_key_file = \"{role}.key\"\nstatus_socket = \"{role}.sock\"\nstate_dir = \"{role}-state\"\n"
            )
        };
        let text = format!(
            "{}listen = \"{tunnel}\"\n[dns]\nenabled = false\n[packets]\nenabled = false\n\
             [sle]\nlisten = \"{sealed}\"\n\
             [[client]]\nname = \"terminal-1\"\npublic_key = \"{}\"\nallow = [\"127.0.0.0/8\"]\n",
            own("server"),
            client_key?,
        );
        fs::write(home.path().join("server.toml"), text)?;
        let text = format!(
            "{}[server]\naddress = \"{tunnel}\"\npublic_key = \"{}\"\n[socks5]\nlisten = \"{socks}\"\n[sle]\n",
            own("client"),
            server_key?,
        );
        fs::write(home.path().join("client.toml"), text)?;
        let server = Daemon::start(BENTPIPE, "server", home.path(), "server")?;
        server.wait_for("ready", SOON);
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let (address, destination) = (listener.local_addr()?, Arc::<Destination>::default());
        let serving = destination.clone();
        thread::spawn(move || serving.serve(&listener));
        Ok(Self {
            client: None,
            server,
            home,
            socks,
            middle,
            sealed,
            address,
            destination,
        })
    }

    /// Has a client that knows of no failure.
    pub(super) fn fresh_client(&mut self) -> Result<()> {
        self.client = None;
        let client = Daemon::start(BENTPIPE, "client", self.home.path(), "client")?;
        client.wait_for("ready", SOON);
        self.client = Some(client);
        Ok(())
    }

    /// Has a client that seals: where an outer connection has failed before the server's answer, one sends flows through the
    /// tunnel for a minute.
    pub(super) fn restore_trust(&mut self) -> Result<()> {
        // What a flow that ends now says of its way counts for the next.
        if self.client.is_some() {
            let ended = || Ok((self.sle("client")?["flows_active"] != 0).then(String::new));
            let _ = self.wait_for(ENDS, ended);
        }
        let failed = |client: &Daemon| client.log().contains("flows cannot be sealed");
        match self.client.as_ref().is_none_or(failed) {
            true => self.fresh_client(),
            false => Ok(()),
        }
    }

    /// Waits until the client has said `words` in its log.
    pub(super) fn wait_until_said(&self, words: &str) -> Result<()> {
        let client = self.client.as_ref().context("no client runs")?;
        client.wait_for(words, SOON);
        Ok(())
    }

    /// Ends the client, and its tunnel.
    pub(super) fn stop_client(&mut self) {
        self.client = None;
    }

    /// Sends `words` to the destination over a connection that is treated as `plan` says, and hears the answer to its end.
    pub(super) fn talk(&self, plan: Plan, words: &[u8]) -> Result<Heard> {
        self.middle.treat(plan);
        let mut stream = TcpStream::connect(self.socks)?;
        set_patience(&stream, PATIENCE)?;
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        match Proxy::Socks5.ask(&mut stream, &host, port) {
            Ok(Answer::Code(0)) => {}
            Ok(_) | Err(_) => return Ok(Heard::Refused),
        }
        // What cannot be written any more shows when it is read.
        let said = stream.write_all(words);
        let _ = said.and_then(|()| stream.shutdown(Shutdown::Write));
        let (bytes, end) = read_to_the_end(&mut stream);
        Ok(Heard::Bytes(bytes, end))
    }

    /// Says `bytes` to the server itself, as one who has recorded them; what it answers until it ends the connection.
    pub(super) fn say(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let (answer, end) = read_to_the_end(&mut self.begin(bytes)?);
        match end {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error.into()),
            Ok(()) | Err(_) => Ok(answer),
        }
    }

    /// A connection to the server itself that begins with `bytes`.
    pub(super) fn begin(&self, bytes: &[u8]) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.sealed)?;
        set_patience(&stream, PATIENCE)?;
        // Who is refused before all is written hears of that by reading.
        let _ = stream.write_all(bytes);
        Ok(stream)
    }

    /// Refusals of the server for this cause.
    pub(super) fn refused(&self, cause: &str) -> Result<u64> {
        let count = self.sle("server")?["refused_total"][cause].as_u64();
        count.with_context(|| format!("no count of {cause}"))
    }

    /// Waits until the server has refused so many for this cause.
    pub(super) fn wait_until_refused(&self, cause: &str, count: u64) -> Result<()> {
        self.wait(|| {
            let refused = self.refused(cause)?;
            let brief = format!("{refused} of {count} refused as {cause}");
            Ok((refused != count).then_some(brief))
        })
    }

    /// Connections that the destination has got.
    pub(super) fn dialled(&self) -> usize {
        self.destination.dialled.load(Ordering::SeqCst)
    }

    /// What the destination has got so far, by connections that have ended.
    pub(super) fn arrived(&self) -> Vec<Arrived> {
        let arrived = &self.destination.arrived;
        let arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.clone()
    }

    /// The last outer connection, which must have been recorded.
    pub(super) fn recorded(&self) -> Result<Recorded> {
        self.middle.last().context("no outer connection")
    }

    /// Counts of both daemons.
    pub(super) fn counted(&self) -> Result<Counted> {
        let [client, server] = ["client", "server"].map(|role| self.sle(role));
        let (client, server) = (client?, server?);
        let broken = |of: &Value| of["broken_total"].as_u64().context("no broken_total");
        Ok(Counted {
            refused: server["refused_total"].clone(),
            broken: broken(&client)? + broken(&server)?,
        })
    }

    fn sle(&self, role: &str) -> Result<Value> {
        let socket = self.home.path().join(format!("{role}.sock"));
        Ok(report(BENTPIPE, &socket)?["sle"].take())
    }

    /// Waits until `seen` says so of the counts.
    pub(super) fn wait_until(&self, seen: impl Fn(&Counted) -> bool) -> Result<()> {
        self.wait(|| {
            let counted = self.counted()?;
            let brief = format!("counted are {counted:?}");
            Ok((!seen(&counted)).then_some(brief))
        })
    }

    /// Waits until no flow is open at either end.
    pub(super) fn wait_until_closed(&self) -> Result<()> {
        self.wait(|| {
            let open = ["client", "server"].map(|role| Ok(self.sle(role)?["flows_active"] != 0));
            let [client, server]: [Result<bool>; 2] = open;
            Ok((client? || server?).then(|| "flows stay open".to_owned()))
        })
    }

    /// Waits until `lacking` says of nothing that it lacks.
    pub(super) fn wait(&self, lacking: impl Fn() -> Result<Option<String>>) -> Result<()> {
        self.wait_for(SOON, lacking)
    }

    fn wait_for(
        &self,
        patience: Duration,
        lacking: impl Fn() -> Result<Option<String>>,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        while let Some(text) = lacking()? {
            ensure!(Instant::now() < deadline, "{text}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Text that the daemons have logged.
    pub(super) fn logs(&self) -> String {
        let client = self.client.as_ref().map_or(String::new(), Daemon::log);
        format!("client:\n{client}\nserver:\n{}", self.server.log())
    }
}

impl Destination {
    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            self.dialled.fetch_add(1, Ordering::SeqCst);
            let own = self.clone();
            thread::spawn(move || own.hear(stream));
        }
    }

    fn hear(&self, mut stream: TcpStream) {
        let (bytes, end) = read_to_the_end(&mut stream);
        let whole = end.is_ok();
        let arrived = Arrived {
            bytes: bytes.clone(),
            whole,
        };
        let mut all = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(arrived);
        drop(all);
        if whole {
            let _ = stream.write_all(&bytes);
        }
    }
}
