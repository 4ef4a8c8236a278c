//! Faults that a configuration shows by itself.

/// A fault that a file shows by itself, so that `check` finds it like the daemon does.
pub(crate) struct Fault {
    pub(crate) role: &'static str,
    pub(crate) old: &'static str,
    pub(crate) new: &'static str,
    /// The line at fault.
    pub(crate) line: u32,
    pub(crate) words: &'static [&'static str],
}

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        role: "server",
        old: "allow = [\"10.30.0.0/24\"]",
        new: "only = []",
        line: 7,
        words: &[
            "`only` of `[[client]]` is empty",
            "remove the key for all destinations",
        ],
    },
    Fault {
        role: "client",
        old: "[socks5]",
        new: "[[rule]]\naction = \"direct\"\nports = []\n[socks5]",
        line: 9,
        words: &[
            "`ports` of `[[rule]]` is empty",
            "remove the key for all ports",
        ],
    },
    Fault {
        role: "server",
        old: "listen =",
        new: "lisen =",
        line: 2,
        words: &["unknown key `lisen`", "did you mean `listen`?"],
    },
    Fault {
        role: "client",
        old: "address =",
        new: "adress =",
        line: 5,
        words: &["unknown key `adress`", "did you mean `address`?"],
    },
    Fault {
        role: "client",
        old: "[socks5]",
        new: "[sock5]",
        line: 7,
        words: &["unknown key `sock5`", "did you mean `socks5`?"],
    },
    Fault {
        role: "client",
        old: "[socks5]",
        new: "[metering]\nmonth_begins = 31\n[socks5]",
        line: 8,
        words: &["every month has", "1 to 28"],
    },
    Fault {
        role: "client",
        old: "[socks5]",
        new: "[metering]\nperiod = \"day\"\nmonth_begins = 15\n[socks5]",
        line: 9,
        words: &["`month_begins`", "`period = \"month\"`"],
    },
    Fault {
        role: "server",
        old: "public_key = \"",
        new: "public_key = \"!",
        line: 6,
        words: &["`public_key`", "bad key", "bentpipe pubkey"],
    },
    Fault {
        role: "client",
        old: "public_key = \"",
        new: "public_key = \"AAAA",
        line: 6,
        words: &["`public_key`", "bad key", "32 bytes"],
    },
    Fault {
        role: "server",
        old: "127.0.0.1:0",
        new: "127.0.0.1",
        line: 2,
        words: &["`listen`", "bad address `127.0.0.1`", "with port"],
    },
    Fault {
        role: "client",
        old: "127.0.0.1:4433",
        new: "127.0.0.1:65536",
        line: 5,
        words: &["`address`", "127.0.0.1:65536"],
    },
    Fault {
        role: "server",
        old: "10.30.0.0/24",
        new: "10.30.0.0/33",
        line: 7,
        words: &["`allow`", "10.30.0.0/33"],
    },
    Fault {
        role: "client",
        old: "address =",
        new: "wire = \"tls\"\naddress =",
        line: 5,
        words: &[
            "`wire = \"tls\"` needs `tls = \"HOST:PORT\"`",
            "`listen_tls`",
        ],
    },
    Fault {
        role: "client",
        old: "address =",
        new: "tls = \"127.0.0.1:443\"\ntls_name = \"not a name\"\naddress =",
        line: 6,
        words: &["`tls_name`", "\"not a name\"", "expected a DNS name"],
    },
    Fault {
        role: "server",
        old: "status_socket",
        new: "listen_tls = [\"127.0.0.1:443\", \"127.0.0.1:443\"]\nstatus_socket",
        line: 3,
        words: &["`listen_tls` names 127.0.0.1:443 twice"],
    },
    Fault {
        role: "client",
        old: "client.sock",
        new: "a-name-of-a-status-socket-that-is-so-long-that-no-socket-of-any-kernel-of-Linux-can-have-it-whatever-directory-it-is-in.sock",
        line: 3,
        words: &[
            "`status_socket`",
            "a socket's may have 107",
            "set a shorter one",
        ],
    },
    Fault {
        role: "server",
        old: "[[client]]",
        new: "[tls]\nfallback = \"127.0.0.1:8443\"\n[[client]]",
        line: 4,
        words: &["`[tls]` needs `listen_tls`"],
    },
    Fault {
        role: "server",
        old: "[[client]]",
        new: "listen_tls = \":443\"\n[tls]\nkey = \"k.pem\"\n[[client]]",
        line: 5,
        words: &["`certificate` and `key`", "give both, or neither"],
    },
    Fault {
        role: "client",
        old: "state_dir",
        new: "open_wait = \"30\"\nstate_dir",
        line: 2,
        words: &["`open_wait`", "not a time span", "(ns, us, ms, s, min, h)"],
    },
    Fault {
        role: "server",
        old: "status_socket",
        new: "listen = \"127.0.0.1:1\"\nstatus_socket",
        line: 3,
        words: &["duplicate key `listen`", "remove one"],
    },
    Fault {
        role: "client",
        old: "[server]",
        new: "[server",
        line: 4,
        words: &["expected"],
    },
    Fault {
        role: "server",
        old: "server.key",
        new: "none.key",
        line: 1,
        words: &["none.key", "No such file", "bentpipe genkey > none.key"],
    },
    Fault {
        role: "server",
        old: "server.key",
        new: "server.toml",
        line: 1,
        // Readable by all, as a configuration may be and a key may not.
        words: &["server.toml", "chmod 600"],
    },
];
