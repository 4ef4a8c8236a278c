//! A hub with the right key and bad intent: what it does to links and objects is dropped and counted, and the page loads.
//!
//! ```text
//!  server ══ hub connection ══► Altering ══ hub connection, with the server's key ══► origin
//!  client ═══════ K1 ═════════► bytes as they are ══════════════════════════════════► origin
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_sealed::dssl::{
    ALPN_HUB, Chunk, HubFrame, HubFrameReader, LinkKey, LinkOpener, LinkSealer, MAX_HUB_FRAME,
    ObjectId,
};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_tunnel::engine::identity::PrivateKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::cases::{figure, sealed, served};
use super::certified::Certified;
use super::sealed::{AS_IT_SHOULD_BE, Case, Sealed, load};
use super::speech::NAME;

/// Harm to what the origin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// Nothing is changed.
    None,
    /// The hub's connection ends before its handshake.
    TurnedAway,
    /// The hub's handshake is not answered.
    Mute,
    /// Links of somebody who has no K2.
    Forged,
    /// Links under K2 whose numbers were exchanged.
    Renamed,
    /// Objects whose numbers were exchanged.
    Swapped,
    /// Objects that end with their head.
    Cut,
    /// The hub's connection ends in the middle of an object.
    Killed,
    /// The end of each object is kept back, and nothing ends.
    Withheld,
}

/// Serves `at` in the place of the origin `behind`, as the hub with `key`; ends with the process.
pub(super) fn start(
    place: &Place,
    (at, behind): (SocketAddr, SocketAddr),
    (key, certified): (PrivateKey, &Certified),
    harm: Harm,
) -> Result<()> {
    let tls = (
        certified.of_hubs(ALPN_HUB)?,
        certified.trust_shown(&key, ALPN_HUB)?,
    );
    let listener = place.at(|| std::net::TcpListener::bind(at))??;
    listener.set_nonblocking(true)?;
    let place = place.clone();
    thread::spawn(move || {
        place.at(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(serve(listener, behind, tls, harm))
        })
    });
    Ok(())
}

async fn serve(
    listener: std::net::TcpListener,
    behind: SocketAddr,
    tls: (Arc<ServerConfig>, Arc<ClientConfig>),
    harm: Harm,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (tcp, _) = listener.accept().await?;
        tokio::spawn(stand_between(tcp, behind, tls.clone(), harm));
    }
}

async fn stand_between(
    mut tcp: TcpStream,
    behind: SocketAddr,
    (server, client): (Arc<ServerConfig>, Arc<ClientConfig>),
    harm: Harm,
) -> Result<()> {
    let mut origin = TcpStream::connect(behind).await?;
    if !is_hub(&tcp).await? {
        copy_bidirectional(&mut tcp, &mut origin).await?;
        return Ok(());
    }
    match harm {
        Harm::TurnedAway => return Ok(()),
        Harm::Mute => std::future::pending().await,
        _ => {}
    }
    let hub = TlsAcceptor::from(server).accept(tcp).await?;
    let name = ServerName::try_from(NAME)?;
    let origin = TlsConnector::from(client).connect(name, origin).await?;
    let ((mut from_hub, mut to_hub), (mut from_origin, mut to_origin)) =
        (split(hub), split(origin));
    tokio::spawn(async move { copy(&mut from_hub, &mut to_origin).await });
    let (mut reader, mut altering) = (HubFrameReader::new(MAX_HUB_FRAME), Altering::new(harm));
    let mut bytes = vec![0; 65_536];
    loop {
        let read = from_origin.read(&mut bytes).await?;
        ensure!(read > 0, "the origin ends");
        reader.push(&bytes[..read]);
        while let Some(frame) = reader.read()? {
            let is_end = matches!(&frame, HubFrame::Object { chunk, .. } if chunk.is_last());
            if harm == Harm::Withheld && is_end {
                continue;
            }
            let mut out = Vec::new();
            match altering.alter(frame) {
                Some(altered) => altered.encode(&mut out),
                None => return Ok(()),
            }
            to_hub.write_all(&out).await?;
            to_hub.flush().await?;
        }
    }
}

