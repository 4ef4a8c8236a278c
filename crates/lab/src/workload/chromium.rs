//! Loading pages with a real browser: Debian's Chromium, driven by playwright-core under Node.
//!
//! Each load has a profile of its own, with nothing in its caches. Names are resolved in the browser (`--host-resolver-rules`),
//! for all contenders alike, or asked of the web's resolver: then the browser has a `resolv.conf` of its own, in a mount namespace.
//! Whatever else Chromium might fetch finds no address. QUIC is off.
//! TLS hides the bodies from us, and protects them from everybody else: here their number and lengths are checked.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bentpipe_sys::command::{run_command, tool};
use serde::{Deserialize, Serialize};

use super::hosts::Hosts;
use super::page::Page;
use super::tls::Authority;
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{Process, Topology};

const DRIVER: &str = include_str!("../../browser/load.cjs");
/// Directory in that of the topology in which a picture of each page is left, if it is there.
pub const PICTURES: &str = "pictures";
/// Debian's name for it.
const CHROMIUM: &str = "chromium";
/// For Chromium to come up, on a machine that is busy.
const COMES_UP: Duration = Duration::from_secs(60);
/// Between two loads: queues empty.
const PAUSE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// Finds the library from the driver's place up, as the driver does.
const FIND_LIBRARY: &str = "let p; try { p = require.resolve('playwright-core/package.json') } catch { \
    p = require.resolve('playwright-core/package.json', { paths: [process.argv[1]] }) } \
    console.log(require(p).version)";

/// Puts its first two arguments where programs look for them, for itself alone, and becomes the others. A machine without the
/// second file does as that one says.
const IN_PLACE: &str = "mount --bind \"$1\" /etc/resolv.conf && \
    { [ ! -e /etc/nsswitch.conf ] || mount --bind \"$2\" /etc/nsswitch.conf; } && shift 2 && exec \"$@\"";

/// The browser that this machine has.
#[derive(Debug, Clone)]
pub struct Chromium {
    /// Directory in which the library is looked for, and in every one above.
    tools: PathBuf,
    executable: PathBuf,
    version: String,
}

/// One load of a page, as Chromium timed it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Load {
    /// `loadEventEnd` - `navigationStart`, in milliseconds.
    pub load_ms: f64,
    /// First contentful paint after `navigationStart`, in milliseconds.
    pub paint_ms: Option<f64>,
    objects: usize,
    bytes: u64,
    /// As ALPN names them.
    pub protocols: Vec<String>,
    late: usize,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    tools: &'a Path,
    chromium: &'a Path,
    arguments: Vec<String>,
    urls: Vec<String>,
    pause_ms: u128,
    pictures: Option<&'a Path>,
    output: &'a Path,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Loads { loads: Vec<Load> },
    Error { error: String },
}

impl Chromium {
    /// Looks for it. `program` is the binary of bentpipe: the library may be in a `node_modules` of its directory or of one
    /// above.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(program: &Path) -> Result<Self, String> {
        let tools = program.parent().unwrap_or(Path::new("/")).to_owned();
        let ask = |program: &str, arguments: &[&str]| {
            let output = run_command(tool(program).args(arguments));
            output.map(|text| text.trim().to_owned())
        };
        let node = ask("node", &["--version"]);
        let node =
            node.map_err(|_| "node is missing (Debian: nodejs); `.ci/deps lab` installs it")?;
        let chromium = ask(CHROMIUM, &["--version"]);
        let chromium = chromium
            .map_err(|_| "chromium is missing (Debian: chromium); `.ci/deps lab` installs it")?;
        let place = tools.to_string_lossy();
        let library = ask("node", &["-e", FIND_LIBRARY, &place]).map_err(|_| {
            format!(
                "playwright-core is in no node_modules from {} up, nor in NODE_PATH; `.ci/deps lab` installs it",
                tools.display()
            )
        })?;
        Ok(Self {
            executable: executable(CHROMIUM).ok_or("chromium is in no directory of programs")?,
            version: format!("{chromium}, playwright-core {library}, node {node}"),
            tools,
        })
    }

    /// Version of Chromium, and those of what drives it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Starts it at the user's; it loads the pages, one after another.
    ///
    /// # Errors
    /// It does not come up; the text has what it said.
    pub fn start(
        &self,
        topology: &Topology,
        hosts: &Hosts,
        authority: &Authority,
        pages: &[Page],
    ) -> Result<Loading> {
        let place = |name: &str| topology.directory().join(name);
        let [driver, job, output] = ["load.cjs", "load.json", "loads.json"].map(place);
        let (name, _) = hosts.get(0).context("there is no host")?;
        fs::write(&driver, DRIVER).context("cannot write the browser's driver")?;
        if let Some(pem) = authority.trusted_beside() {
            trust(topology.directory(), pem)?;
        }
        let pictures = Some(place(PICTURES)).filter(|place| place.is_dir());
        let text = serde_json::to_string(&Job {
            tools: &self.tools,
            chromium: &self.executable,
            arguments: arguments(hosts, authority),
            urls: pages
                .iter()
                .map(|page| format!("https://{name}{}", page.path(0)))
                .collect(),
            pause_ms: PAUSE.as_millis(),
            pictures: pictures.as_deref(),
            output: &output,
        })?;
        fs::write(&job, text).context("cannot write the browser's job")?;
        let mut command = match hosts.resolver() {
            None => Command::new(tool("node").get_program()),
            Some(resolver) => resolving(topology.directory(), resolver.ip())?,
        };
        command
            .arg(&driver)
            .arg(&job)
            // What it leaves behind is removed with the experiment.
            .envs(["HOME", "TMPDIR", "XDG_CONFIG_HOME"].map(|key| (key, topology.directory())))
            .stdout(File::create(place("browser.stdout"))?);
        let process = topology.spawn_in(topology.user(), command)?;
        process
            .wait_for_line("ready", COMES_UP)
            .map_err(|error| match answer(&output) {
                Ok(Answer::Error { error }) => anyhow::anyhow!("chromium: {error}"),
                _ => error,
            })?;
        Ok(Loading { process, output })
    }
}

