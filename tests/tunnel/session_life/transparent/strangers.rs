//! Connections that no client has sealed, and answers that no server has given.

use super::*;

/// Connections of others pass, as do those that were begun before; of those that come from a client's address and are no SLE, none
/// reaches anybody.
#[test]
fn strangers_pass_or_are_refused_as_the_keys_say() {
    const OTHER: &str = "10.20.0.77";
    on_site("strangers", taking_in("sat0", ""), |site| {
        let place = Place::from(site.topology.web());
        let web = Service::start(&place, echo_address(), echo)?;
        let gateway = Place::from(site.topology.gateway());
        let own = Service::start(&gateway, (GATEWAY_WAN, 0).into(), echo)?;
        site.stop_server()?;
        let mut earlier = stranger(site, TERMINAL_SAT, web.address)?;
        exchange(&mut earlier)?;
        site.start_server()?;
        exchange(&mut earlier).context("begun before")?;

        let reached = web.accepted();
        let mut clear = stranger(site, TERMINAL_SAT, web.address)?;
        clear.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
        let (heard, end) = read_to_the_end(&mut clear);
        ensure!(heard.is_empty() && end.is_err(), "{heard:?}, {end:?}");
        ensure!(refused(site, "preface")? == 1, "not refused by its preface");
        ensure!(web.accepted() == reached, "dialled for a stranger");

        let add = ["addr", "add", &format!("{OTHER}/24"), "dev", "sat0"];
        site.topology.terminal().run("ip", &add)?;
        let other: IpAddr = OTHER.parse()?;
        exchange(&mut stranger(site, other, web.address)?).context("from elsewhere")?;
        exchange(&mut stranger(site, TERMINAL_SAT, own.address)?).context("to the gateway")?;
        // A server that was killed stands in nobody's way.
        site.kill_server()?;
        exchange(&mut stranger(site, TERMINAL_SAT, web.address)?).context("without a server")
    });
}

/// More of them than the kernel keeps half open, after which it would keep no account of a connection and forward it.
#[test]
fn silent_connections_hold_up_no_flow() {
    const SILENT: usize = 5000;
    on_site("silent strangers", taking_in("sat0", ""), |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        let reached = web.accepted();
        let silent = site.topology.terminal().enter(|| -> std::io::Result<_> {
            let mut silent = Vec::with_capacity(SILENT);
            for _ in 0..SILENT {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.set_nonblocking(true)?;
                // Under way until its answer is here.
                let _ = socket.connect(&web.address.into());
                silent.push(socket);
                if silent.len() % 100 == 0 {
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Ok(silent)
        })??;
        thread::sleep(2 * RTT);
        exchange(&mut connect(site, web.address, RTT)?)?;
        all_are_sealed(site, 1)?;
        ensure!(web.accepted() == reached + 1, "some were not taken in");
        drop(silent);
        Ok(())
    });
}

/// Rule of the terminal that leads connections for one host to another one.
struct Diversion {
    web: Service,
    other: Service,
}

impl Diversion {
    /// The two hosts; nothing is diverted yet.
    fn prepare(site: &Site) -> Result<Self> {
        let place = Place::from(site.topology.web());
        let web = Service::start(&place, echo_address(), echo)?;
        let other = SocketAddr::from((host(1), web.address.port()));
        let other = Service::start(&place, other, echo)?;
        Ok(Self { web, other })
    }

    /// Diverts from now on.
    fn begin(&self, site: &Site) -> Result<()> {
        let (port, other) = (self.web.address.port(), self.other.address.ip());
        let table = format!(
            "add table ip divert; \
             add chain ip divert out {{ type nat hook output priority -100; }}; \
             add rule ip divert out ip daddr {WEB} tcp dport {port} dnat to {other}"
        );
        site.topology.terminal().run("nft", &[&table])?;
        Ok(())
    }
}

#[test]
fn an_answer_for_another_destination_is_none() {
    on_site("redirected at once", taking_in("sat0", ""), |site| {
        let diversion = Diversion::prepare(site)?;
        diversion.begin(site)?;
        exchange(&mut connect(site, diversion.web.address, RTT)?)?;
        let line = "not the server has answered on the way";
        site.client().wait_for_line(line, SOON)?;
        ensure!(diversion.other.accepted() == 0, "redirected");
        ensure!(diversion.web.accepted() == 1, "not through the tunnel");
        ensure!(figure(site, "flows_total")? == 0, "sealed");
        Ok(())
    });
}

/// Nor is anything dialled for a flow that is redirected once the server has shown that it is on the way.
#[test]
fn a_redirected_connection_is_not_dialled() {
    on_site("redirected later", taking_in("sat0", ""), |site| {
        let diversion = Diversion::prepare(site)?;
        exchange(&mut connect(site, diversion.web.address, RTT)?)?;
        ensure!(figure(site, "flows_total")? == 1, "not sealed");
        diversion.begin(site)?;
        let mut flow = connect(site, diversion.web.address, RTT)?;
        let _ = flow.write_all(b"are you there?");
        let (heard, end) = read_to_the_end(&mut flow);
        ensure!(heard.is_empty() && end.is_err(), "{heard:?}, {end:?}");
        ensure!(diversion.other.accepted() == 0, "dialled");
        ensure!(refused(site, "redirected")? == 1, "not counted");
        Ok(())
    });
}
