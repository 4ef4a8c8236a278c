//! Forty thousand connections that say nothing, and two hundred that do: what they cost. Needs root.
//!
//! They are real ones, open at once. A daemon has a file open for each, so one pair of daemons carries all of them where a
//! process may have so many; else as many pairs as it takes share them. Then all of their memory counts, but what the other
//! pairs had taken before they had a flow.
//!
//! A binary of its own: it raises limits of its process, starts itself again for both ends, and counts CPU time while nothing
//! else of the suites runs.
//!
//! ```text
//!  the_near_end ─ user ─ client ══ near ══ server ─ web ─ the_far_end    idle: said one word, then nothing
//!  this test ──── of the first pair ────────────────────── endless       active: downloads
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{Process, WEB};
use bentpipe_emulator::usage::cpu_seconds;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::privilege::raise_nofile;
use bentpipe_testbed::peer::{PATIENCE, STACK, Service, endless, listen, set_patience};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, near};
use bentpipe_testbed::{privileged, raise_file_limit};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

const IDLE: usize = 40_000;
const ACTIVE: usize = 200;

/// What client and server together may take in memory at any moment, in bytes.
const CEILING: u64 = 400_000_000;

/// Where the far end listens: an address has 28,000 ports to connect from to each of them.
const PORTS: [u16; 4] = [7007, 7008, 7009, 7010];

/// Where downloads come from.
const ENDLESS: u16 = 7006;

/// What a process has open besides connections, and those that it is about to close.
const SPARE: usize = 200;

/// How many connections the near end opens, and the file whose appearance tells it to use them again. Both ends are processes
/// of their own, for one may not have enough open files for both.
const COUNT: &str = "BENTPIPE_TEST_IDLE_COUNT";
const WAKE: &str = "BENTPIPE_TEST_IDLE_WAKE";
const FAR_END: &str = "BENTPIPE_TEST_FAR_END";

/// To open all of them, and for all of them to say something.
const MINUTES: Duration = Duration::from_secs(400);

/// Most CPU time of any daemon while nothing is said.
const CPU_SHARE: f64 = 0.01;

/// Watched for so long. Longer than the interval of keepalives.
const WATCHED: Duration = Duration::from_secs(30);

/// How long downloads run before they are measured, and then.
const WARM: Duration = Duration::from_secs(10);
const BUSY: Duration = Duration::from_secs(20);

/// A pair of daemons, and the idle connections through it.
struct Pair {
    near_end: Process,
    far_end: Process,
    site: Site,
}

#[test]
#[ignore = "slow: run by `make test-full`"]
fn idle_flows_cost_little() {
    if !privileged("idle flows") {
        return;
    }
    let sites = start_sites();
    let alone: u64 = sites.iter().map(|site| memory(site, "VmRSS:")).sum();
    let pairs = open_idle(sites);
    // What has just been opened settles first: queues drain, buffers go back.
    thread::sleep(Duration::from_secs(2));
    let idle = resident(&pairs);
    let shares = cpu_shares(&pairs);

    let busy = download(&pairs);
    let most: u64 = pairs.iter().map(|pair| memory(&pair.site, "VmHWM:")).sum();
    let others = alone / pairs.len() as u64 * (pairs.len() as u64 - 1);
    println!(
        "memory of all daemons: {alone} B without flows, {idle} B with {IDLE} idle ones ({} B each), {busy} B with {ACTIVE} \
         downloads besides, {most} B at most, {} B less what all pairs but one were without flows; CPU shares {shares:?}",
        idle.saturating_sub(alone) / IDLE as u64,
        most - others,
    );
    assert!(most - others <= CEILING, "{} B", most - others);
    assert!(shares.iter().all(|share| *share < CPU_SHARE), "{shares:?}");

    // All of them are still there.
    for pair in &pairs {
        fs::write(wake(&pair.site), "").expect("a file");
    }
    for pair in &pairs {
        pair.expect("answered", MINUTES);
    }
}

