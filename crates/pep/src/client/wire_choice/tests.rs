//! The choice of the wire in virtual time.

// Its worlds are Linux's.
#[cfg(target_os = "linux")]
mod blocked;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn attempt(since: Instant) -> Need {
    Need::Attempt {
        since,
        heard: false,
        rtt: None,
        blocked: false,
    }
}

/// A choice that has just taken up TLS because UDP is blocked.
fn on_tls(start: Instant) -> WireChoice {
    let mut choice = WireChoice::new(WirePreference::Auto);
    let need = attempt(start);
    assert_eq!(choice.poll(start + PATIENCE, need), WireStep::Open);
    let now = start + 2 * SECOND;
    assert_eq!(choice.on_opened(now, need), TlsFate::Used);
    assert!(choice.is_checking());
    let tunnel = Need::Tunnel { silent: None };
    assert_eq!(choice.poll(now, tunnel), WireStep::TryUdp);
    assert!(!choice.on_tried(now, false));
    assert!(!choice.is_checking());
    choice
}

/// A server that starts after the first datagrams have come answers TLS first.
#[test]
fn udp_is_tried_at_once_where_an_attempt_went_unanswered() {
    let start = Instant::now();
    let mut choice = WireChoice::new(WirePreference::Auto);
    let need = attempt(start);
    assert_eq!(choice.poll(start + PATIENCE, need), WireStep::Open);
    assert_eq!(choice.on_opened(start + 2 * SECOND, need), TlsFate::Used);
    assert_eq!(choice.poll(start + 2 * SECOND, need), WireStep::TryUdp);
    assert!(choice.on_tried(start + 3 * SECOND, true), "UDP passes");
    // Where UDP did not pass the last time, a minute is soon enough.
    let mut choice = WireChoice::new(WirePreference::Auto);
    let need = Need::Attempt {
        since: start,
        heard: false,
        rtt: None,
        blocked: true,
    };
    assert_eq!(choice.poll(start, need), WireStep::Open);
    assert_eq!(choice.on_opened(start, need), TlsFate::Used);
    assert!(!choice.is_checking());
    let next = start + Duration::from_secs(60);
    assert_eq!(choice.poll(start, need), WireStep::Wait(Some(next)));
}

#[test]
fn tls_is_tried_beside_an_attempt_that_nobody_answers() {
    let start = Instant::now();
    let mut choice = WireChoice::new(WirePreference::Auto);
    let need = attempt(start);
    let due = start + PATIENCE;
    assert_eq!(choice.poll(start, need), WireStep::Wait(Some(due)));
    assert_eq!(choice.poll(due, need), WireStep::Open);
    assert_eq!(choice.poll(due, need), WireStep::Wait(None), "once");
    let heard = Need::Attempt {
        since: start,
        heard: true,
        rtt: None,
        blocked: false,
    };
    assert_eq!(choice.on_opened(due + SECOND, heard), TlsFate::Unwanted);
    let stuck = WireStep::Wait(Some(start + STUCK));
    assert_eq!(choice.poll(due + SECOND, heard), stuck);
}

/// A firewall that lets small datagrams pass only: the server is heard, and no tunnel comes about.
#[test]
fn tls_is_used_where_a_handshake_is_answered_and_does_not_end() {
    let start = Instant::now();
    let need = |rtt| Need::Attempt {
        since: start,
        heard: true,
        rtt,
        blocked: false,
    };
    let mut choice = WireChoice::new(WirePreference::Auto);
    let due = start + STUCK;
    assert_eq!(choice.poll(start, need(None)), WireStep::Wait(Some(due)));
    assert_eq!(choice.poll(due, need(None)), WireStep::Open);
    assert_eq!(choice.on_opened(due + SECOND, need(None)), TlsFate::Used);
    // On a long path it has six round trips.
    let mut choice = WireChoice::new(WirePreference::Auto);
    let far = need(Some(2 * SECOND));
    let due = start + 12 * SECOND;
    assert_eq!(choice.poll(start + STUCK, far), WireStep::Wait(Some(due)));
}

#[test]
fn a_long_path_has_two_round_trips_and_a_known_network_none() {
    let start = Instant::now();
    let need = |rtt, blocked| Need::Attempt {
        since: start,
        heard: false,
        rtt,
        blocked,
    };
    let mut choice = WireChoice::new(WirePreference::Auto);
    let far = need(Some(2 * SECOND), false);
    assert_eq!(
        choice.poll(start, far),
        WireStep::Wait(Some(start + 4 * SECOND))
    );
    let known = need(Some(2 * SECOND), true);
    assert_eq!(choice.poll(start, known), WireStep::Open);
}

