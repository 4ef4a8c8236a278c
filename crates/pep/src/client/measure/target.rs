//! Targets: the responder of the client's own server, or a URL.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Destination, Host};
use bentpipe_tunnel::dial::abreast;
use bentpipe_units::ByteCount;
use hyper::Uri;
use serde::Deserialize;
use tokio::net::lookup_host;

use super::Fault;
use super::plan::{Plan, REQUEST, TaskKind, Way};
use super::road::Road;
use super::transfer::Peer;
use crate::config::{ClientConfig, FrontEnds, RESPONDER_NAME, ServerAddress};
use crate::process;

/// Port of the responder inside.
const INSIDE: u16 = 80;

/// Target of transfers, both ways.
pub(super) struct Target {
    name: String,
    direct: Peer,
    tunnel: Peer,
    what: What,
}

enum What {
    /// The path of a URL.
    Url(String),
    /// The responder, by its bounds and its newest token.
    Responder(Token, Instant),
}

/// Answer of the responder to `POST /token`.
#[derive(Debug, Clone, Deserialize)]
struct Token {
    token: String,
    port: u16,
    max_request: u64,
    max_connections: u64,
    max_starts_per_s: u64,
    budget: u64,
    lifetime_s: u64,
}

impl Target {
    /// The resource at `url`.
    pub(super) async fn url(config: &ClientConfig, url: &str) -> Result<Self, Fault> {
        let wrong = |why: &str| Fault::Url(format!("--url {}: {why}", url.escape_default()));
        let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong(
                "only http:// can be measured, for TLS would add round trips of its own to both ways; leave --url out to \
                 measure with the server's responder",
            ));
        }
        let host = uri.host().ok_or_else(|| wrong("names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(80);
        let address = look_up(&config.front, host, port)
            .await
            .ok_or_else(|| Fault::NoAddress(host.to_owned()))?;
        let direct = Road::past(&config.front, address);
        let destination = destination(host, port).ok_or_else(|| wrong("names no host"))?;
        let tunnel = Road::through(&config.front, destination, Some(address))?;
        let header = uri.authority().map_or(host, |it| it.as_str()).to_owned();
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        Ok(Self {
            name: url.to_owned(),
            direct: Peer::new(direct, header.clone()),
            tunnel: Peer::new(tunnel, header),
            what: What::Url(path.to_owned()),
        })
    }

    /// The responder of the server that the tunnel leads to.
    pub(super) async fn responder(config: &ClientConfig, plan: &Plan) -> Result<Self, Fault> {
        let server = &config.servers[0].address;
        let inside = destination(RESPONDER_NAME, INSIDE);
        let inside = inside.ok_or_else(|| Fault::Url("no name".into()))?;
        let tunnel = Road::through(&config.front, inside, None)?;
        let tunnel = Peer::new(tunnel, RESPONDER_NAME.to_owned());
        let token = token(&tunnel).await?;
        if TaskKind::ALL
            .iter()
            .any(|kind| plan.bytes_of(*kind) > token.max_request)
        {
            return Err(Fault::Size(ByteCount::new(token.max_request)));
        }
        let found = match server {
            ServerAddress::Ip(address) => Some(SocketAddr::new(address.ip(), token.port)),
            ServerAddress::Name { host, .. } => look_up(&config.front, host, token.port).await,
        };
        let address = found.ok_or_else(|| Fault::NoAddress(server.to_string()))?;
        let direct = Road::past(&config.front, address);
        let host = address.to_string();
        let mut target = Self {
            name: format!("the responder of {server}"),
            direct: Peer::new(direct, host),
            tunnel,
            what: What::Responder(token, process::now()),
        };
        target.show_token();
        Ok(target)
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Way in which the tunnel is reached.
    pub(super) fn through(&self) -> String {
        self.tunnel.road.name()
    }

    /// One request each way, before anything counts: a way that is closed is told at once, and names are looked up.
    pub(super) async fn try_both(&self) -> Result<(), Fault> {
        self.transfer(TaskKind::Request, Way::Tunnel, REQUEST)
            .await?;
        let direct = self.transfer(TaskKind::Request, Way::Direct, REQUEST).await;
        match (direct, &self.what) {
            (Err(fault @ Fault::Mark(_)), _) => Err(fault),
            (Err(fault), What::Responder(token, _)) => Err(closed(&fault, token.port)),
            (done, _) => done.map(drop),
        }
    }

    /// Before a round: gets another token where the last one may not last for the round.
    pub(super) async fn renew(&mut self, plan: &Plan) -> Result<(), Fault> {
        let What::Responder(last, since) = &mut self.what else {
            return Ok(());
        };
        let round = plan.round_each_way();
        let old = process::now() - *since > Duration::from_secs(last.lifetime_s / 2);
        if old || last.budget < round {
            (*last, *since) = (token(&self.tunnel).await?, process::now());
            self.show_token();
        }
        if let What::Responder(last, _) = &mut self.what {
            last.budget = last.budget.saturating_sub(round);
        }
        Ok(())
    }

    /// Time from the beginning of one round to that of the next, at least, so that connections begin no faster than they may.
    pub(super) fn pause(&self, plan: &Plan) -> Duration {
        match &self.what {
            What::Url(_) => Duration::ZERO,
            What::Responder(token, _) => {
                // One more for a token.
                let starts = plan.connections() + 1;
                Duration::from_secs_f64(starts as f64 / token.max_starts_per_s.max(1) as f64)
            }
        }
    }

    /// One transfer; the time that it took.
    pub(super) async fn transfer(
        &self,
        kind: TaskKind,
        way: Way,
        bytes: u64,
    ) -> Result<Duration, Fault> {
        let peer = match way {
            Way::Direct => &self.direct,
            Way::Tunnel => &self.tunnel,
        };
        match (&self.what, kind) {
            (What::Url(path), TaskKind::Request) => peer.head(path).await,
            (What::Url(path), _) => peer.get(path, bytes).await,
            (What::Responder(..), TaskKind::Request) => {
                peer.get(&format!("/bytes/{REQUEST}"), REQUEST).await
            }
            (What::Responder(token, _), TaskKind::Page) => peer.page(token.max_connections).await,
            (What::Responder(..), TaskKind::Down) => {
                peer.get(&format!("/bytes/{bytes}"), bytes).await
            }
            (What::Responder(..), TaskKind::Up) => peer.post("/sink", bytes).await,
        }
    }

    fn show_token(&mut self) {
        if let What::Responder(token, _) = &self.what {
            self.direct.token = Some(token.token.clone());
        }
    }
}

/// Fault of a responder that answers through the tunnel and not past it, at TCP port `port`.
fn closed(fault: &Fault, port: u16) -> Fault {
    let mend = match fault {
        Fault::Connect(_, error) if error.kind() == ErrorKind::ConnectionRefused => {
            "`listen` of the server's `[responder]` has to be the address that clients come to, and no firewall to refuse it".to_owned()
        }
        Fault::Status(401) => {
            "another server's responder has answered: the tunnel has to lead to the first server of the file".to_owned()
        }
        _ => format!(
            "the server's firewall, and that of its provider, has to let TCP in on port {port}"
        ),
    };
    let why = fault.to_string();
    Fault::Closed { why, mend }
}

/// Asks for a token through the tunnel, which then is up.
async fn token(tunnel: &Peer) -> Result<Token, Fault> {
    let answer = match tunnel.ask("/token").await {
        Ok(answer) => answer,
        Err(fault @ (Fault::FrontEnd(..) | Fault::Mark(_))) => return Err(fault),
        Err(fault) => return Err(Fault::NoResponder(fault.to_string())),
    };
    serde_json::from_slice(&answer).map_err(|error| Fault::NoResponder(error.to_string()))
}

fn destination(host: &str, port: u16) -> Option<Destination> {
    let host: Host = host.parse().ok()?;
    Some(Destination { host, port })
}

/// Address of `host` that answers past the tunnel, for one of its families may lead nowhere; without an answer the first that this
/// machine has a route to.
async fn look_up(front: &FrontEnds, host: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, port));
    }
    let found = lookup_host((host, port)).await.ok()?;
    let routed = found.filter(|address| process::source_towards(*address).is_some());
    let routed: Vec<_> = routed.collect();
    let first = *routed.first()?;
    let answer = async |address| {
        let opened = Road::past(front, address).open().await;
        opened.map(|_| address).map_err(drop)
    };
    let answers = abreast::first(routed, (), answer, tokio::time::sleep);
    Some(answers.await.unwrap_or(first))
}