/// Loads that are being made; dropping it ends them.
#[derive(Debug)]
pub struct Loading {
    process: Process,
    output: PathBuf,
}

impl Loading {
    /// Waits for the last of `pages`; none if `patience` ends first.
    ///
    /// # Errors
    /// A page could not be loaded, or is not all there; or `stop` was thrown.
    pub fn finish(
        self,
        pages: &[Page],
        patience: Duration,
        stop: &Stop,
    ) -> Result<Option<Vec<Load>>> {
        let deadline = Instant::now() + patience;
        while self.process.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            stop.sleep(POLL)?;
        }
        let loads = match answer(&self.output) {
            Ok(Answer::Loads { loads }) => loads,
            Ok(Answer::Error { error }) => bail!("chromium: {error}"),
            Err(error) => bail!("{error:#}; it wrote:\n{}", self.process.stderr_text()),
        };
        ensure!(
            loads.len() == pages.len(),
            "chromium loaded {} pages",
            loads.len()
        );
        for (page, load) in pages.iter().zip(&loads) {
            load.check(page)?;
        }
        Ok(Some(loads))
    }
}

impl Load {
    /// Checks that all of the page came, by the time that was measured.
    fn check(&self, page: &Page) -> Result<()> {
        let (objects, bytes) = (page.objects().len(), page.bytes());
        ensure!(
            (self.objects, self.bytes) == (objects, bytes),
            "{} objects came with {} bytes; the page has {objects} with {bytes}",
            self.objects,
            self.bytes
        );
        ensure!(
            self.late == 0,
            "{} objects came after the page's load event",
            self.late
        );
        Ok(())
    }
}

fn answer(output: &Path) -> Result<Answer> {
    let text = fs::read(output).context("the browser's driver wrote no result")?;
    serde_json::from_slice(&text).context("the browser's driver wrote something strange")
}

/// Arguments of Chromium beyond those of the library: on this web, and on nothing else.
fn arguments(hosts: &Hosts, authority: &Authority) -> Vec<String> {
    let rule = |(name, address): (&str, IpAddr)| match address {
        IpAddr::V4(address) => format!("MAP {name} {address}"),
        IpAddr::V6(address) => format!("MAP {name} [{address}]"),
    };
    let rules = match hosts.resolver() {
        None => {
            let rules: Vec<String> = hosts.iter().map(rule).collect();
            format!("{},MAP * ~NOTFOUND", rules.join(","))
        }
        Some(_) => {
            let names = hosts.names().join(",EXCLUDE ");
            format!("MAP * ~NOTFOUND,EXCLUDE {names}")
        }
    };
    let key = STANDARD.encode(authority.server_key_sha256());
    vec![
        format!("--host-resolver-rules={rules}"),
        format!("--ignore-certificate-errors-spki-list={key}"),
        "--disable-quic".into(),
        // The emulated web is all that it ever sees.
        "--no-sandbox".into(),
        "--disable-gpu".into(),
    ]
}

/// Has Chromium whose home is `home` trust the authority with this certificate, as its user would.
fn trust(home: &Path, pem: &str) -> Result<()> {
    let (database, file) = (home.join(".pki/nssdb"), home.join("local-ca.pem"));
    fs::create_dir_all(&database).context("cannot make the browser's certificates")?;
    fs::write(&file, pem).context("cannot write the local CA's certificate")?;
    let database = format!("sql:{}", database.display());
    let certutil = |arguments: &[&str]| {
        let mut command = tool("certutil");
        command.args(["-d", &database]).args(arguments);
        let done = run_command(&mut command).map(drop);
        done.context("certutil (Debian: libnss3-tools); `.ci/deps lab` installs it")
    };
    certutil(&["-N", "--empty-password"])?;
    let file = file.to_string_lossy();
    certutil(&["-A", "-t", "C,,", "-n", "bentpipe", "-i", &file])
}

/// Node where names are asked of `resolver`, and of nobody else: with files of its own in the places of the machine's.
fn resolving(directory: &Path, resolver: IpAddr) -> Result<Command> {
    let files = [
        ("resolv.conf", format!("nameserver {resolver}\n")),
        ("nsswitch.conf", "hosts: files dns\n".to_owned()),
    ];
    let mut command = tool("unshare");
    command.args(["--mount", "sh", "-c", IN_PLACE, "sh"]);
    for (name, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        command.arg(path);
    }
    command.arg(tool("node").get_program());
    Ok(command)
}

/// Path at which the library, which does not search, is to start the program.
fn executable(program: &str) -> Option<PathBuf> {
    let directories = ["/usr/bin", "/usr/local/bin", "/bin"].map(Path::new);
    let paths = directories.map(|directory| directory.join(program));
    paths.into_iter().find(|path| path.is_file())
}
