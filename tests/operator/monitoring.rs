//! A real Prometheus that reads the daemons: its queries of `packaging/monitoring`, and what scraping costs.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::clients::Clients;
use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::installed;
use bentpipe_testbed::peer::endless;
use bentpipe_tunnel::engine::identity::PrivateKey;
use serde_json::Value;
use tempfile::TempDir;

use super::config_errors::home::{Home, PATIENCE, Running};

/// Dashboard and alerts that are delivered.
const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/monitoring");

/// Clients that are connected while a scrape is timed.
const CLIENTS: usize = 200;

/// Longest time of a scrape, seconds.
const SCRAPE: f64 = 0.05;

/// Pairs of a span without scrapes and one with a scrape each second, and the length of a span.
const PAIRS: usize = 10;
const SPAN: Duration = Duration::from_secs(2);

/// Least ratio of bytes that arrive with scrapes to bytes that arrive without.
const LEAST_RATIO: f64 = 0.99;

/// A Prometheus that reads `targets` each second, ended with this guard.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    fn start(targets: &[SocketAddr]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let targets: Vec<_> = targets.iter().map(|one| format!("\"{one}\"")).collect();
        let file = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{MONITORING}/alerts.yml\"]\n\
             scrape_configs:\n  - job_name: bentpipe\n    static_configs:\n      - targets: [{}]\n",
            targets.join(", ")
        );
        fs::write(&file, text).expect("a file");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn();
        Self {
            process: process.expect("prometheus starts"),
            address,
            _directory: directory,
        }
    }

    /// The answer of its API to `path`; `None` while it does not serve yet.
    fn get(&self, path: &str) -> Option<Value> {
        let body = get(self.address, path)?;
        serde_json::from_str(&body).ok()
    }

    fn query(&self, query: &str) -> Value {
        let escape = |byte: &u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte).to_string(),
            other => format!("%{other:02x}"),
        };
        let query: String = query.as_bytes().iter().map(escape).collect();
        self.get(&format!("/api/v1/query?query={query}"))
            .unwrap_or_default()
    }

    /// The number that `query` gives, once it gives one that is at least `least`.
    fn wait_for(&self, query: &str, least: f64) -> f64 {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            let answer = self.query(query);
            let value = answer["data"]["result"][0]["value"][1].as_str();
            let value = value.and_then(|value| value.parse().ok());
            if let Some(value) = value.filter(|value| *value >= least) {
                return value;
            }
            assert!(Instant::now() < deadline, "{query}: {answer}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The body of what is served at `path`.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// A pair of daemons on loopback that serve metrics; `tables` are more of the client's file.
struct Pair {
    client: Running,
    _server: Running,
    metrics: [SocketAddr; 2],
    tunnel: SocketAddr,
    socks: SocketAddr,
    home: Home,
}

impl Pair {
    fn start(clients: &[PrivateKey], tables: &str) -> Self {
        let home = Home::new();
        let [tunnel, socks, first, second] =
            [(); 4].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        let listen = |address: SocketAddr| format!("[metrics]\nlisten = \"{address}\"\n");
        home.edit("server.toml", "127.0.0.1:0", &tunnel.to_string());
        home.edit("server.toml", "10.30.0.0/24", "127.0.0.0/8");
        let others = clients.iter().enumerate().map(|(number, key)| {
            let key = key.public();
            format!("[[client]]\nname = \"other-{number}\"\npublic_key = \"{key}\"\n")
        });
        let others: String = others.collect();
        append(
            &home,
            "server.toml",
            &format!("{others}[packets]\nenabled = false\n{}", listen(first)),
        );
        home.edit(
            "server.toml",
            "status_socket",
            "state_dir = \"kept\"\nstatus_socket",
        );
        home.edit("client.toml", "127.0.0.1:4433", &tunnel.to_string());
        home.edit("client.toml", "127.0.0.1:0", &socks.to_string());
        append(&home, "client.toml", &format!("{tables}{}", listen(second)));
        let start =
            |role: &str| Running::start(home.daemon(role), &home.path(&format!("{role}.sock")));
        let server = start("server");
        let client = start("client");
        Self {
            _server: server,
            client,
            metrics: [first, second],
            tunnel,
            socks,
            home,
        }
    }

    /// The server's public key, as the client's file has it.
    fn key(&self) -> String {
        let text = fs::read_to_string(self.home.path("client.toml")).expect("a file");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("public_key = \""));
        line.expect("a key").trim_end_matches('"').to_owned()
    }

    /// A connection through the tunnel to `port` of this machine.
    fn connect(&self, port: u16) -> TcpStream {
        let deadline = Instant::now() + 2 * PATIENCE;
        let mut stream = loop {
            match TcpStream::connect(self.socks) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "no proxy: {error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let [high, low] = port.to_be_bytes();
        stream.write_all(&[5, 1, 0]).expect("a greeting");
        stream.read_exact(&mut [0; 2]).expect("an answer");
        stream
            .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low])
            .expect("a request");
        stream.read_exact(&mut [0; 10]).expect("an answer");
        stream
    }
}

