//! `bentpipe server init`: a key and a configuration.

use anyhow::anyhow;
use bentpipe_pep::config::ServerAddress;
use bentpipe_pep::keys::PrivateKey;

use super::{PORT, files};
use crate::cli::Init;
use crate::exit::Failure;

/// The key's name beside the configuration.
const KEY: &str = "server.key";

/// Makes both, and says what comes next.
pub(crate) fn init(options: &Init) -> Result<(), Failure> {
    let public = public(&options.public).map_err(Failure::Usage)?;
    let listen = options.listen.unwrap_or_else(|| port(&public));
    let config = &options.file.config;
    let key_file = config.with_file_name(KEY);
    let made = || {
        files::refuse_existing(&[config, &key_file], files::ELSEWHERE)?;
        let key =
            PrivateKey::generate().map_err(|_| "the system gives no random numbers".to_owned())?;
        files::make_all(&[
            (&key_file, &files::key_text(&key)),
            (config, &text(&public, listen)),
        ])
    };
    made().map_err(|fault| Failure::Run(anyhow!(fault)))?;
    super::super::print(&format!(
        "Made {} and {}.\n{}\nNext, for each client:  bentpipe server add NAME{}",
        config.display(),
        key_file.display(),
        reachable(&public, listen),
        options.file.flag()
    ))
}

/// Ports here and outside, and the work of a NAT between them.
fn reachable(public: &ServerAddress, listen: u16) -> String {
    let ports = format!("The server listens on UDP port {listen}, and clients come to {public}");
    match port(public) {
        PORT if listen == PORT => ports + ".",
        same if same == listen => {
            ports
                + ".\nBehind a NAT that leads there to another port of this machine, set that one as `listen` in the file."
        }
        outside => format!(
            "{ports}:\nUDP port {outside} there has to lead to UDP port {listen} of this machine."
        ),
    }
}

/// The address with a port.
fn public(text: &str) -> Result<ServerAddress, String> {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    let tried = match bare_v6 {
        true => format!("[{text}]:{PORT}"),
        false => text.to_owned(),
    };
    let parsed = tried.parse().or_else(|_| format!("{tried}:{PORT}").parse());
    parsed.map_err(|_: String| {
        format!(
            "--public `{}` is no address; expected HOST or HOST:PORT, such as gateway.example.com or 192.0.2.1:4433",
            text.escape_debug()
        )
    })
}

fn port(address: &ServerAddress) -> u16 {
    match address {
        ServerAddress::Ip(address) => address.port(),
        ServerAddress::Name { port, .. } => *port,
    }
}

fn text(public: &ServerAddress, listen: u16) -> String {
    format!(
        "# The server's configuration; docs/configuration.md of bentpipe has every key. `bentpipe check FILE` looks for faults.\n\
         private_key_file = \"{KEY}\"\n\
         \n\
         # UDP port, on all addresses of this machine.\n\
         listen = \":{listen}\"\n\
         \n\
         # Where clients reach it, from outside of any NAT, for the codes that `bentpipe server add NAME` prints. It puts each client at the end of\n\
         # this file. Loopback, private and other special destinations are denied unless a client's `allow` names them, as\n\
         # in: allow = [\"10.30.0.0/24\"]\n\
         public_address = \"{public}\"\n\
         \n\
         # Tables follow below. Figures for Prometheus: `[metrics]` with `listen = \"127.0.0.1:9464\"`. A live page for people:\n\
         # `[page]` with `listen = \"127.0.0.1:8404\"`.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_there_is_none() {
        for (given, wanted) in [
            ("gateway.example.com", "gateway.example.com:4433"),
            ("gateway.example.com:443", "gateway.example.com:443"),
            ("192.0.2.1", "192.0.2.1:4433"),
            ("2001:db8::1", "[2001:db8::1]:4433"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ] {
            assert_eq!(
                public(given).map(|at| at.to_string()),
                Ok(wanted.to_owned())
            );
        }
        for wrong in ["", "a b", "x:99999", "http://x"] {
            assert!(public(wrong).is_err(), "{wrong}");
        }
    }
}
