//! Hosts whose pages over TLS a client answers: its local CA, watched, and a certificate for each host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::authority::{Files, Signer, ValidityPhase};
use crate::config::TrustedName;
use crate::process::{self, date, since_1970};

/// Time for which a host that speaks no HTTP/1.1 is not answered for.
const LEFT: Duration = Duration::from_secs(600);

/// Field by which a server says that a host speaks no HTTP/1.1 (`PROTOCOL.md` §19.5).
const NO_HTTP1: &[u8] =
    b"\r\nProxy-Status: bentpipe; error=tls_alert_received; alert-message=\"no_application_protocol\"\r\n";

/// Marks by which a changed file is told: inode, length, and moment of the last change.
type Marks = [Option<(u64, u64, i64, i64)>; 2];

/// End of a line about a CA that answers for nobody.
const MEANWHILE: &str = "pages of the hosts in `names` load as without `tls = \"trusted\"`";

#[derive(Default)]
struct Watched {
    /// Files as they were looked at last; `None`: never.
    marks: Option<Marks>,
    signer: Option<Signer>,
    /// TLS with the certificate of a host; of hosts that are listed, and so of no more than that.
    leaves: HashMap<TrustedName, Arc<ServerConfig>>,
    /// Part of the CA's life that the log was told of.
    told: Option<ValidityPhase>,
}

impl Watched {
    /// Line about the CA's beginning or end at `now`, since 1970, if that is news.
    fn news_of_validity(&mut self, now: Duration) -> Option<String> {
        let authority = self.signer.as_ref()?.authority();
        let phase = authority.phase(now);
        if self.told.replace(phase) == Some(phase) {
            return None;
        }
        let (subject, on) = (authority.subject(), authority.expires());
        let mend = "`bentpipe ca remove`, then `bentpipe ca init`";
        match phase {
            ValidityPhase::NotYet => Some(format!(
                "the clock of this machine shows {}, and {subject} was made later; set the clock (`timedatectl set-ntp true`, or `date -s`): \
                 until then {MEANWHILE}",
                date(now.as_secs())
            )),
            ValidityPhase::Good => None,
            ValidityPhase::Ending => Some(format!(
                "{subject} expires on {on}; {mend}, and install the new one: from then on {MEANWHILE}"
            )),
            ValidityPhase::Over => Some(format!("{subject} has expired; {mend}: {MEANWHILE}")),
        }
    }
}

/// Hosts that are listed, and the CA for them.
pub(super) struct Trusted {
    names: Vec<TrustedName>,
    files: Files,
    known: RefCell<Watched>,
    /// Hosts that speak no HTTP/1.1, and when that was found; of those that are listed alone.
    left: RefCell<HashMap<TrustedName, Instant>>,
}

impl Trusted {
    /// Of a client that lists `names` and has its state in `state_dir`; reads the CA.
    pub(super) fn new(names: Vec<TrustedName>, state_dir: &Path) -> Self {
        let trusted = Self {
            names,
            files: Files::of_state(state_dir),
            known: RefCell::default(),
            left: RefCell::default(),
        };
        trusted.look();
        trusted
    }

    /// Looks at the files of the CA, reads them if they have changed, and tells the log of its life; to be called every second.
    pub(super) fn look(&self) {
        let marks = [self.files.certificate(), self.files.key()].map(|file| {
            let metadata = fs::metadata(file).ok()?;
            // That of the inode, which a change of the mode moves as well.
            let changed = (metadata.ctime(), metadata.ctime_nsec());
            Some((metadata.ino(), metadata.len(), changed.0, changed.1))
        });
        let mut known = self.known.borrow_mut();
        if known.marks != Some(marks) {
            let signer = self.read();
            *known = Watched {
                marks: Some(marks),
                signer,
                leaves: HashMap::new(),
                told: None,
            };
        }
        if let Some(news) = known.news_of_validity(since_1970()) {
            tracing::warn!("{news}");
        }
    }

    /// Reads the CA, and tells the log what comes of it.
    fn read(&self) -> Option<Signer> {
        let signer = match Signer::read(&self.files) {
            Ok(Some(signer)) => signer,
            Ok(None) => {
                let directory = self.files.directory().display();
                tracing::warn!(
                    "there is no CA in {directory}; `bentpipe ca init` makes one: {MEANWHILE}"
                );
                return None;
            }
            Err(fault) => {
                tracing::warn!("{fault}: {MEANWHILE}");
                return None;
            }
        };
        let authority = signer.authority();
        for name in self.names.iter().filter(|name| !authority.is_for(name)) {
            tracing::warn!(
                "{} is not for {name}, which loads as without `tls = \"trusted\"`; `bentpipe ca remove`, then `bentpipe ca init`",
                authority.subject()
            );
        }
        tracing::info!(
            "{} answers for listed hosts until {}; SHA-256 {}",
            authority.subject(),
            authority.expires(),
            authority.fingerprint()
        );
        Some(signer)
    }

    /// Leaves the host `name` alone if the `head` of a response says that it speaks no HTTP/1.1.
    pub(super) fn look_at(&self, name: &str, head: &[u8]) {
        let says = head.windows(NO_HTTP1.len()).any(|part| part == NO_HTTP1);
        let Some(name) = self.names.iter().find(|one| says && one.as_str() == name) else {
            return;
        };
        if self
            .left
            .borrow_mut()
            .insert(name.clone(), process::now())
            .is_none()
        {
            tracing::warn!(
                "{name} speaks HTTP/2 alone: its connections are not touched for ten minutes; take it out of `names`"
            );
        }
    }

    /// True if the host `name` is left alone, for it speaks no HTTP/1.1.
    pub(super) fn is_left(&self, name: &str) -> bool {
        let mut left = self.left.borrow_mut();
        left.retain(|_, since| process::now() < *since + LEFT);
        left.keys().any(|one| one.as_str() == name)
    }

