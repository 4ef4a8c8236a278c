//! DNS for the clients: queries go on to the resolvers that the operator names, or that this machine uses.
//!
//! Each attempt has a socket of its own, connected, so that an answer must come from the resolver's address to a port that
//! the kernel has chosen at random; identifier, question and the letters' case are compared in `proto/dns/outgoing.rs`. What does not
//! fit is dropped, and the wait goes on. Earlier attempts stay open beside later ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bentpipe_proto::dns::{Answer, MAX_MESSAGE, Outgoing, Query, Refusal, UDP_SIZE, Verdict};
use bentpipe_proto::tunnel::ReplyCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::UdpSocket;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::nat64;
use crate::process;

/// How long each attempt has before the next begins.
const ATTEMPTS: [Duration; 4] = [
    Duration::from_millis(1000),
    Duration::from_millis(1000),
    Duration::from_millis(1500),
    Duration::from_millis(2500),
];

/// After so long there is no answer, whatever is still under way (`PROTOCOL.md` §4.1).
const PATIENCE: Duration = Duration::from_secs(7);

/// How long an exchange over TCP may take.
const TCP_PATIENCE: Duration = Duration::from_secs(3);

/// How old the list of this machine's resolvers may be.
const FRESH: Duration = Duration::from_secs(10);

/// Where the list is.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Longest list that is read, bytes.
const MAX_FILE: u64 = 64 << 10;

/// Resolvers of this machine that are asked; no resolver library uses more.
const MAX_SERVERS: usize = 3;

/// Names that this machine knows itself; read anew after this time.
const HOSTS: &str = "/etc/hosts";
const HOSTS_FRESH: Duration = Duration::from_secs(2);

/// One shard's way to the resolvers.
pub(crate) struct Resolver {
    configured: Rc<[SocketAddr]>,
    system: RefCell<Option<(Instant, Rc<[SocketAddr]>)>>,
    /// Which of them answered last.
    preferred: Cell<usize>,
    /// Names of /etc/hosts, and when that was read.
    hosts: RefCell<Option<(Instant, Rc<Hosts>)>>,
    /// The mark of its sockets, if they need one.
    mark: Option<u32>,
}

/// Addresses by name, lower case.
type Hosts = HashMap<String, Vec<IpAddr>>;

impl Resolver {
    /// `configured`: whom to ask; empty: whom this machine asks.
    pub(crate) fn new(configured: &[SocketAddr]) -> Self {
        Self {
            configured: configured.into(),
            system: RefCell::default(),
            preferred: Cell::new(0),
            hosts: RefCell::default(),
            mark: None,
        }
    }

    /// With `mark` on its sockets.
    pub(crate) fn marked(self, mark: Option<u32>) -> Self {
        Self { mark, ..self }
    }

    /// The answer to a client's message, an error among them; `None` if the message deserves none.
    pub(crate) async fn resolve(&self, message: &[u8]) -> Option<Vec<u8>> {
        let query = match Query::decode(message) {
            Ok(query) => query,
            Err(Refusal::Answer(answer)) => return Some(answer),
            Err(Refusal::Silence) => return None,
        };
        self.ask(&query).await.or_else(|| Some(query.unanswered()))
    }

    /// What a resolver says, a failure among it; `None` if none answers.
    async fn ask(&self, query: &Query) -> Option<Vec<u8>> {
        let mut race = Race {
            query,
            mark: self.mark,
            edns: true,
            asked: Vec::new(),
            failed: None,
        };
        let answer = timeout(PATIENCE, self.run(&mut race)).await;
        answer.ok().flatten().or(race.failed)
    }

    /// The addresses of `name`, for this machine to dial: by the resolvers that are configured, after /etc/hosts, or as
    /// any program of this machine finds them. `permit` is held for as long as that takes, which may be longer than
    /// anybody waits.
    pub(crate) async fn look_up(
        &self,
        name: &str,
        permit: OwnedSemaphorePermit,
    ) -> Result<Vec<IpAddr>, ReplyCode> {
        if self.configured.is_empty() {
            return look_up_by_system(name.to_owned(), permit).await;
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
        }
        if let Some(known) = self.hosts().get(&name) {
            return Ok(known.clone());
        }
        let found = self.addresses(&name).await;
        match found.is_empty() {
            true => Err(ReplyCode::NameNotFound),
            false => Ok(found),
        }
    }

