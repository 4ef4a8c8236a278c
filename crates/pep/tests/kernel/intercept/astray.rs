//! A route that leads hosts of the LAN over the uplink, as a hostile DHCP server sets it: what the tunnel brings for them, and what this
//! machine answers in others' names, does not go that way.

use std::net::TcpListener;

use bentpipe_pep::client::intercept::{ForeignLook, Interception, Other};
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, V4, V6, connect, exchange};
use super::packets::{Far, expect_conversation, socket};

const PORT: u16 = 15_084;

/// Routes for half of each of the LAN's prefixes.
const STRAYS: [&str; 2] = ["10.1.0.0/25 via 10.2.0.2", "fd00:1::/65 via fd00:2::2"];

/// Has the LAN ask for what is answered by the device, by a listener and by the kernel itself.
fn ask(net: &Net, far: &Far) {
    for (there, own) in [("192.0.2.1", "0.0.0.0"), ("2001:db8::1", "::")] {
        let (there, here) = (far.socket(there), socket(&net.lan, own));
        let address = there.local_addr().unwrap();
        here.send_to(b"question", address).unwrap();
        let (_, seen) = there.recv_from(&mut [0; 8]).unwrap();
        there.send_to(b"answer", seen).unwrap();
        assert!(here.recv_from(&mut [0; 8]).is_err(), "it is on its way");
        // HTTP/3 is refused, with what was sent in the refusal.
        here.send_to(b"secret", (address.ip(), 443)).unwrap();
    }
    for to in [V4, V6] {
        assert!(connect(&net.lan, to).is_err(), "{to}");
    }
}

#[test]
fn answers_for_the_lan_do_not_leave_by_the_uplink() {
    if !privileged("answers_for_the_lan_do_not_leave_by_the_uplink") {
        return;
    }
    let net = Net::new();
    let it = Interception {
        interfaces: vec!["lan0".into()],
        other: Other::Tunnel,
        reject_http3: true,
        ..Interception::new(PORT)
    };
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    expect_conversation(&net.lan, &far);
    assert_eq!(exchange(&net.lan, V4), format!("{V4} ping"));
    let service = || TcpListener::bind("10.2.0.1:0").unwrap();
    let service = net.router.enter(service).unwrap();
    for stray in STRAYS {
        let line = format!("ip route add {stray}");
        net.router.run("sh", &["-c", &line]).unwrap();
    }
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    ask(&net, &far);
    assert_eq!(net.leaked(), 0);
    // What others reach of this machine itself goes on.
    let to = service.local_addr().unwrap().to_string();
    connect(&net.uplink, &to).unwrap();
    // And who asks is told.
    let strays = installed.at(|installed| {
        let seen = ForeignLook::default().look(&installed.wanted());
        seen.unwrap().strays
    });
    let strays: Vec<_> = strays
        .iter()
        .map(|one| (one.to.to_string(), &*one.device))
        .collect();
    let wanted = ["10.1.0.0/25", "fd00:1::/65"].map(|to| (to.to_owned(), "wan0"));
    assert_eq!(strays, wanted);
    // Nothing else held it back: the one the machine's own answers, the other the tunnel's.
    let mut leaked = 0;
    for chain in ["guard_out", "forward"] {
        let line = ["flush", "chain", "inet", "bentpipe_client", chain];
        net.router.run("nft", &line).unwrap();
        net.uplink.run("nft", &["reset", "counters"]).unwrap();
        ask(&net, &far);
        assert!(net.leaked() > leaked, "without {chain}");
        leaked = net.leaked();
    }
}