/// True if the ClientHello offers a hub's protocol.
async fn is_hub(tcp: &TcpStream) -> Result<bool> {
    let mut hello = [0; 4096];
    loop {
        let read = tcp.peek(&mut hello).await?;
        let length = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        if read >= 5 + length || read == hello.len() {
            let hello = &hello[..read];
            return Ok(hello.windows(ALPN_HUB.len()).any(|it| it == ALPN_HUB));
        }
        ensure!(read > 0, "no ClientHello");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// State of one hub connection.
struct Altering {
    harm: Harm,
    key: Option<LinkKey>,
    links: Option<(LinkOpener, LinkSealer)>,
}

impl Altering {
    fn new(harm: Harm) -> Self {
        Self {
            harm,
            key: None,
            links: None,
        }
    }

    /// Frame that the hub gets instead of `frame`; `None`: it gets nothing any more.
    fn alter(&mut self, frame: HubFrame) -> Option<HubFrame> {
        if let HubFrame::Key(session, key) = &frame {
            self.key = Some(key.clone());
            self.links = Some((
                LinkOpener::new(key, *session),
                LinkSealer::new(key, *session),
            ));
        }
        Some(match (self.harm, frame) {
            (
                Harm::Forged,
                HubFrame::Links {
                    session,
                    counter,
                    sealed,
                },
            ) => HubFrame::Links {
                session,
                counter,
                sealed: vec![0x5c; sealed.len()].into(),
            },
            (
                Harm::Renamed,
                HubFrame::Links {
                    counter, sealed, ..
                },
            ) => {
                let (opener, sealer) = self.links.as_mut()?;
                let mut links = opener.open(counter, &sealed).ok()?;
                let targets: Vec<_> = links.iter().map(|link| link.target.clone()).collect();
                for (link, target) in links.iter_mut().zip(targets.into_iter().rev()) {
                    link.target = target;
                }
                sealer.seal(&links)?.pop()?
            }
            (
                Harm::Swapped,
                HubFrame::Object {
                    session,
                    id,
                    chunk,
                    sealed,
                },
            ) => {
                let number = id.get();
                let other = if id.index() % 2 == 1 {
                    number + 1
                } else {
                    number - 1
                };
                HubFrame::Object {
                    session,
                    id: ObjectId::from_number(other)?,
                    chunk,
                    sealed,
                }
            }
            (
                Harm::Cut,
                HubFrame::Object {
                    session,
                    id,
                    chunk,
                    sealed,
                },
            ) => HubFrame::Object {
                session,
                id,
                chunk: Chunk::from_number(chunk.get() | 1 << 31),
                sealed,
            },
            (Harm::Killed, HubFrame::Object { chunk, .. }) if chunk.is_last() => return None,
            (_, frame) => frame,
        })
    }
}

#[test]
fn a_page_loads_whatever_its_hub_does() {
    if !privileged("a hub with bad intent") {
        return;
    }
    let harms = [
        Harm::Forged,
        Harm::Renamed,
        Harm::Swapped,
        Harm::Cut,
        Harm::Killed,
        Harm::Withheld,
    ];
    // Most of the time of each is waiting.
    for two in harms.chunks(2) {
        thread::scope(|scope| {
            for harm in two {
                scope.spawn(|| loads_despite(*harm));
            }
        });
    }
}

/// Loads a page whose hub does this harm.
fn loads_despite(harm: Harm) {
    // Objects of a page of which the last is in the middle of its own numbers.
    const N: usize = 4;
    let case = Case {
        harm: Some(harm),
        ..AS_IT_SHOULD_BE
    };
    Sealed::start(&case).expect("a site").run(|it| {
        let began = std::time::Instant::now();
        load(&it.browser, "altered-4", N)?;
        let took = began.elapsed();
        println!("{harm:?}: {took:?}");
        ensure!(
            took < Duration::from_secs(15),
            "{harm:?}: the page waits for {took:?}"
        );
        let told = |says: serde_json::Value| says["dropped_total"].as_u64().unwrap_or_default();
        let (own, hub) = (
            told(sealed(&it.site)?),
            told(served(&it.site)?["sealed"].clone()),
        );
        let used = figure(&it.site, "used_total")?;
        ensure!(used == 0, "{harm:?}: {used} objects of a bad hub used");
        let (least, line) = match harm {
            Harm::Forged => (hub, "what an origin of DSSL sent was dropped"),
            Harm::Renamed | Harm::Swapped | Harm::Cut => {
                (own, "has brought what the origin has not sealed")
            }
            Harm::None | Harm::TurnedAway | Harm::Mute | Harm::Killed | Harm::Withheld => {
                (1, "tunnel")
            }
        };
        ensure!(
            least > 0,
            "{harm:?}: {own} dropped by the client, {hub} by the hub"
        );
        ensure!(it.site.logs().contains(line), "{harm:?}: no line `{line}`");
        for i in 0..N {
            let path = format!("/o/altered-4-{i}");
            ensure!(it.web.count(&path) >= 1, "{path} was not asked for");
        }
        it.expect_hub_holds_nothing().map(drop)
    });
}

/// Without harm the one between changes nothing: what the cases above see is the harm.
#[test]
fn objects_come_ahead_through_somebody_who_alters_nothing() {
    if !privileged("a hub in between") {
        return;
    }
    let case = Case {
        harm: Some(Harm::None),
        ..AS_IT_SHOULD_BE
    };
    Sealed::start(&case).expect("a site").run(|it| {
        load(&it.browser, "as-it-is-4", 4)?;
        let used = figure(&it.site, "used_total")?;
        ensure!(used == 4, "{used} objects used");
        Ok(())
    });
}
