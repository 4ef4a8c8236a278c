//! Ports of the server that lead to hosts behind this client: asked for whenever a tunnel is up, and served.
//!
//! UDP crosses as packets, which the kernel leads on (`client/intercept`); here are the connections of TCP.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::proxy::announce;
use bentpipe_proto::tunnel::{Families, Inbound, PublishCode, ReplyCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::tunnels::Tunnels;
use crate::config::{ClientConfig, PortProtocol, Publish};
use crate::net::dial;
use crate::relay::{FlowHandle, Relay};
use crate::status::PublishStatus;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::FlowKey;

/// Connections from outside at one time.
pub(super) const MAX_INBOUND: u64 = 1024;

/// Bytes that the server may send on each before the host has answered.
pub(super) const INITIAL_CREDIT: u64 = 256 << 10;

/// Time that a host may take to answer.
const DIAL: Duration = Duration::from_secs(10);

/// Ports of the configuration, and what came of each.
pub(super) struct Published {
    config: Rc<ClientConfig>,
    tunnels: Rc<Tunnels>,
    codes: RefCell<Vec<Option<PublishCode>>>,
    open: Cell<u64>,
}

impl Published {
    /// Ports of `config` that nobody was asked for yet.
    pub(super) fn new(config: Rc<ClientConfig>, tunnels: Rc<Tunnels>) -> Rc<Self> {
        Rc::new(Self {
            codes: RefCell::new(vec![None; config.publish.len()]),
            config,
            tunnels,
            open: Cell::new(0),
        })
    }

    /// Nothing is known any more.
    pub(super) fn forget(&self) {
        self.codes.borrow_mut().fill(None);
    }

    /// Asks the server of a new tunnel for the ports.
    pub(super) fn ask(&self, id: ConnectionId) {
        let entries = &self.config.publish;
        let publishes = self
            .tunnels
            .look_at(id, |it| Some(it.tunnel.agreement().publishes()));
        if publishes != Some(true) {
            for entry in 0..entries.len() {
                self.on_answer(entry as u64, PublishCode::Unsupported);
            }
            return;
        }
        self.tunnels.change(id, |connection| {
            for (entry, publish) in (0..).zip(entries) {
                connection.tunnel.publish(asked(entry, publish));
            }
        });
    }

    /// Takes the outcome of one entry.
    pub(super) fn on_answer(&self, entry: u64, code: PublishCode) {
        let Some((index, publish)) = self.entry(entry) else {
            return;
        };
        if self.codes.borrow_mut()[index].replace(code) == Some(code) {
            return;
        }
        let status =
            PublishStatus::new(publish.protocol, publish.port, Some(publish.to), Some(code));
        match code {
            PublishCode::Ok => tracing::info!("published {status}"),
            _ => tracing::warn!("not published {status}"),
        }
    }

    fn entry(&self, entry: u64) -> Option<(usize, Publish)> {
        let index = usize::try_from(entry).ok()?;
        Some((index, *self.config.publish.get(index)?))
    }

    /// UDP ports, and the hosts that they lead to.
    pub(super) fn packets(&self) -> Vec<(u16, std::net::SocketAddr)> {
        let entries = self.config.publish.iter();
        entries
            .filter(|publish| publish.protocol == PortProtocol::Udp)
            .map(|publish| (publish.port, publish.to))
            .collect()
    }

    /// The part of `status`.
    pub(super) fn report(&self) -> Vec<PublishStatus> {
        let codes = self.codes.borrow();
        let entries = self.config.publish.iter().zip(codes.iter());
        entries
            .map(|(publish, code)| {
                PublishStatus::new(publish.protocol, publish.port, Some(publish.to), *code)
            })
            .collect()
    }

    /// Takes a connection to a published port.
    pub(super) fn on_inbound(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, inbound: &Inbound) {
        let entry = self.entry(inbound.entry).map(|(_, publish)| publish);
        let refusal = match entry {
            Some(publish) if publish.protocol == PortProtocol::Tcp => {
                (self.open.get() >= MAX_INBOUND).then_some(ReplyCode::LimitReached)
            }
            // What was not asked for leads nowhere.
            _ => Some(ReplyCode::Denied),
        };
        let (Some(publish), None) = (entry, refusal) else {
            return self.answer(id, flow, refusal.unwrap_or(ReplyCode::Denied));
        };
        let (this, inbound) = (self.clone(), *inbound);
        let open = &self.open;
        open.set(open.get() + 1);
        spawn_local(async move {
            this.serve_inbound(id, flow, publish, inbound).await;
            let open = &this.open;
            open.set(open.get() - 1);
        });
    }

    async fn serve_inbound(
        &self,
        id: ConnectionId,
        flow: FlowKey,
        publish: Publish,
        inbound: Inbound,
    ) {
        let handle = FlowHandle::new(self.tunnels.shard().clone(), id, flow);
        let dialling = Box::pin(timeout(DIAL, connect(publish, inbound)));
        let dialled = tokio::select! {
            dialled = dialling => dialled.unwrap_or(Err(ReplyCode::TimedOut)),
            () = handle.gone() => return,
        };
        let to = publish.to;
        match dialled {
            Ok(stream) => {
                self.answer(id, flow, ReplyCode::Ok);
                let outcome = Relay::new(handle, stream).run().await;
                tracing::debug!(source = ?inbound.source, %to, ?outcome, "inbound flow ended");
            }
            Err(code) => {
                tracing::debug!(source = ?inbound.source, %to, ?code, "inbound flow refused");
                self.answer(id, flow, code);
            }
        }
    }

    fn answer(&self, id: ConnectionId, flow: FlowKey, code: ReplyCode) {
        self.tunnels.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.reply(quic, flow, code, None);
        });
    }
}

fn asked(entry: u64, publish: &Publish) -> bentpipe_proto::tunnel::Publish {
    // Packets keep their family all the way.
    let any = publish.protocol == PortProtocol::Tcp;
    bentpipe_proto::tunnel::Publish {
        entry,
        protocol: publish.protocol.number(),
        families: Families {
            ipv4: any || publish.to.is_ipv4(),
            ipv6: any || publish.to.is_ipv6(),
        },
        port: publish.port,
    }
}

/// Connects to the host like anything else of this machine: what is taken in of that goes through the tunnel, not in clear.
async fn connect(publish: Publish, inbound: Inbound) -> Result<TcpStream, ReplyCode> {
    let opened = dial::open(publish.to, None).await;
    let mut stream = opened.map_err(|error| dial::code_of(&error))?;
    if publish.proxy_protocol {
        let header = announce(inbound.source, inbound.destination);
        let written = stream.write_all(&header).await;
        written.map_err(|error| dial::code_of(&error))?;
    }
    Ok(stream)
}
