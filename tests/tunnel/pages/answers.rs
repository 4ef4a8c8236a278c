//! Answers as they are compared: without what a web server draws anew each time.

use std::io::{Read as _, Write as _};

use anyhow::{Result, ensure};
use bentpipe_web::{BodyReader, Response};

use super::browser::get;
use super::speech::Speech;

/// An answer without what is another one each time: the date, and where chunks are cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// All of the body has come.
    whole: bool,
}

/// Head without its date.
pub(super) fn without_date(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head).into_owned();
    let lines = text.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

/// Asks for `target` on a connection that stays open, and reads the answer to its end.
pub(super) fn ask(stream: &mut Speech, target: &str, fields: &str) -> Result<Answer> {
    stream.write_all(get(target, fields).as_bytes())?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
    let (response, used) = loop {
        if let Some(parsed) = Response::parse(&bytes)? {
            break parsed;
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "no answer");
        bytes.extend_from_slice(&buffer[..read]);
    };
    let (mut reader, mut body) = (BodyReader::new(response.body()), Vec::new());
    let (head, rest) = bytes.split_at(used);
    let taken = reader.read(rest, |held| body.extend_from_slice(held))?;
    ensure!(taken == rest.len(), "more than one answer");
    while !reader.is_done() {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let taken = reader.read(&buffer[..read], |held| body.extend_from_slice(held))?;
        ensure!(taken == read, "more than one answer");
    }
    Ok(Answer {
        head: without_date(head),
        body,
        whole: reader.is_done(),
    })
}

/// Bytes of answers without the dates in their heads, and without the boundaries of parts, which nginx counts.
pub(super) fn without_dates(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines
        .filter(|line| {
            let drawn: [&[u8]; 3] = [b"Date: ", b"--0", b"Content-Type: multipart/"];
            drawn.iter().all(|begin| !line.starts_with(begin))
        })
        .flatten()
        .copied()
        .collect()
}

/// Bytes that came, whether they ended in order, and how they begin.
pub(super) fn shown((bytes, in_order): &(Vec<u8>, bool)) -> String {
    let begins = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
    format!("{} bytes, in order: {in_order}, {begins}", bytes.len())
}
