//! Lists without an entry: which are refused, and with what mend.

use super::{KEY, Place, Role, check};

/// A file that is good, but that its list in the last line is empty.
const HEADS: [(&str, &str); 4] = [
    (
        "client",
        "private_key_file = \"good.key\"\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"KEY1\"\n[http]\nlisten = \"127.0.0.1:1\"\n",
    ),
    (
        "server",
        "private_key_file = \"good.key\"\nlisten = \"0.0.0.0:4433\"\n",
    ),
    (
        "pep",
        "private_key_file = \"good.key\"\nlan = [\"a\"]\nwan = [\"b\"]\npeer = { address = \"10.0.0.1:1\", public_key = \"KEY1\" }\n",
    ),
    (
        "origin",
        "[origin]\nlisten = \":443\"\nupstream = \"http://127.0.0.1:80\"\ncertificate = \"a\"\nkey = \"b\"\n",
    ),
];

fn file(role: &str, tables: &str) -> String {
    let head = HEADS.iter().find(|(name, _)| *name == role);
    format!("{}{tables}", head.expect("a role").1)
}

/// An empty list would match everything where somebody has meant nothing.
#[test]
fn an_emptied_list_is_a_fault_at_its_own_line() {
    const CLIENT: &str = "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n";
    const INTERCEPT: &str = "[intercept]\ninterfaces = [\"lan0\"]\n";
    let place = Place::new();
    let mut cases = Vec::new();
    for key in [
        "interfaces",
        "sources",
        "destinations",
        "domains",
        "protocols",
        "ports",
        "dscp",
    ] {
        let tables = format!("{INTERCEPT}[[rule]]\naction = \"direct\"\n{key} = []\n");
        let mend = format!("`{key}` of `[[rule]]` is empty; remove the key for all ");
        cases.push(("client", tables, mend));
    }
    for (role, tables, said) in [
        (
            "server",
            format!("{CLIENT}only = []\n"),
            "`only` of `[[client]]` is empty; remove the key for all destinations",
        ),
        (
            "server",
            "[sle]\nsources = []\n".into(),
            "`sources` of `[sle]` is empty; remove `interfaces`",
        ),
        (
            "server",
            "[dns]\nservers = []\n".into(),
            "`servers` of `[dns]` is empty; remove the key for the resolvers",
        ),
        (
            "server",
            "listen_tls = []\n".into(),
            "`listen_tls` is empty; remove the key for UDP alone",
        ),
        (
            "server",
            "[les]\nlisten = []\n".into(),
            "`listen` of `[les]` is empty; remove the key for the usual port",
        ),
        (
            "client",
            "[intercept]\nlocal = true\ninterfaces = []\n".into(),
            "`interfaces` of `[intercept]` is empty; name",
        ),
        (
            "client",
            "[sle]\ndestinations = []\n".into(),
            "`destinations` of `[sle]` is empty; remove the key for all",
        ),
        (
            "client",
            "[dssl]\norigins = []\n".into(),
            "`origins` of `[dssl]` is empty; name hosts",
        ),
        (
            "client",
            "[web]\nnames = []\n".into(),
            "`names` of `[web]` is empty; remove the key",
        ),
        (
            "client",
            "[dns]\nlisten = []\n".into(),
            "`listen` of `[dns]` is empty; remove the key",
        ),
        (
            "client",
            "[dns]\nrebind_ok = []\n".into(),
            "`rebind_ok` of `[dns]` is empty; remove the key",
        ),
        (
            "pep",
            "[clear]\nprefixes = []\n".into(),
            "`prefixes` of `[clear]` is empty; remove the key for all TCP",
        ),
        (
            "origin",
            "hubs = []\n".into(),
            "`hubs` of `[origin]` is empty; list the public keys",
        ),
        (
            "origin",
            "hubs = [\"KEY1\"]\nclients = []\n".into(),
            "`clients` of `[origin]` is empty; remove the key for all",
        ),
    ] {
        cases.push((role, tables, said.to_owned()));
    }
    for (role, tables, said) in cases {
        let text = file(role, &tables);
        let fault = place.fault(&text);
        let line = text.lines().count();
        let whole = format!("x.toml:{line}: {said}");
        assert!(fault.starts_with(&whole), "{fault}\nnot {whole}\n{text}");
    }
}

#[test]
fn lists_that_only_add_may_be_empty() {
    let place = Place::new();
    let client = "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n\
                  allow = []\naddresses = []\nroutes = []\npublish = []\n[les]\npeps = []\n";
    let server = format!("{}nat64 = []\n{client}", file("server", ""));
    let intercept = "[intercept]\ninterfaces = [\"lan0\"]\nbypass = []\nroutes = []\n\
                     [les]\ndestinations = [\"10.0.0.0/8\"]\npep = []\n";
    let client = format!("publish = []\n{}", file("client", intercept));
    for (text, role) in [(server, Role::Server), (client, Role::Client)] {
        let path = place.write("x.toml", &text.replace("KEY1", KEY), 0o644);
        assert_eq!(check(&path, None).expect("a good file"), role, "{text}");
    }
}

#[test]
fn a_file_of_another_role_is_called_by_it() {
    let place = Place::new();
    let roles = [Role::Client, Role::Server, Role::Pep, Role::Origin];
    let tables = [
        "",
        "[[client]]\nname = \"a\"\npublic_key = \"KEY1\"\n",
        "[clear]\n",
        "hubs = [\"KEY1\"]\n",
    ];
    for (own, tables) in roles.into_iter().zip(tables) {
        let text = file(&own.to_string(), tables).replace("KEY1", KEY);
        let path = place.write("x.toml", &text, 0o644);
        assert_eq!(check(&path, None).expect("a good file"), own);
        for asked in roles.into_iter().filter(|asked| *asked != own) {
            let fault = check(&path, Some(asked)).expect_err("another role's");
            let said = format!(
                "this is {}'s file, and {}'s is needed; run `bentpipe {own}` with it, or name another",
                own.with_article(),
                asked.with_article()
            );
            assert_eq!((fault.line(), fault.message()), (1, &*said));
        }
    }
    // One key in the wrong place makes no other role of a file.
    let mixed = file("client", "").replacen("[server]", "listen = \":1\"\n[server]", 1);
    let fault = place.fault(&mixed);
    assert!(!fault.contains("this is"), "{fault}");
}
