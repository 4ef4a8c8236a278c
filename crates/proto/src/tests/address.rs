//! Host names and destinations as text: what a front end hands over and what a hostile client may claim.

use std::net::{IpAddr, Ipv6Addr};

use crate::tunnel::{Destination, Host, HostName, NameError};

#[test]
fn names_are_checked_and_lower_cased() {
    assert_eq!(
        HostName::new("WWW.Example.COM.").unwrap().as_str(),
        "www.example.com."
    );
    assert_eq!(
        HostName::new("_sip._tcp.x--1").unwrap().as_str(),
        "_sip._tcp.x--1"
    );
    for address in [
        "127.1",
        "10.0.0.1",
        "2130706433",
        "0x7f.1",
        "a.0x",
        "a.0X7F",
        "017700000001",
        "10.0.0.1.",
    ] {
        assert_eq!(HostName::new(address), Err(NameError::Address), "{address}");
    }
    for (text, error) in [
        ("", NameError::Length),
        (".", NameError::Label),
        ("a..b", NameError::Label),
        (".a", NameError::Label),
        ("a b", NameError::Character),
        ("::1", NameError::Character),
        ("é.example", NameError::Character),
        ("a\0", NameError::Character),
    ] {
        assert_eq!(HostName::new(text), Err(error), "{text:?}");
    }
    assert!(HostName::new(&format!("{}.x", "a".repeat(63))).is_ok());
    assert_eq!(
        HostName::new(&format!("{}.x", "a".repeat(64))),
        Err(NameError::Label)
    );
    assert_eq!(HostName::new(&"a.".repeat(128)), Err(NameError::Length));
}

#[test]
fn destinations_as_text() {
    for text in ["192.0.2.1:443", "[2001:db8::1]:80", "example.com:0"] {
        assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
    }
    assert_eq!(
        "::1".parse::<Host>(),
        Ok(Host::Ip(IpAddr::V6(Ipv6Addr::LOCALHOST)))
    );
    for text in [
        "example.com",
        "example.com:",
        "a:+1",
        "a:65536",
        "2001:db8::1:80",
        "[1.2.3.4]:80",
        "[::1:80",
        "a:b:1",
    ] {
        assert!(text.parse::<Destination>().is_err(), "{text}");
    }
}
