//! Doing a task: what the user does, timed at the user.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_units::TimeSpan;
use tokio::task::JoinSet;

use super::done::Done;
use super::prepared::Prepared;
use super::target::Target;
use crate::experiment::{Connections, Direction, HandshakeEnd, Task, Tls};
use crate::workload::{
    Authority, Chromium, Client, DeviceBytes, Echo, Expected, ExpectedPage, Ftp, Hosts, Page, Peer,
    call, ftp, get_in_turn, handshakes, iperf3, load, probe, run_in, session,
};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{LINK_DEVICE, Topology};

/// Between a transfer that is not measured and the one that is: queues empty.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for which the file without end is on its way before the first request.
const LEAD: Duration = Duration::from_secs(5);
/// Time that ending takes besides the task's own.
const MARGIN: Duration = Duration::from_secs(30);

/// Place at which it is done.
pub(super) struct TaskPlace<'a> {
    pub(super) topology: &'a Topology,
    pub(super) hosts: &'a Hosts,
    pub(super) authority: &'a Authority,
    pub(super) chromium: Option<&'a Chromium>,
}

impl Prepared {
    /// Does it all.
    pub(super) fn perform(
        &self,
        place: &TaskPlace<'_>,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Done> {
        if let Task::Handshake {
            to: HandshakeEnd::Contender,
            ..
        } = self.task
        {
            // All of it was before: whoever calls adds what the start took.
            return Ok(Done::Measured(vec![0.0]));
        }
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
        if let Task::Session {
            every, connections, ..
        } = self.task
        {
            let every = every.map(TimeSpan::get).unwrap_or_default();
            let each = connections == Connections::Each;
            return self.converse(place, &target, every, each, patience, stop);
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
                    Task::Handshake { count, tls, .. } => {
                        let tls = match tls {
                            Tls::V12 => place.authority.tls12_client_config()?,
                            Tls::V13 | Tls::None => place.authority.client_config()?,
                        };
                        handshakes(place.hosts, tls, count).await
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
                    Task::Iperf { .. }
                    | Task::Voice { .. }
                    | Task::Echo { .. }
                    | Task::Session { .. } => {
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
                    Task::Page { at_once: true, .. } => at_once(&pages, place.hosts, &client).await,
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

    /// Does the transactions of a session, and counts bytes at the terminal's end of the link, which
    /// every contender's packets cross.
    fn converse(
        &self,
        place: &TaskPlace<'_>,
        target: &Target<'_>,
        every: Duration,
        each: bool,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Done> {
        let counter = DeviceBytes::open(place.topology.terminal(), LINK_DEVICE)?;
        let peer = Peer {
            address: target.address,
            host: target.name,
            each,
        };
        let most = 2 * patience + PAUSE + MARGIN;
        run_in(place.topology.user(), stop, most, || async {
            self.warm_up(target, patience).await?;
            let all = session(&peer, &self.exchanges, every, &counter);
            match tokio::time::timeout(patience, all).await {
                Ok(done) => done.map(Done::Conversed),
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

/// Times of `pages` that are loaded at one time, each by a browser of its own.
async fn at_once(pages: &[ExpectedPage], hosts: &Hosts, client: &Client) -> Result<Vec<Duration>> {
    let mut all = JoinSet::new();
    for page in pages {
        let (page, hosts, client) = (page.clone(), hosts.clone(), client.clone());
        all.spawn(async move { load(&page, &hosts, &client, |_| ()).await });
    }
    let mut times = Vec::new();
    while let Some(loaded) = all.join_next().await {
        times.push(loaded?.context("page")?.time);
    }
    Ok(times)
}

/// Seconds since `start`, for records.
pub(super) fn since(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e3).round() / 1e3
}