/// As many as it takes.
fn start_sites() -> Vec<Site> {
    let files = allow_files(IDLE + ACTIVE + SPARE);
    let count = (IDLE + ACTIVE).div_ceil(files - SPARE);
    println!("{files} files a process: {count} x client and server");
    let config = SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    };
    let start = |_| Site::start(config.clone()).expect("a site");
    (0..count).map(start).collect()
}

/// Opens all idle connections, through all sites at once.
fn open_idle(sites: Vec<Site>) -> Vec<Pair> {
    let (count, began) = (sites.len(), Instant::now());
    let sites = sites.into_iter().enumerate();
    let pairs: Vec<Pair> = sites
        .map(|(place, site)| Pair::start(site, (IDLE + place) / count))
        .collect();
    for pair in &pairs {
        pair.expect("open", MINUTES);
    }
    println!("{IDLE} open after {:?}", began.elapsed());
    pairs
}

/// How many files a process may have open: so many, if this one may say so, and those that it starts.
fn allow_files(wanted: usize) -> usize {
    let wanted = wanted as u64;
    if getrlimit(Resource::Nofile)
        .maximum
        .is_some_and(|most| most < wanted)
    {
        let more = Rlimit {
            current: Some(wanted),
            maximum: Some(wanted),
        };
        // Refused to root as well where it has no CAP_SYS_RESOURCE, as in containers.
        let _ = setrlimit(Resource::Nofile, more);
    }
    let (files, _) = raise_nofile().expect("the kernel allows that");
    usize::try_from(files.min(wanted)).expect("a small number")
}

impl Pair {
    /// Its near end opens `idle` connections from now on.
    fn start(site: Site, idle: usize) -> Self {
        let far_end = helper(&site, site.topology.web(), "the_far_end", FAR_END, "");
        far_end
            .wait_for_line("listening", PATIENCE)
            .expect("the far end");
        let count = idle.to_string();
        let near_end = helper(&site, site.topology.user(), "the_near_end", COUNT, &count);
        Self {
            near_end,
            far_end,
            site,
        }
    }

    fn expect(&self, line: &str, patience: Duration) {
        if let Err(error) = self.near_end.wait_for_line(line, patience) {
            let far_end = self.far_end.stderr_text();
            panic!("{error:#}\nthe far end: {far_end}\n{}", self.site.logs());
        }
    }
}

/// The file that tells the near end to go on.
fn wake(site: &Site) -> PathBuf {
    site.topology.directory().join("wake")
}

/// One of the tests below, as a process in `place`.
fn helper(site: &Site, place: &NetNs, name: &str, variable: &str, value: &str) -> Process {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(WAKE, wake(site))
        .env(variable, value);
    site.topology.spawn_in(place, command).expect("a process")
}

/// No test: what the first one starts in the web's namespace. Echoes on every connection.
#[test]
#[ignore = "started by idle_flows_cost_little"]
fn the_far_end() {
    if env::var_os(FAR_END).is_none() {
        return;
    }
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listeners = PORTS.map(|port| {
            let listener = listen(SocketAddr::new(WEB.into(), port)).expect("a listener");
            tokio::spawn(echo_all(listener))
        });
        eprintln!("listening");
        for listener in listeners {
            listener.await.expect("it accepts for good");
        }
    });
}

