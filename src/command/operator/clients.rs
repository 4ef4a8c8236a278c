//! `bentpipe server add|list|remove`: the list of clients in the server's file, whose comments and order stay.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, anyhow};
use bentpipe_pep::config::{Client, ClientKey, Role, ServerAddress, ServerConfig};
use bentpipe_pep::keys::{self, PrivateKey};
use bentpipe_pep::{server, status};
use jiff::{SignedDuration, Timestamp};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::code::{self, Code};
use super::files::Draft;
use crate::cli::{Add, Listed, Remove, ServerFile};
use crate::exit::Failure;

impl ServerFile {
    /// What names the file on a command line that is suggested, if it is not the usual one.
    pub(super) fn flag(&self) -> String {
        match self.config == Path::new("/etc/bentpipe/server.toml") {
            true => String::new(),
            false => format!(" --config {}", self.config.display()),
        }
    }
}

/// Lists a client and prints its code.
pub(crate) fn add(options: &Add) -> Result<(), Failure> {
    code::check_name(&options.name).map_err(Failure::Usage)?;
    super::super::refuse_lost_output("the code")?;
    let file = options.file.config.display();
    // Who may not look is told so by what reads the file.
    if matches!(options.file.config.try_exists(), Ok(false)) {
        return Err(Failure::Key(format!(
            "{file} is not there yet; `bentpipe server init --public HOST{}` makes it",
            options.file.flag()
        )));
    }
    let config = ServerConfig::load(&options.file.config)?;
    let public = public_address(&config)?;
    if config
        .clients
        .iter()
        .any(|client| client.name == options.name)
    {
        return Err(Failure::Run(anyhow!(
            "{file} lists a client `{0}` already, which stays as it is; remove it first (`bentpipe server remove {0}{1}`), or \
             choose another name",
            options.name,
            options.file.flag()
        )));
    }
    let server_key = keys::read(&config.identity.private_key_file)
        .map_err(Failure::Key)?
        .public();
    let once = PrivateKey::generate().map_err(|_| anyhow!("the system gives no random numbers"));
    let once = once.map_err(Failure::Run)?;
    let expires = expiry(options)?;
    let changed = change(&options.file, |document| {
        enter(document, &options.name, &once, &expires.to_string())
    })?;
    let code = Code {
        name: options.name.clone(),
        server: public,
        tls_port: tls_port(&config),
        server_key,
        once,
    };
    let code = code.to_string();
    hand_out(options, &code, &changed)?;
    if options.qr || io::stdout().is_terminal() {
        super::super::print(&picture(&code)?)?;
    }
    eprintln_plain(&format!(
        "Hand this code to {} in private; it works once, until {expires}.\n\
         At the client:  bentpipe client join CODE [--lan IFACE]",
        options.name
    ));
    reload(&options.file);
    Ok(())
}

/// Prints `code`. A client whose code is lost is listed no more.
fn hand_out(options: &Add, code: &str, changed: &Changed) -> Result<(), Failure> {
    let fault = match super::super::deliver(code) {
        Ok(true) => return Ok(()),
        Ok(false) => "bentpipe: nobody reads standard output".to_owned(),
        Err(failure) => failure.to_string(),
    };
    let fault = fault.trim_start_matches("bentpipe: ");
    Err(Failure::Run(match undo(options, changed) {
        Ok(()) => anyhow!(
            "{fault}; the code is lost, so `{}` is not listed",
            options.name
        ),
        Err(failure) => anyhow!(
            "{fault}; the code is lost, and `{0}` stays listed ({failure}): `bentpipe server remove {0}{1}`",
            options.name,
            options.file.flag()
        ),
    }))
}

/// Takes back what was changed, but for what others have changed since.
fn undo(options: &Add, changed: &Changed) -> Result<(), Failure> {
    let path = &options.file.config;
    if fs::read_to_string(path).is_ok_and(|now| now == changed.after) {
        let draft = Draft::new(path, &changed.before);
        let installed = draft.and_then(Draft::install);
        return installed.map_err(|fault| Failure::Run(anyhow!(fault)));
    }
    take_back(&options.file, &options.name)
}

