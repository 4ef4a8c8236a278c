//! A box on the way that acknowledges TCP and delivers nothing: another TLS connection is opened, and no flow is reset.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::GATEWAY_SAT;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, TLS_PORT};

use super::wire::wire_is;
use super::{SOON, connect, echo_address, exchange};
use crate::BENTPIPE;

/// Port of the box.
const BOX: u16 = 8443;

/// Silence after which another connection is opened, and what may pass until it is noticed and open.
const RENEWED: Duration = Duration::from_secs(25);

/// Counts of a box.
#[derive(Default)]
struct Swallowing {
    /// Connections so far.
    met: AtomicUsize,
    /// Connections that are swallowed: the first so many.
    swallowed: AtomicUsize,
}

/// Relays connections at `front` to `server`, until they are swallowed; ends with the process.
fn start_box(place: &Place, front: SocketAddr, server: SocketAddr) -> Result<Arc<Swallowing>> {
    let listener = place.at(|| TcpListener::bind(front))??;
    let counts = Arc::<Swallowing>::default();
    let (place, counted) = (place.clone(), counts.clone());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let number = counted.met.fetch_add(1, Ordering::Relaxed);
            let Ok(Ok(server)) = place.at(|| TcpStream::connect(server)) else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let ends = from
                    .try_clone()
                    .and_then(|from| Ok((from, to.try_clone()?)));
                let (counts, Ok((from, to))) = (counted.clone(), ends) else {
                    continue;
                };
                thread::spawn(move || relay(number, (from, to), &counts));
            }
        }
    });
    Ok(counts)
}

/// Copies, or reads and keeps to itself.
fn relay(number: usize, (mut from, mut to): (TcpStream, TcpStream), counts: &Swallowing) {
    let mut bytes = [0; 1 << 14];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let swallowed = number < counts.swallowed.load(Ordering::Relaxed);
        if !swallowed && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_box_that_acknowledges_and_delivers_nothing_is_left_for_another_connection() {
    if !privileged("swallowed TLS") {
        return;
    }
    let config = SiteConfig::new(BENTPIPE).with_tls("tls");
    let mut site = Site::plain(config).expect("a site");
    let result = is_left(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn is_left(site: &mut Site) -> Result<()> {
    let front = SocketAddr::from((GATEWAY_SAT, BOX));
    let server = SocketAddr::from((GATEWAY_SAT, TLS_PORT));
    let gateway = Place::from(site.topology.gateway());
    let swallowing = start_box(&gateway, front, server)?;
    let direct = format!("tls = \"{server}\"");
    edit(&site.client_file(), &direct, &format!("tls = \"{front}\""))?;
    site.start_server()?;
    site.start_client()?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    let mut flow = connect(site, web.address, SOON)?;
    exchange(&mut flow)?;
    wire_is(site, "tls")?;
    let met = swallowing.met.load(Ordering::Relaxed);
    swallowing.swallowed.store(met, Ordering::Relaxed);
    let began = Instant::now();
    let client = site.client();
    client.wait_for_line("nothing comes by the TLS connection to", RENEWED)?;
    client.wait_for_line("goes over another TLS connection", RENEWED)?;
    println!("renewed after {:?}", began.elapsed());
    exchange(&mut flow)?;
    wire_is(site, "tls")?;
    let more = swallowing.met.load(Ordering::Relaxed) - met;
    ensure!(more == 1, "{more} more connections");
    let log = site.client().stderr_text();
    let count = log.matches("nothing comes by the TLS").count();
    ensure!(count == 1, "{log}");
    Ok(())
}