fn append(home: &Home, file: &str, more: &str) {
    let text = fs::read_to_string(home.path(file)).expect("a file");
    home.write(file, &format!("{text}{more}"));
}

/// Every query that is delivered, with `$instance` as Grafana sets it.
fn queries() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                found.extend(
                    object
                        .get("expr")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                object.values().for_each(|inner| collect(inner, found));
            }
            Value::Array(list) => list.iter().for_each(|inner| collect(inner, found)),
            _ => {}
        }
    }
    let read = |name| fs::read_to_string(Path::new(MONITORING).join(name)).expect("a file");
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).expect("JSON");
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    let alerts = read("alerts.yml");
    let alerts = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: '"));
    found.extend(alerts.map(|line| line.trim_end_matches('\'').to_owned()));
    found
        .iter()
        .map(|one| one.replace("$instance", ".*"))
        .collect()
}

#[test]
fn prometheus_answers_every_query_that_is_delivered() {
    if !installed("monitoring", "prometheus") {
        return;
    }
    let pair = Pair::start(&[], "");
    let web = bentpipe_testbed::peer::listen((Ipv4Addr::LOCALHOST, 0).into());
    let web = web.expect("a port");
    let port = web.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (mut stream, _) = web.accept()?;
        stream.read_exact(&mut [0; 4])?;
        stream.write_all(b"pong")
    });
    let mut stream = pair.connect(port);
    stream.write_all(b"ping").expect("the tunnel takes it");
    stream.read_exact(&mut [0; 4]).expect("an answer");
    let prometheus = Prometheus::start(&pair.metrics);
    prometheus.wait_for("sum(up)", 2.0);
    prometheus.wait_for("count(bentpipe_tunnel_rtt_seconds_count)", 2.0);
    prometheus.wait_for(
        "histogram_quantile(0.5, sum by (le) (bentpipe_tunnel_rtt_seconds_bucket))",
        0.0,
    );
    let queries = queries();
    assert!(queries.len() >= 25, "{queries:#?}");
    for query in queries {
        let answer = prometheus.query(&query);
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        assert!(answer["data"]["result"].is_array(), "{query}: {answer}");
    }
    let answer = prometheus.query("bentpipe_tunnel_state{state=\"ready\"}");
    let ready = answer["data"]["result"].as_array().map(Vec::len);
    assert_eq!(ready, Some(2), "{answer}");
    let rules = prometheus.get("/api/v1/rules").expect("an answer");
    let rules = rules["data"]["groups"][0]["rules"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(rules.len(), 7, "{rules:#?}");
    for rule in &rules {
        assert_ne!(rule["health"], "err", "{rule}");
    }
    drop(stream);
    let ended = pair.client.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // Who is gone is missed: the daemon by its machine's Prometheus, the client by its server's.
    for alert in ["BentpipeDaemonDown", "BentpipeClientGone"] {
        let rule = rules.iter().find(|rule| rule["name"] == alert);
        let query = rule.and_then(|rule| rule["query"].as_str());
        prometheus.wait_for(&format!("count({})", query.expect(alert)), 1.0);
    }
}