/// Adds a client called `name` to the file, whose key `once` admits it until it `expires`. `None`: the file has something else there.
fn enter(document: &mut DocumentMut, name: &str, once: &PrivateKey, expires: &str) -> Option<()> {
    let mut client = Table::new();
    // A comment at the end of the file stays where it is: before what is added.
    if let Some(comment) = document.trailing().as_str().map(str::to_owned)
        && !comment.trim().is_empty()
    {
        client.decor_mut().set_prefix(format!("{comment}\n"));
        document.set_trailing("");
    }
    client["name"] = value(name);
    client["enrolment_key"] = value(once.public().to_string());
    client["enrolment_expires"] = value(expires);
    let clients = document
        .entry("client")
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    clients
        .as_array_of_tables_mut()
        .map(|clients| clients.push(client))
}

/// TCP port at which the server takes TLS connections.
fn tls_port(config: &ServerConfig) -> Option<u16> {
    let listens = config.listening.tls.as_ref()?;
    listens.addresses.first().map(std::net::SocketAddr::port)
}

fn public_address(config: &ServerConfig) -> Result<ServerAddress, Failure> {
    config.listening.public_address.clone().ok_or_else(|| {
        Failure::Key(format!(
            "{} does not say where clients reach the server; add a line such as public_address = \"gateway.example.com:4433\"",
            config.file.display()
        ))
    })
}

fn expiry(options: &Add) -> Result<Timestamp, Failure> {
    let lasts = SignedDuration::try_from(options.expires).context("`--expires` is too long");
    let now = bentpipe_pep::clock().map_err(Failure::Key)?;
    let at = lasts.and_then(|lasts| {
        let now = Timestamp::from_second(i64::try_from(now.as_secs())?)?;
        Ok(now.checked_add(lasts)?)
    });
    let at = at.map_err(Failure::Run)?;
    Timestamp::from_second(at.as_second()).map_err(|error| Failure::Run(error.into()))
}

fn picture(code: &str) -> Result<String, Failure> {
    let picture = QrCode::new(code).context("the code does not fit into a picture")?;
    // Light on dark: terminals are mostly dark.
    Ok(picture
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .build())
}

/// Prints the clients.
pub(crate) fn list(options: &Listed) -> Result<(), Failure> {
    let config = ServerConfig::load(&options.file.config)?;
    let joined = server::joined(&config);
    let rows = config.clients.iter().map(|client| {
        let key = match client.key {
            ClientKey::Own(key) => Some(key),
            ClientKey::Enrolment { key, .. } => joined(&key),
        };
        (client, key.map(|key| key.to_string()))
    });
    if options.json {
        let rows: Vec<_> = rows
            .map(|(client, key)| json!({"name": client.name, "public_key": key, "code_expires": expires(client)}))
            .collect();
        let text = serde_json::to_string_pretty(&rows).expect("texts");
        return super::super::print(&text);
    }
    let rows: Vec<_> = rows
        .map(|(client, key)| {
            let state = key.unwrap_or_else(|| not_joined(client, &options.file.flag()));
            format!("{:24} {state}", client.name)
        })
        .collect();
    match rows.is_empty() {
        true => super::super::print(&format!(
            "no clients; `bentpipe server add NAME{}` adds one",
            options.file.flag()
        )),
        false => super::super::print(&rows.join("\n")),
    }
}

/// Words about a client that has not joined yet; `flag` names the server's file in the commands that they suggest.
fn not_joined(client: &Client, flag: &str) -> String {
    let until = expires(client).unwrap_or_default();
    match client.key {
        ClientKey::Enrolment { expires, .. } if is_over(expires) => format!(
            "has not joined; its code has expired at {until}: `bentpipe server remove {0}{flag}`, then `bentpipe server add {0}{flag}`",
            client.name
        ),
        _ => format!("has not joined; code until {until}"),
    }
}

