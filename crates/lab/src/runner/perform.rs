//! Doing a task: what the user does, timed at the user.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_units::{Seed, TimeSpan};
use tokio::task::JoinSet;

use super::done::Done;
use super::prepared::Prepared;
use super::target::Target;
use crate::experiment::{Connections, Direction, HandshakeEnd, Task, Tls};
use crate::workload::{
    Authority, Browsing, Chromium, Client, ContentKind, DeviceBytes, Echo, Expected, ExpectedPage,
    Ftp, HTTP_PORT, Hosts, Object, Page, Peer, call, ftp, get, get_in_turn, handshakes, iperf3,
    probe, run_in, session,
};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{LINK_DEVICE, Topology};

/// Between a transfer that is not measured and the one that is: queues empty.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for which the file without end is on its way before the first request.
const LEAD: Duration = Duration::from_secs(5);
/// Bytes of an object by which a web server is met before anything is measured.
const GREETING: u64 = 1000;
/// Time that ending takes besides the task's own.
const MARGIN: Duration = Duration::from_secs(30);

/// Place at which it is done.
pub(super) struct TaskPlace<'a> {
    pub(super) topology: &'a Topology,
    pub(super) hosts: &'a Hosts,
    pub(super) authority: &'a Authority,
    pub(super) chromium: Option<&'a Chromium>,
}

/// A task at its place, about to be done.
struct Scene<'a> {
    place: &'a TaskPlace<'a>,
    target: Target<'a>,
    patience: Duration,
    stop: &'a Stop,
}

