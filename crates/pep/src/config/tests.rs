//! The contract's examples, and what files may not say.

mod faults;
mod lists;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use bentpipe_congestion::Kind;
use bentpipe_proto::fec::Fec;

use super::*;
use crate::keys::PrivateKey;
use bentpipe_tunnel::engine::Profile;

const KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
/// Content of `good.key`: no peer's.
const OWN_KEY: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";
const OTHER_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// A directory of its own with a good private key file in it.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("bentpipe-config-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let place = Self(path);
        place.write("good.key", &format!("{OWN_KEY}\n"), 0o600);
        place
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The error for `text`, without the directory in it.
    fn fault(&self, text: &str) -> String {
        let text = text.replace("KEY2", OTHER_KEY).replace("KEY1", KEY);
        let error = check(&self.write("x.toml", &text, 0o644), None)
            .unwrap_err()
            .to_string();
        error.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn server(text: &str) -> Result<ServerConfig, ConfigError> {
    let place = Place::new();
    let text = text.replace("KEY2", OTHER_KEY).replace("KEY1", KEY);
    ServerConfig::load(&place.write("x.toml", &text, 0o644))
}

fn client(text: &str) -> Result<ClientConfig, ConfigError> {
    let place = Place::new();
    ClientConfig::load(&place.write("x.toml", &text.replace("KEY1", KEY), 0o644))
}

#[test]
fn examples_of_the_contract_parse() {
    let config = server(concat!(
        "private_key_file = \"good.key\"\nlisten = \"10.20.0.1:4433\"\n[[client]]\nname = \"terminal-1\"\n",
        "public_key = \"KEY1\"\nallow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n"
    ))
    .unwrap();
    assert_eq!(
        *config.listening.addresses,
        ["10.20.0.1:4433".parse().unwrap()]
    );
    assert_eq!(config.clients[0].allow.len(), 2);
    assert_eq!(config.clients[0].max_flows, 50_000);
    assert_eq!(config.clients[0].memory, "256 MiB".parse().unwrap());

    let config = client(concat!(
        "private_key_file = \"good.key\"\n[server]\naddress = \"10.20.0.1:4433\"\npublic_key = \"KEY1\"\n",
        "[intercept]\ninterfaces = [\"lan0\"]\n[link]\nprofile = \"geo\"\n[socks5]\nlisten = \"127.0.0.1:1080\"\n"
    ))
    .unwrap();
    assert_eq!(config.servers[0].address.to_string(), "10.20.0.1:4433");
    assert_eq!(config.links[0].profile, Profile::Geo);
    assert_eq!(config.open_wait, Duration::from_secs(30));
    assert_eq!(config.state_dir, default_state_dir());
    if geteuid().is_root() {
        assert_eq!(config.state_dir, PathBuf::from("/var/lib/bentpipe"));
    }
    assert!(config.identity.private_key_file.is_absolute());
}

#[test]
fn tables_and_strings_may_be_lists() {
    let config = server(concat!(
        "private_key_file = \"good.key\"\nlisten = [\"10.0.0.1:4433\", \"[fd00::1]:4433\"]\nshards = 2\n",
        "[limits]\nmemory = \"64 MiB\"\nmax_flows = 10\n",
        "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n",
        "[[client]]\nname = \"b\"\npublic_key = \"KEY2\"\nmax_flows = 20\n"
    ))
    .unwrap();
    assert_eq!(config.listening.addresses.len(), 2);
    assert_eq!(config.clients[0].max_flows, 10);
    assert_eq!(config.clients[1].max_flows, 20);
    assert_eq!(config.clients[1].memory, "64 MiB".parse().unwrap());

    let config = client(concat!(
        "private_key_file = \"good.key\"\n[[server]]\naddress = \"gw.example.net:4433\"\npublic_key = \"KEY1\"\n",
        "[[server]]\naddress = \"[fd00::1]:4433\"\npublic_key = \"KEY1\"\n",
        "[[link]]\nprofile = \"geo\"\n[[link]]\nprofile = \"leo\"\nmax_rate = \"10 Mbit/s\"\n",
        "[http]\nlisten = \"127.0.0.1:8080\"\n",
        "[[rule]]\nports = [22]\noptimistic = false\n"
    ))
    .unwrap();
    assert_eq!((config.servers.len(), config.links.len()), (2, 2));
    assert!(!config.front.is_optimistic(None, 22) && !config.front.is_optimistic(None, 25));
    assert!(config.front.is_optimistic(None, 443));
}

#[test]
fn directions_of_a_link_override_what_holds_for_both() {
    let config = client(concat!(
        "private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"KEY1\"\n",
        "[http]\nlisten = \"127.0.0.1:8080\"\n",
        "[link]\nprofile = \"geo\"\ncontroller = \"satellite\"\ninitial_window = 100\nfec = { repair = 1, per = 20 }\n",
        "[link.forward]\nrate = \"50 Mbit/s\"\nack_packets = 10\n",
        "[link.return]\ncontroller = \"cubic\"\nmax_rate = \"3 Mbit/s\"\nfec = \"off\"\n"
    ))
    .unwrap();
    let Link {
        forward,
        return_link,
        ..
    } = config.links[0];
    assert_eq!(forward.controller, Some(Kind::Satellite));
    assert_eq!(forward.fec, Some(Fec::Fixed { repair: 1, per: 20 }));
    assert_eq!(return_link.fec, Some(Fec::Off));
    assert_eq!(return_link.controller, Some(Kind::Cubic));
    assert_eq!(
        (forward.initial_window, return_link.initial_window),
        (Some(100), Some(100))
    );
    assert_eq!(forward.rate, Some("50 Mbit/s".parse().unwrap()));
    assert_eq!((forward.max_rate, return_link.rate), (None, None));
    assert_eq!(return_link.max_rate, Some("3 Mbit/s".parse().unwrap()));
    assert_eq!(
        (forward.ack_ratio(), return_link.ack_ratio()),
        (Some(10), None)
    );

    let config = server(concat!(
        "private_key_file = \"good.key\"\nlisten = \"10.0.0.1:4433\"\n[limits]\nmax_rate = \"9 Mbit/s\"\n",
        "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n",
        "[[client]]\nname = \"b\"\npublic_key = \"KEY2\"\nmax_rate = \"4 Mbit/s\"\n"
    ))
    .unwrap();
    assert_eq!(
        config.clients[0].max_rate,
        Some("9 Mbit/s".parse().unwrap())
    );
    assert_eq!(
        config.clients[1].max_rate,
        Some("4 Mbit/s".parse().unwrap())
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let place = Place::new();
    let error = check(&place.0.join("none.toml"), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "none.toml:1: cannot read this file: No such file or directory (os error 2)"
        ),
        "{error}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn an_address_of_one_link_names_its_interface() {
    use std::net::SocketAddr;

    use super::ServerAddress;
    use super::value::FromText;

    for written in ["[fe80::1%lo]:4433", "[fe80::1%1]:4433"] {
        let known = SocketAddr::from_text(written).unwrap();
        assert_eq!(known.to_string(), "[fe80::1%1]:4433");
        let server = written.parse::<ServerAddress>().unwrap();
        assert_eq!(server, ServerAddress::Ip(known));
    }
    for wrong in ["[fe80::1%nosuch0]:4433", "[%lo]:4433", "[fe80::1%lo]"] {
        assert!(SocketAddr::from_text(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_wildcard_of_ipv6_serves_ipv4_too() {
    let listen = |listen: &str| {
        let text = format!(
            "private_key_file = \"good.key\"\nlisten = {listen}\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n"
        );
        let config = server(&text).unwrap();
        config
            .listening
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let both = "[::]:4433 0.0.0.0:4433";
    assert_eq!(listen("\"[::]:4433\""), both);
    assert_eq!(listen("\":4433\""), both);
    assert_eq!(
        listen("[\":4433\", \"192.0.2.1:1\"]"),
        "[::]:4433 192.0.2.1:1 0.0.0.0:4433"
    );
    // Who says what IPv4 is to have on that port gets that.
    assert_eq!(listen("[\"[::]:4433\", \"0.0.0.0:4433\"]"), both);
    assert_eq!(
        listen("[\"[::]:1\", \"192.0.2.1:1\"]"),
        "[::]:1 192.0.2.1:1"
    );
    assert_eq!(listen("\"0.0.0.0:4433\""), "0.0.0.0:4433");
    assert_eq!(listen("\"[::]:0\""), "[::]:0");
}

#[test]
fn this_ends_own_key_is_no_peers() {
    let own: PrivateKey = OWN_KEY.parse().unwrap();
    let place = Place::new();
    for (key, words) in [
        (
            OWN_KEY.to_owned(),
            "is the private key of `private_key_file`",
        ),
        (own.public().to_string(), "is this end's own"),
    ] {
        let head = "private_key_file = \"good.key\"\n";
        for text in [
            format!(
                "{head}listen = \"1.1.1.1:1\"\n[[client]]\nname = \"a\"\npublic_key = \"{key}\"\n"
            ),
            format!(
                "{head}[socks5]\nlisten = \"1.1.1.1:1\"\n[server]\npublic_key = \"{key}\"\naddress = \"1.1.1.1:1\"\n"
            ),
        ] {
            let fault = place.fault(&text);
            assert!(
                fault.starts_with("x.toml:5: ") && fault.contains(words),
                "{fault}"
            );
        }
    }
}

#[test]
fn ports_are_published_where_that_can_work() {
    let head = "private_key_file = \"good.key\"\n[server]\naddress = \"10.20.0.1:4433\"\npublic_key = \"KEY1\"\n";
    let file = |entries: &str| format!("{head}[intercept]\ninterfaces = [\"lan0\"]\n{entries}");
    let tcp = "[[publish]]\nport = 8443\nto = \"10.1.0.20:443\"\n";
    let udp = "[[publish]]\nprotocol = \"udp\"\nport = 8443\nto = \"10.1.0.20:443\"\n";
    let config = client(&file(&format!(
        "{tcp}proxy_protocol = true\n{udp}{}",
        udp.replace("10.1.0.20", "[fd00::20]")
    )))
    .unwrap();
    assert_eq!(config.publish.len(), 3);
    assert!(config.publish[0].proxy_protocol);
    assert_eq!(client(&format!("{head}{tcp}")).unwrap().publish.len(), 1);

    let place = Place::new();
    let many: String = (1..=65)
        .map(|port| tcp.replace("8443", &port.to_string()))
        .collect();
    let socks = format!("{head}[socks5]\nlisten = \"127.0.0.1:1080\"\n{udp}");
    for (text, words) in [
        (file(&format!("{tcp}{tcp}")), "tcp/8443 is published twice"),
        (file(&format!("{udp}{udp}")), "udp/8443 is published twice"),
        (file(&tcp.replace("8443", "0")), "a port is 0"),
        (file(&tcp.replace(":443", ":0")), "a port is 0"),
        (file(&tcp.replace("10.1.0.20", "0.0.0.0")), "no host"),
        (file(&udp.replace("10.1.0.20", "127.0.0.1")), "loopback"),
        (file(&format!("{udp}proxy_protocol = true\n")), "is for TCP"),
        (socks, "add `[intercept]`"),
        (file(&many), "at most 64"),
        (format!("{head}{udp}"), "add `[intercept]`"),
    ] {
        let fault = place.fault(&text);
        assert!(fault.contains(words), "{fault}");
    }
}

#[test]
fn prefixes_are_routed_where_that_can_work() {
    let head = "private_key_file = \"good.key\"\n[server]\naddress = \"10.20.0.1:4433\"\npublic_key = \"KEY1\"\n[intercept]\n";
    let lan = format!("{head}interfaces = [\"lan0\"]\n");
    let routes = "routes = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n";
    let config = client(&format!("{lan}{routes}")).unwrap();
    assert_eq!(config.front.intercept.unwrap().routes.len(), 2);
    let nine: Vec<_> = (0..9).map(|net| format!("\"10.1.{net}.0/24\"")).collect();
    let place = Place::new();
    for (text, words) in [
        (
            format!("{lan}{routes}other = \"drop\"\n"),
            "x.toml:7: `routes` lead through the tunnel's device",
        ),
        (format!("{head}local = true\n{routes}"), "list these"),
        (format!("{lan}routes = [\"::/0\"]\n"), "::/0 is everything"),
        (
            format!("{lan}routes = [{}]\n", nine.join(", ")),
            "at most 8",
        ),
        (
            format!("transport = \"plain\"\n[intercept]\ninterfaces = [\"lan0\"]\n{routes}"),
            "x.toml:4: `routes` belongs to a tunnel",
        ),
    ] {
        let fault = place.fault(&text);
        assert!(fault.contains(words), "{fault}");
    }
}

#[test]
fn a_prefix_is_one_clients_and_never_the_pools() {
    let file = |one: &str, other: &str| {
        format!(
            "private_key_file = \"good.key\"\nlisten = \"10.20.0.1:4433\"\n\
             [[client]]\nname = \"a\"\npublic_key = \"KEY1\"\nroutes = [{one}]\n\
             [[client]]\nname = \"b\"\npublic_key = \"KEY2\"\nroutes = [{other}]\n\
             [packets]\nipv6 = \"fd00:2::/64\"\n"
        )
    };
    let config = server(&file("\"10.1.0.0/24\", \"fd00:1::/64\"", "\"10.1.1.0/24\""));
    assert_eq!(config.unwrap().clients[0].routes.len(), 2);
    let place = Place::new();
    for (one, other, words) in [
        (
            "\"10.1.0.0/16\"",
            "\"10.1.1.0/24\"",
            "x.toml:10: 10.1.1.0/24 of `b` overlaps 10.1.0.0/16 of `a`",
        ),
        ("\"0.0.0.0/0\"", "", "0.0.0.0/0"),
        (
            "\"100.96.7.0/24\"",
            "",
            "overlaps 100.96.0.0/16 of `[packets]`",
        ),
        ("\"fd00::/16\"", "", "overlaps fd00:2::/64 of `[packets]`"),
    ] {
        let fault = place.fault(&file(one, other));
        assert!(fault.contains(words), "{fault}");
    }
}

#[test]
fn a_port_is_one_clients_and_never_the_servers() {
    let file = |one: &str, other: &str| {
        format!(
            "private_key_file = \"good.key\"\nlisten = \"10.20.0.1:4433\"\n\
             [[client]]\nname = \"a\"\npublic_key = \"KEY1\"\npublish = [{one}]\n\
             [[client]]\nname = \"b\"\npublic_key = \"KEY2\"\npublish = [{other}]\n"
        )
    };
    let config = server(&file(
        "\"tcp/80-90\", \"tcp/85\"",
        "\"udp/80-90\", \"tcp/4433\"",
    ))
    .unwrap();
    assert_eq!(config.clients[0].publish.len(), 2);
    let place = Place::new();
    for (one, other, words) in [
        (
            "\"tcp/80-90\"",
            "\"tcp/90-95\"",
            "tcp/90-95 of `b` overlaps tcp/80-90 of `a`",
        ),
        (
            "\"udp/4000-5000\"",
            "",
            "the server's own port, 10.20.0.1:4433",
        ),
        ("\"80\"", "", "bad port `80`"),
    ] {
        let fault = place.fault(&file(one, other));
        assert!(fault.contains(words), "{fault}");
    }
}
