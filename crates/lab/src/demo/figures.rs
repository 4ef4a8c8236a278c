//! What is fetched, how long it took, and how long it must take.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use bentpipe_units::Seed;

use super::progress::Progress;
use crate::workload::{
    Authority, Client, ContentKind, Expected, ExpectedPage, HTTP_PORT, Handshakes, Hosts,
    LinkLimit, Object, Page, Shape, get, load, run_in,
};
use bentpipe_emulator::Stop;

/// Requests whose median counts.
const REQUESTS: u32 = 5;
const REQUEST_BYTES: u64 = 1_000;
const DOWNLOAD_BYTES: u64 = 10_000_000;
/// Four BDP of the link, so that whoever learns its rate has.
const WARM_UP_BYTES: u64 = 2_500_000;
/// Downloads and page loads, of which the fastest counts: what a busy machine adds is not the link's.
const REPEATS: u32 = 2;
/// Between transfers, for queues to empty.
const PAUSE: Duration = Duration::from_secs(2);
/// More than any of it takes, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SEED: Seed = Seed::new(1);

/// One time for each thing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoFigures {
    /// 1 kB on a new connection, from `connect` to the last byte; the median.
    pub request: Duration,
    /// 10 MB on a new connection, from `connect` to the last byte; the fastest.
    pub download: Duration,
    /// The page; the fastest.
    pub page: Duration,
}

/// Objects that are fetched, and their hosts.
#[derive(Debug)]
pub(super) struct Workload {
    hosts: Hosts,
    authority: Authority,
    page: ExpectedPage,
    request: Expected,
    warm_up: Expected,
    download: Expected,
}

impl Workload {
    pub(super) fn new(hosts: Hosts, authority: Authority) -> Self {
        let object = |name, length| {
            let seed = SEED.stream(name);
            Expected::from(Object {
                kind: ContentKind::Binary,
                seed,
                length,
            })
        };
        let page = Page::new(&Shape::USUAL, SEED.stream("page"));
        Self {
            page: ExpectedPage::new(page, &hosts),
            hosts,
            authority,
            request: object("request", REQUEST_BYTES),
            warm_up: object("warm-up", WARM_UP_BYTES),
            download: object("download", DOWNLOAD_BYTES),
        }
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The best that anything can do on the link.
    pub(super) fn limits(&self, link: &LinkLimit) -> DemoFigures {
        DemoFigures {
            request: link.object(REQUEST_BYTES),
            download: link.object(DOWNLOAD_BYTES),
            page: link.page(self.page.page(), Handshakes::TLS13),
        }
    }

    /// Fetches everything once, from `user`.
    pub(super) fn measure(
        &self,
        user: &NetNs,
        label: &str,
        stop: &Stop,
        progress: &mut Progress<'_>,
    ) -> Result<DemoFigures> {
        let run = Pass {
            workload: self,
            user,
            label,
            stop,
        };
        let request = run.requests(progress)?;
        run.object("warm-up", &self.warm_up, progress)?;
        let page = run.fastest(|| run.page(progress))?;
        let download = run.fastest(|| run.object("download", &self.download, progress))?;
        Ok(DemoFigures {
            request,
            download,
            page,
        })
    }
}

/// One pass over the workload.
struct Pass<'a> {
    workload: &'a Workload,
    user: &'a NetNs,
    label: &'a str,
    stop: &'a Stop,
}

impl Pass<'_> {
    fn fastest(&self, mut measure: impl FnMut() -> Result<Duration>) -> Result<Duration> {
        let mut fastest = Duration::MAX;
        for _ in 0..REPEATS {
            self.stop.sleep(PAUSE)?;
            fastest = fastest.min(measure()?);
        }
        Ok(fastest)
    }

    fn requests(&self, progress: &mut Progress<'_>) -> Result<Duration> {
        let mut times = (0..REQUESTS)
            .map(|number| {
                // By turns over IPv4 and IPv6.
                let host = number as usize % 2;
                self.get(host, &self.workload.request, |_| ())
            })
            .collect::<Result<Vec<Duration>>>()?;
        times.sort_unstable();
        let median = times[times.len() / 2];
        progress.step(&format!(
            "{}: 1 kB request on a new connection: {:.3} s (median of {REQUESTS})",
            self.label,
            median.as_secs_f64()
        ));
        Ok(median)
    }

    fn object(
        &self,
        name: &str,
        expected: &Expected,
        progress: &mut Progress<'_>,
    ) -> Result<Duration> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let (label, total) = (self.label, megabytes(expected.object.length));
        let time = self.get(0, expected, |bytes| {
            progress.tick(|| format!("{label}: {name}: {:.1} of {total} MB", megabytes(bytes)));
        })?;
        let seconds = time.as_secs_f64();
        progress.step(&format!("{label}: {name} of {total} MB: {seconds:.2} s"));
        Ok(time)
    }

    fn page(&self, progress: &mut Progress<'_>) -> Result<Duration> {
        let Workload {
            hosts,
            authority,
            page,
            ..
        } = self.workload;
        let client = Client::http2(authority.http2_client_config()?);
        let label = self.label;
        let objects = page.page().objects().len();
        let loaded = run_in(self.user, self.stop, PATIENCE, || {
            load(page, hosts, &client, |done| {
                progress.tick(|| format!("{label}: page: {done} of {objects} objects"));
            })
        })
        .with_context(|| format!("{label}: page"))?;
        progress.step(&format!(
            "{label}: page of {objects} objects: {:.2} s over {} connections",
            loaded.time.as_secs_f64(),
            loaded.connections
        ));
        Ok(loaded.time)
    }

    fn get(
        &self,
        host: usize,
        expected: &Expected,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Duration> {
        let (name, address) = self.workload.hosts.get(host).context("no such host")?;
        run_in(self.user, self.stop, PATIENCE, || {
            get((address, HTTP_PORT).into(), name, expected, progress)
        })
        .with_context(|| self.label.to_owned())
    }
}
