//! Download over an emulated geostationary satellite: a link, an engine at either end of it, and virtual time.
//!
//! `cargo run --release -p bentpipe-tunnel --example download`

use std::error::Error;
use std::time::Duration;

use bentpipe_testbed::world::{World, preset};

fn main() -> Result<(), Box<dyn Error>> {
    // 10 Mbit/s down, 2 Mbit/s up, 250 ms each way.
    let link = preset("geo").ok_or("no such preset")?.link_config()?;
    let seed = 1;
    let mut world = World::new(&link, seed);

    world.run_until(Duration::from_secs(10), "the handshake", World::is_ready);
    println!("the tunnel is up after {:?}", world.now - world.start);
    println!("1 kB takes  {:?}", world.timed_download(1_000));
    println!("10 MB take  {:?}", world.timed_download(10_000_000));

    let (_, server) = world.server.connections().next().ok_or("no connection")?;
    let (rtt, _) = server.rtt();
    println!("round trip  {rtt:?}, as the server's engine has measured it");
    Ok(())
}