    /// The addresses that resolvers know of `name`: IPv6 first where this machine has a route of it.
    async fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let one = async |ipv6| {
            let query = Query::for_addresses(name, ipv6)?;
            let answer = Answer::decode(&self.ask(&query).await?, &query).ok()?;
            let family = answer
                .addresses()
                .filter(|address| address.is_ipv6() == ipv6);
            Some(family.collect::<Vec<_>>())
        };
        let (v6, v4) = tokio::join!(one(true), one(false));
        let (v6, v4) = (v6.unwrap_or_default(), v4.unwrap_or_default());
        let usable = |address: &IpAddr| process::source_address(*address).is_some();
        match v6.first().is_some_and(usable) {
            true => [v6, v4].concat(),
            false => [v4, v6].concat(),
        }
    }

    /// What the resolvers say of the name that shows a translator's prefix.
    pub(crate) async fn probe_translations(&self) -> Option<Vec<IpAddr>> {
        // Without one there is nothing to be found, which is no reason to complain.
        if self.servers().is_empty() {
            return None;
        }
        let query = Query::for_addresses(nat64::PROBE, true)?;
        let answer = Answer::decode(&self.ask(&query).await?, &query).ok()?;
        (!answer.is_failure()).then(|| answer.addresses().collect())
    }

    fn hosts(&self) -> Rc<Hosts> {
        let now = process::now();
        let known = self.hosts.borrow().clone();
        if let Some((read, hosts)) = known
            && now.saturating_duration_since(read) < HOSTS_FRESH
        {
            return hosts;
        }
        let bytes = crate::state::read(std::path::Path::new(HOSTS), MAX_FILE);
        let hosts = Rc::new(parse_hosts(&String::from_utf8_lossy(
            &bytes.unwrap_or_default(),
        )));
        *self.hosts.borrow_mut() = Some((now, hosts.clone()));
        hosts
    }

    async fn run(&self, race: &mut Race<'_>) -> Option<Vec<u8>> {
        let servers = self.servers();
        let first = self.preferred.get();
        let mut turn = first;
        for patience in ATTEMPTS {
            let Some(&server) = servers.get(turn % servers.len().max(1)) else {
                tracing::warn!("no resolver: name one in [dns] `servers`, or in {RESOLV_CONF}");
                return None;
            };
            race.ask(server).await;
            let until = process::now() + patience;
            loop {
                let left = until.saturating_duration_since(process::now());
                match timeout(left, race.outcome()).await {
                    Ok(Outcome::Answer(answer, server)) => {
                        let place = servers.iter().position(|known| *known == server);
                        self.preferred.set(place.unwrap_or(0));
                        return Some(answer);
                    }
                    Ok(Outcome::Again(server)) => race.ask(server).await,
                    Ok(Outcome::Next) | Err(_) => break,
                }
            }
            turn += 1;
            let all_failed = race.asked.is_empty() && turn - first >= servers.len();
            if all_failed && race.failed.is_some() {
                return None;
            }
        }
        None
    }

    fn servers(&self) -> Rc<[SocketAddr]> {
        if !self.configured.is_empty() {
            return self.configured.clone();
        }
        let now = process::now();
        let known = self.system.borrow().clone();
        if let Some((read, servers)) = known
            && now.saturating_duration_since(read) < FRESH
        {
            return servers;
        }
        let servers: Rc<[SocketAddr]> = system_servers().into();
        *self.system.borrow_mut() = Some((now, servers.clone()));
        servers
    }
}

/// Lines of an address and its names (hosts(5)).
fn parse_hosts(text: &str) -> Hosts {
    let mut hosts = Hosts::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        for name in words {
            hosts
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push(address);
        }
    }
    hosts
}

/// The addresses of `name` as the system's library finds them, which occupies a thread.
async fn look_up_by_system(
    name: String,
    permit: OwnedSemaphorePermit,
) -> Result<Vec<IpAddr>, ReplyCode> {
    let found = spawn_blocking(move || {
        // Held until the library returns, which may be long after the flow has given up.
        let _permit = permit;
        let found = (name, 0).to_socket_addrs()?;
        Ok::<_, io::Error>(found.map(|address| address.ip()).collect())
    });
    let found = found.await.map_err(|_| ReplyCode::Internal)?;
    found.map_err(|_| ReplyCode::NameNotFound)
}

/// The resolvers that this machine uses.
fn system_servers() -> Vec<SocketAddr> {
    let bytes = crate::state::read(std::path::Path::new(RESOLV_CONF), MAX_FILE);
    let bytes = bytes.unwrap_or_default();
    let Ok(config) = resolv_conf::Config::parse(&bytes) else {
        return Vec::new();
    };
    let servers = config.nameservers.iter().take(MAX_SERVERS);
    servers
        .map(|server| SocketAddr::new(IpAddr::from(server), 53))
        .collect()
}

/// One query with its attempts.
struct Race<'a> {
    query: &'a Query,
    mark: Option<u32>,
    edns: bool,
    asked: Vec<(SocketAddr, Outgoing, UdpSocket)>,
    /// What a resolver said that has failed itself.
    failed: Option<Vec<u8>>,
}

