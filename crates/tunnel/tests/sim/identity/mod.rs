//! Who gets in and who does not: whole QUIC handshakes in memory, against peers that break one rule each.

mod hello;
pub(crate) mod peers;
pub(crate) mod wire;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead;
use bentpipe_tunnel::engine::identity::{self, PublicKey};
use quinn_proto::ConnectionError;
use quinn_proto::crypto::{AeadKey, ClientConfig, ServerConfig};
use rustls::crypto::aws_lc_rs::kx_group::{X25519, X25519MLKEM768};

use peers::{Groups, Gullible, Shown, Tickets, spki};
use wire::{End, handshake, key, tampered_handshake, without_handshake_packets};

/// TLS alerts.
const HANDSHAKE_FAILURE: u8 = 40;
const BAD_CERTIFICATE: u8 = 42;
const ACCESS_DENIED: u8 = 49;
const DECRYPT_ERROR: u8 = 51;
const CERTIFICATE_REQUIRED: u8 = 116;

/// Numbers of keys.
const SERVER: u8 = 0;
const CLIENT: u8 = 1;
const STRANGER: u8 = 2;

const HYBRID: &Groups = &[X25519MLKEM768];

/// Client of bentpipe, which trusts [`SERVER`].
fn our_client(allow_classical: bool) -> Arc<dyn ClientConfig> {
    identity::client_crypto(&key(CLIENT), key(SERVER).public(), allow_classical, None).unwrap()
}

/// Server of bentpipe, which lets [`CLIENT`] in.
fn our_server(allow_classical: bool) -> Arc<dyn ServerConfig> {
    let client = key(CLIENT).public();
    let known = Arc::new(move |key: &PublicKey| *key == client);
    identity::server_crypto(&key(SERVER), known, allow_classical, None).unwrap()
}

/// Server of bentpipe with no list of clients: whoever gets in has only passed the other checks.
fn our_open_server() -> Arc<dyn ServerConfig> {
    identity::server_crypto(&key(SERVER), Arc::new(|_| true), false, None).unwrap()
}

/// A client of another make that shows `shown` to a server of which it believes everything.
fn client_showing(shown: Shown) -> Arc<dyn ClientConfig> {
    peers::client(shown, Gullible::raw(), HYBRID, &Tickets::new())
}

/// A server of another make that shows `shown` and believes everything.
fn server_showing(shown: Shown) -> Arc<dyn ServerConfig> {
    peers::server(shown, Gullible::raw(), HYBRID)
}

/// The server never had a connection and took nothing; it refused with `alert`, and the client knows.
#[track_caller]
fn refused_by_server((client, server): &(End, End), alert: u8) {
    assert_eq!(server.refused_with(), Some(alert), "{:?}", server.lost);
    assert_eq!(
        client.refused_by_peer_with(),
        Some(alert),
        "{:?}",
        client.lost
    );
    assert!(!server.connected && !server.stream);
}

/// The client never had a connection; it refused with `alert`, and the server knows.
#[track_caller]
fn refused_by_client((client, server): &(End, End), alert: u8) {
    assert_eq!(client.refused_with(), Some(alert), "{:?}", client.lost);
    assert_eq!(
        server.refused_by_peer_with(),
        Some(alert),
        "{:?}",
        server.lost
    );
    assert!(!client.connected && !server.connected && !server.stream);
    assert_eq!(client.peer_key(), None);
}

#[test]
fn a_known_client_and_its_server_meet() {
    let (client, server) = handshake(&our_client(false), &our_server(false));
    assert!(client.lost.is_none(), "{:?}", client.lost);
    assert!(client.connected && server.connected && server.stream);
    assert_eq!(client.peer_key(), Some(key(SERVER).public()));
    assert_eq!(server.peer_key(), Some(key(CLIENT).public()));
    for end in [client, server] {
        assert_eq!(end.key_exchange(), Some("X25519MLKEM768"));
    }
}

/// The stand-ins of the other tests get in when they break no rule, so what is refused there is the rule broken.
#[test]
fn peers_of_another_make_that_keep_the_rules_get_in() {
    let shown = Shown::raw_key(&key(CLIENT), &key(CLIENT));
    let (client, server) = handshake(&client_showing(shown), &our_server(false));
    assert!(client.lost.is_none() && server.stream, "{:?}", client.lost);
    let shown = Shown::raw_key(&key(SERVER), &key(SERVER));
    let (client, server) = handshake(&our_client(false), &server_showing(shown));
    assert!(client.lost.is_none() && server.stream, "{:?}", client.lost);
}

#[test]
fn a_server_with_another_key_is_refused() {
    let imposter = identity::server_crypto(&key(STRANGER), Arc::new(|_| true), false, None);
    let ends = handshake(&our_client(false), &imposter.unwrap());
    refused_by_client(&ends, ACCESS_DENIED);
    let reason = ends.0.lost.unwrap();
    assert!(identity::is_wrong_server(&reason) && !identity::is_unknown_client(&reason));
}

