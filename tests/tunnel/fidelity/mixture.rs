//! Conversations drawn at random, many at a time: short and long, hasty and slow, ended in order or by either side's reset.
//!
//! Both ends check every byte and the kind of end. A seed stands for a conversation, so a failure can be had again.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::peer::{payload, read_exactly, reset, until_acknowledged};
use bentpipe_testbed::route::Route;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::cases::conversation;

/// How a conversation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Each direction on its own, while the other may still be busy.
    InOrder,
    /// The user has heard the server out, speaks and resets.
    ResetByUser,
    /// The same with exchanged parts.
    ResetByServer,
}

/// How one end behaves.
#[derive(Debug, Clone, Copy)]
struct Habits {
    /// Bytes that it says.
    says: usize,
    /// Bytes of one write.
    write: usize,
    /// Between writes.
    after_write: Duration,
    /// Between reads.
    after_read: Duration,
}

#[derive(Debug)]
struct Conversation {
    end: End,
    user: Habits,
    server: Habits,
    /// Between accepting and anything else.
    late: Duration,
}

fn pick<T: Copy>(generator: &mut Pcg64Mcg, choices: &[T]) -> T {
    let index = generator.next_u64() % choices.len() as u64;
    choices[usize::try_from(index).unwrap_or(0)]
}

fn milliseconds(generator: &mut Pcg64Mcg, choices: &[u64]) -> Duration {
    Duration::from_millis(pick(generator, choices))
}

impl Habits {
    fn draw(generator: &mut Pcg64Mcg) -> Self {
        Self {
            says: pick(generator, &[0, 1, 100, 5_000, 80_000, 300_000]),
            write: pick(generator, &[700, 16_000, 1_000_000]),
            after_write: milliseconds(generator, &[0, 0, 0, 3]),
            after_read: milliseconds(generator, &[0, 0, 1, 5]),
        }
    }

    fn say(&self, mut stream: &TcpStream) -> Result<()> {
        for piece in payload(self.says).chunks(self.write) {
            stream.write_all(piece).context("writing")?;
            thread::sleep(self.after_write);
        }
        Ok(())
    }

    /// Listens to the end, which must be a reset or must not, after exactly the other's bytes.
    fn hear(&self, mut stream: &TcpStream, other: &Self, by_reset: bool) -> Result<()> {
        let mut heard = Vec::new();
        let mut buffer = [0; 16_384];
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(length) => heard.extend_from_slice(&buffer[..length]),
                Err(error) => break Err(error),
            }
            thread::sleep(self.after_read);
        };
        let expected = match &end {
            Ok(()) => !by_reset,
            Err(error) => by_reset && error.kind() == io::ErrorKind::ConnectionReset,
        };
        let (got, all) = (heard.len(), other.says);
        ensure!(expected, "ended with {end:?} after {got} of {all} bytes");
        ensure!(heard == payload(all), "{got} of {all} bytes, or wrong ones");
        Ok(())
    }

    /// Both directions at once, each to its end.
    fn converse(&self, stream: &TcpStream, other: &Self) -> Result<()> {
        thread::scope(|scope| {
            let saying = scope.spawn(|| {
                self.say(stream)?;
                Ok(stream.shutdown(Shutdown::Write)?)
            });
            let heard = self.hear(stream, other, false);
            let said = saying
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            heard.and(said)
        })
    }

    /// Hears the other out, says its part, and resets once that has been acknowledged.
    fn reset_at_the_end(
        &self,
        mut stream: TcpStream,
        other: &Self,
        patience: Duration,
    ) -> Result<()> {
        let heard = read_exactly(&mut stream, other.says)?;
        ensure!(heard == payload(other.says), "wrong bytes");
        self.say(&stream)?;
        until_acknowledged(&stream, patience)?;
        Ok(reset(stream)?)
    }

    fn say_and_be_reset(&self, stream: &TcpStream, other: &Self) -> Result<()> {
        self.say(stream)?;
        self.hear(stream, other, true)
    }
}

impl Conversation {
    fn draw(seed: u64) -> Self {
        let mut generator = Pcg64Mcg::new(u128::from(seed) << 1 | 1);
        let end = pick(
            &mut generator,
            &[
                End::InOrder,
                End::InOrder,
                End::ResetByUser,
                End::ResetByServer,
            ],
        );
        let mut user = Habits::draw(&mut generator);
        let server = Habits::draw(&mut generator);
        if end == End::ResetByUser && server.says == 0 {
            // A connection that is reset within milliseconds, without a word, need not reach the server.
            user.says = user.says.max(1);
        }
        let late = milliseconds(&mut generator, &[0, 0, 20, 200]);
        Self {
            end,
            user,
            server,
            late,
        }
    }

    fn hold(&self, route: &Route) -> Result<()> {
        let (user, server, patience) = (&self.user, &self.server, route.patience);
        let serve = |stream: TcpStream| {
            thread::sleep(self.late);
            match self.end {
                End::InOrder => server.converse(&stream, user),
                End::ResetByUser => server.say_and_be_reset(&stream, user),
                End::ResetByServer => server.reset_at_the_end(stream, user, patience),
            }
        };
        let use_it = |stream: TcpStream| match self.end {
            End::InOrder => user.converse(&stream, server),
            End::ResetByUser => user.reset_at_the_end(stream, server, patience),
            End::ResetByServer => user.say_and_be_reset(&stream, server),
        };
        conversation(route, serve, use_it).map(drop)
    }
}

/// Holds `count` conversations, `at_once` at a time, on the routes in turn; returns what went wrong.
pub(crate) fn hold(routes: &[Route], count: u64, at_once: usize) -> Vec<String> {
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return;
            }
            let route = &routes[usize::try_from(seed).unwrap_or(0) % routes.len()];
            let conversation = Conversation::draw(seed);
            if let Err(error) = conversation.hold(route) {
                let text = format!("{}, seed {seed}: {error:#}: {conversation:?}", route.name);
                failures
                    .lock()
                    .expect("no thread panics with it")
                    .push(text);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    failures.into_inner().expect("no thread panics with it")
}