#[test]
fn a_silent_tunnel_moves_to_tls_and_an_outage_is_borne() {
    let start = Instant::now();
    let mut choice = WireChoice::new(WirePreference::Auto);
    let heard = Need::Tunnel { silent: None };
    assert_eq!(choice.poll(start, heard), WireStep::Wait(None));
    let silent = Need::Tunnel {
        silent: Some(start),
    };
    let mut now = start + SILENT;
    assert_eq!(choice.poll(start, silent), WireStep::Wait(Some(now)));
    // The link itself is out: TCP does not get through either, and is tried ever more seldom.
    for pause in [5, 10, 20, 40, 60, 60] {
        assert_eq!(choice.poll(now, silent), WireStep::Open);
        choice.on_not_opened(now);
        let next = now + Duration::from_secs(pause);
        assert_eq!(choice.poll(now, silent), WireStep::Wait(Some(next)));
        now = next;
    }
    assert_eq!(choice.poll(now, silent), WireStep::Open);
    assert_eq!(choice.on_opened(now, silent), TlsFate::Used);
    // The link came back meanwhile, and the tunnel was heard over UDP.
    let mut choice = WireChoice::new(WirePreference::Auto);
    assert_eq!(choice.poll(now, silent), WireStep::Open);
    assert_eq!(choice.on_opened(now, heard), TlsFate::Unwanted);
}

#[test]
fn udp_is_tried_ever_more_seldom_and_taken_up_again() {
    let start = Instant::now();
    let tunnel = Need::Tunnel { silent: None };
    let mut choice = on_tls(start);
    let mut now = start + 2 * SECOND;
    for pause in [60, 120, 240, 480, 600, 600] {
        let due = now + Duration::from_secs(pause);
        assert_eq!(choice.poll(now, tunnel), WireStep::Wait(Some(due)));
        now = due;
        assert_eq!(choice.poll(now, tunnel), WireStep::TryUdp);
        assert_eq!(choice.poll(now, tunnel), WireStep::Wait(None));
        assert!(!choice.on_tried(now, false));
    }
    choice.on_moved(now);
    assert_eq!(
        choice.poll(now, tunnel),
        WireStep::TryUdp,
        "another network"
    );
    assert!(choice.on_tried(now, true));
    assert_eq!(choice.poll(now, tunnel), WireStep::Wait(None));
}

#[test]
fn a_network_that_passes_handshakes_alone_is_not_tried_every_minute() {
    let start = Instant::now();
    let mut choice = on_tls(start);
    let mut now = start + 2 * SECOND;
    for pause in [60, 120, 240, 480, 600] {
        now += Duration::from_secs(pause);
        let tunnel = Need::Tunnel { silent: None };
        assert_eq!(choice.poll(now, tunnel), WireStep::TryUdp);
        assert!(choice.on_tried(now, true));
        let silent = Need::Tunnel { silent: Some(now) };
        now += SILENT;
        assert_eq!(choice.poll(now, silent), WireStep::Open);
        assert_eq!(choice.on_opened(now, silent), TlsFate::Used);
    }
}

#[test]
fn a_tls_connection_that_ends_is_opened_again_at_once_unless_it_was_short() {
    let start = Instant::now();
    let tunnel = Need::Tunnel { silent: None };
    let mut choice = on_tls(start);
    let mut now = start + 30 * SECOND;
    choice.on_ended(now);
    assert_eq!(choice.poll(now, tunnel), WireStep::Open);
    assert_eq!(choice.on_opened(now, tunnel), TlsFate::Again);
    now += SECOND;
    choice.on_ended(now);
    let due = now + 5 * SECOND;
    assert_eq!(choice.poll(now, tunnel), WireStep::Wait(Some(due)));
    assert_eq!(choice.poll(due, tunnel), WireStep::Open);
    choice.on_not_opened(due);
    assert!(
        matches!(choice.poll(due, tunnel), WireStep::Wait(None)),
        "UDP has its turn"
    );
}

#[test]
fn in_another_network_udp_is_tried_as_soon_as_tls_is_open() {
    let start = Instant::now();
    let tunnel = Need::Tunnel { silent: None };
    let mut choice = on_tls(start);
    let now = start + 30 * SECOND;
    choice.on_ended(now);
    choice.on_moved(now);
    assert_eq!(choice.poll(now, tunnel), WireStep::Open);
    assert_eq!(choice.on_opened(now + SECOND, tunnel), TlsFate::Again);
    assert_eq!(choice.poll(now + SECOND, tunnel), WireStep::TryUdp);
    assert!(!choice.on_tried(now + 2 * SECOND, false));
    let next = now + 122 * SECOND;
    assert_eq!(
        choice.poll(now + 2 * SECOND, tunnel),
        WireStep::Wait(Some(next))
    );
}

