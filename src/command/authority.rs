//! `bentpipe ca`: the local CA by which a client answers for named HTTPS hosts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::anyhow;
use bentpipe_pep::authority::{self, Authority, Files, ValidityPhase};
use bentpipe_pep::config::{ClientFile, TrustedName};

use super::operator::{give, make_all, refuse_existing};
use crate::cli::{CaInit, CaPlace, Role};
use crate::exit::Failure;

/// Mend of a CA that exists.
const MEND: &str =
    ", for browsers may trust it; `bentpipe ca remove` first, or choose another place with --dir";

/// Makes a CA, and says how it is installed.
pub(crate) fn init(options: &CaInit) -> Result<(), Failure> {
    let files = files(&options.place)?;
    let names = names(options)?;
    let made = || {
        refuse_existing(&[&files.key(), &files.certificate()], MEND)?;
        let made = authority::make(&names)?;
        directory(files.directory())?;
        make_all(&[
            (&files.key(), &made.key),
            (&files.certificate(), &made.certificate),
        ])
    };
    made().map_err(|fault| Failure::Run(anyhow!(fault)))?;
    show(&options.place)
}

/// Prints what the CA is for and how it is installed.
pub(crate) fn show(place: &CaPlace) -> Result<(), Failure> {
    let files = files(place)?;
    let authority = known(&files)?;
    let path = files.certificate();
    let remark = match authority.present_phase() {
        ValidityPhase::Good | ValidityPhase::Ending => "",
        ValidityPhase::Over => "; EXPIRED: `bentpipe ca remove`, then `bentpipe ca init`",
        ValidityPhase::NotYet => {
            "; NOT VALID YET by this machine's clock: `timedatectl set-ntp true`, or `date -s`"
        }
    };
    super::print(&format!(
        "{}\n  certificate  {}\n  SHA-256      {}\n  for          {}\n  valid until  {}{remark}\n\n\
         Who has {} can show whoever trusts this CA certificates for these hosts and those below them.\n\
         To install it, after a look at the fingerprint:\n{}",
        authority.subject(),
        path.display(),
        authority.fingerprint(),
        listed(&authority),
        authority.expires(),
        files.key().display(),
        installing(&path),
    ))
}

/// Deletes the CA, and says where it may still be trusted.
pub(crate) fn remove(place: &CaPlace) -> Result<(), Failure> {
    let files = files(place)?;
    let authority = own(&files)?;
    // The key first: without it nothing can be signed.
    for file in [files.key(), files.certificate()] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let fault = anyhow!("cannot delete {}: {error}", file.display());
                return Err(Failure::Run(fault));
            }
            _ => {}
        }
    }
    // Others may have put files there.
    let _ = fs::remove_dir(files.directory());
    let (subject, fingerprint) = (authority.subject(), authority.fingerprint());
    super::print(&format!(
        "Deleted {subject}, SHA-256 {fingerprint}; nothing can be signed by it any more.\n\
         It stays trusted where it was installed. To remove it there:\n{}",
        removing(subject),
    ))
}

/// The CA in `files`, which bentpipe has made: other programs call their files so, too.
fn own(files: &Files) -> Result<Authority, Failure> {
    let paths = [files.certificate(), files.key()];
    if paths.iter().all(|path| path.symlink_metadata().is_err()) {
        return Err(none(files));
    }
    let read = Authority::read(files).ok().flatten();
    read.filter(Authority::is_of_bentpipe).ok_or_else(|| {
        Failure::Run(anyhow!(
            "{} is not the certificate of a CA that bentpipe has made, so it stays, and {} with it; delete them by hand if \
             they are of no use to another program",
            files.certificate().display(),
            files.key().display()
        ))
    })
}

/// Names that the command line lists, or the client's configuration.
fn names(options: &CaInit) -> Result<Vec<TrustedName>, Failure> {
    let mut names = options.names.clone();
    if names.is_empty() {
        names = client(&options.place)?.front().answered_names();
    }
    if names.is_empty() {
        let text = "which hosts is the CA for? Give `--name HOST`, or list them as `names` of the client's `[web]`, or `origins` of its `[dssl]`";
        return Err(Failure::Key(text.into()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Files of the CA that `place` names.
fn files(place: &CaPlace) -> Result<Files, Failure> {
    match &place.dir {
        Some(directory) => Ok(Files::within(directory)),
        None => Ok(Files::of_state(&client(place)?.state_dir())),
    }
}

/// The client's configuration.
fn client(place: &CaPlace) -> Result<ClientFile, Failure> {
    let file = super::daemon::config(place.config.as_deref(), Role::Client)?;
    Ok(ClientFile::load(file)?)
}

fn known(files: &Files) -> Result<Authority, Failure> {
    let read = Authority::read(files).map_err(Failure::Key)?;
    read.ok_or_else(|| none(files))
}

fn none(files: &Files) -> Failure {
    Failure::Run(anyhow!(
        "there is no CA in {}; make one with `bentpipe ca init`, or name its place with --dir",
        files.directory().display()
    ))
}

/// Makes the CA's directory, closed to others, and gives it to the daemon's user.
fn directory(directory: &Path) -> Result<(), String> {
    let made = || {
        if directory.exists() {
            return Ok(());
        }
        let parent = directory.parent().unwrap_or(directory);
        if !parent.as_os_str().is_empty() && !parent.exists() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        DirBuilder::new().mode(0o700).create(directory)?;
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        give(&File::open(directory)?, parent)
    };
    made().map_err(|error: io::Error| format!("cannot make {}: {error}", directory.display()))
}

fn listed(authority: &Authority) -> String {
    let names = authority.names().iter();
    let names: Vec<_> = names.map(ToString::to_string).collect();
    names.join(", ")
}

/// Commands that have a system or a browser trust the certificate at `path`.
fn installing(path: &Path) -> String {
    let path = path.display();
    format!(
        "  Debian          cp {path} /usr/local/share/ca-certificates/bentpipe.crt && update-ca-certificates\n  \
           Firefox         Settings, Privacy & Security, View Certificates, Authorities, Import; trust it for websites\n  \
           Chromium (NSS)  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n bentpipe -i {path}\n  \
           Windows         certutil -addstore Root ca.pem\n  \
           macOS           sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain ca.pem"
    )
}

/// Commands that end a system's or a browser's trust in the CA called `subject`.
fn removing(subject: &str) -> String {
    format!(
        "  Debian          rm /usr/local/share/ca-certificates/bentpipe.crt && update-ca-certificates --fresh\n  \
           Firefox         Settings, Privacy & Security, View Certificates, Authorities: delete \"{subject}\"\n  \
           Chromium (NSS)  certutil -d sql:$HOME/.pki/nssdb -D -n bentpipe\n  \
           Windows         certutil -delstore Root \"{subject}\"\n  \
           macOS           sudo security delete-certificate -c \"{subject}\" /Library/Keychains/System.keychain"
    )
}
