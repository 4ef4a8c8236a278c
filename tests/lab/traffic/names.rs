//! Names that are asked for: by everybody who loads a page, of the web's resolver, over the link, and of nobody else.

use std::collections::BTreeSet;

use bentpipe_emulator::topology::{LINK_DEVICE, RESOLVER};
use bentpipe_lab::capture::{Capture, ExpectedPackets, Tunnel};
use bentpipe_lab::workload::{
    Client, DNS_PORT, ExpectedPage, HTTPS_PORT, Hosts, Page, Resolver, USUAL_TTL, corpus, load,
    run_in,
};
use bentpipe_testbed::chromium;

use super::world::{PATIENCE, World, world};

/// All that may cross while a page is loaded.
const EXPECTED: ExpectedPackets = ExpectedPackets {
    tunnel: Tunnel::Tcp(HTTPS_PORT),
    idle: [None; 3],
    names_beside: true,
};

/// Loads the page with a resolver, and then without, which must fail.
fn names_are_asked_for(world: &World, page: &Page, load: impl Fn(&Hosts) -> anyhow::Result<()>) {
    let hosts = world.hosts.clone().asked_of((RESOLVER, DNS_PORT).into());
    let resolver = Resolver::start(world.topology.web(), &[RESOLVER.into()], &hosts, USUAL_TTL);
    let resolver = resolver.unwrap();
    let capture = Capture::start(world.topology.terminal(), LINK_DEVICE, EXPECTED).unwrap();
    load(&hosts).unwrap();
    let crossed = capture.stop().unwrap();
    let places: BTreeSet<u8> = page.objects().iter().map(|object| object.host).collect();
    let name = |place: u8| world.hosts.get(place.into()).unwrap().0.to_owned();
    let names: BTreeSet<String> = places.into_iter().map(name).collect();
    assert_eq!(resolver.asked(), names);
    // A question and an answer for each of both families.
    assert!(crossed.name_packets >= 4 * names.len() as u64, "{crossed}");
    assert_eq!(crossed.clear_packets, 0, "{crossed}");
    drop(resolver);
    assert!(load(&hosts).is_err(), "somebody else knew the names");
}

#[test]
fn the_scripted_fetcher_asks_for_every_host() {
    let Some(world) = world("names") else { return };
    let page = corpus::pages(1).next().unwrap();
    let expected = ExpectedPage::new(page.clone(), &world.hosts);
    names_are_asked_for(&world, &page, |hosts| {
        let tls = world.authority.client_config()?;
        let client = Client::http1(tls);
        let loading = || load(&expected, hosts, &client, |_| ());
        run_in(world.topology.user(), &world.stop, PATIENCE, loading).map(drop)
    });
}

#[test]
fn chromium_asks_for_every_host() {
    let (Some(chromium), Some(world)) = (chromium("names"), world("asking")) else {
        return;
    };
    let pages: Vec<Page> = corpus::pages(1).collect();
    names_are_asked_for(&world, &pages[0], |hosts| {
        let loading = chromium.start(&world.topology, hosts, &world.authority, &pages)?;
        let loads = loading.finish(&pages, PATIENCE, &world.stop)?;
        anyhow::ensure!(loads.is_some(), "it is not done");
        Ok(())
    });
}
