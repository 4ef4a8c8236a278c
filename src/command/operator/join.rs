//! `bentpipe client join`: keys and a configuration, from a code.

use std::io;
#[cfg(target_os = "linux")]
use std::net::{Ipv4Addr, UdpSocket};

use anyhow::{Context as _, anyhow};
use bentpipe_pep::config::ClientConfig;
use bentpipe_pep::keys::PrivateKey;
#[cfg(target_os = "linux")]
use rustix::io::Errno;

use super::code::Code;
use super::files;
use crate::cli::Join;
use crate::exit::Failure;

/// Names of the keys beside the configuration: the client's own, and the code's.
const KEY: &str = "client.key";
const ONCE: &str = "join.key";

/// Makes them, and says what comes next.
pub(crate) fn join(options: &Join) -> Result<(), Failure> {
    let code: Code = options.code.parse().map_err(Failure::Key)?;
    let config = &options.config;
    let [key_file, once_file] = [KEY, ONCE].map(|name| config.with_file_name(name));
    let text = text(&code, &options.lan);
    try_out(&text)?;
    let make = || {
        files::refuse_existing(&[config, &key_file, &once_file], files::ELSEWHERE)?;
        let key =
            PrivateKey::generate().map_err(|_| "the system gives no random numbers".to_owned())?;
        files::make_all(&[
            (&key_file, &files::key_text(&key)),
            (&once_file, &files::key_text(&code.once)),
            (config, &text),
        ])
    };
    make().map_err(|fault| Failure::Run(anyhow!(fault)))?;
    ClientConfig::load(config)?;
    // A name of an interface may be wrong, or missing yet: said now, not at the next boot.
    for interface in &options.lan {
        let said = match is_there(interface) {
            Ok(true) => match port(interface) {
                Some(fault) => fault,
                None => continue,
            },
            Ok(false) => format!("there is no interface `{interface}` on this machine now"),
            Err(error) => {
                format!("whether there is an interface `{interface}` cannot be found out: {error}")
            }
        };
        super::super::hint(&format!(
            "{said}; its hosts are without the client so. `ip link` lists them, and `interfaces` in {} has the name",
            config.display()
        ));
    }
    super::super::print(&format!(
        "Made {}, {} and {} for the client {} of {}.\nNext:  bentpipe client{}\n\
         The client names its key to the server when it first connects; after that {} may be deleted.",
        config.display(),
        key_file.display(),
        once_file.display(),
        code.name,
        code.server,
        next(options),
        once_file.display()
    ))
}

/// Reads the configuration `text` as the client will, in a place of its own and with keys that are forgotten: the command line may be
/// at fault, and then nothing is to be left behind.
fn try_out(text: &str) -> Result<(), Failure> {
    let keys = || PrivateKey::generate().map_err(|_| anyhow!("the system gives no random numbers"));
    let place = tempfile::tempdir().map_err(files::plain);
    let place = place.context("cannot make a directory for a while")?;
    let config = place.path().join("client.toml");
    let made = files::make_all(&[
        (&place.path().join(KEY), &files::key_text(&keys()?)),
        (&place.path().join(ONCE), &files::key_text(&keys()?)),
        (&config, text),
    ]);
    made.map_err(|fault| Failure::Run(anyhow!(fault)))?;
    ClientConfig::load(&config).map(drop).map_err(|fault| {
        let (at, fault) = (
            format!("{}:{}: ", config.display(), fault.line()),
            fault.to_string(),
        );
        let fault = fault.strip_prefix(&at).unwrap_or(&fault);
        Failure::Usage(format!(
            "{fault}; nothing was made, so mend the command and enter it again"
        ))
    })
}

/// True if an interface has this name now.
fn is_there(interface: &str) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    return is_known(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)), interface);
    #[cfg(not(target_os = "linux"))]
    Ok(!interface.is_empty())
}

/// Fault of an interface that is a port of another, if it is one.
#[cfg(target_os = "linux")]
fn port(interface: &str) -> Option<String> {
    bentpipe_pep::client::intercept::fault_of_port(interface)
}

/// No fault: nothing is intercepted here.
#[cfg(not(target_os = "linux"))]
fn port(_interface: &str) -> Option<String> {
    None
}

/// True if the kernel knows an interface of this name, asked by `socket`.
#[cfg(target_os = "linux")]
fn is_known(socket: io::Result<UdpSocket>, interface: &str) -> io::Result<bool> {
    let named = |error| io::Error::other(format!("no UDP socket to ask the kernel with: {error}"));
    match rustix::net::netdevice::name_to_index(&socket.map_err(named)?, interface) {
        Ok(_) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Words behind the command that starts the client: the file if it is not the usual one, or else the units, which read that.
fn next(options: &Join) -> String {
    if options.config.as_path() != crate::cli::Role::Client.default_config() {
        return format!(" --config {}", options.config.display());
    }
    let units = match options.lan.is_empty() {
        true => "bentpipe-client",
        false => "bentpipe-guard bentpipe-client",
    };
    format!("   (or: systemctl enable --now {units})")
}

fn text(code: &Code, lan: &[String]) -> String {
    let taken = match lan {
        [] => "# Applications use these proxies; host names travel inside the tunnel, too. To take in a whole LAN instead, as root:\n\
               # [intercept]\n\
               # interfaces = [\"lan0\"]\n\
               [socks5]\n\
               listen = \"127.0.0.1:1080\"\n\
               \n\
               [http]\n\
               listen = \"127.0.0.1:8080\"\n"
            .to_owned(),
        lan => format!(
            "# What every host behind these interfaces sends goes into the tunnel.\n[intercept]\ninterfaces = {lan:?}\n\n\
             # For programs of this machine, which is not taken in itself: `bentpipe measure` is one.\n\
             [socks5]\nlisten = \"127.0.0.1:1080\"\n"
        ),
    };
    format!(
        "# The client's configuration; docs/configuration.md of bentpipe has every key. `bentpipe check FILE` looks for faults.\n\
         private_key_file = \"{KEY}\"\n\
         \n\
         [server]\n\
         address = \"{}\"\n{}\
         public_key = \"{}\"\n\
         # Until the server knows this client's own key.\n\
         enrolment_key_file = \"{ONCE}\"\n\
         \n\
         {taken}\
         \n\
         # \"auto\" measures the link; \"geo\", \"leo\" and \"starlink\" name it.\n\
         [link]\n\
         profile = \"auto\"\n",
        code.server,
        code.tls().map_or_else(String::new, |tls| format!(
            "# Where no UDP passes, the tunnel goes over TLS.\ntls = \"{tls}\"\n"
        )),
        code.server_key
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_ask_for_an_interface_does_not_say_that_there_is_none() {
        assert!(is_there("lo").unwrap());
        assert!(!is_there("none0").unwrap());
        let none = || Err(Errno::MFILE.into());
        let said = is_known(none(), "lo").unwrap_err().to_string();
        assert!(
            said.contains("no UDP socket") && said.contains("open files"),
            "{said}"
        );
    }
}
