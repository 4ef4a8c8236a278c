//! Pages of a task: which they are, in whose sessions, on how many web servers, and what their encryption costs.

use super::choice::flat;
use super::{Browser, Connections, HandshakeEnd, Protocol, Task, Tls};
use crate::workload::{Handshakes, Page};

impl Task {
    /// Round trips of TLS that the page at this place of [`Self::pages`] needs; none for other tasks, and for pages that are not
    /// the first of their session.
    #[must_use]
    pub fn handshakes(&self, place: usize) -> Handshakes {
        match *self {
            Self::Page {
                connections,
                tls,
                in_session,
                ..
            } => {
                let each = connections == Connections::Each;
                let first = place.is_multiple_of(in_session as usize);
                Handshakes {
                    round_trips: if each || first { tls.round_trips() } else { 0 },
                    each,
                }
            }
            _ => Handshakes {
                round_trips: 0,
                each: false,
            },
        }
    }

    /// True if what is fetched comes over TLS of its hosts.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Page { tls, .. } if *tls != Tls::None)
    }

    /// Pages that are loaded, those of one session side by side; none of other tasks.
    #[must_use]
    pub fn pages(&self) -> Vec<Page> {
        match *self {
            Self::Page {
                count,
                objects: Some(objects),
                servers,
                in_session,
                ..
            } => flat(count, objects.into(), servers, in_session),
            Self::Page { count, pages, .. } => pages.pages(count),
            _ => Vec::new(),
        }
    }

    /// Pages that each browser loads one after another, over connections that it keeps.
    pub(crate) fn in_session(&self) -> usize {
        match self {
            Self::Page { in_session, .. } => *in_session as usize,
            _ => 1,
        }
    }

    /// Web servers that its sessions are with, the first ones of the web.
    pub(crate) fn servers(&self) -> u8 {
        match self {
            Self::Page { servers, .. } => *servers,
            _ => 1,
        }
    }

    /// The task for users who speak TLS in this way, whatever it says itself.
    ///
    /// # Errors
    /// The task cannot be done with that TLS; the text says why.
    pub(crate) fn with_tls(mut self, own: Tls) -> Result<Self, String> {
        match &mut self {
            Self::Page {
                browser: Browser::Chromium,
                ..
            } => Err("Chromium chooses its TLS itself".into()),
            Self::Page { protocol, .. } if *protocol != Protocol::H1 => {
                Err("HTTP/2 and HTTP/3 are over TLS 1.3".into())
            }
            Self::Page { tls, .. } => {
                *tls = own;
                Ok(self)
            }
            Self::Handshake {
                to: HandshakeEnd::Tls,
                ..
            } if own == Tls::None => Err("its users speak no TLS".into()),
            Self::Handshake { tls, .. } => {
                *tls = own;
                Ok(self)
            }
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(text: &str) -> Task {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn sessions_are_on_servers_by_turns_and_shake_hands_once() {
        let one = task(
            "kind = \"page\"\ncount = 10\nobjects = 3\nservers = 4\nin_session = 2\nat_once = true",
        );
        let pages = one.pages();
        let hosts: Vec<u8> = pages.iter().map(|page| page.objects()[0].host).collect();
        assert_eq!(hosts, [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]);
        for page in &pages {
            let own = page.objects()[0].host;
            assert!(page.objects().iter().all(|object| object.host == own));
        }
        // No page is like another, so nothing can be kept of one for the next.
        assert!(
            pages
                .iter()
                .skip(1)
                .all(|page| page.path(0) != pages[0].path(0))
        );
        let trips: Vec<u32> = (0..4).map(|at| one.handshakes(at).round_trips).collect();
        assert_eq!(trips, [1, 0, 1, 0]);
        let each = task(
            "kind = \"page\"\ncount = 2\nobjects = 3\nin_session = 2\nconnections = \"each\"\ntls = \"1.2\"",
        );
        assert_eq!(each.handshakes(1).round_trips, 2);
        assert_eq!((each.servers(), each.in_session()), (1, 2));
    }

    #[test]
    fn users_with_a_tls_of_their_own_do_what_can_be_done_so() {
        let page = task("kind = \"page\"\ncount = 1\nobjects = 3");
        assert!(page.is_encrypted() && !page.with_tls(Tls::None).unwrap().is_encrypted());
        let old = page.with_tls(Tls::V12).unwrap();
        assert_eq!(old.handshakes(0).round_trips, 2);
        let handshake = task("kind = \"handshake\"\ncount = 1");
        assert!(handshake.with_tls(Tls::None).is_err());
        assert!(handshake.with_tls(Tls::V12).is_ok());
        for other in ["protocol = \"h2\"", "browser = \"chromium\""] {
            let page = task(&format!("kind = \"page\"\ncount = 1\n{other}"));
            assert!(page.with_tls(Tls::None).is_err(), "{other}");
        }
    }
}
