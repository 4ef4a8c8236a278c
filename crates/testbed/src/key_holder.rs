//! A PEP as far as keys go: takes them from one client, and opens headers with them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sealed::les::sa::Word;
use bentpipe_sealed::les::{ClientKey, Grants};
use bentpipe_sys::netns::NetNs;
use bentpipe_tunnel::engine::ServerSetup;
use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bentpipe_tunnel::lines::{LineEnd, LineNotice, Lines};
use bentpipe_units::Seed;

/// Keys that the holder has, and what the client said.
#[derive(Default)]
pub struct HeldKeys {
    /// Associations whose K2 is held.
    pub grants: Grants,
    /// Events in their order: `up`, `grant WRITER RENEWED`, `ended`, `down REASON`.
    pub said: Vec<String>,
}

/// PEP that takes keys until it is dropped.
pub struct KeyHolder {
    keys: Arc<Mutex<HeldKeys>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeyHolder {
    /// Takes keys at `address` in `place` as the PEP with this `key`, of `client` alone.
    pub fn start(
        place: &NetNs,
        address: SocketAddr,
        key: &PrivateKey,
        client: PublicKey,
    ) -> Result<Self> {
        let socket = place.enter(|| bind(address))??;
        let crypto = identity::les_server_crypto(key, Arc::new(move |it| *it == client), false)?;
        let token_key = identity::token_key(key);
        let setup = ServerSetup { crypto, token_key };
        let lines = Lines::new(identity::reset_key(key), Some(setup), Seed::new(1));
        let keys = Arc::<Mutex<HeldKeys>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (held, stopped) = (keys.clone(), stop.clone());
        let thread = thread::spawn(move || serve(&socket, lines, client, &held, &stopped));
        Ok(Self {
            keys,
            stop,
            thread: Some(thread),
        })
    }

    /// Keys that are held now.
    pub fn keys(&self) -> MutexGuard<'_, HeldKeys> {
        self.keys.lock().expect("no panic")
    }

    /// Waits until the client has said something that begins with `word`.
    pub fn wait_for(&self, word: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.keys().said.iter().any(|said| said.starts_with(word)) {
            ensure!(
                Instant::now() < deadline,
                "no `{word}` in {:?}",
                self.keys().said
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Binds `address`, which a holder that was just dropped may have had: a program that another test starts has its descriptor for a
/// moment.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
}

impl Drop for KeyHolder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    socket: &UdpSocket,
    mut lines: Lines,
    client: PublicKey,
    held: &Mutex<HeldKeys>,
    stop: &AtomicBool,
) {
    let client = ClientKey(client.to_bytes());
    let mut bytes = [0; 2048];
    let patience = Some(Duration::from_millis(5));
    socket.set_read_timeout(patience).expect("not zero");
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut bytes) {
            lines.handle_datagram(Instant::now(), (from, None), &bytes[..length]);
        }
        let now = Instant::now();
        lines.handle_timeout(now);
        while let Some((_, notice)) = lines.poll_notice() {
            let mut held = held.lock().expect("no panic");
            let said = take(&mut held.grants, now, client, notice);
            held.said
                .push(said.unwrap_or_else(|error| format!("{error:#}")));
        }
        while let Some((to, bytes)) = lines.poll_output() {
            let _ = socket.send_to(&bytes[..to.size], to.destination);
        }
    }
}

fn take(
    grants: &mut Grants,
    now: Instant,
    client: ClientKey,
    notice: LineNotice,
) -> Result<String> {
    match notice {
        LineNotice::Up(_) => Ok("up".into()),
        LineNotice::Word(word) => match Word::parse(&word).context("a word")? {
            Word::Grant(grant) => {
                grants.grant(now, client, &grant)?;
                let writer = grant.writer.get();
                Ok(format!("grant {writer} {}", grant.renewed))
            }
            Word::Ended(spis) => {
                grants.end(now, client, spis);
                Ok("ended".into())
            }
        },
        LineNotice::Down(end) => {
            if let LineEnd::Closed(_) = end {
                grants.forget(now, client);
            }
            Ok(format!("down {end:?}"))
        }
    }
}
