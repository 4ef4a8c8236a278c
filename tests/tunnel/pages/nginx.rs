//! nginx as the web server of a case: its configuration, what it serves, and what it was asked for.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::Process;
use bentpipe_testbed::peer::payload;
use bentpipe_testbed::site::Site;

use super::certified::Certified;

/// Length of an object, bytes.
pub(super) const LENGTH: usize = 20_000;

/// Names of the pages that [`page`] makes, one for each coding that they come in.
pub(super) const PAGES: [&str; 6] = ["plain", "gzip", "static", "br", "zstd", "chunked"];

/// Page `br` in Brotli, as Node's zlib packs it.
const BROTLI: &str = "1b8a00001c0776ccb1adb4b391f24f7ab2981832a509e9639350202fe523a793d333dff0806d016571045f31e736f6\
    bdea54e8d46823690f7af891884d9d88b3a2d8b1d3d74682fa220955d8f3725a6ff13376";

/// Page of objects of every kind.
const MIXED: &str = "<img src=/cookie><img src=/cookie-of-another><img src=/language/1><img src=/language/2>\
    <img src=/redirect><img src=/sets-cookie><img src=/no-store><img src=/o/condition><img src=/o/range><img src=/o/kept>\
    <img src=/big/3m><img src=/big/5m><img src=/missing><img src=/forbidden><img src=/early><img src=/behind/chunked>\
    <img src=/behind/short><img src=/behind/o/1>";

/// A running nginx.
pub(super) struct Nginx {
    _process: Process,
    directory: tempfile::TempDir,
}

/// Page `name` with its three images and its style sheet.
pub(super) fn page(name: &str) -> String {
    let images: String = (0..3).map(|i| format!("<img src=/o/{name}-{i}>")).collect();
    format!(
        "<!doctype html><title>{name}</title><link rel=stylesheet href=/style/{name}.css>{images}<p>The end.</p>\n"
    )
}

/// Objects of page `name`.
pub(super) fn objects(name: &str) -> Vec<String> {
    let images = (0..3).map(|i| format!("/o/{name}-{i}"));
    images.chain([format!("/style/{name}.css")]).collect()
}

impl Nginx {
    /// Serves `listen` in the web, in TLS of these `versions` if that is port 443, with the certificate of `certified`; asks `behind` for what
    /// is below `/behind/`.
    pub(super) fn start(
        site: &Site,
        (certified, versions): (&Certified, &str),
        listen: SocketAddr,
        behind: SocketAddr,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        write_contents(directory.path())?;
        let text = configuration(directory.path(), (certified, versions), listen, behind);
        let file = directory.path().join("nginx.conf");
        fs::write(&file, text)?;
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-p"]).arg(directory.path());
        command.arg("-c").arg(&file);
        let process = site.topology.spawn_in(site.topology.web(), command)?;
        process.wait_for_listener(listen.port(), Duration::from_secs(10))?;
        Ok(Self {
            _process: process,
            directory,
        })
    }

    /// Serves `content` below `/` as `path`.
    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        Ok(fs::write(
            self.directory.path().join("www").join(path),
            content,
        )?)
    }

    /// Number of requests for `target` by clients of the pair, ahead or not.
    pub(super) fn count(&self, target: &str) -> Result<usize> {
        let log = fs::read_to_string(self.directory.path().join("access.log"))?;
        let line = format!("test {target}");
        Ok(log.lines().filter(|it| *it == line).count())
    }
}

/// Packs `content` with a program of the system.
fn packed(program: &str, options: &[&str], content: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    child.stdin.take().context("a pipe")?.write_all(content)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{program}: {}", output.status);
    Ok(output.stdout)
}

/// Bytes of `text` in hexadecimal.
pub(super) fn hex(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let bytes: Result<_, _> = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or_default(), 16))
        .collect();
    Ok(bytes?)
}

fn write_contents(directory: &Path) -> Result<()> {
    let root = directory.join("www");
    for sub in ["o", "style", "big", "static"] {
        fs::create_dir_all(root.join(sub))?;
    }
    for name in PAGES {
        let content = page(name);
        fs::write(root.join(format!("{name}.html")), &content)?;
        for i in 0..3 {
            let image = root.join(format!("o/{name}-{i}"));
            fs::write(image, &payload(LENGTH + i)[i..])?;
        }
        let style = format!("/* {name} */\n{}", "p { margin: 0 }\n".repeat(1000));
        fs::write(root.join(format!("style/{name}.css")), style)?;
    }
    let gzip = packed("gzip", &["-c"], page("static").as_bytes())?;
    fs::write(root.join("static.html.gz"), gzip)?;
    fs::write(root.join("br.html"), hex(BROTLI)?)?;
    let zstd = packed("zstd", &["-q", "-c"], page("zstd").as_bytes())?;
    fs::write(root.join("zstd.html"), zstd)?;
    fs::write(root.join("mixed.html"), MIXED)?;
    for (name, length) in [("3m", 3 << 20), ("5m", 5 << 20), ("20m", 20 << 20)] {
        fs::write(root.join("big").join(name), payload(length))?;
    }
    for name in ["range", "condition", "kept"] {
        fs::write(root.join("o").join(name), payload(LENGTH))?;
    }
    Ok(())
}

fn configuration(
    directory: &Path,
    (certified, versions): (&Certified, &str),
    listen: SocketAddr,
    behind: SocketAddr,
) -> String {
    let tls = if listen.port() == 443 { " ssl" } else { "" };
    let (at, certificate) = (directory.display(), certified.directory().display());
    format!(
        r#"daemon off;
master_process off;
user root;
pid {at}/nginx.pid;
error_log stderr warn;
events {{ }}
http {{
    log_format who '$http_user_agent $uri';
    access_log {at}/access.log who;
    client_body_temp_path {at}/body;
    proxy_temp_path {at}/proxy;
    fastcgi_temp_path {at}/fastcgi;
    uwsgi_temp_path {at}/uwsgi;
    scgi_temp_path {at}/scgi;
    types {{ text/html html; text/css css; }}
    default_type application/octet-stream;
    gzip_vary on;
    gzip_types text/css;
    server {{
        listen {listen}{tls};
        ssl_protocols {versions};
        ssl_certificate {certificate}/site.pem;
        ssl_certificate_key {certificate}/site.key;
        root {at}/www;
        location = /gzip.html {{ gzip on; }}
        location = /static.html {{ gzip_static on; }}
        location = /br.html {{ add_header Content-Encoding br; }}
        location = /zstd.html {{ add_header Content-Encoding zstd; }}
        location ~ "^/bomb-(?<coding>[a-z]+)\.html$" {{ add_header Content-Encoding $coding; }}
        location = /chunked.html {{ ssi on; }}
        location /style/ {{ gzip on; }}
        location = /cookie {{ return 200 "for $http_cookie"; }}
        location = /cookie-of-another {{ return 200 "for $http_cookie"; }}
        location /language {{ add_header Vary Accept-Language; return 200 "in $http_accept_language"; }}
        location = /sets-cookie {{ add_header Set-Cookie b=2; return 200 "a cookie"; }}
        location = /no-store {{ add_header Cache-Control no-store; return 200 "not to be kept"; }}
        location = /redirect {{ return 302 /o/plain-0; }}
        location = /forbidden {{ return 403; }}
        location = /early {{ return 444; }}
        location /behind/ {{
            proxy_pass http://{behind}/;
            proxy_http_version 1.1;
            proxy_set_header Host $host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $http_connection;
        }}
    }}
}}
"#
    )
}
