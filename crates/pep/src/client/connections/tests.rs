//! What becomes of attempts, tunnels and their challengers.

use std::time::Duration;

use bentpipe_tunnel::engine::UnreachableCause;

use super::*;

fn attempt(id: u64) -> Attempt {
    Attempt {
        id: ConnectionId(id),
        server: 0,
        address: SocketAddr::from(([192, 0, 2, 1], 4433)),
        source: None,
        choice: Choice::new(&crate::config::Link::default(), None),
        enrols: false,
    }
}

/// Connections with tunnel 1.
fn up() -> Connections {
    let mut connections = Connections::new();
    connections.start(attempt(1));
    assert_eq!(
        connections.on_ready(ConnectionId(1)),
        Ready::Tunnel(attempt(1))
    );
    connections.install(attempt(1));
    connections
}

/// Connections with the silent tunnel 1, beside which 2 is ready and takes over in a second.
fn challenged(now: Instant) -> Connections {
    let mut connections = up();
    let began = connections.look(now, Some(now));
    assert_eq!(
        began,
        Look::Silent {
            begins: true,
            due: false
        }
    );
    connections.start(attempt(2));
    assert_eq!(
        connections.on_ready(ConnectionId(2)),
        Ready::Beside(attempt(2))
    );
    connections.challenge(attempt(2), now + Duration::from_secs(1));
    connections
}

#[test]
fn an_attempt_becomes_the_tunnel_and_an_outage_shuts_it() {
    let mut connections = up();
    assert_eq!(connections.attempt(), None);
    assert_eq!(connections.usable(), Some(ConnectionId(1)));
    assert!(connections.on_outage(ConnectionId(1), true));
    assert!(!connections.on_outage(ConnectionId(2), false));
    let known = (connections.usable(), connections.tunnel());
    assert_eq!(known, (None, Some(ConnectionId(1))));
    assert_eq!(
        connections.on_lost(ConnectionId(1)),
        Lost::Tunnel { next: None }
    );
    let known = (connections.tunnel(), connections.winner());
    assert_eq!(known, (None, Some(attempt(1))));
}

#[test]
fn a_connection_that_was_given_up_is_not_wanted() {
    let mut connections = Connections::new();
    connections.start(attempt(1));
    connections.end_attempt();
    assert_eq!(connections.on_ready(ConnectionId(1)), Ready::Unwanted);
    assert_eq!(connections.on_lost(ConnectionId(1)), Lost::Unknown);
}

#[test]
fn a_one_time_key_gives_no_tunnel() {
    let mut connections = Connections::new();
    let enrols = true;
    connections.start(Attempt {
        enrols,
        ..attempt(1)
    });
    assert_eq!(connections.on_ready(ConnectionId(1)), Ready::Enrols);
    let lost = connections.on_lost(ConnectionId(1));
    assert!(matches!(lost, Lost::Attempt(_)), "{lost:?}");
}

#[test]
fn the_other_tunnel_takes_over_once_its_time_has_come() {
    let now = crate::process::now();
    let mut connections = challenged(now);
    let early = connections.look(now, Some(now));
    assert_eq!(
        early,
        Look::Silent {
            begins: false,
            due: false
        }
    );
    let late = connections.look(now + Duration::from_secs(1), Some(now));
    assert_eq!(
        late,
        Look::Silent {
            begins: false,
            due: true
        }
    );
    // A third one is not needed.
    connections.start(attempt(3));
    assert_eq!(connections.on_ready(ConnectionId(3)), Ready::Unwanted);
}

#[test]
fn the_other_tunnel_follows_one_that_is_lost_or_leaves() {
    let now = crate::process::now();
    let next = Some(attempt(2));
    let lost = challenged(now).on_lost(ConnectionId(1));
    assert_eq!(lost, Lost::Tunnel { next });
    let mut left = challenged(now);
    assert_eq!(left.on_goaway(ConnectionId(1)), Lost::Tunnel { next });
    left.install(attempt(2));
    assert_eq!(left.on_lost(ConnectionId(1)), Lost::Leaving);
    assert_eq!(left.tunnel(), Some(ConnectionId(2)));
}

#[test]
fn a_server_that_stops_takes_over_no_more() {
    let now = crate::process::now();
    let mut connections = challenged(now);
    assert_eq!(connections.on_goaway(ConnectionId(2)), Lost::Challenger);
    assert_eq!(connections.take_over(), None);
    assert_eq!(connections.on_lost(ConnectionId(2)), Lost::Unknown);
    // A third one may.
    connections.start(attempt(3));
    let ready = connections.on_ready(ConnectionId(3));
    assert_eq!(ready, Ready::Beside(attempt(3)));
}

#[test]
fn an_outage_of_the_other_tunnel_is_known_when_it_takes_over() {
    let now = crate::process::now();
    let taken = |outages: &[bool]| {
        let mut connections = challenged(now);
        for outage in outages {
            assert!(!connections.on_outage(ConnectionId(2), *outage));
        }
        let [_, next] = connections.take_over().expect("another tunnel");
        connections.install(next);
        connections
    };
    assert_eq!(taken(&[]).usable(), Some(ConnectionId(2)));
    assert_eq!(taken(&[true, false]).usable(), Some(ConnectionId(2)));
    let mut silent = taken(&[true]);
    assert_eq!(silent.usable(), None);
    assert!(silent.on_outage(ConnectionId(2), false));
    assert_eq!(silent.usable(), Some(ConnectionId(2)));
    // It is that connection's alone.
    let mut lost = challenged(now);
    lost.on_outage(ConnectionId(2), true);
    assert_eq!(lost.on_lost(ConnectionId(2)), Lost::Challenger);
    lost.start(attempt(3));
    lost.on_ready(ConnectionId(3));
    lost.challenge(attempt(3), now);
    lost.take_over();
    lost.install(attempt(3));
    assert_eq!(lost.usable(), Some(ConnectionId(3)));
}

#[test]
fn a_tunnel_that_is_heard_again_needs_no_other() {
    let now = crate::process::now();
    let mut connections = challenged(now);
    connections.start(attempt(3));
    let others = vec![ConnectionId(3), ConnectionId(2)];
    let back = connections.look(now, None);
    assert_eq!(back, Look::Back { since: now, others });
    assert_eq!(connections.look(now, None), Look::Heard);
    assert_eq!(connections.close(), [ConnectionId(1)]);
}

#[test]
fn the_address_that_was_tried_is_known_after_the_attempt_has_ended() {
    let mut connections = Connections::new();
    assert_eq!(connections.tried(), None);
    connections.start(attempt(1));
    connections.end_attempt();
    assert_eq!(connections.tried(), Some((0, attempt(1).address)));
}

#[test]
fn what_this_machine_drops_is_not_put_down_to_the_network() {
    let mut connections = Connections::new();
    connections.start(attempt(1));
    let said = |cause| Unreachable {
        cause,
        from: None,
        to: SocketAddr::from(([192, 0, 2, 1], 4433)),
    };
    let (barred, port) = (UnreachableCause::Barred, UnreachableCause::Port);
    assert!(connections.on_unreachable(ConnectionId(1), said(port)));
    assert_eq!(connections.unreachable(), Some(said(port)));
    assert!(connections.on_unreachable(ConnectionId(1), said(barred)));
    // The rule that drops has sent an ICMP error as well.
    assert!(connections.on_unreachable(ConnectionId(1), said(port)));
    assert_eq!(connections.unreachable(), Some(said(barred)));
    // The next attempt begins anew.
    connections.end_attempt();
    connections.start(attempt(2));
    assert_eq!(connections.unreachable(), None);
}
