//! Doing a task: what the user does, timed at the user.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_units::{ByteCount, Seed};

use super::done::Done;
use super::target::Target;
use crate::experiment::{Connections, Direction, Protocol, Task, Tls};
use crate::workload::{
    Authority, Chromium, Client, ECHO_SIZE, Echo, Expected, ExpectedPage, Ftp, Hosts, LinkLimit,
    Object, Page, call, ftp, get_in_turn, handshakes, iperf3, load, probe, run_in,
};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Topology;

/// Between a transfer that is not measured and the one that is: queues empty.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for which the file without end is on its way before the first request.
const LEAD: Duration = Duration::from_secs(5);
/// Time that ending takes besides the task's own.
const MARGIN: Duration = Duration::from_secs(30);

/// A task with its content, which is made before any clock runs.
pub(super) struct Prepared {
    task: Task,
    object: Expected,
    /// Of an FTP task.
    files: Vec<Expected>,
    warm_up: Option<(Direction, Expected)>,
    pages: Vec<Page>,
    seed: Seed,
}

/// Files of these lengths, each with content of its own.
fn expected(lengths: impl IntoIterator<Item = u64>, seed: Seed) -> Vec<Expected> {
    let file = |(length, place)| {
        Expected::from(Object {
            seed: seed.nth(place),
            length,
        })
    };
    lengths.into_iter().zip(0..).map(file).collect()
}

/// Place at which it is done.
pub(super) struct TaskPlace<'a> {
    pub(super) topology: &'a Topology,
    pub(super) hosts: &'a Hosts,
    pub(super) authority: &'a Authority,
    pub(super) chromium: Option<&'a Chromium>,
}

impl Prepared {
    pub(super) fn new(task: Task, seed: Seed) -> Self {
        let object = |name: &str, length: ByteCount| {
            let (seed, length) = (seed.stream(name), length.as_u64());
            Expected::from(Object { seed, length })
        };
        Self {
            task,
            object: object("object", task.size()),
            files: expected(task.files(seed), seed.stream("files")),
            warm_up: task
                .warm_up()
                .map(|(direction, size)| (direction, object("warm-up", size))),
            pages: match task {
                Task::Page { count, pages, .. } => pages.pages(count),
                _ => Vec::new(),
            },
            seed,
        }
    }