async fn echo_all(listener: TcpListener) {
    listener.set_nonblocking(true).expect("a listener");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// No test: what the first one starts in the user's namespace. Opens connections and keeps them, silent until it is told.
#[test]
#[ignore = "started by idle_flows_cost_little"]
fn the_near_end() {
    let Ok(count) = env::var(COUNT) else {
        return;
    };
    raise_file_limit();
    let mut flows = connect(count.parse().expect("a number"));
    eprintln!("open");
    let wake = env::var_os(WAKE).expect("a file");
    while !Path::new(&wake).exists() {
        thread::sleep(Duration::from_millis(200));
    }
    for batch in flows.chunks_mut(100) {
        converse(batch);
    }
    eprintln!("answered");
    // Until it is ended: were they closed here, the daemons would be busy with that first.
    thread::sleep(MINUTES);
}

/// Opens `count` connections, each with one round of conversation, a hundred at a time.
fn connect(count: usize) -> Vec<TcpStream> {
    let mut flows: Vec<TcpStream> = Vec::with_capacity(count);
    while flows.len() < count {
        let first = flows.len();
        flows.extend((first..count.min(first + 100)).map(|number| {
            let address = SocketAddr::new(WEB.into(), PORTS[number % PORTS.len()]);
            open(address).expect("a connection")
        }));
        converse(&mut flows[first..]);
    }
    flows
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    set_patience(&stream, PATIENCE)?;
    Ok(stream)
}

fn converse(flows: &mut [TcpStream]) {
    for flow in flows.iter_mut() {
        flow.write_all(b"hello").expect("the flow is open");
    }
    for flow in flows {
        flow.read_exact(&mut [0; 5]).expect("an echo");
    }
}

/// Of every daemon, as long as nothing is said.
fn cpu_shares(pairs: &[Pair]) -> Vec<f64> {
    let spent = || {
        let daemons = pairs.iter().flat_map(|pair| daemons(&pair.site));
        let spent = daemons.map(|process| cpu_seconds(process).expect("it lives"));
        spent.collect::<Vec<f64>>()
    };
    let before = spent();
    thread::sleep(WATCHED);
    let spent = spent().into_iter().zip(before);
    let shares = spent.map(|(after, before)| (after - before) / WATCHED.as_secs_f64());
    shares.collect()
}

/// Downloads through the first pair, each of which brings something while memory is looked at: the most there was in use.
fn download(pairs: &[Pair]) -> u64 {
    let topology = &pairs[0].site.topology;
    let address = SocketAddr::new(IpAddr::from(WEB), ENDLESS);
    let service = Service::start(&topology.web().into(), address, endless).expect("a service");
    let user = Place::from(topology.user());
    let opened = user.at(|| {
        (0..ACTIVE)
            .map(|_| open(address))
            .collect::<io::Result<_>>()
    });
    let streams: Vec<TcpStream> = opened.expect("a namespace").expect("connections");
    let readers: Vec<_> = streams.iter().map(read_all).collect();
    thread::sleep(WARM);
    let got = || {
        let counts = readers
            .iter()
            .map(|(count, _)| count.load(Ordering::Relaxed));
        counts.collect::<Vec<u64>>()
    };
    let (before, began) = (got(), Instant::now());
    let mut most = 0;
    while began.elapsed() < BUSY {
        thread::sleep(Duration::from_millis(500));
        most = most.max(resident(pairs));
    }
    let brought = got()
        .into_iter()
        .zip(before)
        .map(|(now, before)| now - before);
    let brought: Vec<u64> = brought.collect();
    let all: u64 = brought.iter().sum();
    let least = brought.iter().min().expect("there are some");
    println!("{ACTIVE} downloads brought {all} B in {BUSY:?}, at least {least} B each");
    assert!(*least > 0, "{brought:?}");
    for stream in &streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
    drop(streams);
    for (_, thread) in readers {
        thread.join().expect("a reader");
    }
    drop(service);
    most
}

/// Reads until the end, and counts.
fn read_all(stream: &TcpStream) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let mut stream = stream.try_clone().expect("a descriptor");
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let read = move || {
        let mut buffer = [0; 16_384];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            counted.fetch_add(n as u64, Ordering::Relaxed);
        }
    };
    let thread = thread::Builder::new().stack_size(STACK);
    (count, thread.spawn(read).expect("a thread"))
}

fn resident(pairs: &[Pair]) -> u64 {
    pairs.iter().map(|pair| memory(&pair.site, "VmRSS:")).sum()
}

/// A line of the kernel's about the memory of both daemons, in bytes.
fn memory(site: &Site, what: &str) -> u64 {
    let of = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
        let line = status.lines().find(|line| line.starts_with(what));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.expect("a number") * 1024
    };
    daemons(site).map(of).into_iter().sum()
}

/// Client and server.
fn daemons(site: &Site) -> [u32; 2] {
    [site.client().id(), site.server().id()]
}
