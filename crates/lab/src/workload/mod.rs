//! What the measured connections carry: a web server and what a browser and a download tool do with it.
//!
//! Both speak real HTTP/1.1, in clear or over TLS 1.3, over the kernel's TCP, or HTTP/2 or HTTP/3. Content is pseudo-random from seeds, so
//! both ends know every byte, and holds [`MARKER`] all over, so that a capture can tell what crossed a link in clear.
//! Nothing here knows which contender carries the packets.
//!
//! ```text
//!  user namespace                                              web namespace
//!    request, download ──── HTTP, port 80 ──────────────────►  web ── content (seed, length)
//!    browser (page)    ──── HTTPS, port 443, ≤ 6 per host ──►   │
//!        │└── every body's SHA-256 is checked                tls: test CA, host names
//!        └ lookup ────── DNS, port 53, if asked for ────────►  resolver
//! ```

mod browser;
mod chromium;
mod content;
pub mod corpus;
mod counter;
mod echo;
mod fetch;
mod ftp;
mod hosts;
mod http3;
mod iperf;
mod lengths;
mod limit;
mod lookup;
mod markup;
mod page;
mod resolver;
mod serving;
mod session;
mod shape;
mod text;
mod tls;
mod voice;
mod web;

use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;

use bentpipe_emulator::Stop;

pub use browser::{Browsing, CONNECTIONS_PER_HOST, Client, ExpectedPage, PageLoad, load};
pub use chromium::{Chromium, Load, Loading, PICTURES};
pub(crate) use content::generator;
pub use content::{ContentKind, Digest, Expected, MARKER, Object};
pub use counter::DeviceBytes;
pub use echo::{ECHO_INTERVAL, ECHO_SIZE, Echo, probe};
pub use fetch::{get, get_in_turn, get_over, put, put_over};
pub use ftp::{Direction, Ftp, ftp};
pub use hosts::{Hosts, MOST_SERVERS};
pub use http3::get_by_http3;
pub use iperf::{iperf3, iperf3_version};
pub use limit::{Handshakes, LinkLimit, PAYLOAD_EFFICIENCY};
pub use page::{Page, PageObject};
pub use resolver::{DNS_PORT, Resolver, USUAL_TTL};
pub use session::{Exchange, Peer, session};
pub use shape::{Kind, Part, Shape};
pub use tls::{Authority, Tls, handshakes};
pub use voice::{Call, VOICE_INTERVAL, call};
pub use web::{HTTP_PORT, HTTPS_PORT, Web};

/// Runs the future that `make` makes inside `namespace`, to its end, to `stop` or to `limit`.
///
/// # Errors
/// Its own, that it was stopped, or that it took longer than `limit`.
pub fn run_in<T: Send, F: Future<Output = Result<T>>>(
    namespace: &NetNs,
    stop: &Stop,
    limit: Duration,
    make: impl FnOnce() -> F + Send,
) -> Result<T> {
    namespace.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        runtime.block_on(stop.guard(async {
            tokio::time::timeout(limit, make())
                .await
                .with_context(|| format!("not done after {limit:?}"))?
        }))
    })?
}
