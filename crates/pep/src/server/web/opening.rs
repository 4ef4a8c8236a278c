//! First frames of a stream, which say what it is for, and the connection to where its page is.
//!
//! ```text
//!   OPEN ─┬─ reaching the origin ─────────────► REPLY ─► page, relay
//!         ╰─ first frames ── a hub's ─► REPLY ─► hub, connected or not
//! ```

use std::net::SocketAddr;
use std::rc::Rc;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_sealed::dssl::SessionId;
use bentpipe_tunnel::transport::FlowKey;
use bentpipe_web::{Frame, FrameReader, Request, Scheme, Verdict, judge};
use rustls::pki_types::{DnsName, ServerName};
use tokio::io::{AsyncReadExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::hubbed::{self, ReachingOrigin};
use super::origins::{ReachedOrigin, TlsName};
use super::{PageClient, REQUEST, ServedPages, answer, relayed};

/// A connection for `flow` to where a page is, with the rights that its client has then.
async fn reach_for(
    pages: &ServedPages,
    peer: &PageClient,
    flow: FlowKey,
    destination: &Destination,
) -> Result<ReachedOrigin, ReplyCode> {
    let origin = reach(pages, peer, destination).await?;
    let entered = pages.rights.enter(peer.id, flow, origin.tcp().1);
    entered.map_err(|refused| refused.code)?;
    Ok(origin)
}

/// A connection to where a page is: one that waits, or a new one.
async fn reach(
    pages: &ServedPages,
    peer: &PageClient,
    destination: &Destination,
) -> Result<ReachedOrigin, ReplyCode> {
    if let Host::Ip(ip) = destination.host {
        let to = SocketAddr::new(ip, destination.port);
        let permitted = pages.rights.permits(&peer.client, to);
        if let Some(origin) = pages.origins.take(peer.id, to).filter(|_| permitted) {
            return Ok(ReachedOrigin::Waiting(origin));
        }
    }
    let (tcp, to) = pages.rights.dial(&peer.client, destination).await?;
    Ok(ReachedOrigin::Fresh(tcp, to))
}

/// Reads the first frames of a stream, connects to the origin at `destination`, and answers them. A hub says REPLY before it is
/// connected: its terminal waits for that, and whatever fails then leaves the pages whole.
///
/// # Errors
/// There is no connection to the origin, and REPLY has not been sent.
pub(super) async fn work(
    pages: Rc<ServedPages>,
    peer: PageClient,
    flow: FlowKey,
    destination: &Destination,
    pipe: DuplexStream,
) -> Result<(), ReplyCode> {
    let (mut read, write) = tokio::io::split(pipe);
    let mut reaching = Box::pin(reach_for(&pages, &peer, flow, destination));
    let named = Notify::new();
    let mut opening = Box::pin(async {
        let opening = timeout(REQUEST, read_opening(&mut read, &pages, &named)).await;
        opening.ok().flatten()
    });
    let (mut opened, mut reached, mut hub) = (None, None, false);
    loop {
        tokio::select! {
            biased;
            first = &mut opening => {
                hub = matches!(first, Some((Some(_), Opening::Hub(..))));
                opened = Some(first);
            }
            // A request would have come with the name.
            () = named.notified() => hub = true,
            result = &mut reaching, if reached.is_none() => {
                let denied = result.is_err();
                reached = Some(result);
                // Whether a hub has no connection, which it counts, its first frames tell. They come with OPEN.
                if denied {
                    continue;
                }
            }
        }
        break;
    }
    if reached.is_none() && !hub {
        reached = Some(reaching.as_mut().await);
    }
    let bound = match &reached {
        Some(Ok(origin)) => origin.tcp().0.local_addr().ok(),
        Some(Err(code)) if !hub => return Err(*code),
        Some(Err(_)) | None => None,
    };
    pages.rights.reply(peer.id, flow, ReplyCode::Ok, bound);
    let opened = match opened {
        Some(opened) => opened,
        None if reached.is_some() => opening.as_mut().await,
        None => {
            let (opened, late) = tokio::join!(opening.as_mut(), reaching.as_mut());
            reached = Some(late);
            opened
        }
    };
    drop(opening);
    let reached = async {
        match reached {
            Some(reached) => reached,
            None => reaching.await,
        }
    };
    match opened {
        Some((name, opening)) if name.is_some() || !matches!(opening, Opening::Hub(..)) => {
            serve(&pages, &peer, (reached, name), opening, (read, write)).await;
        }
        _ => tracing::debug!(client = peer.client.name, %destination, "page without a request"),
    }
    Ok(())
}

/// Does what a client wishes of the origin that is `reached`; REPLY has been sent, so without a connection the stream ends.
async fn serve(
    pages: &Rc<ServedPages>,
    peer: &PageClient,
    (reached, name): (impl ReachingOrigin, TlsName),
    opening: Opening,
    (read, write): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
) {
    match (name, opening) {
        (Some(name), Opening::Hub(session, frames)) => {
            let stream = (frames, read, write);
            hubbed::serve(pages, peer, (reached, name), session, stream).await;
        }
        // It needs a name.
        (None, Opening::Hub(..)) => {}
        (name, Opening::Get(request)) => {
            if let Ok(origin) = reached.await {
                let stream = (read, write);
                answer(pages.clone(), peer.clone(), (origin, name), request, stream).await;
            }
        }
        (name, Opening::Relay(frames)) => {
            if let Ok(origin) = reached.await {
                relayed::relay(pages, peer, (origin, name), frames, (read, write)).await;
            }
        }
    }
}

/// Client's wish for a stream.
enum Opening {
    /// A request that may be answered ahead.
    Get(Request),
    /// Bytes as they come; those that are here already are in the reader.
    Relay(FrameReader),
    /// Objects of a session of DSSL, whose name may follow.
    Hub(Option<SessionId>, FrameReader),
}

/// First frames of a stream, if they ask for what may be had; names of origins are for where TLS is spoken (`secure`), or where
/// this server is a `hub`. Rings `named` where a name has come alone: HUB is to follow.
async fn read_opening(
    read: &mut ReadHalf<DuplexStream>,
    pages: &ServedPages,
    named: &Notify,
) -> Option<(TlsName, Opening)> {
    let (mut frames, mut bytes) = (FrameReader::default(), [0; 4096]);
    let (clear, secure, hub) = (pages.clear, pages.tls.is_some(), pages.hub.is_some());
    // Bytes that have come, and those of the name.
    let (mut came, mut of_name) = (0, 0);
    let mut name = None;
    loop {
        match frames.read() {
            Ok(Some(Frame::Tls(host))) if (secure || hub) && name.is_none() => {
                name = Some(server_name(&host)?);
                let mut encoded = Vec::with_capacity(host.len() + 4);
                Frame::Tls(host).encode(&mut encoded);
                of_name = encoded.len();
            }
            Ok(Some(Frame::Hub(session))) if hub && name.is_some() => {
                let named = match session.is_empty() {
                    true => None,
                    false => Some(hubbed::session_of(&session)?),
                };
                return Some((name, Opening::Hub(named, frames)));
            }
            Ok(Some(Frame::Relay)) if secure && name.is_some() => {
                return Some((name, Opening::Relay(frames)));
            }
            Ok(Some(Frame::Request(head))) if if name.is_some() { secure } else { clear } => {
                let request = fit_request(&head, name.as_ref())?;
                return Some((name, Opening::Get(request)));
            }
            Ok(None) => {
                if hub && name.is_some() && came == of_name {
                    named.notify_one();
                }
                match read.read(&mut bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(read) => {
                        frames.push(&bytes[..read]);
                        came += read;
                    }
                }
            }
            Ok(Some(_)) | Err(_) => return None,
        }
    }
}

fn server_name(host: &[u8]) -> Option<ServerName<'static>> {
    let name = DnsName::try_from(std::str::from_utf8(host).ok()?).ok()?;
    Some(ServerName::DnsName(name.to_owned()))
}

/// The request with this `head`, if it may be answered ahead by the origin `name`.
fn fit_request(head: &[u8], name: Option<&ServerName<'static>>) -> Option<Request> {
    let scheme = match name {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let Verdict::Get(request, used) = judge(scheme, head) else {
        return None;
    };
    let own = name.is_none_or(|name| request.is_for(&name.to_str()));
    (used == head.len() && own).then_some(request)
}