#[test]
fn a_trial_of_udp_from_the_network_before_counts_for_nothing() {
    let start = Instant::now();
    let tunnel = Need::Tunnel { silent: None };
    let mut choice = on_tls(start);
    let now = start + 62 * SECOND;
    assert_eq!(choice.poll(now, tunnel), WireStep::TryUdp);
    choice.on_moved(now + SECOND);
    assert!(!choice.on_tried(now + 8 * SECOND, false));
    assert_eq!(choice.poll(now + 8 * SECOND, tunnel), WireStep::TryUdp);
    assert!(choice.on_tried(now + 9 * SECOND, true));
}

#[test]
fn who_wants_one_wire_gets_no_other() {
    let start = Instant::now();
    let need = attempt(start);
    let mut udp = WireChoice::new(WirePreference::Udp);
    assert_eq!(udp.poll(start + 100 * SECOND, need), WireStep::Wait(None));
    let mut tls = WireChoice::new(WirePreference::Tls);
    assert!(!tls.permits_udp());
    assert_eq!(tls.poll(start, need), WireStep::Open);
    assert_eq!(tls.on_opened(start, need), TlsFate::Used);
    assert_eq!(tls.poll(start + 1000 * SECOND, need), WireStep::Wait(None));
    tls.on_ended(start + 1000 * SECOND);
    let tunnel = Need::Tunnel { silent: None };
    assert_eq!(tls.poll(start + 1000 * SECOND, tunnel), WireStep::Open);
}

#[test]
fn a_tls_connection_that_brings_nothing_gets_another_ever_more_seldom() {
    for preference in [WirePreference::Auto, WirePreference::Tls] {
        let start = Instant::now();
        let mut choice = WireChoice::new(preference);
        choice.on_opened(start, attempt(start));
        choice.on_tried(start, false);
        let mut now = start + 30 * SECOND;
        let heard = Need::Tunnel { silent: None };
        let silent = Need::Tunnel { silent: Some(now) };
        let due = now + SILENT;
        assert_eq!(choice.poll(now, silent), WireStep::Wait(Some(due)));
        now = due;
        for pause in [10, 20, 40, 60, 60] {
            assert_eq!(choice.poll(now, silent), WireStep::Open);
            assert!(choice.is_renewing());
            assert_eq!(choice.poll(now, silent), WireStep::Wait(None));
            assert_eq!(choice.on_opened(now, silent), TlsFate::Again);
            if preference == WirePreference::Auto {
                assert_eq!(choice.poll(now, silent), WireStep::TryUdp);
                assert!(!choice.on_tried(now, false));
            }
            now += Duration::from_secs(pause);
            assert!(matches!(
                choice.poll(now - SECOND, silent),
                WireStep::Wait(_)
            ));
        }
        // It cannot be opened: the silent one is kept, for it may come back.
        assert_eq!(choice.poll(now, silent), WireStep::Open);
        choice.on_not_opened(now);
        assert!(!choice.is_opening());
        // Heard again, it is as new.
        assert!(matches!(
            choice.poll(now, heard),
            WireStep::Wait(_) | WireStep::TryUdp
        ));
        let silent = Need::Tunnel { silent: Some(now) };
        assert_eq!(choice.poll(now + SILENT, silent), WireStep::Open);
        // And while another one was being opened.
        assert_eq!(choice.on_opened(now + SILENT, heard), TlsFate::Unwanted);
    }
}

#[test]
fn udp_that_answers_in_the_silence_of_tls_is_taken() {
    let start = Instant::now();
    let mut choice = on_tls(start);
    let now = start + 20 * SECOND;
    let silent = Need::Tunnel { silent: Some(now) };
    assert_eq!(choice.poll(now + SILENT, silent), WireStep::Open);
    choice.on_not_opened(now + SILENT);
    assert_eq!(choice.poll(now + SILENT, silent), WireStep::TryUdp);
    // Its answer comes while another TLS connection is being opened.
    let later = now + 2 * SILENT;
    assert_eq!(choice.poll(later, silent), WireStep::Open);
    assert!(choice.on_tried(later, true));
    assert_eq!(
        choice.poll(later, silent),
        WireStep::Wait(Some(later + SILENT)),
        "it has that long to be heard"
    );
}
