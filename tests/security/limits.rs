//! What one client may use of the server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_lab::topology::WEB;

use crate::common::edit::edit;
use crate::common::keys;
use crate::common::peer::{Service, echo, read_exactly};
use crate::common::site::SiteConfig;
use crate::{RTT, SLACK, SOON, on_site};

fn exchange(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"there?")?;
    let heard = read_exactly(stream, 6)?;
    ensure!(heard == b"there?", "heard something else");
    Ok(())
}

#[test]
fn a_client_has_no_more_flows_than_it_may() {
    on_site("flow limit", SiteConfig::default(), |site| {
        // The tunnel announces the highest limit of all clients: this one's own must hold all the same.
        let other = keys::generate(&site.topology.directory().join("other.key"))?;
        let file = site.server_file();
        edit(
            &file,
            "name = \"terminal-1\"",
            &format!(
                "name = \"terminal-2\"\npublic_key = \"{other}\"\nmax_flows = 100\n\
                 [[client]]\nname = \"terminal-1\"\nmax_flows = 3"
            ),
        )?;
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 0);
        let web = Service::start(&site.topology.web().into(), web, echo)?;
        let [route, _] = site.routes();
        let mut flows = Vec::new();
        for _ in 0..3 {
            let mut flow = route.connect(web.address)?;
            exchange(&mut flow)?;
            flows.push(flow);
        }
        let asked = Instant::now();
        let mut surplus = route.connect(web.address)?;
        let end = surplus.read(&mut [0]);
        let after = asked.elapsed();
        ensure!(
            end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
            "a fourth flow is not reset"
        );
        ensure!(after <= RTT + SLACK, "reset after {after:?}");
        ensure!(web.accepted() == 3, "a fourth flow reached the web");
        for flow in &mut flows {
            exchange(flow)?;
        }
        // One that has ended makes room.
        drop(flows.pop());
        let deadline = Instant::now() + SOON;
        loop {
            let mut next = route.connect(web.address)?;
            match exchange(&mut next) {
                Ok(()) => return Ok(()),
                Err(error) => ensure!(Instant::now() < deadline, "no room was made: {error:#}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
    });
}