#[test]
fn an_unknown_client_is_refused_and_told() {
    let stranger = identity::client_crypto(&key(STRANGER), key(SERVER).public(), false, None);
    let ends = handshake(&stranger.unwrap(), &our_server(false));
    refused_by_server(&ends, ACCESS_DENIED);
    let (client, server) = ends;
    // As documented: a TLS 1.3 client is done before the server has looked.
    assert!(client.connected);
    assert_eq!(server.peer_key(), None);
    let reason = client.lost.unwrap();
    assert!(identity::is_unknown_client(&reason) && !identity::is_wrong_server(&reason));
    let reason = server.lost.unwrap();
    assert!(!identity::is_unknown_client(&reason));
}

#[test]
fn other_ends_are_no_verdict_on_a_key() {
    for reason in [ConnectionError::TimedOut, ConnectionError::Reset] {
        assert!(!identity::is_unknown_client(&reason) && !identity::is_wrong_server(&reason));
    }
    let unsigned = Shown::raw_key(&key(CLIENT), &key(STRANGER));
    let (client, _) = handshake(&client_showing(unsigned), &our_server(false));
    assert!(!identity::is_unknown_client(&client.lost.unwrap()));
}

/// One TLS configuration serves all connections; the list is asked each time.
#[test]
fn the_list_of_clients_is_live() {
    let list = Arc::new(Mutex::new(HashSet::from([key(CLIENT).public()])));
    let known = list.clone();
    let known = Arc::new(move |key: &PublicKey| known.lock().unwrap().contains(key));
    let server = identity::server_crypto(&key(SERVER), known, false, None).unwrap();
    let client = our_client(false);
    assert!(handshake(&client, &server).1.connected);
    list.lock().unwrap().clear();
    refused_by_server(&handshake(&client, &server), ACCESS_DENIED);
    list.lock().unwrap().insert(key(CLIENT).public());
    assert!(handshake(&client, &server).1.connected);
}

#[test]
fn x509_is_refused_in_both_directions() {
    let client = client_showing(Shown::x509(false));
    refused_by_server(&handshake(&client, &our_open_server()), HANDSHAKE_FAILURE);
    // Our client asks for a raw key; a server without one gives up by itself.
    let server = server_showing(Shown::x509(false));
    let (client, server) = handshake(&our_client(false), &server);
    assert!(!client.connected && !server.connected);
    assert_eq!(client.refused_by_peer_with(), Some(HANDSHAKE_FAILURE));
}

#[test]
fn x509_called_a_raw_key_is_refused_in_both_directions() {
    let client = client_showing(Shown::x509(true));
    refused_by_server(&handshake(&client, &our_open_server()), BAD_CERTIFICATE);
    let server = server_showing(Shown::x509(true));
    refused_by_client(&handshake(&our_client(false), &server), BAD_CERTIFICATE);
}

#[test]
fn a_peer_that_wants_our_x509_certificate_gets_nothing() {
    let (certified, x509) = (Shown::raw_key(&key(CLIENT), &key(CLIENT)), Arc::default());
    let client = peers::client(certified, x509, HYBRID, &Tickets::new());
    refused_by_server(&handshake(&client, &our_open_server()), HANDSHAKE_FAILURE);
}

#[test]
fn a_key_without_its_private_half_is_refused_in_both_directions() {
    let shown = Shown::raw_key(&key(CLIENT), &key(STRANGER));
    refused_by_server(
        &handshake(&client_showing(shown), &our_server(false)),
        DECRYPT_ERROR,
    );
    let shown = Shown::raw_key(&key(SERVER), &key(STRANGER));
    refused_by_client(
        &handshake(&our_client(false), &server_showing(shown)),
        DECRYPT_ERROR,
    );
}

#[test]
fn a_client_without_a_key_is_refused() {
    let client = client_showing(Shown {
        certified: None,
        raw: true,
    });
    refused_by_server(
        &handshake(&client, &our_open_server()),
        CERTIFICATE_REQUIRED,
    );
}

/// Of two keys only one would be looked at.
#[test]
fn a_second_key_in_the_chain_is_refused_in_both_directions() {
    let two = |first, second| Shown::raw(vec![spki(&key(first)), spki(&key(second))], &key(first));
    let client = client_showing(two(CLIENT, STRANGER));
    refused_by_server(&handshake(&client, &our_server(false)), BAD_CERTIFICATE);
    let server = server_showing(two(SERVER, STRANGER));
    refused_by_client(&handshake(&our_client(false), &server), BAD_CERTIFICATE);
}

/// A client could write before the server has seen its key, or without ever showing it.
#[test]
fn data_before_the_proof_is_not_taken() {
    let mut delivered = 0;
    let (client, server) = tampered_handshake(&our_client(false), &our_server(false), |datagram| {
        let (kept, data) = without_handshake_packets(&datagram);
        delivered += usize::from(data);
        kept
    });
    assert!(client.connected && delivered > 0, "{:?}", client.lost);
    assert!(!server.connected && !server.stream);
    assert_eq!(server.peer_key(), None);
}