impl Prepared {
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
        let scene = Scene {
            target: Target::of(place)?,
            place,
            patience,
            stop,
        };
        let target = &scene.target;
        match self.task {
            // All of it was before: whoever calls adds what the start took.
            Task::Handshake {
                to: HandshakeEnd::Contender,
                ..
            } => Ok(Done::Measured(vec![0.0])),
            Task::Handshake { count, tls, .. } => self.timed(&scene, async || {
                let tls = match tls {
                    Tls::V12 => place.authority.tls12_client_config()?,
                    Tls::V13 | Tls::None => place.authority.client_config()?,
                };
                handshakes(place.hosts, tls, count).await
            }),
            Task::Voice { length, direction } => {
                let (user, web) = (place.topology.user(), place.topology.web());
                let (address, down) = (target.address.ip(), direction == Direction::Down);
                call(user, web, address, down, length.get(), stop).map(Done::Spoken)
            }
            Task::Iperf { direction, .. } => self.iperf(&scene, direction),
            Task::Echo {
                count, background, ..
            } => self.echo(&scene, count, background),
            Task::Session {
                every, connections, ..
            } => {
                let every = every.map(TimeSpan::get).unwrap_or_default();
                self.converse(&scene, every, connections == Connections::Each)
            }
            Task::Transfer { direction, .. } => self.timed(&scene, async || {
                Ok(vec![target.transfer(direction, &self.object).await?])
            }),
            Task::Request { count, .. } => {
                self.timed(&scene, async || target.requests(&self.object, count).await)
            }
            Task::Loaded {
                count, background, ..
            } => self.timed(&scene, async || {
                let requests = target.requests(&self.object, count);
                self.beside(target, Some(background), requests).await
            }),
            Task::Parallel {
                count, direction, ..
            } => self.timed(&scene, async || {
                let files = vec![self.object; count as usize];
                let all = target.together(direction, &files, files.len());
                Ok(vec![all.await?])
            }),
            Task::Objects { count, .. } => self.timed(&scene, async || {
                let all = get_in_turn(target.address, target.name, &self.object, count);
                Ok(vec![all.await?])
            }),
            Task::Ftp { direction, .. } => {
                let _ftp = Ftp::start(place.topology.web())?;
                let address = target.address.ip();
                self.timed(&scene, async || {
                    Ok(vec![ftp(address, &self.files, direction).await?])
                })
            }
            Task::Page {
                direction: Direction::Up,
                parallel,
                ..
            } => self.send_pages(&scene, parallel.into()),
            Task::Page { at_once, .. } => self.load_pages(&scene, at_once),
        }
    }

    /// Does `samples` after the warm-up, and times them.
    fn timed(
        &self,
        scene: &Scene<'_>,
        samples: impl AsyncFnOnce() -> Result<Vec<Duration>> + Send,
    ) -> Result<Done> {
        // The warm-up has as much time as what is measured.
        let most = 2 * scene.patience + PAUSE + LEAD + MARGIN;
        run_in(scene.place.topology.user(), scene.stop, most, || async {
            self.warm_up(&scene.target, scene.patience).await?;
            match tokio::time::timeout(scene.patience, samples()).await {
                Ok(times) => {
                    let seconds = times?.iter().map(Duration::as_secs_f64).collect();
                    Ok(Done::Measured(seconds))
                }
                Err(_) => Ok(Done::Unfinished),
            }
        })
    }

    fn send_pages(&self, scene: &Scene<'_>, parallel: usize) -> Result<Done> {
        // Digests, before any clock runs.
        let sent = self.sent();
        self.timed(scene, async || {
            let mut times = Vec::new();
            for files in &sent {
                let sent = scene.target.together(Direction::Up, files, parallel);
                times.push(sent.await?);
            }
            Ok(times)
        })
    }

    fn load_pages(&self, scene: &Scene<'_>, at_once: bool) -> Result<Done> {
        let client = self.client(scene.place.authority)?;
        let hosts = scene.place.hosts;
        // Digests, before any clock runs.
        let expect = |page: &Page| ExpectedPage::new(page.clone(), hosts);
        let pages: Vec<ExpectedPage> = self.pages.iter().map(expect).collect();
        let sessions: Vec<&[ExpectedPage]> = pages.chunks(self.task.in_session()).collect();
        self.timed(scene, async || {
            if self.warm_up.is_some() {
                greet(hosts, self.task.servers(), self.seed.stream("greeting")).await?;
            }
            if at_once {
                return browse_at_once(&sessions, hosts, &client).await;
            }
            let mut times = Vec::new();
            for session in sessions {
                times.extend(browse(session, hosts, &client).await?);
            }
            Ok(times)
        })
    }

    fn iperf(&self, scene: &Scene<'_>, direction: Direction) -> Result<Done> {
        self.warm_up_alone(scene)?;
        let (topology, address) = (scene.place.topology, scene.target.address.ip());
        let (down, bytes) = (direction == Direction::Down, self.bytes());
        let time = iperf3(topology, address, down, bytes, scene.patience, scene.stop)?;
        Ok(time.map_or(Done::Unfinished, |time| {
            Done::Measured(vec![time.as_secs_f64()])
        }))
    }

    fn browse(&self, place: &TaskPlace<'_>, patience: Duration, stop: &Stop) -> Result<Done> {
        let chromium = place.chromium.context("chromium was not looked for")?;
        let scene = Scene {
            target: Target::of(place)?,
            place,
            patience,
            stop,
        };
        self.warm_up_alone(&scene)?;
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
    fn warm_up_alone(&self, scene: &Scene<'_>) -> Result<()> {
        let most = scene.patience + PAUSE + MARGIN;
        run_in(scene.place.topology.user(), scene.stop, most, || {
            self.warm_up(&scene.target, scene.patience)
        })
    }

    fn echo(&self, scene: &Scene<'_>, count: u32, background: Option<Direction>) -> Result<Done> {
        let address = scene.target.address.ip();
        let _echo = Echo::start(scene.place.topology.web(), address)?;
        let most = 2 * scene.patience + PAUSE + LEAD + MARGIN;
        run_in(scene.place.topology.user(), scene.stop, most, || async {
            self.warm_up(&scene.target, scene.patience).await?;
            let probes = self.beside(&scene.target, background, probe(address, count));
            match tokio::time::timeout(scene.patience, probes).await {
                Ok(call) => call.map(Done::Spoken),
                Err(_) => Ok(Done::Unfinished),
            }
        })
    }

    /// Does the transactions of a session, and counts bytes at the terminal's end of the link, which
    /// every contender's packets cross.
    fn converse(&self, scene: &Scene<'_>, every: Duration, each: bool) -> Result<Done> {
        let counter = DeviceBytes::open(scene.place.topology.terminal(), LINK_DEVICE)?;
        let peer = Peer {
            address: scene.target.address,
            host: scene.target.name,
            each,
        };
        let most = 2 * scene.patience + PAUSE + MARGIN;
        run_in(scene.place.topology.user(), scene.stop, most, || async {
            self.warm_up(&scene.target, scene.patience).await?;
            let all = session(&peer, &self.exchanges, every, &counter);
            match tokio::time::timeout(scene.patience, all).await {
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

/// Times of a session's `pages`, which a browser of its own loads one after another.
async fn browse(pages: &[ExpectedPage], hosts: &Hosts, client: &Client) -> Result<Vec<Duration>> {
    let mut browser = Browsing::new(hosts, client)?;
    let mut times = Vec::new();
    for page in pages {
        let loaded = browser.load(page, |_| ()).await;
        times.push(loaded.context("page")?.time);
    }
    Ok(times)
}

/// Times of the pages of `sessions` that are at one time, in their order.
async fn browse_at_once(
    sessions: &[&[ExpectedPage]],
    hosts: &Hosts,
    client: &Client,
) -> Result<Vec<Duration>> {
    let mut all = JoinSet::new();
    for (place, pages) in sessions.iter().enumerate() {
        let (pages, hosts, client) = (pages.to_vec(), hosts.clone(), client.clone());
        all.spawn(async move {
            let times = browse(&pages, &hosts, &client).await?;
            anyhow::Ok((place, times))
        });
    }
    let mut times = BTreeMap::new();
    while let Some(browsed) = all.join_next().await {
        let (place, of_session) = browsed??;
        times.insert(place, of_session);
    }
    Ok(times.into_values().flatten().collect())
}

/// Fetches a small object from each of the first `servers` hosts but the first, which the warm-up was with: whoever is on the way
/// has no need to ask for Ethernet addresses afterwards.
async fn greet(hosts: &Hosts, servers: u8, seed: Seed) -> Result<()> {
    let object = Expected::from(Object {
        kind: ContentKind::Binary,
        seed,
        length: GREETING,
    });
    for (name, address) in hosts.iter().take(servers.into()).skip(1) {
        let fetched = get((address, HTTP_PORT).into(), name, &object, |_| ()).await;
        fetched.with_context(|| format!("greeting of {name}"))?;
    }
    Ok(())
}

/// Seconds since `start`, for records.
pub(super) fn since(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e3).round() / 1e3
}