/// The download is limited to a rate that this machine has to spare, so that what is seen is what scrapes take away.
#[test]
#[ignore = "takes a minute and wants the machine for itself; `make test-full` runs it"]
fn scrapes_of_a_server_with_two_hundred_clients_are_short_and_cost_no_throughput() {
    if !installed("monitoring", "prometheus") {
        return;
    }
    let keys: Vec<_> = (0..CLIENTS)
        .map(|_| PrivateKey::generate().expect("a key"))
        .collect();
    let pair = Pair::start(&keys, "[link.forward]\nmax_rate = \"100 Mbit/s\"\n");
    let clients = Clients::start(pair.tunnel, pair.key().parse().expect("a key"), keys);
    clients.wait_for(1, 6 * PATIENCE);

    let web = bentpipe_testbed::peer::listen((Ipv4Addr::LOCALHOST, 0).into());
    let web = web.expect("a port");
    let port = web.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (stream, _) = web.accept()?;
        endless(stream)
    });
    let mut stream = pair.connect(port);
    count(&mut stream, 2 * SPAN, None);
    let mut ratios: Vec<_> = (0..PAIRS)
        .map(|pair_number| {
            // By turns, so that what drifts meanwhile falls on both.
            let scraped = |scraped: bool| scraped.then_some(pair.metrics[0]);
            let first = pair_number % 2 == 0;
            let one = count(&mut stream, SPAN, scraped(first)) as f64;
            let other = count(&mut stream, SPAN, scraped(!first)) as f64;
            if first { one / other } else { other / one }
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let median = f64::midpoint(ratios[(PAIRS - 1) / 2], ratios[PAIRS / 2]);
    println!("with scrapes / without: median {median:.4}, all {ratios:.3?}");

    drop(stream);
    let prometheus = Prometheus::start(&pair.metrics[..1]);
    prometheus.wait_for("count(bentpipe_tunnel_rtt_seconds_count)", CLIENTS as f64);
    prometheus.wait_for("count_over_time(scrape_duration_seconds[1m])", 8.0);
    let least = prometheus.wait_for("min_over_time(scrape_duration_seconds[1m])", 0.0);
    let median_of = "quantile_over_time(0.5, scrape_duration_seconds[1m])";
    let usual = prometheus.wait_for(median_of, 0.0);
    let samples = prometheus.wait_for("scrape_samples_scraped", 1.0);
    println!(
        "scrape of {samples} samples: at least {:.1} ms, median {:.1} ms",
        least * 1e3,
        usual * 1e3
    );
    assert_eq!(clients.entered(1), CLIENTS, "all stay");
    assert!(usual <= SCRAPE, "a scrape takes {usual} s");
    assert!(median >= LEAST_RATIO, "{ratios:?}");
}

/// Bytes that `stream` gives within `span`, in which `scraped` is read each second.
fn count(stream: &mut TcpStream, span: Duration, scraped: Option<SocketAddr>) -> u64 {
    let began = Instant::now();
    let scrapes = scraped.map(|address| {
        thread::spawn(move || {
            for number in 0..span.as_secs() {
                if number > 0 {
                    thread::sleep(Duration::from_secs(1));
                }
                let text = get(address, "/metrics").expect("metrics are served");
                assert!(text.ends_with("# EOF\n"), "{text}");
            }
        })
    });
    let mut bytes = 0;
    let mut buffer = [0; 64 << 10];
    while began.elapsed() < span {
        let read = stream.read(&mut buffer).expect("the download goes on");
        assert!(read > 0, "the download ended");
        bytes += read as u64;
    }
    let took = began.elapsed().as_secs_f64();
    if let Some(scrapes) = scrapes {
        scrapes.join().expect("scrapes succeed");
    }
    (bytes as f64 / took) as u64
}
