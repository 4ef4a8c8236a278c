//! Outer connections: which destinations they are for, how they are opened, and what their answers teach.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, Open, Reply, ReplyCode};
use bentpipe_sealed::sle::{Conn, Keys};
use bentpipe_tunnel::engine::ConnectionId;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::outer::{NotThere, OuterSocket, OuterTarget};
use super::ways::{OuterWay, Pause, WayKind};
use super::{Paused, Sealing, SleFlow};
use crate::process;
use crate::relay::SealedFlow;

/// Time after which a flow without an answer speaks against its way, if no other was answered meanwhile: more than a server
/// takes for a name and a destination that are dead.
const SLOW: Duration = Duration::from_secs(15);

impl Sealing {
    /// True if a flow to `destination` is to be sealed, as far as its destination says.
    pub(in super::super) fn takes(&self, destination: &Destination) -> bool {
        self.config.takes(destination)
    }

    /// Connects for one flow to `destination`; `None` if that is to go through the tunnel.
    pub(in super::super) async fn connect(&self, destination: &Destination) -> Option<OuterSocket> {
        let Some(target) = self.target(destination) else {
            self.traffic.fell_back();
            return None;
        };
        let (now, way) = (process::now(), target.way);
        if !self.ways.borrow_mut().permits(now, way) {
            self.traffic.fell_back();
            return None;
        }
        let asking = way.kind == WayKind::Transparent && !self.ways.borrow().is_proven(now, way);
        let connected = async {
            let outer = OuterSocket::connect(target, self.mark).await?;
            match asking {
                true => outer.ask(self.keys(target.tunnel, true)).await,
                false => Ok(outer),
            }
        };
        match connected.await {
            Ok(outer) => {
                if asking {
                    self.on_answered(target);
                }
                Some(outer)
            }
            Err(why) => {
                self.traffic.fell_back();
                if !matches!(why, NotThere::NoTunnel) {
                    self.distrust(target, &why.to_string());
                }
                None
            }
        }
    }

    /// Begins a flow over `outer`; `None` if its tunnel was lost or replaced meanwhile: another server knows other keys.
    pub(in super::super) fn open(
        self: &Rc<Self>,
        outer: OuterSocket,
        destination: &Destination,
        source: Option<SocketAddr>,
        words: (Bytes, bool),
    ) -> Option<SleFlow> {
        let opened = self.open_over(outer, destination, source, words);
        if opened.is_none() {
            self.traffic.fell_back();
        }
        opened
    }

    fn open_over(
        self: &Rc<Self>,
        outer: OuterSocket,
        destination: &Destination,
        source: Option<SocketAddr>,
        (first, ended): (Bytes, bool),
    ) -> Option<SleFlow> {
        let target = outer.target;
        let (socket, asked) = outer.into_parts();
        let keys = match asked {
            Some(asked) if self.is_of(target.tunnel) => asked,
            Some(_) => return None,
            None => self.keys(target.tunnel, false)?,
        };
        let open = Open::alone(destination.clone(), source);
        let mut body = Vec::with_capacity(64);
        open.encode(&mut body);
        // The stream's kind, one byte, is of the tunnel.
        let conn = Conn::client(process::now(), keys, &body[1..], is_connected);
        let shard = self.tunnels.shard();
        let mut flow = SealedFlow::new(conn, (socket, Bytes::new()), shard, &self.traffic);
        let (answered, answer) = oneshot::channel();
        let sle = self.clone();
        flow.on_answer(Box::new(move || {
            sle.on_answered(target);
            // Nobody waits any more for one that comes late.
            let _ = answered.send(());
        }));
        let sle = self.clone();
        spawn_local(async move { sle.watch(target, answer).await });
        flow.say_first(first, ended);
        Some(SleFlow {
            flow,
            cut: self.cut.subscribe(),
            reading: !ended,
            sle: self.clone(),
            target,
        })
    }

    /// Goal of the outer connection of a flow to `destination`; `None` if the flow cannot be sealed.
    pub(super) fn target(&self, destination: &Destination) -> Option<OuterTarget> {
        let association = self.association.borrow();
        let agreed = association.as_ref()?;
        let taken_in = |address: &IpAddr| {
            let prefixes = &agreed.prefixes;
            self.config.is_transparent()
                && is_elsewhere(address)
                && prefixes.iter().any(|net| net.contains(address))
        };
        let way = match destination.host {
            Host::Ip(ip) if taken_in(&ip.to_canonical()) => OuterWay {
                kind: WayKind::Transparent,
                address: (ip.to_canonical(), destination.port).into(),
            },
            _ => OuterWay {
                kind: WayKind::Addressed,
                address: agreed.server?,
            },
        };
        let tunnel = agreed.tunnel;
        Some(OuterTarget { way, tunnel })
    }

    /// True if flows are sealed with keys of `tunnel` now.
    fn is_of(&self, tunnel: ConnectionId) -> bool {
        let association = self.association.borrow();
        association.as_ref().is_some_and(|it| it.tunnel == tunnel)
    }

    /// Keys for one more outer connection, whose preface `asks` or not.
    fn keys(&self, tunnel: ConnectionId, asks: bool) -> Option<Keys> {
        let mut association = self.association.borrow_mut();
        let agreed = association.as_mut().filter(|it| it.tunnel == tunnel)?;
        Some(match asks {
            true => agreed.offers.ask(),
            false => agreed.offers.open(),
        })
    }

    /// A flow has ended before the server's answer, or never left.
    pub(super) fn distrust(&self, target: OuterTarget, why: &str) {
        let address = target.way.address;
        let pause = self.ways.borrow_mut().on_failed(process::now(), target.way);
        match pause {
            Some(Pause::All(pause)) => {
                tracing::warn!(
                    "flows cannot be sealed beside the tunnel: {why}; they go through the tunnel for {} s",
                    pause.as_secs()
                );
                self.paused.replace(Some(Paused {
                    kind: target.way.kind,
                    until: process::now() + pause,
                    why: why.to_owned(),
                }));
            }
            Some(Pause::One(pause)) => tracing::info!(
                "flows to {address} cannot be sealed beside the tunnel: {why}; they go through the tunnel for {} s",
                pause.as_secs()
            ),
            None => {}
        }
    }

    /// Loses trust in the way if `answer` does not come in time, and none of another flow. A box that takes outer connections
    /// and hands nothing on would hold up every flow else.
    async fn watch(&self, target: OuterTarget, answer: oneshot::Receiver<()>) {
        let began = process::now();
        // Ends at once if the flow ends without an answer.
        if timeout(SLOW, answer).await.is_err()
            && !self.ways.borrow().has_answered(target.way, began)
        {
            self.distrust(target, &format!("no answer for {} s", SLOW.as_secs()));
        }
    }

    pub(super) fn on_answered(&self, target: OuterTarget) {
        // By the server of a tunnel that is no more, about which nothing is asked.
        if self.is_of(target.tunnel) {
            self.ways
                .borrow_mut()
                .on_answered(process::now(), target.way);
            let mut paused = self.paused.borrow_mut();
            paused.take_if(|paused| paused.kind == target.way.kind);
        }
    }
}

/// True if the body of a REPLY is that of a connected flow.
fn is_connected(body: &[u8]) -> bool {
    matches!(Reply::decode(body), Ok(Some((reply, _))) if reply.code == ReplyCode::Ok)
}

/// False for addresses that this machine would not send to a server on the way, whatever prefixes that names: its own loopback, and
/// such as stand for no host or for several.
fn is_elsewhere(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}
