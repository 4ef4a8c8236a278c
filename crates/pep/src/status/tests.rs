//! The document's shape, and its rendering.

mod sockets;

use std::path::PathBuf;

use bentpipe_proto::tunnel::PublishCode;

use super::*;
use crate::config::PortProtocol;
use bentpipe_tunnel::engine::Profile;

fn session() -> Session {
    Session {
        tunnel: Tunnel {
            state: TunnelState::Ready,
            peer: Some("10.20.0.1:4433".to_owned()),
            wire: Some(WireKind::Tls),
            since_s: 7384,
            last_heard_s: Some(3),
            next_attempt_s: None,
            last_error: Some("no answer for 300 s ".repeat(8)),
            rtt_ms: Some(512.34),
            min_rtt_ms: Some(500.0),
            send_rate_bit_s: 123_456,
            recv_rate_bit_s: 9_876_543,
            loss_ratio: 0.0123,
            window_bytes: 1_250_000,
            pacing_rate_bit_s: Some(2_000_000),
            resumed_rate_bit_s: Some(1_000_000),
            key_exchange: Some("X25519MLKEM768".to_owned()),
            mtu: Some(1472),
            link: Some(LinkClass {
                profile: Profile::Auto,
                class: Profile::Geo,
                source: ClassSource::Measured,
                rtt_ms: Some(612.3),
                next_class: None,
            }),
            sending: Some(Sending {
                controller: "satellite".to_owned(),
                pacing_rate_bit_s: 2_000_000,
                window_bytes: 1_250_000,
                repeated_datagrams: 12,
                in_flight_bytes: 123_456,
                bottleneck_rate_bit_s: Some(2_950_000),
                min_rtt_ms: 500.0,
                loss_ratio: 0.0123,
                packets_total: 10_000,
                lost_packets_total: 123,
                max_rate_bit_s: Some(3_000_000),
                rate_bit_s: None,
                acks: Acks {
                    packets: 200,
                    delay_ms: 40.0,
                },
            }),
            receiving: Some(Receiving {
                controller: Some("cubic".to_owned()),
                rate_bit_s: Some(50_000_000),
                acks: Some(Acks {
                    packets: 1,
                    delay_ms: 1000.0,
                }),
                blocked_ratio: Some(0.0123),
                ..Receiving::default()
            }),
            families: Some(Families {
                ipv4: true,
                ipv6: false,
            }),
            fec: Some(Repairs {
                sent_bytes: 1_234_567,
                overhead_ratio: 0.0123,
                received_bytes: 7_654_321,
                recovered_bytes: 6_543_210,
                wasted_bytes: 1_111_111,
            }),
        },
        flows: Flows {
            active: 12,
            opened_total: 1234,
            refused_total: 3,
            refused: Refused {
                denied: 2,
                name: 1,
                ..Refused::default()
            },
            shed_total: 2,
            waiting: 1,
        },
        bytes: Volumes {
            lan_in: 1,
            lan_out: 999_999,
            wire_in: 12_345_678,
            wire_out: u64::MAX,
        },
        ledger_bytes: None,
        metering: None,
        measured: None,
        dns: None,
        packets: Some(Packets {
            assigned: vec![[100, 96, 255, 254].into(), [0xfd62; 8].into()],
            routed: vec!["2001:db8:1234::/48".parse().expect("a prefix")],
            unrouted: vec!["192.168.100.0/24".parse().expect("a prefix")],
            carried: PacketKinds::UdpAndEcho,
            mappings: Some(12),
            sent: u64::MAX,
            sent_bytes: u64::MAX,
            received: 7,
            received_bytes: 4321,
            marked: 1,
            dropped: PacketDrops {
                age: 1,
                codel: 2,
                overflow: 3,
                incomplete: 4,
                no_tunnel: 5,
                malformed: 6,
                spoofed: 7,
                policy: u64::MAX,
                limit: 8,
                unsupported: 9,
            },
        }),
        associations: None,
        sle: None,
        les: None,
        web: None,
        publish: [Some(PublishCode::Ok), Some(PublishCode::NotPermitted), None]
            .map(|code| {
                let to = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".parse();
                PublishStatus::new(PortProtocol::Udp, 65535, to.ok(), code)
            })
            .to_vec(),
        memory: Memory {
            used: 0,
            ceiling: 256 << 20,
        },
    }
}