    /// TLS as the host `name`; `None`: its connections are not to be touched.
    pub(super) fn answer_as(&self, name: &str) -> Option<Arc<ServerConfig>> {
        if self.is_left(name) {
            return None;
        }
        self.answer_at(since_1970(), name)
    }

    /// TLS as the host `name`, if this machine's clock shows `now`, since 1970.
    fn answer_at(&self, now: Duration, name: &str) -> Option<Arc<ServerConfig>> {
        let name = self.names.iter().find(|one| one.as_str() == name)?;
        let mut known = self.known.borrow_mut();
        let Watched { signer, leaves, .. } = &mut *known;
        let signer = signer.as_ref()?;
        let authority = signer.authority();
        if !authority.phase(now).is_valid() || !authority.is_for(name) {
            return None;
        }
        if let Some(config) = leaves.get(name) {
            return Some(config.clone());
        }
        // A fraction of a millisecond: two operations on P-256.
        match signer.answer_as(name) {
            Ok(config) => {
                leaves.insert(name.clone(), config.clone());
                Some(config)
            }
            Err(error) => {
                tracing::warn!("cannot make a certificate for {name}: {error}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::authority;

    #[test]
    fn hosts_are_answered_for_while_there_is_a_ca_for_them() {
        let state = tempfile::tempdir().unwrap();
        let files = Files::of_state(state.path());
        let name = |name: &str| name.parse::<TrustedName>().unwrap();
        let names = vec![name("a.example.com"), name("b.example.org")];
        let trusted = Trusted::new(names, state.path());
        assert!(trusted.answer_as("a.example.com").is_none(), "no CA");

        let made = authority::make(&[name("a.example.com")]).unwrap();
        fs::create_dir(files.directory()).unwrap();
        fs::write(files.certificate(), &made.certificate).unwrap();
        trusted.look();
        assert!(trusted.answer_as("a.example.com").is_none(), "no key");
        fs::write(files.key(), &made.key).unwrap();
        fs::set_permissions(files.key(), fs::Permissions::from_mode(0o600)).unwrap();
        trusted.look();
        let first = trusted.answer_as("a.example.com").unwrap();
        let second = trusted.answer_as("a.example.com").unwrap();
        assert!(Arc::ptr_eq(&first, &second), "one certificate for a host");
        assert!(trusted.answer_as("b.example.org").is_none(), "not the CA's");
        assert!(trusted.answer_as("c.a.example.com").is_none(), "not listed");

        let other = authority::make(&[name("a.example.com")]).unwrap();
        fs::write(files.certificate(), &other.certificate).unwrap();
        trusted.look();
        assert!(
            trusted.answer_as("a.example.com").is_none(),
            "another's key"
        );
        fs::write(files.certificate(), &made.certificate).unwrap();
        fs::set_permissions(files.key(), fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(files.key(), format!("{}\n", made.key)).unwrap();
        trusted.look();
        assert!(trusted.answer_as("a.example.com").is_none(), "open to all");
        fs::remove_file(files.certificate()).unwrap();
        trusted.look();
        assert!(trusted.answer_as("a.example.com").is_none(), "removed");
    }

    const DAY: Duration = Duration::from_secs(86_400);

    /// A client with a CA that was made now, for the host `a.example.com`, and its state.
    fn with_ca() -> (Trusted, tempfile::TempDir) {
        let state = tempfile::tempdir().unwrap();
        let files = Files::of_state(state.path());
        let name: TrustedName = "a.example.com".parse().unwrap();
        let made = authority::make(std::slice::from_ref(&name)).unwrap();
        fs::create_dir(files.directory()).unwrap();
        fs::write(files.certificate(), &made.certificate).unwrap();
        fs::write(files.key(), &made.key).unwrap();
        fs::set_permissions(files.key(), fs::Permissions::from_mode(0o600)).unwrap();
        (Trusted::new(vec![name], state.path()), state)
    }

    /// Browsers judge by their own clock, and whatever that shows, they take what the hosts themselves show.
    #[test]
    fn a_clock_outside_the_life_of_a_ca_leaves_its_hosts_alone() {
        let (trusted, _state) = with_ca();
        let made = since_1970();
        let answers = |now| trusted.answer_at(now, "a.example.com").is_some();
        assert!(answers(made) && answers(made + DAY * 700));
        for wrong in [Duration::from_secs(100), made - DAY * 30, made + DAY * 731] {
            assert!(!answers(wrong), "{wrong:?}");
        }
        let mut known = trusted.known.borrow_mut();
        let unset = known.news_of_validity(Duration::from_secs(100)).unwrap();
        assert!(
            unset.starts_with("the clock of this machine shows 1970-01-01, and bentpipe local CA")
                && unset.contains("set the clock"),
            "{unset}"
        );
        assert_eq!(known.news_of_validity(Duration::from_secs(200)), None);
        assert_eq!(known.news_of_validity(made), None);
    }

    #[test]
    fn the_end_of_a_ca_is_told_before_and_then_once_each() {
        let (trusted, _state) = with_ca();
        let mut known = trusted.known.borrow_mut();
        let begun = since_1970();
        let mut news = |days: u32| known.news_of_validity(begun + DAY * days);
        assert_eq!(news(600), None);
        let soon = news(720).expect("it ends in ten days");
        assert!(
            soon.contains(" expires on ") && soon.contains("bentpipe ca init"),
            "{soon}"
        );
        assert_eq!(news(721), None);
        let over = news(731).expect("it has ended");
        assert!(over.contains("has expired; `bentpipe ca remove`"), "{over}");
        assert_eq!(news(732), None);
    }
}