/// True if this second since 1970 has passed.
fn is_over(second: u64) -> bool {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.is_ok_and(|now| now.as_secs() >= second)
}

fn expires(client: &Client) -> Option<String> {
    match client.key {
        ClientKey::Own(_) => None,
        ClientKey::Enrolment { expires, .. } => {
            let at = i64::try_from(expires).ok()?;
            Some(Timestamp::from_second(at).ok()?.to_string())
        }
    }
}

/// Removes a client.
pub(crate) fn remove(options: &Remove) -> Result<(), Failure> {
    take_back(&options.file, &options.name)?;
    super::super::print(&format!("removed {}", options.name))?;
    reload(&options.file);
    Ok(())
}

/// Takes the client `name` out of the file.
fn take_back(file: &ServerFile, name: &str) -> Result<(), Failure> {
    change(file, |document| {
        let clients = document.get_mut("client")?.as_array_of_tables_mut()?;
        let before = clients.len();
        clients.retain(|client| client.get("name").and_then(Item::as_str) != Some(name));
        (clients.len() < before).then_some(())
    })
    .map(drop)
}

/// Text of the file, before and after a change.
struct Changed {
    before: String,
    after: String,
}

/// Changes the file by `edit`, which has nothing to change if it returns `None`. A file that would be faulty stays as it is.
fn change(
    file: &ServerFile,
    edit: impl FnOnce(&mut DocumentMut) -> Option<()>,
) -> Result<Changed, Failure> {
    let path = &file.config;
    let before = fs::read_to_string(path);
    let before = before.with_context(|| format!("cannot read {}", path.display()))?;
    let document: Result<DocumentMut, _> = before.parse();
    let mut document =
        document.map_err(|error| Failure::Key(format!("{}: {error}", path.display())))?;
    edit(&mut document).ok_or_else(|| {
        Failure::Key(format!(
            "{} has no such client among its [[client]]; `bentpipe server list{}` names them",
            path.display(),
            file.flag()
        ))
    })?;
    let after = document.to_string();
    let draft = Draft::new(path, &after).map_err(|fault| Failure::Run(anyhow!(fault)))?;
    ServerConfig::load(draft.path()).map_err(|fault| {
        // Nobody knows the file aside, which is gone then.
        let [aside, own] = [draft.path(), path].map(|path| path.display().to_string());
        Failure::Key(fault.to_string().replacen(&aside, &own, 1))
    })?;
    let installed = draft.install();
    installed.map_err(|fault| Failure::Run(anyhow!(fault)))?;
    Ok(Changed { before, after })
}

/// Has the server that runs on the file read it again, and says whether there is one.
fn reload(file: &ServerFile) {
    let path = fs::canonicalize(&file.config).unwrap_or_else(|_| file.config.clone());
    let socket = ServerConfig::load(&file.config).ok();
    let socket = socket.and_then(|config| config.monitoring.status_socket);
    let socket = socket.as_deref().map(std::path::PathBuf::as_path);
    let report = status::query(socket, Some(Role::Server)).ok();
    let ours = report.filter(|report| {
        fs::canonicalize(&report.config_file).is_ok_and(|running| running == path)
    });
    let pid = ours.and_then(|report| Pid::from_raw(i32::try_from(report.pid).ok()?));
    let text = match pid.map(|pid| kill_process(pid, Signal::HUP)) {
        Some(Ok(())) => "The running server reads its clients again.".to_owned(),
        Some(Err(error)) => format!("The running server could not be told ({error}): send it SIGHUP."),
        None => "No server runs on this file, or none that this user may ask; one that does reads it on SIGHUP.".to_owned(),
    };
    eprintln_plain(&text);
}

/// A remark for whoever sits there, apart from what scripts read.
fn eprintln_plain(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "{text}");
}