pub(crate) fn client_report() -> StatusReport {
    StatusReport::new(
        PathBuf::from(format!("/etc/{}/client.toml", "long".repeat(30))),
        90_061,
        Side::Client(session().into()),
    )
}

pub(crate) fn server_report() -> StatusReport {
    let clients = vec![
        ClientStatus {
            name: "terminal-1".to_owned(),
            shard: Some(1),
            session: session(),
        },
        ClientStatus {
            name: "terminal-2".to_owned(),
            shard: None,
            session: Session::default(),
        },
    ];
    let listen = vec!["10.20.0.1:4433".parse().unwrap()];
    StatusReport::new(
        "/etc/bentpipe/server.toml".into(),
        5,
        Side::Server {
            listen,
            listen_tls: vec![([192, 0, 2, 1], 443).into()],
            listen_sle: vec![([192, 0, 2, 1], 4434).into()],
            listen_les: Vec::new(),
            families: Some(Families {
                ipv4: true,
                ipv6: false,
            }),
            packets_limited: None,
            sle: None,
            les: None,
            tls: None,
            clients,
        },
    )
}

/// Whatever a report holds, its screen fits a terminal of 80 by 24, without a control character.
#[test]
fn a_screen_fits_a_terminal() {
    let event = |number: usize| Event {
        at: "2026-11-26T01:02:03Z".to_owned(),
        level: EventLevel::Warn,
        text: format!("{number} {}", "long ".repeat(40)),
    };
    let mut crowded = server_report();
    if let Side::Server { clients, .. } = &mut crowded.side {
        let client = |number: u64| {
            let mut session = session();
            session.tunnel.send_rate_bit_s = number;
            ClientStatus {
                name: format!("a-terminal-with-a-long-name-{number}"),
                shard: None,
                session,
            }
        };
        clients.extend((0..1000).map(client));
    }
    for blocks in [Blocks::Unicode, Blocks::Ascii] {
        for mut report in [client_report(), server_report(), crowded.clone()] {
            report.events = (0..20).map(event).collect();
            let mut screen = Screen::new(blocks);
            for second in 0..700 {
                report.uptime_s = second;
                let text = screen.draw(&report);
                assert!(text.lines().count() < 24, "{text}");
                let fits = |line: &str| line.chars().count() <= 80;
                assert!(text.lines().all(fits), "{text}");
                assert!(blocks == Blocks::Unicode || text.is_ascii(), "{text}");
            }
            let text = screen.draw(&report);
            assert!(text.contains("01:02:03  warning: 19 "), "{text}");
            assert!(text.contains("received   "), "{text}");
        }
    }
}

/// A curve shows the highest rate of each quarter of a minute, as a share of the highest of all.
#[test]
fn a_screen_draws_what_was() {
    let mut screen = Screen::new(Blocks::Ascii);
    let mut report = client_report();
    let mut text = String::new();
    for second in 0..60 {
        report.uptime_s = second;
        if let Side::Client(session) = &mut report.side {
            session.tunnel.recv_rate_bit_s = if second < 30 { 8_000_000 } else { 1_000_000 };
        }
        text = screen.draw(&report);
    }
    let received = text.lines().find(|line| line.starts_with("received"));
    let received = received.expect("a row");
    assert!(received.contains("1.0 Mbit/s of 50.0 Mbit/s"), "{received}");
    assert!(received.ends_with(" ##.."), "{received}");
}

#[test]
fn the_document_is_flat_and_survives_json() {
    for report in [client_report(), server_report()] {
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report);
    }
    let client = serde_json::to_value(client_report()).unwrap();
    assert_eq!(client["schema"], 1);
    assert_eq!(client["role"], "client");
    assert_eq!(client["tunnel"]["state"], "ready");
    assert_eq!(client["memory"]["ceiling"], 268_435_456);
    assert_eq!(client["tunnel"]["link"]["class"], "geo");
    assert_eq!(client["tunnel"]["link"]["source"], "measured");
    assert_eq!(client["tunnel"]["sending"]["acks"]["packets"], 200);
    assert_eq!(client["tunnel"]["receiving"]["controller"], "cubic");
    let server = serde_json::to_value(server_report()).unwrap();
    assert_eq!(server["clients"][0]["name"], "terminal-1");
    assert_eq!(server["clients"][1]["tunnel"]["state"], "connecting");
}

