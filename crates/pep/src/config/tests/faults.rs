//! Malformed files, each with the exact line and message.

use super::{KEY, Place, Role, check};

/// Files made of a good head and one fault, with the error they give.
#[rustfmt::skip]
const FAULTS: &[(&str, &str)] = &[
    ("", "x.toml:1: neither a client's file (`[server]`) nor a server's (`listen`, `[[client]]`) nor a PEP's (`[peer]`) nor an origin's (`[origin]`)"),
    ("listen = \n", "x.toml:1: `listen`: string values must be quoted, expected literal string"),
    ("listen = \"0.0.0.0:1\"\n", "x.toml:1: missing key `private_key_file`"),
    ("S status_socket = \"\"\n", "x.toml:3: `status_socket` is empty; name a path, or leave the key out"),
    ("S state_dir = \"\"\n", "x.toml:3: `state_dir` is empty; name a path, or leave the key out"),
    ("S status_socket = \"a\\u0000b\"\n", "x.toml:3: `status_socket` has a NUL character, which no path can have; remove that"),
    ("S state_dir = \"a\\u0000b\"\n", "x.toml:3: `state_dir` has a NUL character, which no path can have; remove that"),
    ("S interfaces_ = []\n", "x.toml:3: unknown key `interfaces_`; known here: `transport`, `private_key_file`, `listen`, `listen_tls`, `tls`, `public_address`, `shards`, `client`, `limits`, `packets`, `connect_timeout`, `drain_timeout`, `state_dir`, `controller`, `dns`, `nat64`, `allow_classical`, `status_socket`, `metrics`, `page`, `responder`, `sle`, `les`, `web`, `sandbox`"),
    ("S \"\\u001b[31m\" = []\n", "x.toml:3: unknown key `\u{fffd}[31m`; known here: `transport`, `private_key_file`, `listen`, `listen_tls`, `tls`, `public_address`, `shards`, `client`, `limits`, `packets`, `connect_timeout`, `drain_timeout`, `state_dir`, `controller`, `dns`, `nat64`, `allow_classical`, `status_socket`, `metrics`, `page`, `responder`, `sle`, `les`, `web`, `sandbox`"),
    ("S listne = []\n", "x.toml:3: unknown key `listne`; did you mean `listen`?"),
    ("S shards = 0\nC", "x.toml:3: `shards` is 0; expected 1 to 256"),
    ("S shards = \"two\"\n", "x.toml:3: `shards`: invalid type: string \"two\", expected an integer from 0 to 65535"),
    ("S controller = \"cubik\"\n", "x.toml:3: `controller`: no congestion controller is called `cubik`; there are cubic, cubic-no-hystart, new-reno, bbr3 and satellite"),
    ("S controller = \"bbr\"\n", "x.toml:3: `controller`: no congestion controller is called `bbr`; there are cubic, cubic-no-hystart, new-reno, bbr3 and satellite"),
    ("S connect_timeout = \"soon\"\n", "x.toml:3: `connect_timeout`: `soon` is not a time span; write it as in \"250 ms\" (ns, us, ms, s, min, h)"),
    ("S connect_timeout = 20\n", "x.toml:3: `connect_timeout`: invalid type: integer `20`, expected a time span as in \"250 ms\""),
    ("S client = []\n", "x.toml:3: `client` is empty; name a client, or remove the key"),
    ("S\n[client]\nname = 5\n", "x.toml:4: `name`: invalid type: integer `5`, expected a string"),
    ("S\n[[client]]\nname = \"a\"\n", "x.toml:4: a client needs `public_key`, or both `enrolment_key` and `enrolment_expires`"),
    ("S\n[[client]]\nname = \"\"\npublic_key = \"KEY1\"\n", "x.toml:4: `name` is empty or holds control characters; choose a printable one"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n[[client]]\nname = \"a\"\npublic_key = \"KEY2\"\n", "x.toml:7: duplicate client name `a`; choose another"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n[[client]]\nname = \"b\"\npublic_key = \"KEY1\"\n", "x.toml:8: clients `a` and `b` have the same public key; give each its own"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"AAAA\"\n", "x.toml:5: `public_key`: bad key: 3 bytes; a key is 32 bytes in base64, as `bentpipe genkey` and `bentpipe pubkey` print it"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"*\"\n", "x.toml:5: `public_key`: bad key: not base64; a key is 32 bytes in base64, as `bentpipe genkey` and `bentpipe pubkey` print it"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\nallow = [\"10.0.0.0/33\"]\n", "x.toml:6: `allow`: bad prefix `10.0.0.0/33`; expected an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\""),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\nalow = []\n", "x.toml:6: unknown key `alow`; did you mean `allow`?"),
    ("private_key_file = \"good.key\"\nlisten = \"10.0.0.1\"\n", "x.toml:2: `listen`: bad address `10.0.0.1`; expected an address with port, such as \"10.20.0.1:4433\" or \"[fd00::1]:4433\""),
    ("private_key_file = \"good.key\"\nlisten = []\n", "x.toml:2: `listen` is empty; name at least one entry"),
    ("private_key_file = \"good.key\"\nlisten = [\"1.1.1.1:1\", \"1.1.1.1:1\"]\nC", "x.toml:2: `listen` names 1.1.1.1:1 twice; remove one"),
    ("private_key_file = \"good.key\"\nlisten = 5\n", "x.toml:2: `listen`: invalid type: integer `5`, expected one entry or a list of them"),
    ("# key\nprivate_key_file = \"open.key\"\nlisten = \"1.1.1.1:1\"\nC", "x.toml:2: private key file open.key is accessible to others (mode 0640); run `chmod 600 open.key`"),
    ("private_key_file = \"none.key\"\nlisten = \"1.1.1.1:1\"\nC", "x.toml:1: cannot read private key file none.key: No such file or directory (os error 2); make one with `bentpipe genkey > none.key`"),
    ("private_key_file = \"bad.key\"\nlisten = \"1.1.1.1:1\"\nC", "x.toml:1: private key file bad.key holds no key, which is one line of base64; mend it, or move it away and make one with `bentpipe genkey > bad.key`"),
    ("T\n", "x.toml:1: no front end is configured; add `[intercept]`, `[socks5]`, `[http]` or `[[publish]]`"),
    ("T\n[intercept]\n", "x.toml:5: `[intercept]` takes in nothing; list `interfaces` or set `local = true`"),
    ("T\n[intercept]\ninterfaces_ = [\"lan0\"]\n", "x.toml:6: unknown key `interfaces_`; did you mean `interfaces`?"),
    ("T\n[intercept]\ninterfaces = \"lan0\"\n", "x.toml:6: `interfaces`: invalid type: string \"lan0\", expected a list"),
    ("T\n[intercept]\ninterfaces = [\"lan0\",\n  \"a/b\"]\n", "x.toml:7: bad interface name `a/b`; expected 1 to 15 characters, such as \"lan0\""),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\nport = 70000\n", "x.toml:7: `port`: invalid value: integer `70000`, expected an integer from 0 to 65535"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\nport = 0\n", "x.toml:7: `port` of `[intercept]` is 0; choose 1 to 65535"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\nother = \"dorp\"\n", "x.toml:7: unknown value `dorp` for `other`; did you mean `drop`?"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\nbypass = [\"nas\"]\n", "x.toml:7: `bypass`: bad prefix `nas`; expected an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\""),
    ("T\n[http]\n", "x.toml:5: missing key `listen`"),
    ("T\nhttp = 1\n", "x.toml:5: unknown key `http`; known here: `address`, `public_key`, `tls`, `tls_name`, `wire`, `enrolment_key_file`; it stands in `[server]`, which begins at line 2, and keys of the whole file stand above line 2"),
    ("T\n[http]\nlisten = \"localhost:8080\"\n", "x.toml:6: `listen`: bad address `localhost:8080`; expected an address with port, such as \"10.20.0.1:4433\" or \"[fd00::1]:4433\""),
    ("T\n[intercept]\nlocal = \"yes\"\n", "x.toml:6: `local`: invalid type: string \"yes\", expected true or false"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"\n", "x.toml:6: `interfaces`: unclosed array, expected `]`"),
    ("private_key_file = 5\nlisten = \"1.1.1.1:1\"\nC", "x.toml:1: `private_key_file`: invalid type: integer `5`, expected a path"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nprofile = \"geostationary\"\n", "x.toml:8: unknown value `geostationary` for `profile`; did you mean `geo`?"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nmax_rate = \"fast\"\n", "x.toml:8: `max_rate`: `fast` is not a rate; write it as in \"10 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\ninitial_window = 0\n", "x.toml:8: `initial_window`: 0 is out of range; expected 1 to 1000"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.return]\ninitial_window = -5\n", "x.toml:8: `initial_window`: -5 is out of range; expected 1 to 1000"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.forward]\nack_packets = 201\n", "x.toml:8: `ack_packets`: 201 is out of range; expected 1 to 200"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nforward = { ack_packets = \"10\" }\n", "x.toml:8: `ack_packets`: invalid type: string \"10\", expected an integer from 1 to 200"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.return]\nmax_rate = \"0 bit/s\"\n", "x.toml:8: `max_rate`: 0 bit/s is too slow for a tunnel; expected 16 kbit/s or more"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.forward]\nrate = \"50\"\n", "x.toml:8: `rate`: `50` is not a rate; write it as in \"10 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.forward]\ncontroler = \"cubic\"\n", "x.toml:8: unknown key `controler`; did you mean `controller`?"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nfec = \"on\"\n", "x.toml:8: unknown value `on` for `fec`; known here: `off`, `auto`"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nfec = { repair = 1, per = 0 }\n", "x.toml:8: `per`: 0 is out of range; expected 1 to 1000"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nfec = 5\n", "x.toml:8: `fec`: invalid type: integer `5`, expected \"off\", \"auto\" or a table such as { repair = 1, per = 20 }"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link.back]\n", "x.toml:7: unknown key `back`; known here: `profile`, `controller`, `initial_window`, `max_rate`, `rate`, `ack_packets`, `fec`, `forward`, `return`"),
    ("S\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\nmax_rate = \"1 kbit/s\"\n", "x.toml:6: `max_rate`: 1 kbit/s is too slow for a tunnel; expected 16 kbit/s or more"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\nports = [22]\n", "x.toml:7: this rule says nothing; give it an `action` or `optimistic`"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"drop\"\n", "x.toml:8: unknown value `drop` for `action`; known here: `tunnel`, `direct`, `block`"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"block\"\ninterfaces = [\"lan0\"]\n", "x.toml:9: `lan0` is not intercepted; add it to `interfaces` of `[intercept]` or remove it here"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"block\"\nprotocols = [\"icmp\"]\nports = [1]\n", "x.toml:10: `ports` beside a protocol that has none; make two rules"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\noptimistic = false\ndomains = [\"a.example\"]\n", "x.toml:8: `optimistic` goes by `ports` and `destinations` alone, not by `domains`; give it a rule of its own"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"block\"\ndomains = [\"*.example\"]\n", "x.toml:9: `domains`: bad domain `*.example`; expected a domain, such as \"example.com\""),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"block\"\nprotocols = [\"ipx\"]\n", "x.toml:9: `protocols`: bad protocol `ipx`; expected tcp, udp, icmp, sctp, dccp, udplite, gre, esp, ah, or a number from 0 to 255"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[[rule]]\naction = \"block\"\ndscp = [\"fast\"]\n", "x.toml:9: `dscp`: bad DSCP `fast`; expected ef, va, le, cs0 to cs7, af11 to af43, or a number from 0 to 63, such as \"46\""),
    ("T\n[intercept]\nlocal = true\non_failure = \"open\"\n", "x.toml:7: unknown value `open` for `on_failure`; known here: `block`, `direct`"),
    ("private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1\"\n", "x.toml:3: `address`: bad address `10.0.0.1`; expected IP:PORT or NAME:PORT, such as \"10.20.0.1:4433\" or \"gw.example.net:4433\""),
    ("private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.300:1\"\n", "x.toml:3: `address`: bad address `10.0.0.300:1`; expected IP:PORT or NAME:PORT, such as \"10.20.0.1:4433\" or \"gw.example.net:4433\""),
    ("P\ncontroller = \"c c\"\n[intercept]\ninterfaces = [\"sat0\"]\n", "x.toml:2: `controller`: bad name `c c`; expected what TCP may send with, by the kernel's name, such as \"cubic\" or \"bbr\""),
    ("P\nprivate_key_file = \"good.key\"\n[http]\nlisten = \"127.0.0.1:1\"\n", "x.toml:2: `private_key_file` belongs to a tunnel; `transport = \"plain\"` neither encrypts nor authenticates: remove one of them"),
    ("P\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"KEY1\"\n", "x.toml:4: `public_key` belongs to a tunnel; `transport = \"plain\"` neither encrypts nor authenticates: remove one of them"),
    ("P\n[server]\naddress = \"gw.example.net:1\"\n", "x.toml:3: `address`: bad address `gw.example.net:1`; expected an address with port, such as \"10.20.0.1:4433\" or \"[fd00::1]:4433\""),
    ("P\n[http]\nlisten = \"127.0.0.1:1\"\n", "x.toml:1: with `transport = \"plain\"` and no `[server]` only `[intercept]` is possible: a proxy would connect from this machine to whatever it can reach; add `[server]`"),
    ("P\nlisten = \"1.1.1.1:1\"\n[[client]]\nname = \"a\"\n", "x.toml:3: missing key `source`"),
    ("P\nlisten = \"1.1.1.1:1\"\n[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n", "x.toml:5: `public_key` belongs to a tunnel; `transport = \"plain\"` neither encrypts nor authenticates: remove one of them"),
    ("P\nlisten = \"1.1.1.1:1\"\n[[client]]\nname = \"a\"\nsource = []\n", "x.toml:5: `source` of `[[client]]` is empty; name at least one entry"),
    ("S [sle]\nlisten = \"0.0.0.0\"\n", "x.toml:4: `listen`: bad address `0.0.0.0`; expected an address with port, such as \"10.20.0.1:4433\" or \"[fd00::1]:4433\""),
    ("S [sle]\nlisten = [\"10.0.0.1:1\", \"10.0.0.2:2\"]\n", "x.toml:4: `listen` of `[sle]` needs one port at all of its addresses, for clients are told one"),
    ("S [sle]\nlisten = \"0.0.0.0:0\"\n", "x.toml:4: `listen` of `[sle]` needs one port at all of its addresses, for clients are told one"),
    ("S [sle]\n", "x.toml:3: `[sle]` takes in nothing; give it `listen`, or `interfaces`, `prefixes` and `sources`"),
    ("S [sle]\nlisten = \":1\"\nprefixes = [\"10.0.0.0/8\"]\ninterfaces = [\"a\"]\n", "x.toml:3: `[sle]` has no `sources`; connections are taken in by `interfaces`, to `prefixes`, and from `sources`, the addresses of clients"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[sle]\nmode = \"opaque\"\n", "x.toml:8: unknown value `opaque` for `mode`; known here: `addressed`, `transparent`"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[sle]\ndestinations = [\"10.0.0.0/33\"]\n", "x.toml:8: `destinations`: bad prefix `10.0.0.0/33`; expected an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\""),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[link]\nmax_rate = \"1 Mbit/s\"\n[sle]\n", "x.toml:9: `[sle]` cannot keep `max_rate` of `[link]`, for its flows are not in the tunnel; remove one of them"),
    ("transport = \"plian\"\nlisten = \"1.1.1.1:1\"\n", "x.toml:1: unknown value `plian` for `transport`; did you mean `plain`?"),
    ("private_key_file = \"good.key\"\nserver = []\n", "x.toml:2: `server` is empty; name at least one entry"),
    ("private_key_file = \"good.key\"\n[server]\nadress = \"10.0.0.1:1\"\n", "x.toml:3: unknown key `adress`; did you mean `address`?"),
    ("private_key_file = \"good.key\"\nserver = \"10.0.0.1:1\"\n", "x.toml:2: `server`: invalid type: string \"10.0.0.1:1\", expected a table"),
    ("S [web]\nahead = true\n", "x.toml:4: unknown key `ahead`; known here: `prefetch`, `tls`, `hub`, `roots`; it stands in `[web]`, which begins at line 3, and keys of the whole file stand above line 3"),
    ("S [web]\nprefetch = 1\n", "x.toml:4: `prefetch`: invalid type: integer `1`, expected true or false"),
    ("S [web]\ntls = \"trusted\"\n", "x.toml:4: `tls = \"trusted\"` of `[web]` needs `prefetch = true`: objects of these pages are fetched ahead"),
    ("S [web]\nroots = \"a.pem\"\n", "x.toml:4: `roots` of `[web]` needs `tls = \"trusted\"` or `hub = true`"),
    ("S [web]\ntls = \"all\"\n", "x.toml:4: unknown value `all` for `tls`; known here: `off`, `trusted`"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[web]\nnames = [\"a.example\"]\n", "x.toml:8: `names` of `[web]` needs `tls = \"trusted\"`, and the server's `[web]` as well"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[web]\ntls = \"trusted\"\nnames = [\"a.example\"]\n", "x.toml:8: `tls = \"trusted\"` of `[web]` needs `prefetch = true`: objects of these pages are fetched ahead"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[web]\nprefetch = true\ntls = \"trusted\"\n", "x.toml:9: `tls = \"trusted\"` of `[web]` needs `names`, such as `names = [\"intranet.example.com\"]`: no other host is touched"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[web]\nprefetch = true\ntls = \"trusted\"\nnames = [\"a.example\", \"A.example\"]\n", "x.toml:10: `names` lists a.example twice; remove one"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[web]\nprefetch = true\ntls = \"trusted\"\nnames = [\"com\"]\n", "x.toml:10: `names`: `com` has a single label, and a CA for it could sign for every name below it, as one for \"com\" could; expected a name such as \"intranet.example.com\""),
    ("S [les]\nlisten = \"0.0.0.0:0\"\n", "x.toml:4: `listen` of `[les]` needs a port, which clients' `port` names"),
    ("S [les]\nlisten = [\"10.0.0.1:1\", \"10.0.0.1:1\"]\n", "x.toml:4: `listen` names 10.0.0.1:1 twice; remove one"),
    ("S [packets]\nenabled = false\n[les]\n", "x.toml:5: `[les]` hands packets to the device of `[packets]`; remove `enabled = false` there"),
    ("T\n[http]\nlisten = \"127.0.0.1:1\"\n[les]\ndestinations = [\"10.0.0.0/8\"]\n", "x.toml:7: `[les]` seals packets of the client's device, which comes with interception; add `[intercept]`"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\n", "x.toml:7: missing key `destinations`"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = []\n", "x.toml:8: `destinations` of `[les]` is empty; name the prefixes whose TCP goes by LES, or remove the table"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/33\"]\n", "x.toml:8: `destinations`: bad prefix `10.0.0.0/33`; expected an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\""),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\nflow = \"psk\"\n", "x.toml:9: `flow = \"psk\"` and `[les.laboratory]` go together: they are for laboratories alone, for who has the key and a recording opens all of it; remove both"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\n[les.laboratory]\npsk_file = \"good.key\"\n", "x.toml:9: `flow = \"psk\"` and `[les.laboratory]` go together: they are for laboratories alone, for who has the key and a recording opens all of it; remove both"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\nflow = \"psk\"\n[les.laboratory]\npsk_file = \"none.psk\"\n", "x.toml:11: cannot read pre-shared key file none.psk: No such file or directory (os error 2); `(umask 077; head -c 32 /dev/urandom > none.psk)` makes one"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\nflow = \"ike\"\n", "x.toml:9: unknown value `ike` for `flow`; known here: `short`, `paper`, `psk`"),
    ("S [les.laboratory]\npsk_file = \"good.key\"\n", "x.toml:3: `[les.laboratory]` serves one client, for its key does not tell who comes, and 0 are listed; remove it: it is for laboratories alone"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\nport = 0\n", "x.toml:9: `port` of `[les]` is 0; name the server's, usually 4501"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\non_failure = \"direct\"\n[les]\ndestinations = [\"10.0.0.0/8\"]\n", "x.toml:8: `[les]` lets nothing leave in clear; remove `on_failure = \"direct\"` of `[intercept]`"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[link]\nmax_rate = \"1 Mbit/s\"\n[les]\ndestinations = [\"10.0.0.0/8\"]\n", "x.toml:9: `[les]` cannot keep `max_rate` of `[link]`, for its packets are not in the tunnel; remove one of them"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/16\", \"10.1.0.0/16\", \"10.2.0.0/16\", \"10.3.0.0/16\", \"10.4.0.0/16\", \"10.5.0.0/16\", \"10.6.0.0/16\", \"10.7.0.0/16\", \"10.8.0.0/16\", \"10.9.0.0/16\", \"10.10.0.0/16\", \"10.11.0.0/16\", \"10.12.0.0/16\", \"10.13.0.0/16\", \"10.14.0.0/16\", \"10.15.0.0/16\", \"10.16.0.0/16\"]\n", "x.toml:8: `destinations` of `[les]` has 17 entries; at most 16 are possible"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\n[[les.pep]]\nname = \"a\"\naddress = \"10.1.0.1:4502\"\npublic_key = \"KEY1\"\n[[les.pep]]\nname = \"a\"\naddress = \"10.1.0.2:4502\"\npublic_key = \"KEY2\"\n", "x.toml:13: PEP a has the name, address or `public_key` of a above; each PEP stands once, with its own"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\n[[les.pep]]\nname = \"\"\naddress = \"10.1.0.1:4502\"\npublic_key = \"KEY2\"\n", "x.toml:10: `name` of `[[les.pep]]` is empty or holds control characters; choose a printable one"),
    ("T\n[intercept]\ninterfaces = [\"lan0\"]\n[les]\ndestinations = [\"10.0.0.0/8\"]\n[[les.pep]]\nname = \"a\"\naddress = \"10.1.0.1\"\npublic_key = \"KEY2\"\n", "x.toml:11: `address`: bad address `10.1.0.1`; expected IP:PORT or NAME:PORT, such as \"10.20.0.1:4433\" or \"gw.example.net:4433\""),
    ("S [les]\npeps = [\"KEY2\", \"KEY2\"]\n", "x.toml:4: `peps` of `[les]` names AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= twice; remove one"),
    ("private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:1\"\naddress = \"10.0.0.1:1\"\n", "x.toml:4: duplicate key `address` in `[server]`, which begins at line 2; remove one, or move it above line 2 if it is the whole file's"),
];

