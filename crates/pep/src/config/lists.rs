//! Lists that stand in a file without an entry: one rule for the lists of all roles.
//!
//! A list that is absent often means everything, and one that somebody or a template has emptied looks as if it meant
//! nothing. So every empty list is a fault, but for those whose entries only add something.

use bentpipe_config::{ConfigError, Source};
use toml::Value;

/// Lists whose entries only add something, so that none of them means what it says. Indices of lists are left out.
const MAY_BE_EMPTY: [&str; 10] = [
    "intercept.bypass",
    "intercept.routes",
    "publish",
    "les.pep",
    "les.peps",
    "client.allow",
    "client.addresses",
    "client.routes",
    "client.publish",
    "nat64",
];

/// Mends of the lists that may be absent, or that need more words than [`NAME_ONE`].
const MENDS: [(&str, &str); 27] = [
    ("client", "name a client, or remove the key"),
    ("client.only", "remove the key for all destinations"),
    ("clear.prefixes", "remove the key for all TCP"),
    ("dns.listen", "remove the key for intercepted queries alone"),
    ("dns.rebind_ok", "remove the key for no exception"),
    (
        "dns.servers",
        "remove the key for the resolvers of /etc/resolv.conf",
    ),
    (
        "dssl.origins",
        "name hosts that may be origins, or remove the table",
    ),
    (
        "intercept.interfaces",
        "name interfaces of the LAN, or remove the key for this machine's own traffic alone",
    ),
    (
        "les.destinations",
        "name the prefixes whose TCP goes by LES, or remove the table",
    ),
    (
        "les.clients",
        "name the keys of the clients whose flows are relayed",
    ),
    (
        "les.listen",
        "remove the key for the usual port of all addresses",
    ),
    ("lan", "name the interfaces on that side"),
    ("wan", "name the interfaces on that side"),
    ("link", "remove the key for a link that is measured"),
    ("listen_tls", "remove the key for UDP alone"),
    (
        "origin.hubs",
        "list the public keys of servers, or let the web server speak TLS itself",
    ),
    ("origin.clients", "remove the key for all terminals"),
    ("rule", "remove the key for no rules"),
    ("rule.interfaces", "remove the key for all interfaces"),
    ("rule.sources", "remove the key for all sources"),
    ("rule.destinations", "remove the key for all destinations"),
    ("rule.domains", "remove the key for all names"),
    ("rule.protocols", "remove the key for all protocols"),
    ("rule.ports", "remove the key for all ports"),
    ("rule.dscp", "remove the key for all values"),
    (
        "sle.destinations",
        "remove the key for all destinations, or the table for none",
    ),
    ("web.names", "remove the key for no host"),
];

/// Keys of a server's `[sle]`, which stand together or not at all.
const OF_INTAKE: [&str; 3] = ["sle.interfaces", "sle.prefixes", "sle.sources"];

/// Mend of a list that has to be there.
const NAME_ONE: &str = "name at least one entry";

/// Refuses a file with a list that is empty and must not be; the text is TOML.
pub(super) fn check(source: &Source) -> Result<(), ConfigError> {
    let table: toml::Table = source.parse()?;
    match empty(&Value::Table(table), "", "") {
        Some((place, name)) => Err(source.error_at_key(&place, fault(&name))),
        None => Ok(()),
    }
}

/// The first list in `value` that must not be empty and is: its place with the indices of lists, and its name without.
fn empty(value: &Value, place: &str, name: &str) -> Option<(String, String)> {
    let below = |start: &str, key: &str| match start {
        "" => key.to_owned(),
        start => format!("{start}.{key}"),
    };
    match value {
        Value::Array(list) if list.is_empty() => {
            (!MAY_BE_EMPTY.contains(&name)).then(|| (place.to_owned(), name.to_owned()))
        }
        Value::Array(list) => {
            let mut entries = list.iter().enumerate();
            entries.find_map(|(index, one)| empty(one, &below(place, &index.to_string()), name))
        }
        Value::Table(table) => table
            .iter()
            .find_map(|(key, one)| empty(one, &below(place, key), &below(name, key))),
        _ => None,
    }
}

/// Message about the empty list called `name`.
fn fault(name: &str) -> String {
    let listed = MENDS.iter().find(|(list, _)| *list == name);
    let mend = match listed {
        Some((_, mend)) => mend,
        None if OF_INTAKE.contains(&name) => {
            "remove `interfaces`, `prefixes` and `sources` for connections to `listen` alone"
        }
        None => NAME_ONE,
    };
    match name.rsplit_once('.') {
        Some((table, key)) => {
            let table = match table {
                "client" | "rule" => format!("[[{table}]]"),
                table => format!("[{table}]"),
            };
            format!("`{key}` of `{table}` is empty; {mend}")
        }
        None => format!("`{name}` is empty; {mend}"),
    }
}
