//! A task with all that is known before any clock runs: its content, and the least that its figures can be.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use bentpipe_units::{ByteCount, Seed};

use crate::experiment::{Connections, Direction, HandshakeEnd, Protocol, Task, Tls};
use crate::workload::{
    Authority, Client, ContentKind, ECHO_SIZE, Expected, Hosts, LinkLimit, Object, Page,
};

/// A task with its content, which is made before any clock runs.
pub(super) struct Prepared {
    pub(super) task: Task,
    pub(super) object: Expected,
    /// Of an FTP task.
    pub(super) files: Vec<Expected>,
    /// Request and response of each transaction.
    pub(super) exchanges: Vec<[Expected; 2]>,
    pub(super) warm_up: Option<(Direction, Expected)>,
    pub(super) pages: Vec<Page>,
    pub(super) seed: Seed,
}

/// Files of this kind and these lengths, each with content of its own.
fn expected(
    kind: ContentKind,
    lengths: impl IntoIterator<Item = u64>,
    seed: Seed,
) -> Vec<Expected> {
    let file = |(length, place)| {
        Expected::from(Object {
            kind,
            seed: seed.nth(place),
            length,
        })
    };
    lengths.into_iter().zip(0..).map(file).collect()
}

/// Content of a session's transactions.
fn exchanges(task: Task, seed: Seed) -> Vec<[Expected; 2]> {
    let Task::Session {
        count,
        request,
        response,
        ..
    } = task
    else {
        return Vec::new();
    };
    let all = |name, size: ByteCount| {
        let lengths = std::iter::repeat_n(size.as_u64(), count as usize);
        expected(task.content(), lengths, seed.stream(name))
    };
    let pairs = all("requests", request).into_iter();
    let pairs = pairs.zip(all("responses", response));
    pairs.map(|(one, other)| [one, other]).collect()
}

impl Prepared {
    pub(super) fn new(task: Task, seed: Seed) -> Self {
        let object = |name: &str, length: ByteCount| {
            let (seed, length) = (seed.stream(name), length.as_u64());
            let kind = task.content();
            Expected::from(Object { kind, seed, length })
        };
        Self {
            task,
            object: object("object", task.size()),
            files: expected(task.content(), task.files(seed), seed.stream("files")),
            exchanges: exchanges(task, seed),
            warm_up: task
                .warm_up()
                .map(|(direction, size)| (direction, object("warm-up", size))),
            pages: task.pages(),
            seed,
        }
    }

    /// Bytes of content that are to cross.
    pub(super) fn bytes(&self) -> u64 {
        match self.task {
            Task::Page { .. } => self.pages.iter().map(Page::bytes).sum(),
            Task::Ftp { .. } => self.files.iter().map(|file| file.object.length).sum(),
            Task::Session { .. } => {
                let responses = self.exchanges.iter().map(|[_, response]| response);
                responses.map(|response| response.object.length).sum()
            }
            _ => self.object.object.length * self.objects(),
        }
    }

    /// Number of objects that are to cross.
    fn objects(&self) -> u64 {
        match self.task {
            Task::Parallel { count, .. } | Task::Objects { count, .. } => count.into(),
            Task::Voice { .. } | Task::Echo { .. } => 0,
            _ => self.task.samples().into(),
        }
    }

    /// Objection to pages whose hosts the resolver was not asked for: somebody else knew the names.
    pub(super) fn unasked(&self, hosts: &Hosts, asked: &BTreeSet<String>) -> Option<String> {
        let objects = self.pages.iter().flat_map(Page::objects);
        let places: BTreeSet<usize> = objects.map(|object| object.host.into()).collect();
        let names = places.iter().filter_map(|place| hosts.get(*place));
        let unasked: Vec<&str> = names
            .map(|(name, _)| name)
            .filter(|name| !asked.contains(*name))
            .collect();
        let text = || format!("the resolver was never asked for {}", unasked.join(", "));
        (!unasked.is_empty()).then(text)
    }

    /// The least share of the content's bytes that a tunnel carries if it carries all of it: markers can
    /// be compressed, and text.
    pub(super) fn least_carried(&self) -> f64 {
        match self.task.content() {
            ContentKind::Binary => 0.85,
            ContentKind::Text => 0.2,
        }
    }