#[test]
fn faults_are_one_line_that_names_the_mend() {
    let place = Place::new();
    place.write("open.key", KEY, 0o640);
    place.write("bad.key", "hello\n", 0o600);
    let server = "private_key_file = \"good.key\"\nlisten = \"0.0.0.0:4433\"";
    let servers_client = "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n";
    let client = "private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:4433\"\npublic_key = \"KEY1\"";
    let mut wrong = Vec::new();
    for (text, expected) in FAULTS {
        let text = match text.split_at_checked(1) {
            Some(("S", rest)) => format!("{server}\n{}", rest.trim_start()),
            Some(("T", rest)) => format!("{client}{rest}"),
            Some(("P", rest)) => format!("transport = \"plain\"{rest}"),
            _ => (*text).to_owned(),
        };
        let text = text
            .strip_suffix('C')
            .map(|text| format!("{text}{servers_client}"))
            .unwrap_or(text);
        let got = place.fault(&text);
        if got != *expected {
            wrong.push(format!("{text}\n  gives  {got}\n  not    {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_of_peps_say_what_is_missing() {
    let place = Place::new();
    let peer = "peer = { address = \"10.0.0.1:1\", public_key = \"KEY1\" }\n";
    let head = format!("private_key_file = \"good.key\"\nlan = [\"a\"]\nwan = [\"b\"]\n{peer}");
    let alone = head.replace("address = \"10.0.0.1:1\", ", "");
    for (text, fault) in [
        (head.clone(), "nothing is relayed; add `[clear]`"),
        (
            alone + "[clear]\n",
            "one PEP listens and the other connects; add `listen`",
        ),
        (
            format!("listen = \":4434\"\n{head}[clear]\n"),
            "remove `listen`, or `address` of `[peer]`",
        ),
        (
            head.replace("[\"b\"]", "[\"a\"]") + "[clear]\n",
            "`a` is in `lan` and in `wan`",
        ),
        (
            head.replace("[\"a\"]", "[]") + "[clear]\n",
            "x.toml:2: `lan` is empty",
        ),
        (
            head.clone() + "[les]\nclients = []\n",
            "x.toml:6: `clients` of `[les]` is empty",
        ),
        (
            head.clone() + "[clear]\n[limits]\nflow_memory = \"1 KiB\"\n",
            "`flow_memory` of `[limits]` is too small",
        ),
    ] {
        let said = place.fault(&text);
        assert!(said.contains(fault), "{said} for {text}");
    }
    let whole = place.write(
        "pep.toml",
        &(head + "[clear]\n").replace("KEY1", KEY),
        0o644,
    );
    assert_eq!(check(&whole, None).unwrap(), Role::Pep);
}

/// A file may have one `[server]` or several, and a value over several lines.
#[test]
fn a_fault_stands_at_the_line_of_its_key() {
    let place = Place::new();
    let head = "private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"KEY1\"\n";
    let second = "[[server]]\npublic_key = \"KEY2\"\naddress = \"10.0.0.2:1\"\ntls_name = \"x\"\n";
    let lan = "[intercept]\ninterfaces = [\"lan0\"]\n";
    for (text, line) in [
        (format!("{head}tls_name = \"x\"\n"), 5),
        (
            format!("{}{second}", head.replace("[server]", "[[server]]")),
            8,
        ),
        (format!("{head}{lan}[dns]\nenabled = true\nport = 0\n"), 9),
        (
            format!("{head}{lan}[dns]\nenabled = true\nmemory = \"1 B\"\n"),
            9,
        ),
        (
            format!("{head}{lan}[[publish]]\nto = \"10.0.0.9:1\"\nport = 0\n"),
            9,
        ),
        (
            format!("{head}{lan}[[publish]]\nport = 1\nto = \"10.0.0.9:0\"\n"),
            9,
        ),
        (
            format!("{head}{lan}[metering]\ncap = \"1 GB\"\nprice_per_mb = -1.0\n"),
            9,
        ),
        (
            format!("{head}{lan}[metering]\nperiod = \"day\"\nat_cap = \"stop\"\n"),
            9,
        ),
    ] {
        let fault = place.fault(&text);
        assert!(fault.starts_with(&format!("x.toml:{line}: ")), "{fault}");
    }
}

#[test]
fn messages_are_in_the_words_of_toml() {
    let place = Place::new();
    let head = "private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"KEY1\"\n";
    for (table, words) in [
        ("[link]\nprofile = 5\n", "`profile`: expected a string"),
        ("[link]\nprofile = {}\n", "`profile`: expected a string"),
        ("[metering]\nmonth_begins = \"x\"\n", "expected an integer"),
        ("[metering]\nmonth_begins = 300\n", "every month has"),
        ("[metering]\nprice_per_mb = \"x\"\n", "expected a number"),
        ("[dns]\nzones = 5\n", "expected a table"),
    ] {
        let fault = place.fault(&format!("{head}{table}"));
        assert!(fault.starts_with("x.toml:6: "), "{fault}");
        assert!(
            fault.ends_with(words) || fault.contains("every month"),
            "{fault}"
        );
    }
    let origin = "[origin]\nlisten = \":1\"\nupstream = \"https://x\"\ncertificate = \"a\"\nkey = \"b\"\nhubs = [\"KEY1\"]\n";
    let fault = place.fault(origin);
    let whole = "x.toml:3: `upstream`: bad address `https://x`; expected one such as \"http://127.0.0.1:8080\"";
    assert_eq!(fault, whole);
}
