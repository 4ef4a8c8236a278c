//! Conversations over one connection, which show that both of its directions live and end in order.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::thread;

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::{accept, echo, payload, read_exactly, read_to_the_end};
use bentpipe_testbed::route::Route;

/// A connection to somebody who answers everything, and has answered.
pub(crate) fn talk(route: &Route) -> Result<TcpStream> {
    let (listener, address) = route.listen()?;
    let patience = route.patience;
    thread::spawn(move || echo(accept(&listener, patience)?));
    let mut stream = route.connect(address)?;
    exchange(&mut stream)?;
    Ok(stream)
}

/// Says something and hears it back.
pub(crate) fn exchange(stream: &mut TcpStream) -> Result<()> {
    let said = b"are you there?";
    stream.write_all(said)?;
    let heard = read_exactly(stream, said.len())?;
    ensure!(heard == said, "heard something else");
    Ok(())
}

/// Says something, ends its side, and hears it to the end.
pub(crate) fn half_close(route: &Route) -> Result<()> {
    let mut stream = talk(route)?;
    let words = payload(200_000);
    let mut writer = stream.try_clone()?;
    let said = words.clone();
    let writer = thread::spawn(move || {
        writer.write_all(&said)?;
        writer.shutdown(Shutdown::Write)
    });
    let (heard, end) = read_to_the_end(&mut stream);
    end?;
    writer.join().expect("no panic")?;
    ensure!(heard == words, "{} of {} bytes", heard.len(), words.len());
    Ok(())
}
