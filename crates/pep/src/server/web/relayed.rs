//! What is no plain GET, inside of TLS: bytes of the browser to the origin and back, as they come.

use bentpipe_web::{Closing, Frame, FrameReader, PAGE};
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};

use super::origins::{ReachedOrigin, TlsName};
use super::refused::refused;
use super::secure::Unfetched;
use super::{PageClient, ServedPages};
use crate::relay::{Parting, relay_framed};

/// Relays between the origin `name` and the frames of a stream, of which `frames` has read some.
pub(super) async fn relay(
    pages: &ServedPages,
    peer: &PageClient,
    (reached, name): (ReachedOrigin, TlsName),
    frames: FrameReader,
    (read, mut write): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
) {
    pages.account(peer.id, |account| account.requests += 1);
    let (_, to) = reached.tcp();
    // One that waits may have ended without a word, and these bytes can be sent once only.
    let connected = match reached {
        fresh @ ReachedOrigin::Fresh(..) => pages.secured(peer, fresh, &name).await,
        ReachedOrigin::Waiting(origin) => {
            pages.origins.put(peer.id, origin);
            pages.dialled(peer, to, &name).await
        }
    };
    let fault = match connected {
        Ok(mut origin) => {
            let parting = relay_framed(&mut origin.stream, frames, (read, write)).await;
            if parting != Parting::Reset {
                origin.stream.close_in_order();
            }
            return;
        }
        Err(fault) => fault,
    };
    let mut bytes = Vec::new();
    match (fault, &name) {
        (Unfetched::Untrusted(fault), Some(name)) => {
            pages.note_untrusted(peer, name, &fault);
            let (head, body) = refused(name, &fault);
            for bytes_of in [head, body] {
                let frame = Frame::Data {
                    id: PAGE,
                    bytes: bytes_of,
                };
                frame.encode(&mut bytes);
            }
            let close = Closing::InOrder;
            Frame::End { id: PAGE, close }.encode(&mut bytes);
        }
        _ => Frame::Failed { id: PAGE }.encode(&mut bytes),
    }
    // A client that has gone needs no answer.
    let _ = write.write_all(&bytes).await;
}