#[test]
fn the_hybrid_key_exchange_stands_unless_both_sides_allow_less() {
    for (client, server) in [(false, false), (false, true), (true, false), (true, true)] {
        let (client, server) = handshake(&our_client(client), &our_server(server));
        assert!(client.connected && server.connected);
        assert_eq!(client.key_exchange(), Some("X25519MLKEM768"));
        assert_eq!(server.key_exchange(), Some("X25519MLKEM768"));
    }
}

#[test]
fn a_classical_peer_is_refused_unless_allowed() {
    let client = || {
        let shown = Shown::raw_key(&key(CLIENT), &key(CLIENT));
        peers::client(shown, Gullible::raw(), &[X25519], &Tickets::new())
    };
    let ends = handshake(&client(), &our_server(false));
    refused_by_server(&ends, HANDSHAKE_FAILURE);
    let (_, server) = handshake(&client(), &our_server(true));
    assert!(server.connected);
    assert_eq!(server.key_exchange(), Some("X25519"));

    let server = || {
        let shown = Shown::raw_key(&key(SERVER), &key(SERVER));
        peers::server(shown, Gullible::raw(), &[X25519])
    };
    let (client, _) = handshake(&our_client(false), &server());
    assert!(!client.connected);
    assert_eq!(
        client.refused_by_peer_with(),
        Some(HANDSHAKE_FAILURE),
        "{:?}",
        client.lost
    );
    let (client, _) = handshake(&our_client(true), &server());
    assert!(client.connected);
    assert_eq!(client.key_exchange(), Some("X25519"));
}

/// A client that would rather be classical is asked to start again (HelloRetryRequest) by a server that would not.
#[test]
fn a_client_that_prefers_less_gets_the_hybrid_key_exchange() {
    let shown = Shown::raw_key(&key(CLIENT), &key(CLIENT));
    let groups: &Groups = &[X25519, X25519MLKEM768];
    let client = peers::client(shown, Gullible::raw(), groups, &Tickets::new());
    let (client, server) = handshake(&client, &our_server(false));
    assert!(client.connected && server.connected, "{:?}", client.lost);
    assert_eq!(server.key_exchange(), Some("X25519MLKEM768"));
}

/// The stand-in would resume and send 0-RTT data, as the second half shows of two stand-ins.
#[test]
fn our_server_gives_no_tickets() {
    let tickets_after_two = |server: &Arc<dyn ServerConfig>| {
        let tickets = Tickets::new();
        let shown = Shown::raw_key(&key(CLIENT), &key(CLIENT));
        let verifier = Gullible::raw();
        let client = peers::client(shown, verifier.clone(), HYBRID, &tickets);
        for _ in 0..2 {
            assert!(handshake(&client, server).1.connected);
        }
        (
            tickets.count.load(Ordering::Relaxed),
            verifier.asked.load(Ordering::Relaxed),
        )
    };
    assert_eq!(tickets_after_two(&our_server(false)), (0, 2));
    let other = server_showing(Shown::raw_key(&key(SERVER), &key(SERVER)));
    let (tickets, asked) = tickets_after_two(&other);
    assert!(
        tickets > 0 && asked == 1,
        "{tickets} tickets, asked {asked} times"
    );
}

#[test]
fn our_client_takes_no_tickets() {
    let verifier = Gullible::raw();
    let shown = Shown::raw_key(&key(SERVER), &key(SERVER));
    let server = peers::server(shown, verifier.clone(), HYBRID);
    let client = our_client(false);
    for handshakes in 1..=2 {
        let (end, _) = handshake(&client, &server);
        assert!(end.connected && !end.quic().accepted_0rtt());
        assert_eq!(verifier.asked.load(Ordering::Relaxed), handshakes);
    }
}

#[test]
fn derived_keys_belong_to_the_key_and_the_purpose() {
    let reset = |number| {
        let mut signature = [0; 32];
        identity::reset_key(&key(number)).sign(b"connection", &mut signature);
        signature
    };
    let seal = |number| {
        let mut sealed = b"token".to_vec();
        let token_key = identity::token_key(&key(number)).aead_from_hkdf(b"nonce");
        token_key.seal(&mut sealed, b"").unwrap();
        sealed
    };
    assert_eq!(reset(SERVER), reset(SERVER));
    assert_eq!(seal(SERVER), seal(SERVER));
    assert_ne!(reset(SERVER), reset(CLIENT));
    assert_ne!(seal(SERVER), seal(CLIENT));
    let mut token = seal(SERVER);
    let opener = identity::token_key(&key(SERVER)).aead_from_hkdf(b"nonce");
    assert_eq!(opener.open(&mut token, b"").unwrap(), b"token");
    // Were both purposes served by one key, this reset would be what seals the token (HKDF-Expand is this HMAC).
    let mut reset = [0; 32];
    identity::reset_key(&key(SERVER)).sign(b"nonce\x01", &mut reset);
    let reset = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &reset).unwrap());
    assert!(AeadKey::open(&reset, &mut seal(SERVER), b"").is_err());
}
