//! How long one transfer, page or query takes that has the world for itself.

use std::time::Duration;

use super::page::Browser;
use super::{Ending, PagePlan, World};

impl World {
    /// Time that a download alone takes, from OPEN to the last byte.
    pub fn timed_download(&mut self, bytes: u64) -> Duration {
        let index = self.download(bytes, None);
        self.run_until(Duration::from_secs(1200), "a download", |world| {
            world.reader(index).end.is_some()
        });
        let reader = self.reader(index);
        let (at, ending) = reader.end.expect("it ended");
        assert_eq!((reader.got, ending), (bytes, Ending::Fin));
        at - reader.since
    }

    /// Time that an upload alone takes, from OPEN to the last byte at its destination.
    pub fn timed_upload(&mut self, bytes: u64) -> Duration {
        let (before, began) = (self.origins.uploads.len(), self.now);
        self.terminals[0].upload(began, bytes);
        self.run_until(Duration::from_secs(1200), "an upload", |world| {
            world.origins.uploads.len() > before
        });
        let (at, got) = self.origins.uploads[before];
        assert_eq!(got, bytes);
        at - began
    }

    /// Time that the first terminal takes to load a page.
    pub fn timed_page(&mut self, plan: PagePlan) -> Duration {
        let (now, tunnel) = (self.now, self.tunnel());
        let pages = &mut self.terminals[0].apps.pages;
        pages.push(Browser::new(now, tunnel, plan));
        let index = pages.len() - 1;
        // Wakes the terminal.
        self.terminals[0].engine.connection(tunnel);
        let time = |world: &Self| world.terminals[0].apps.pages[index].time();
        self.run_until(Duration::from_secs(300), "a page", |world| {
            time(world).is_some()
        });
        time(self).expect("it is whole")
    }

    /// Time that a DNS query of the first terminal takes, which the server answers at once.
    pub fn timed_query(&mut self) -> Duration {
        self.timed_queries(1)
    }

    /// Time that so many queries take that are asked at once, until the last answer.
    pub fn timed_queries(&mut self, count: usize) -> Duration {
        let (began, id) = (self.now, self.tunnel());
        let terminal = &mut self.terminals[0];
        let last = terminal.answers.len() + count - 1;
        let connection = terminal.engine.connection(id).expect("a tunnel");
        for _ in 0..count {
            connection.ask(&[0x5a; 40]).expect("it carries DNS");
        }
        self.run_until(Duration::from_secs(60), "answers", |world| {
            world.terminals[0].answers.len() > last
        });
        self.terminals[0].answers[last] - began
    }
}
