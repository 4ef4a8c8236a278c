//! `bentpipe doctor` over an origin's file: its certificate, key, addresses, and the web server behind it.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::config_errors::home::run;
use super::doctor::Examined;
use crate::BENTPIPE;

/// Directory with an origin's files.
struct Origin(TempDir);

impl Origin {
    /// Origin for a host, with a certificate of these names whose last day is in this year, before the web server at `upstream`.
    fn new(upstream: &str, names: &[&str], year: i32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = Self(directory);
        origin.certify("site", names, year);
        let hub = bentpipe_testbed::keys::generate(BENTPIPE, &origin.0.path().join("hub.key"));
        let text = format!(
            "status_socket = \"origin.sock\"\n[origin]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n\
             certificate = \"site.pem\"\nkey = \"site.key\"\nhubs = [\"{}\"]\n",
            hub.expect("a key")
        );
        fs::write(origin.0.path().join("origin.toml"), text).expect("a file");
        origin
    }

    fn certify(&self, stem: &str, names: &[&str], year: i32) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 3, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let write = |end: &str, text: String| {
            fs::write(self.0.path().join(format!("{stem}.{end}")), text).expect("a file");
        };
        write("pem", certificate.pem());
        write("key", key.serialize_pem());
        let only = Command::new("chmod")
            .arg("600")
            .arg(self.0.path().join(format!("{stem}.key")))
            .status();
        assert!(only.expect("chmod").success());
    }

    fn examine(&self) -> Examined {
        let mut command = Command::new(BENTPIPE);
        command.args(["doctor", "--config", "origin.toml"]);
        let ended = run(command.current_dir(self.0.path()));
        Examined {
            code: ended.code,
            text: ended.stdout,
            stderr: ended.stderr,
        }
    }
}

#[test]
fn a_good_certificate_and_a_web_server_behind_are_in_order() {
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = web.local_addr().expect("an address").to_string();
    let origin = Origin::new(&upstream, &["shop.example.com", "example.com"], 2099);
    let examined = origin.examine();
    let good = ["site.pem for shop.example.com, example.com is good until 2099-03-01"];
    examined.must_say("ok", "certificate", &good);
    examined.must_say("ok", "upstream", &[&upstream, "answers TCP"]);
    examined.must_say("ok", "listen", &["can be bound"]);
    examined.must_say("ok", "keys", &["site.key"]);
    // A key of another certificate.
    origin.certify("other", &["shop.example.com"], 2099);
    let place = origin.0.path();
    fs::copy(place.join("other.key"), place.join("site.key")).expect("a copy");
    origin.examine().must_say("fail", "certificate", &["site."]);
    fs::remove_file(place.join("site.pem")).expect("it is ours");
    origin
        .examine()
        .must_say("fail", "certificate", &["site.pem"]);
}

#[test]
fn what_an_origin_lacks_is_named() {
    // Nobody listens any more.
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = web.local_addr().expect("an address").to_string();
    drop(web);
    let origin = Origin::new(&upstream, &["shop.example.com"], 2024);
    let examined = origin.examine();
    let over = [
        "shop.example.com has expired on 2024-03-01",
        "have it issued anew",
    ];
    examined.must_say("fail", "certificate", &over);
    examined.must_say("fail", "upstream", &[&upstream, "start the web server"]);
    origin.certify("site", &[], 2099);
    origin
        .examine()
        .must_say("fail", "certificate", &["is for no host name"]);
}
