//! Doing a task: what the user does, timed at the user.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_units::{ByteCount, Seed};
use tokio::task::JoinSet;

use crate::experiment::{Direction, Task};
use crate::workload::{
    Authority, Call, Chromium, ECHO_SIZE, Echo, Expected, ExpectedPage, HTTP_PORT, Hosts,
    LinkLimit, Load, Object, Page, call, get, get_in_turn, iperf3, load, probe, put, run_in,
};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Topology;

/// Between a transfer that is not measured and the one that is: queues empty.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the file without end is on its way before the first request.
const LEAD: Duration = Duration::from_secs(5);
/// What ending takes besides the task's own time.
const MARGIN: Duration = Duration::from_secs(30);

/// A task with its content, which is made before any clock runs.
pub(super) struct Prepared {
    task: Task,
    object: Expected,
    warm_up: Option<(Direction, Expected)>,
    pages: Vec<Page>,
    seed: Seed,
}

/// What came of it.
pub(super) enum Done {
    /// Seconds of each figure.
    Measured(Vec<f64>),
    /// Pages that a real browser loaded.
    Loaded(Vec<Load>),
    /// What was heard of a call, or of echoes.
    Spoken(Call),
    /// Patience ended first.
    Unfinished,
}

/// Where it is done.
pub(super) struct Place<'a> {
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
            _ => self.object.object.length * self.objects(),
        }
    }

    /// How many objects are to cross.
    fn objects(&self) -> u64 {
        match self.task {
            Task::Parallel { count, .. } | Task::Directory { count, .. } => count.into(),
            Task::Voice { .. } | Task::Echo { .. } => 0,
            _ => self.task.samples().into(),
        }
    }

    /// What speaks against pages whose hosts the resolver was not asked for: somebody else knew the names.
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

    /// Where most of it goes.
    pub(super) fn direction(&self) -> Direction {
        self.task.direction()
    }

    /// The least that each figure can be; one for all where that is the same.
    pub(super) fn limits(&self, link: &LinkLimit) -> Vec<f64> {
        let limits = match self.task {
            Task::Page { .. } => self.pages.iter().map(|page| link.page(page)).collect(),
            // Of a datagram only that it cannot be there before it was sent.
            Task::Voice { .. } => Vec::new(),
            Task::Echo { .. } => vec![link.object(ECHO_SIZE)],
            Task::Iperf { .. } => vec![link.stream(self.object.object.length)],
            Task::Parallel { count, .. } => {
                vec![link.object(self.object.object.length * u64::from(count))]
            }
            // Each is asked for when the one before it is there.
            Task::Directory { count, .. } => {
                vec![link.object(self.object.object.length) * count]
            }
            _ => vec![link.object(self.object.object.length)],
        };
        limits.iter().map(Duration::as_secs_f64).collect()
    }

    /// Does it all.
    pub(super) fn perform(
        &self,
        place: &Place<'_>,
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
        let tls = place.authority.client_config()?;
        // The warm-up has as much time as what is measured.
        let most = 2 * patience + PAUSE + LEAD + MARGIN;
        // Digests, before any clock runs.
        let expect = |page: &Page| ExpectedPage::new(page.clone(), place.hosts);
        let pages: Vec<ExpectedPage> = self.pages.iter().map(expect).collect();
        run_in(place.topology.user(), stop, most, || async {
            let samples = async {
                match self.task {
                    Task::Transfer { direction, .. } => {
                        Ok(vec![target.transfer(direction, &self.object).await?])
                    }
                    Task::Request { count, .. } => target.requests(&self.object, count).await,
                    Task::Parallel {
                        count, direction, ..
                    } => Ok(vec![target.together(direction, self.object, count).await?]),
                    Task::Directory { count, .. } => {
                        let all = get_in_turn(target.address, target.name, &self.object, count);
                        Ok(vec![all.await?])
                    }
                    Task::Iperf { .. } | Task::Voice { .. } | Task::Echo { .. } => {
                        bail!("it is done elsewhere")
                    }
                    Task::Page { .. } => {
                        let mut times = Vec::new();
                        for page in &pages {
                            let loaded = load(page, place.hosts, tls.clone(), |_| ()).await;
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

    fn browse(&self, place: &Place<'_>, patience: Duration, stop: &Stop) -> Result<Done> {
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
        place: &Place<'_>,
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
        place: &Place<'_>,
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

/// Whom the user talks to.
#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a str,
    address: SocketAddr,
}

impl<'a> Target<'a> {
    /// The first of the hosts.
    fn of(place: &Place<'a>) -> Result<Self> {
        let (name, address) = place.hosts.get(0).context("there is no host")?;
        Ok(Self {
            name,
            address: (address, HTTP_PORT).into(),
        })
    }

    async fn transfer(&self, direction: Direction, expected: &Expected) -> Result<Duration> {
        match direction {
            Direction::Down => get(self.address, self.name, expected, |_| ()).await,
            Direction::Up => put(self.address, self.name, expected).await,
        }
    }

    /// All at once, each on a new connection; until the last one is there.
    async fn together(
        &self,
        direction: Direction,
        expected: Expected,
        count: u32,
    ) -> Result<Duration> {
        let start = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..count {
            let (address, name) = (self.address, self.name.to_owned());
            all.spawn(async move {
                let name = &name;
                Target { name, address }
                    .transfer(direction, &expected)
                    .await
            });
        }
        while let Some(one) = all.join_next().await {
            one.context("a transfer")??;
        }
        Ok(start.elapsed())
    }

    /// One after another, each on a new connection.
    async fn requests(&self, expected: &Expected, count: u32) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(self.transfer(Direction::Down, expected).await?);
        }
        Ok(times)
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