    /// Bytes of content that are to cross.
    pub(super) fn bytes(&self) -> u64 {
        match self.task {
            Task::Page { .. } => self.pages.iter().map(Page::bytes).sum(),
            Task::Ftp { .. } => self.files.iter().map(|file| file.object.length).sum(),
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

    /// Direction of most of it.
    pub(super) fn direction(&self) -> Direction {
        self.task.direction()
    }

    /// The least that each figure can be; one for all where that is the same.
    pub(super) fn limits(&self, link: &LinkLimit) -> Vec<f64> {
        let limits = match self.task {
            Task::Page { .. } => {
                let handshakes = self.task.handshakes();
                let least = |page: &Page| match self.task.direction() {
                    Direction::Down => link.page(page, handshakes),
                    Direction::Up => link.object(page.bytes()),
                };
                self.pages.iter().map(least).collect()
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
            Task::Handshake { .. } => vec![link.object(0)],
            // Each is asked for when the one before it is there.
            Task::Objects { count, .. } => {
                vec![link.object(self.object.object.length) * count]
            }
            _ => vec![link.object(self.object.object.length)],
        };
        limits.iter().map(Duration::as_secs_f64).collect()
    }

    /// Does it all.
    pub(super) fn perform(
        &self,
        place: &TaskPlace<'_>,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Done> {
        if self.task.needs_chromium() {
            return self.browse(place, patience, stop);
        }
        let target = Target::of(place)?;
        let address = target.address.ip();
        if let Task::Voice { length, direction } = self.task {
            let (user, web) = (place.topology.user(), place.topology.web());
            let down = direction == Direction::Down;
            return call(user, web, address, down, length.get(), stop).map(Done::Spoken);
        }
        if let Task::Iperf { direction, .. } = self.task {
            self.warm_up_alone(place, &target, patience, stop)?;
            let (down, bytes) = (direction == Direction::Down, self.bytes());
            let time = iperf3(place.topology, address, down, bytes, patience, stop)?;
            return Ok(time.map_or(Done::Unfinished, |time| {
                Done::Measured(vec![time.as_secs_f64()])
            }));
        }
        if let Task::Echo {
            count, background, ..
        } = self.task
        {
            return self.echo(place, &target, count, background, patience, stop);
        }
        let client = self.client(place.authority)?;
        let _ftp = match self.task {
            Task::Ftp { .. } => Some(Ftp::start(place.topology.web())?),
            _ => None,
        };
        // The warm-up has as much time as what is measured.
        let most = 2 * patience + PAUSE + LEAD + MARGIN;
        // Digests, before any clock runs.
        let expect = |page: &Page| ExpectedPage::new(page.clone(), place.hosts);
        let pages: Vec<ExpectedPage> = self.pages.iter().map(expect).collect();
        let sent = self.sent();
        run_in(place.topology.user(), stop, most, || async {
            let samples = async {
                match self.task {
                    Task::Transfer { direction, .. } => {
                        Ok(vec![target.transfer(direction, &self.object).await?])
                    }
                    Task::Request { count, .. } => target.requests(&self.object, count).await,
                    Task::Handshake { count, .. } => {
                        handshakes(place.hosts, place.authority, count).await
                    }
                    Task::Parallel {
                        count, direction, ..
                    } => {
                        let files = vec![self.object; count as usize];
                        let all = target.together(direction, &files, files.len());
                        Ok(vec![all.await?])
                    }
                    Task::Objects { count, .. } => {
                        let all = get_in_turn(target.address, target.name, &self.object, count);
                        Ok(vec![all.await?])
                    }
                    Task::Ftp { direction, .. } => {
                        Ok(vec![ftp(address, &self.files, direction).await?])
                    }
                    Task::Iperf { .. } | Task::Voice { .. } | Task::Echo { .. } => {
                        bail!("it is done elsewhere")
                    }
                    Task::Page {
                        direction: Direction::Up,
                        parallel,
                        ..
                    } => {
                        let mut times = Vec::new();
                        for files in &sent {
                            let sent = target.together(Direction::Up, files, parallel.into());
                            times.push(sent.await?);
                        }
                        Ok(times)
                    }
                    Task::Page { .. } => {
                        let mut times = Vec::new();
                        for page in &pages {
                            let loaded = load(page, place.hosts, &client, |_| ()).await;
                            times.push(loaded.context("page")?.time);
                        }
                        Ok(times)
                    }
                    Task::Loaded {
                        count, background, ..
                    } => {
                        let requests = target.requests(&self.object, count);
                        self.beside(&target, Some(background), requests).await
                    }
                }
            };
            self.warm_up(&target, patience).await?;
            match tokio::time::timeout(patience, samples).await {
                Ok(times) => {
                    let seconds = times?.iter().map(Duration::as_secs_f64).collect();
                    Ok(Done::Measured(seconds))
                }
                Err(_) => Ok(Done::Unfinished),
            }
        })
    }

    /// Client that loads pages.
    fn client(&self, authority: &Authority) -> Result<Client> {
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
        if protocol == Protocol::H2 {
            return Ok(Client::http2(authority.http2_client_config()?));
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
    fn sent(&self) -> Vec<Vec<Expected>> {
        if self.task.direction() == Direction::Down {
            return Vec::new();
        }
        let page = |(page, place): (&Page, u64)| {
            let lengths = page.objects().iter().map(|object| object.length);
            expected(lengths, self.seed.stream("page").nth(place))
        };
        self.pages.iter().zip(0..).map(page).collect()
    }

    fn browse(&self, place: &TaskPlace<'_>, patience: Duration, stop: &Stop) -> Result<Done> {
        let chromium = place.chromium.context("chromium was not looked for")?;
        let target = Target::of(place)?;
        self.warm_up_alone(place, &target, patience, stop)?;
        let loading = chromium.start(place.topology, place.hosts, place.authority, &self.pages)?;
        Ok(match loading.finish(&self.pages, patience, stop)? {
            Some(loads) => Done::Loaded(loads),
            None => Done::Unfinished,
        })
    }

    async fn warm_up(&self, target: &Target<'_>, patience: Duration) -> Result<()> {
        let Some((direction, object)) = &self.warm_up else {
            return Ok(());
        };
        let transfer = target.transfer(*direction, object);
        // One that takes too long has warmed up whoever was to be.
        if let Ok(outcome) = tokio::time::timeout(patience, transfer).await {
            outcome.context("warm-up")?;
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// Before what is no task of this process.
    fn warm_up_alone(
        &self,
        place: &TaskPlace<'_>,
        target: &Target<'_>,
        patience: Duration,
        stop: &Stop,
    ) -> Result<()> {
        let most = patience + PAUSE + MARGIN;
        run_in(place.topology.user(), stop, most, || {
            self.warm_up(target, patience)
        })
    }

    fn echo(
        &self,
        place: &TaskPlace<'_>,
        target: &Target<'_>,
        count: u32,
        background: Option<Direction>,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Done> {
        let address = target.address.ip();
        let _echo = Echo::start(place.topology.web(), address)?;
        let most = 2 * patience + PAUSE + LEAD + MARGIN;
        run_in(place.topology.user(), stop, most, || async {
            self.warm_up(target, patience).await?;
            let probes = self.beside(target, background, probe(address, count));
            match tokio::time::timeout(patience, probes).await {
                Ok(call) => call.map(Done::Spoken),
                Err(_) => Ok(Done::Unfinished),
            }
        })
    }

    /// Does the `work` beside a file without end that goes that way, if one does.
    async fn beside<T>(
        &self,
        target: &Target<'_>,
        background: Option<Direction>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(background) = background else {
            return work.await;
        };
        let endless = Expected::endless(self.seed.stream("background"));
        let work = async {
            tokio::time::sleep(LEAD).await;
            work.await
        };
        tokio::select! {
            done = work => done,
            ended = target.transfer(background, &endless) => {
                ended.context("the file in the background")?;
                bail!("the file in the background came to its end: the link is too fast for it")
            }
        }
    }
}

/// Seconds since `start`, for records.
pub(super) fn since(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e3).round() / 1e3
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
