//! Page loads by a real browser: whole, over HTTP/2, with nothing fetched from elsewhere, no faster than the link allows.
//! Needs Chromium and what drives it: `.ci/deps lab`.

use std::time::Duration;

use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_lab::workload::{Authority, Chromium, HTTPS_PORT, Handshakes, Load, Page, corpus};
use bentpipe_testbed::chromium;

use super::world::{PATIENCE, World, world};

fn load(world: &World, chromium: &Chromium, pages: &[Page]) -> anyhow::Result<Option<Vec<Load>>> {
    let loading = chromium.start(&world.topology, &world.hosts, &world.authority, pages)?;
    loading.finish(pages, PATIENCE, &world.stop)
}

#[test]
fn chromium_loads_pages_whole_and_nothing_else() {
    let (Some(chromium), Some(world)) = (chromium("chromium"), world("chromium")) else {
        return;
    };
    // All that crosses belongs to the pages.
    let https = Tunnel::Tcp(HTTPS_PORT);
    let capture = Capture::start(world.topology.terminal(), LINK_DEVICE, https).unwrap();
    let pages: Vec<Page> = corpus::pages(3).collect();
    let loads = load(&world, &chromium, &pages).unwrap().unwrap();
    for (page, load) in pages.iter().zip(&loads) {
        let least = world.limit.page(page, Handshakes::TLS13).as_secs_f64();
        let took = load.load_ms / 1000.0;
        let paint = load.paint_ms.unwrap() / 1000.0;
        eprintln!("{took:.3} s, {paint:.3} s to see something; limit {least:.3} s");
        // A TCP handshake and one of TLS, the request, and what the head waits for.
        assert!(paint > 0.3 && paint <= took + 1.0, "{paint}");
        assert!(took > least && took < 10.0 * least, "{took}");
        assert_eq!(load.protocols, ["h2"]);
    }
    let crossed = capture.stop().unwrap();
    assert_eq!(crossed.clear_packets, 0, "{:?}", crossed.clear);
}

#[test]
fn a_browser_in_which_no_ca_was_installed_refuses_the_page() {
    let (Some(chromium), Some(world)) = (chromium("distrust"), world("distrust")) else {
        return;
    };
    // The web's certificate is another's: neither its key nor its authority is known.
    let stranger = Authority::new().unwrap();
    let pages: Vec<Page> = corpus::pages(1).collect();
    let loading = chromium.start(&world.topology, &world.hosts, &stranger, &pages);
    let error = loading.unwrap().finish(&pages, PATIENCE, &world.stop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("ERR_CERT_AUTHORITY_INVALID"), "{error}");
}

#[test]
fn a_page_that_is_not_all_there_is_no_figure() {
    let (Some(chromium), Some(world)) = (chromium("partial"), world("partial")) else {
        return;
    };
    let pages: Vec<Page> = corpus::pages(2).collect();
    let loading = chromium
        .start(&world.topology, &world.hosts, &world.authority, &pages[..1])
        .unwrap();
    // Expected is another page than the one that comes.
    let error = loading
        .finish(&pages[1..], PATIENCE, &world.stop)
        .unwrap_err();
    assert!(error.to_string().contains("objects came"), "{error}");
    // Patience that ends is no failure.
    let loading = chromium
        .start(&world.topology, &world.hosts, &world.authority, &pages[..1])
        .unwrap();
    let unfinished = loading.finish(&pages[..1], Duration::from_millis(300), &world.stop);
    assert_eq!(unfinished.unwrap(), None);
}
