//! Files by FTP (RFC 959, RFC 2428): a control connection, and for each file a data connection of its own, passive, as directories
//! are copied with it. The server has the objects of the web server, and digests what it is given.
//!
//! ```text
//!  user ── USER, PASS, TYPE ──────────────────────────────► port 21
//!       ── EPSV ──► 229 ── connect ──► RETR or STOR ──► 150, the file, 226     for each file
//! ```

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_sys::netns::NetNs;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::content::{Expected, Hasher, Object};
use super::fetch::connect;
use super::serving::{Serving, listen};

/// Direction of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the web to the user, over the forward link.
    #[default]
    Down,
    /// From the user to the web, over the return link.
    Up,
}

/// The port of control connections.
const PORT: u16 = 21;
/// Bytes that are read of a data connection at a time.
const CHUNK: usize = 64 * 1024;
/// Longest line of a control connection, in bytes.
const LONGEST_LINE: u64 = 512;

/// A running server; dropping it ends all its connections.
#[derive(Debug)]
pub struct Ftp {
    _serving: Serving,
}

impl Ftp {
    /// Serves at every address in `namespace`.
    ///
    /// # Errors
    /// The port is taken, or no thread or descriptor is left.
    pub fn start(namespace: &NetNs) -> Result<Self> {
        let serve = || {
            let listener = listen(namespace, (Ipv6Addr::UNSPECIFIED, PORT).into())?;
            tokio::spawn(async move {
                while let Ok((control, _)) = listener.accept().await {
                    // What goes wrong with a connection, the other end sees and tells.
                    tokio::spawn(async move { Session::new(control)?.serve().await });
                }
            });
            Ok(())
        };
        // Data connections come to sockets that its thread makes: it has to be inside.
        let serving = namespace.enter(|| Serving::start("ftp", serve))??;
        Ok(Self { _serving: serving })
    }
}

/// Lines of a control connection, at either of its ends.
struct Control(BufReader<TcpStream>);

impl Control {
    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = (&mut self.0)
            .take(LONGEST_LINE)
            .read_line(&mut line)
            .await?;
        ensure!(read > 0, "the control connection has ended");
        Ok(line.trim_end().to_owned())
    }

    async fn say(&mut self, line: &str) -> Result<()> {
        let line = format!("{line}\r\n");
        self.0.get_mut().write_all(line.as_bytes()).await?;
        Ok(())
    }

    /// Says `command`; the text of an answer with this `code`.
    async fn ask(&mut self, command: &str, code: &str) -> Result<String> {
        self.say(command).await?;
        self.expect(code).await
    }

    async fn expect(&mut self, code: &str) -> Result<String> {
        let line = self.line().await?;
        match line.strip_prefix(code) {
            Some(text) => Ok(text.trim().to_owned()),
            None => bail!("the server says `{line}` instead of {code}"),
        }
    }
}

/// The server's end of one control connection.
struct Session {
    control: Control,
    /// Listener at which the next data connection comes.
    passive: Option<TcpListener>,
}

impl Session {
    fn new(control: TcpStream) -> Result<Self> {
        control.set_nodelay(true)?;
        Ok(Self {
            control: Control(BufReader::new(control)),
            passive: None,
        })
    }

    async fn serve(mut self) -> Result<()> {
        self.control.say("220 ready").await?;
        loop {
            let line = self.control.line().await?;
            let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match command {
                "USER" => self.control.say("331 any password").await?,
                "PASS" => self.control.say("230 logged in").await?,
                "TYPE" => self.control.say("200 so be it").await?,
                "EPSV" => self.wait_for_data().await?,
                "RETR" | "STOR" => self.transfer(command, argument).await?,
                "QUIT" => return self.control.say("221 bye").await,
                _ => self.control.say("502 not here").await?,
            }
        }
    }