/// What came of waiting.
enum Outcome {
    Answer(Vec<u8>, SocketAddr),
    /// The same resolver is to be asked in another way.
    Again(SocketAddr),
    /// Somebody else is to be asked.
    Next,
}

impl Race<'_> {
    async fn ask(&mut self, server: SocketAddr) {
        let random = process::random_u64();
        let [a, b, ..] = random.to_be_bytes();
        let id = u16::from_be_bytes([a, b]);
        let outgoing = Outgoing::new(self.query, id, process::random_u64(), self.edns);
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let sent = async {
            let socket = UdpSocket::bind(any).await?;
            mark_socket(&socket, self.mark)?;
            socket.connect(server).await?;
            socket.send(outgoing.as_bytes()).await?;
            Ok::<_, io::Error>(socket)
        };
        match sent.await {
            Ok(socket) => self.asked.push((server, outgoing, socket)),
            Err(error) => {
                process::tell_of_files(&error);
                tracing::debug!("cannot ask {server}: {error}");
            }
        }
    }

    /// Waits for the first that counts.
    async fn outcome(&mut self) -> Outcome {
        if self.asked.is_empty() {
            return Outcome::Next;
        }
        let (index, verdict) = self.heard().await;
        let (server, outgoing, _) = self.asked.swap_remove(index);
        match verdict {
            Verdict::Answer(answer) => Outcome::Answer(answer, server),
            Verdict::Failed(answer) => {
                self.failed = Some(answer);
                Outcome::Next
            }
            Verdict::WithoutEdns if self.edns => {
                self.edns = false;
                Outcome::Again(server)
            }
            Verdict::Tcp => match over_tcp(server, self.mark, &outgoing).await {
                Some(Verdict::Answer(answer)) => Outcome::Answer(answer, server),
                Some(Verdict::Failed(answer)) => {
                    self.failed = Some(answer);
                    Outcome::Next
                }
                _ => Outcome::Next,
            },
            Verdict::WithoutEdns | Verdict::Drop => Outcome::Next,
        }
    }

    /// The first datagram of any attempt that is worth something; one whose socket has failed is worth [`Verdict::Drop`].
    async fn heard(&self) -> (usize, Verdict) {
        // One byte more than may come: what fills it is too long.
        let mut buffer = [0; UDP_SIZE as usize + 1];
        poll_fn(|cx| {
            for (index, (_, outgoing, socket)) in self.asked.iter().enumerate() {
                loop {
                    let mut read = ReadBuf::new(&mut buffer);
                    match socket.poll_recv(cx, &mut read) {
                        Poll::Pending => break,
                        // Nobody is there, or nobody can be reached.
                        Poll::Ready(Err(_)) => return Poll::Ready((index, Verdict::Drop)),
                        Poll::Ready(Ok(())) if read.filled().len() > usize::from(UDP_SIZE) => {}
                        Poll::Ready(Ok(())) => match outgoing.judge(read.filled(), false) {
                            Verdict::Drop => {}
                            verdict => return Poll::Ready((index, verdict)),
                        },
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(target_os = "linux")]
fn mark_socket(socket: &impl std::os::fd::AsFd, mark: Option<u32>) -> io::Result<()> {
    mark.map_or(Ok(()), |mark| bentpipe_sys::socket::set_mark(socket, mark))
}

#[cfg(not(target_os = "linux"))]
fn mark_socket(_socket: &UdpSocket, _mark: Option<u32>) -> io::Result<()> {
    Ok(())
}

async fn over_tcp(server: SocketAddr, mark: Option<u32>, outgoing: &Outgoing) -> Option<Verdict> {
    let exchange = async {
        let mut stream = super::dial::open(server, mark).await?;
        let message = outgoing.as_bytes();
        let length = u16::try_from(message.len()).unwrap_or(0);
        let framed = [&length.to_be_bytes(), message].concat();
        stream.write_all(&framed).await?;
        let length = usize::from(stream.read_u16().await?);
        let mut answer = vec![0; length.min(MAX_MESSAGE)];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(outgoing.judge(&answer, true))
    };
    timeout(TCP_PATIENCE, exchange).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_programs_read_them() {
        let hosts = parse_hosts(
            "# comment\n10.0.0.1 one One.Example # two\n\nfd00::1\tone\nnonsense three\n10.0.0.2\n",
        );
        let of = |name: &str| hosts.get(name).cloned().unwrap_or_default();
        let expected: [IpAddr; 2] = [[10, 0, 0, 1].into(), "fd00::1".parse().expect("one")];
        assert_eq!(of("one"), expected);
        assert_eq!(of("one.example"), expected[..1]);
        assert!(of("two").is_empty() && of("three").is_empty());
    }
}