    /// Direction of most of it.
    pub(super) fn direction(&self) -> Direction {
        self.task.direction()
    }

    /// The least that each figure can be; one for all where that is the same. `ahead`: who carries asks for a page's objects, and
    /// ends TLS, beyond the link.
    pub(super) fn limits(&self, link: &LinkLimit, ahead: bool) -> Vec<f64> {
        let limits = match self.task {
            Task::Page { .. } if ahead => {
                let least = |page: &Page| link.object(page.bytes());
                self.pages.iter().map(least).collect()
            }
            Task::Page { .. } => {
                let least = |(place, page): (usize, &Page)| match self.task.direction() {
                    Direction::Down => link.page(page, self.task.handshakes(place)),
                    Direction::Up => link.object(page.bytes()),
                };
                self.pages.iter().enumerate().map(least).collect()
            }
            // Of a datagram only that it cannot be there before it was sent.
            Task::Voice { .. } => Vec::new(),
            Task::Echo { .. } => vec![link.object(ECHO_SIZE)],
            Task::Iperf { .. } => vec![link.stream(self.object.object.length)],
            Task::Parallel { count, .. } => {
                vec![link.object(self.object.object.length * u64::from(count))]
            }
            Task::Ftp { .. } => {
                let each = self
                    .files
                    .iter()
                    .map(|file| link.object(file.object.length));
                vec![each.sum()]
            }
            Task::Handshake {
                to: HandshakeEnd::Tls,
                ..
            } => vec![link.object(0)],
            // Some contenders have nothing to agree on.
            Task::Handshake {
                to: HandshakeEnd::Contender,
                ..
            } => Vec::new(),
            Task::Session { response, .. } => vec![link.object(response.as_u64())],
            // Each is asked for when the one before it is there.
            Task::Objects { count, .. } => {
                vec![link.object(self.object.object.length) * count]
            }
            _ => vec![link.object(self.object.object.length)],
        };
        limits.iter().map(Duration::as_secs_f64).collect()
    }

    /// Client that loads pages.
    pub(super) fn client(&self, authority: &Authority) -> Result<Client> {
        let Task::Page {
            protocol,
            connections,
            tls,
            parallel,
            ..
        } = self.task
        else {
            return Ok(Client::http1(authority.client_config()?));
        };
        let http2 = || authority.http2_client_config();
        match protocol {
            Protocol::H1 => {}
            Protocol::H2 => return Ok(Client::http2(http2()?)),
            Protocol::H3 => {
                return Ok(Client::http3(authority.http3_client_config()?, http2()?));
            }
        }
        let tls = match tls {
            Tls::None => None,
            Tls::V12 => Some(authority.tls12_client_config()?),
            Tls::V13 => Some(authority.client_config()?),
        };
        let each = connections == Connections::Each;
        Ok(Client::new(tls, each, parallel.into()))
    }

    /// Files as long as the objects of each page, where these go up.
    pub(super) fn sent(&self) -> Vec<Vec<Expected>> {
        if self.task.direction() == Direction::Down {
            return Vec::new();
        }
        let page = |(page, place): (&Page, u64)| {
            let lengths = page.objects().iter().map(|object| object.length);
            expected(
                ContentKind::Binary,
                lengths,
                self.seed.stream("page").nth(place),
            )
        };
        self.pages.iter().zip(0..).map(page).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_nobody_asked_for_speaks_against_its_page() {
        let task = toml::from_str("kind = \"page\"\ncount = 1\ndns = true\n").unwrap();
        let prepared = Prepared::new(task, Seed::new(1));
        let hosts = Hosts::of_topology(crate::workload::corpus::HOSTS);
        let mut asked: BTreeSet<String> = hosts.names().into_iter().collect();
        assert_eq!(prepared.unasked(&hosts, &asked), None);
        asked.remove("host-1.test");
        let doubt = prepared.unasked(&hosts, &asked).unwrap();
        assert!(doubt.ends_with("asked for host-1.test"), "{doubt}");
    }
}