    /// Listens for the next data connection, and says where (RFC 2428 §3).
    async fn wait_for_data(&mut self) -> Result<()> {
        let own = self.control.0.get_ref().local_addr()?;
        let listener = TcpListener::bind((own.ip(), 0)).await?;
        let port = listener.local_addr()?.port();
        self.passive = Some(listener);
        let text = format!("229 Entering Extended Passive Mode (|||{port}|)");
        self.control.say(&text).await
    }

    async fn transfer(&mut self, command: &str, path: &str) -> Result<()> {
        let (Some(passive), Some(object)) = (self.passive.take(), Object::from_path(path)) else {
            return self
                .control
                .say("550 no such file, or no EPSV before")
                .await;
        };
        self.control.say("150 on its way").await?;
        let (mut data, _) = passive.accept().await?;
        let said = match command {
            "RETR" => {
                for chunk in object.chunks() {
                    data.write_all(&chunk).await?;
                }
                data.shutdown().await?;
                "226 all sent".to_owned()
            }
            _ => {
                let (_, hasher) = read_all(&mut data).await?;
                format!("226 {}", hasher.finish())
            }
        };
        self.control.say(&said).await
    }
}

/// Takes `files` from the server at `address`, or brings them there, one after another; the time from the first `connect` to the
/// answer that ends the last file. Their SHA-256 are checked.
///
/// # Errors
/// A connection failed, the server refused, or a file is not the expected one.
pub async fn ftp(address: IpAddr, files: &[Expected], direction: Direction) -> Result<Duration> {
    let start = Instant::now();
    let mut control = Control(BufReader::new(connect((address, PORT).into()).await?));
    control.expect("220").await?;
    control.ask("USER anonymous", "331").await?;
    control.ask("PASS guest@", "230").await?;
    control.ask("TYPE I", "200").await?;
    for (number, file) in files.iter().enumerate() {
        let moved = move_file(&mut control, address, file, direction).await;
        moved.with_context(|| format!("file {} of {} by FTP", number + 1, files.len()))?;
    }
    Ok(start.elapsed())
}

async fn move_file(
    control: &mut Control,
    address: IpAddr,
    file: &Expected,
    direction: Direction,
) -> Result<()> {
    let entered = control.ask("EPSV", "229").await?;
    let port = passive_port(&entered).with_context(|| format!("no port in `{entered}`"))?;
    let mut data = connect((address, port).into()).await?;
    let path = file.object.path();
    let digest = match direction {
        Direction::Down => {
            control.ask(&format!("RETR {path}"), "150").await?;
            let (length, hasher) = read_all(&mut data).await?;
            let wanted = file.object.length;
            ensure!(length == wanted, "{length} bytes came, not {wanted}");
            control.expect("226").await?;
            hasher.finish().to_string()
        }
        Direction::Up => {
            control.ask(&format!("STOR {path}"), "150").await?;
            for chunk in file.object.chunks() {
                data.write_all(&chunk).await?;
            }
            data.shutdown().await?;
            control.expect("226").await?
        }
    };
    ensure!(
        digest == file.digest.to_string(),
        "its SHA-256 is wrong: the content was changed on the way"
    );
    Ok(())
}

/// The port in an answer to EPSV, as in `Entering Extended Passive Mode (|||6446|)`.
fn passive_port(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("(|||")?;
    rest.split_once("|)")?.0.parse().ok()
}

/// Everything to the end of a data connection: how many bytes, and what they hash to.
async fn read_all(data: &mut TcpStream) -> Result<(u64, Hasher)> {
    let (mut length, mut hasher) = (0, Hasher::new());
    let mut buffer = vec![0; CHUNK];
    loop {
        match data.read(&mut buffer).await? {
            0 => return Ok((length, hasher)),
            read => {
                hasher.update(&buffer[..read]);
                length += read as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_answer_to_epsv() {
        let port = passive_port("Entering Extended Passive Mode (|||6446|)");
        assert_eq!(port, Some(6446));
        for wrong in ["", "(|||6446)", "(|||x|)", "(|||70000|)"] {
            assert_eq!(passive_port(wrong), None, "{wrong}");
        }
    }
}