#[test]
fn the_text_fits_80_columns() {
    for report in [client_report(), server_report()] {
        let text = report.to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let text = client_report().to_string();
    assert!(text.contains("up 1 d 1 h\n"), "{text}");
    for row in [
        "link class    auto: geo, measured 612 ms",
        "reaches       IPv4 only: no IPv6 route, IPv6 is refused",
        "refused       2 denied, 1 without such a name",
        "reset         2 that held most when memory was used up",
        "sending       satellite, at most 3.0 Mbit/s, path measured 3.0 Mbit/s; 123 kB in",
        "              flight; ACK after 200 packets or 40 ms",
        "receiving     cubic, sold 50.0 Mbit/s; ACK after 1 packet or 1000 ms",
    ] {
        assert!(text.contains(&format!("\n{row}\n")), "{row}: {text}");
    }
    assert!(
        text.contains("\ntunnel        ready for 2 h 3 min, server 10.20.0.1:4433\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "\nrate          9.9 Mbit/s received, 123 kbit/s sent; paced at 2.0 Mbit/s\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("\npath          known, resumed at 1.0 Mbit/s\n"),
        "{text}"
    );
}

#[test]
fn health_is_one_line_and_names_the_reason() {
    let of = |state, error: Option<&str>| {
        let mut session = session();
        session.tunnel.state = state;
        session.tunnel.since_s = 45;
        session.tunnel.last_error = error.map(str::to_owned);
        let side = Side::Client(session.into());
        let report = StatusReport::new("client.toml".into(), 100, side);
        (report.health(), report.to_string())
    };
    let (health, _) = of(TunnelState::Ready, None);
    assert!(health.expect("healthy").contains("ready for 45 s"));
    let (health, text) = of(TunnelState::Silent, None);
    let reason = health.expect_err("nobody answers");
    assert!(reason.contains("silent for 45 s"), "{reason}");
    assert!(text.contains("silent for 45 s"), "{text}");
    // The session of these tests was heard 3 s ago.
    assert!(reason.contains("is heard, but what is sent"), "{reason}");
    // What this machine itself drops is no fault of the server.
    let own = "what is sent to 192.0.2.1:4433 does not leave this machine: a firewall";
    let (health, text) = of(TunnelState::Silent, Some(own));
    let reason = health.expect_err("nothing leaves");
    assert!(
        reason.ends_with(own) && !reason.contains("heard"),
        "{reason}"
    );
    assert!(text.contains("last error    what is sent to"), "{text}");
    let error = "no answer from 192.0.2.1:4433 in 3 s";
    let (health, text) = of(TunnelState::Connecting, Some(error));
    let reason = health.expect_err("no tunnel");
    assert!(
        reason.contains(error) && reason.lines().count() == 1,
        "{reason}"
    );
    assert!(text.contains("totals since"), "{text}");
    assert!(server_report().health().is_ok());
}

#[test]
fn packets_that_a_server_does_not_carry_are_told_at_both_ends() {
    for (carried, words) in [
        (PacketKinds::All, None),
        (
            PacketKinds::Udp,
            Some("the server carries TCP and UDP only"),
        ),
        (
            PacketKinds::UdpAndEcho,
            Some("the server carries TCP, UDP and ping only"),
        ),
        (PacketKinds::None, Some("the server carries TCP only")),
    ] {
        let mut session = session();
        session.packets.as_mut().expect("packets").carried = carried;
        let side = Side::Client(session.into());
        let text = StatusReport::new("client.toml".into(), 100, side).to_string();
        let told = text.lines().find(|line| line.starts_with("not carried"));
        assert_eq!(told.is_some(), words.is_some(), "{text}");
        assert!(
            told.is_none_or(|told| words.is_some_and(|it| told.contains(it))),
            "{text}"
        );
    }
    let mut session = session();
    session.packets = Some(Packets {
        carried: PacketKinds::None,
        ..Packets::default()
    });
    let side = Side::Client(session.into());
    let text = StatusReport::new("client.toml".into(), 100, side).to_string();
    let none = "packets       0 sent (0 B), 0 received (0 B); none carried\n";
    assert!(text.contains(none), "{text}");
    let mut report = server_report();
    assert!(!report.to_string().contains("\npackets       of packets"));
    if let Side::Server {
        packets_limited, ..
    } = &mut report.side
    {
        *packets_limited = Some("of packets UDP alone is carried: CAP_NET_ADMIN is missing".into());
    }
    let text = report.to_string();
    let told = "\npackets       of packets UDP alone is carried: CAP_NET_ADMIN is missing\n";
    assert!(text.contains(told), "{text}");
}
