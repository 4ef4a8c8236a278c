//! The workload over the topology, without any proxy: what is fetched is checked, and no faster than the link allows.

use std::time::Duration;

use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_lab::workload::{
    Authority, CONNECTIONS_PER_HOST, Client, DeviceBytes, Expected, ExpectedPage, HTTP_PORT,
    Handshakes, Object, Page, Peer, Shape, handshakes, load, run_in, session,
};
use bentpipe_units::Seed;

use super::world::{PATIENCE, object, world};

#[test]
fn objects_come_whole_over_both_families_and_never_too_soon() {
    let Some(world) = world("get") else { return };
    for (host, length) in [(0, 1000), (1, 1000), (0, 2_000_000), (1, 0)] {
        let (time, seen) = world.get(host, &object(9, length)).unwrap();
        assert_eq!(seen, length);
        // Plain TCP: a round trip more than the limit, which takes TCP's handshake for free.
        let least = world.limit.object(length) + Duration::from_millis(100);
        assert!(time >= least, "{length} bytes in {time:?}");
        assert!(time < least * 4, "{length} bytes in {time:?}");
    }
}

#[test]
fn a_wrong_body_is_an_error_that_names_the_object() {
    let Some(world) = world("hash") else { return };
    let right = object(3, 5000);
    let wrong = Expected {
        digest: object(4, 5000).digest,
        ..right
    };
    let error = format!("{:#}", world.get(0, &wrong).unwrap_err());
    assert!(
        error.contains("/object/3/5000") && error.contains("SHA-256"),
        "{error}"
    );
    let missing = Expected {
        object: Object {
            length: 1 << 40,
            ..right.object
        },
        ..right
    };
    let error = format!("{:#}", world.get(0, &missing).unwrap_err());
    assert!(error.contains("404"), "{error}");
}

#[test]
fn a_page_comes_whole_over_several_connections() {
    let Some(world) = world("page") else { return };
    let page = Page::new(&Shape::USUAL, Seed::new(1));
    let expected = ExpectedPage::new(page.clone(), &world.hosts);
    let mut done = Vec::new();
    let tls = world.authority.client_config().unwrap();
    let client = Client::http1(tls);
    let loaded = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        load(&expected, &world.hosts, &client, |count| done.push(count))
    })
    .unwrap();
    eprintln!(
        "{loaded:?}, limit {:?}",
        world.limit.page(&page, Handshakes::TLS13)
    );
    assert_eq!(done, (1..=Shape::USUAL.objects()).collect::<Vec<usize>>());
    let hosts = usize::from(page.hosts());
    let most = hosts * CONNECTIONS_PER_HOST;
    assert!((2 * hosts..=most).contains(&loaded.connections));
    // Three levels of new hosts: TCP's handshakes come on top of the limit.
    let least = world.limit.page(&page, Handshakes::TLS13) + Duration::from_millis(300);
    assert!(
        loaded.time >= least && loaded.time < least * 3,
        "{loaded:?}"
    );
}

#[test]
fn a_handshake_takes_two_round_trips_with_those_of_tcp() {
    let Some(world) = world("handshake") else {
        return;
    };
    let tls = world.authority.client_config().unwrap();
    let times = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        handshakes(&world.hosts, tls.clone(), 3)
    })
    .unwrap();
    let rtt = world.limit.object(0);
    assert_eq!(times.len(), 3);
    for took in times {
        assert!(took >= 2 * rtt && took < 3 * rtt, "{took:?} of {rtt:?}");
    }
}

#[test]
fn transactions_follow_one_another_and_are_counted_at_the_client() {
    let Some(world) = world("session") else {
        return;
    };
    let (host, address) = world.hosts.get(0).unwrap();
    let (rtt, every) = (world.limit.object(0), Duration::from_millis(300));
    let exchanges: Vec<_> = (1..=4)
        .map(|seed| [object(seed, 2000), object(10 + seed, 20_000)])
        .collect();
    for each in [false, true] {
        let counter = DeviceBytes::open(world.topology.terminal(), LINK_DEVICE).unwrap();
        let peer = Peer {
            address: (address, HTTP_PORT).into(),
            host,
            each,
        };
        let done = run_in(world.topology.user(), &world.stop, PATIENCE, || {
            session(&peer, &exchanges, every, &counter)
        })
        .unwrap();
        assert_eq!(done.len(), 4);
        for (one, number) in done.iter().zip(0..) {
            // A connection of its own costs the handshake's round trip; 20 kB are more than a first window.
            let trips = if each || number == 0 { 2 } else { 1 };
            assert!(
                one.took >= rtt * trips && one.took < rtt * (trips + 2),
                "{one:?}"
            );
            let begun = one.ended - one.took;
            assert!(begun >= every * number, "{one:?}, {number}");
            assert!((22_000..30_000).contains(&one.bytes), "{one:?}");
        }
    }
}

/// With HTTP/2 a page takes what its dependencies, the link and TCP's handshakes over it take, and little more.
#[test]
fn a_page_comes_whole_over_one_connection_to_each_host() {
    let Some(world) = world("http2") else { return };
    let page = Page::new(&Shape::USUAL, Seed::new(1));
    let expected = ExpectedPage::new(page.clone(), &world.hosts);
    let mut done = Vec::new();
    let client = Client::http2(world.authority.http2_client_config().unwrap());
    let loaded = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        load(&expected, &world.hosts, &client, |count| done.push(count))
    })
    .unwrap();
    let limit = world.limit.page(&page, Handshakes::TLS13);
    eprintln!("{loaded:?}, limit {limit:?}");
    assert_eq!(done, (1..=Shape::USUAL.objects()).collect::<Vec<usize>>());
    assert_eq!(loaded.connections, usize::from(page.hosts()));
    assert!(loaded.time > limit && loaded.time < limit * 3, "{loaded:?}");
}

#[test]
fn a_browser_that_trusts_another_authority_refuses() {
    let Some(world) = world("trust") else { return };
    let page = Page::new(&Shape::USUAL, Seed::new(1));
    let page = ExpectedPage::new(page, &world.hosts);
    let tls = Authority::new().unwrap().client_config().unwrap();
    let client = Client::http1(tls);
    let error = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        load(&page, &world.hosts, &client, |_| ())
    })
    .unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("certificate") && error.contains("host 0"),
        "{error}"
    );
}
