//! A box on the path of datagrams, which keeps what it sees and alters some of it.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use bentpipe_sys::netns::NetNs;

/// Datagrams that a box keeps; the oldest give way.
const KEPT: usize = 4096;

/// Box that hands datagrams from its port on to a server, and the answers back.
pub struct MiddleBox {
    seen: Arc<Mutex<VecDeque<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl MiddleBox {
    /// Box in `place` that takes datagrams at `front` for `server`; `alter` has each, with its number, before it goes on.
    pub fn start(
        place: &NetNs,
        front: SocketAddr,
        server: SocketAddr,
        alter: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self> {
        let sockets = place.enter(|| -> std::io::Result<_> {
            let back = UdpSocket::bind((front.ip(), 0))?;
            back.connect(server)?;
            Ok((UdpSocket::bind(front)?, back))
        });
        let (front, back) = sockets??;
        let seen = Arc::<Mutex<VecDeque<Vec<u8>>>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (alter, client) = (Arc::new(alter), Arc::new(Mutex::new(None)));
        let mut threads = Vec::new();
        for inward in [true, false] {
            let (seen, stop) = (seen.clone(), stop.clone());
            let (alter, client) = (alter.clone(), client.clone());
            let (front, back) = (front.try_clone()?, back.try_clone()?);
            let from = if inward { &front } else { &back };
            from.set_read_timeout(Some(Duration::from_millis(100)))?;
            threads.push(thread::spawn(move || {
                let mut bytes = [0; 2048];
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let from = if inward { &front } else { &back };
                    let Ok((length, peer)) = from.recv_from(&mut bytes) else {
                        continue;
                    };
                    number += 1;
                    {
                        let mut seen = seen.lock().expect("no panic");
                        seen.push_back(bytes[..length].to_vec());
                        if seen.len() > KEPT {
                            seen.pop_front();
                        }
                    }
                    alter(number, &mut bytes[..length]);
                    if inward {
                        *client.lock().expect("no panic") = Some(peer);
                        let _ = back.send(&bytes[..length]);
                    } else if let Some(client) = *client.lock().expect("no panic") {
                        let _ = front.send_to(&bytes[..length], client);
                    }
                }
            }));
        }
        Ok(Self {
            seen,
            stop,
            threads,
        })
    }

    /// Takes what has been seen since the last time, as it came.
    pub fn take_seen(&self) -> Vec<Vec<u8>> {
        self.seen.lock().expect("no panic").drain(..).collect()
    }
}

impl Drop for MiddleBox {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
