//! Keys that a running server does not read again, compared.

use super::{Page, ServerConfig};

/// A key's name in the file, and whether it differs.
type Compared = (&'static str, bool);

/// Names of the keys that differ between `old` and `fresh` and are read only when a server starts.
pub(super) fn needed(old: &ServerConfig, fresh: &ServerConfig) -> Vec<&'static str> {
    let keys = [
        &of_server(old, fresh)[..],
        &of_doors(old, fresh),
        &of_monitoring(old, fresh),
        &of_traffic(old, fresh),
    ];
    let changed = keys.into_iter().flatten().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| *key).collect()
}

/// The process itself: identity, state, threads.
fn of_server(old: &ServerConfig, fresh: &ServerConfig) -> [Compared; 7] {
    let [a, b] = [old, fresh].map(|config| &config.identity);
    [
        ("private_key_file", a.private_key_file != b.private_key_file),
        ("allow_classical", a.allow_classical != b.allow_classical),
        ("shards", old.listening.shards != fresh.listening.shards),
        ("drain_timeout", old.drain_timeout != fresh.drain_timeout),
        ("state_dir", old.state_dir != fresh.state_dir),
        ("controller", old.controller != fresh.controller),
        ("sandbox", old.sandbox != fresh.sandbox),
    ]
}

/// Addresses at which clients are let in.
fn of_doors(old: &ServerConfig, fresh: &ServerConfig) -> [Compared; 5] {
    let udp = |config: &ServerConfig| config.listening.addresses.to_vec();
    let tls = |config: &ServerConfig| {
        let tls = config.listening.tls.as_ref();
        tls.map(|tls| {
            let files = tls.certificate.as_ref();
            let files = files.map(|(one, other)| [one.to_path_buf(), other.to_path_buf()]);
            (tls.addresses.to_vec(), files, tls.fallback)
        })
    };
    let sealed = |config: &ServerConfig| config.sle.as_ref().map(|sle| sle.listens().to_vec());
    let taken_in = |config: &ServerConfig| {
        let intake = config.sle.as_ref().and_then(|sle| sle.intake.as_ref());
        intake.map(|intake| (**intake).clone())
    };
    let layered = |config: &ServerConfig| config.les().map(|les| les.addresses.to_vec());
    [
        ("listen", udp(old) != udp(fresh)),
        ("listen_tls", tls(old) != tls(fresh)),
        ("sle.listen", sealed(old) != sealed(fresh)),
        ("sle.prefixes", taken_in(old) != taken_in(fresh)),
        ("les.listen", layered(old) != layered(fresh)),
    ]
}

/// Figures, and who is shown them.
fn of_monitoring(old: &ServerConfig, fresh: &ServerConfig) -> [Compared; 4] {
    let [a, b] = [old, fresh].map(|config| &config.monitoring);
    let listens = |page: &Option<Page>| page.as_ref().map(|page| *page.listen);
    let opens = |page: &Option<Page>| page.as_ref().and_then(|page| page.token.clone());
    let status = a.status_socket.as_deref() != b.status_socket.as_deref();
    [
        ("status_socket", status),
        (
            "metrics.listen",
            a.metrics.as_deref() != b.metrics.as_deref(),
        ),
        ("page.listen", listens(&a.page) != listens(&b.page)),
        ("page.token_file", opens(&a.page) != opens(&b.page)),
    ]
}

/// Services for clients: where they get to, and what is made of their packets.
fn of_traffic(old: &ServerConfig, fresh: &ServerConfig) -> [Compared; 9] {
    let [a, b] = [old, fresh].map(|config| &config.dialling);
    let [packets, other] = [old, fresh].map(|config| &config.packets);
    // Wherever it stands in the file.
    let responder = |config: &ServerConfig| {
        let responder = config.responder.as_ref();
        responder.map(|responder| (*responder.listen, responder.bounds))
    };
    [
        ("connect_timeout", a.connect_timeout != b.connect_timeout),
        ("dns.enabled", a.dns.enabled != b.dns.enabled),
        ("dns.servers", a.dns.servers != b.dns.servers),
        ("nat64", a.nat64 != b.nat64),
        ("responder", responder(old) != responder(fresh)),
        ("web", old.web.differs(&fresh.web)),
        ("packets.enabled", packets.enabled != other.enabled),
        ("packets.ipv4", packets.ipv4 != other.ipv4),
        ("packets.ipv6", packets.ipv6 != other.ipv6),
    ]
}
