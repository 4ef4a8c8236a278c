//! The host that the user talks to in tasks that need one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use super::perform::TaskPlace;
use crate::experiment::Direction;
use crate::workload::{Expected, HTTP_PORT, get, put};

/// Host that the user talks to.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    pub(super) address: SocketAddr,
}

impl<'a> Target<'a> {
    /// The first of the hosts.
    pub(super) fn of(place: &TaskPlace<'a>) -> Result<Self> {
        let (name, address) = place.hosts.get(0).context("there is no host")?;
        Ok(Self {
            name,
            address: (address, HTTP_PORT).into(),
        })
    }

    pub(super) async fn transfer(
        &self,
        direction: Direction,
        expected: &Expected,
    ) -> Result<Duration> {
        match direction {
            Direction::Down => get(self.address, self.name, expected, |_| ()).await,
            Direction::Up => put(self.address, self.name, expected).await,
        }
    }

    /// Each of `files` on a new connection, `parallel` at once; until the last one is there.
    pub(super) async fn together(
        &self,
        direction: Direction,
        files: &[Expected],
        parallel: usize,
    ) -> Result<Duration> {
        let start = Instant::now();
        let mut left = files.iter().copied();
        let mut all = JoinSet::new();
        let begin = |all: &mut JoinSet<_>, file: Expected| {
            let (address, name) = (self.address, self.name.to_owned());
            all.spawn(async move {
                let name = &name;
                Target { name, address }.transfer(direction, &file).await
            });
        };
        left.by_ref()
            .take(parallel)
            .for_each(|file| begin(&mut all, file));
        while let Some(one) = all.join_next().await {
            one.context("a transfer")??;
            left.next()
                .into_iter()
                .for_each(|file| begin(&mut all, file));
        }
        Ok(start.elapsed())
    }

    /// One after another, each on a new connection.
    pub(super) async fn requests(&self, expected: &Expected, count: u32) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(self.transfer(Direction::Down, expected).await?);
        }
        Ok(times)
    }
}
