//! Who has which UDP or TCP port, as `/proc` tells.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::text;
use crate::doctor::facts::SocketHolder;
use crate::net::sockets::socket_address;

/// State of a TCP socket that listens, and of a UDP socket without a peer, in the kernel's tables.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// Sockets of this network namespace that wait at `port` for whoever comes; `protocol` is `udp` or `tcp`.
pub(super) fn holders(protocol: &str, port: u16) -> Vec<SocketHolder> {
    let tables = [protocol.to_owned(), format!("{protocol}6")];
    let tables = tables.map(|table| text(format!("/proc/self/net/{table}")));
    let rows = tables
        .iter()
        .flat_map(|table| table.lines().skip(1).filter_map(row));
    rows.filter(|(address, _)| address.port() == port)
        .map(|(address, inode)| SocketHolder {
            address,
            program: program(inode),
        })
        .collect()
}

/// Address and inode of a row of a socket that waits for whoever comes.
fn row(line: &str) -> Option<(SocketAddr, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let state = *words.get(3)?;
    if state != LISTENS && state != UNCONNECTED {
        return None;
    }
    Some((socket_address(words.get(1)?)?, words.get(9)?.parse().ok()?))
}

/// Name and process id of who has the socket `inode` open.
fn program(inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.into_iter().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let has = |target: &Path| target.to_str() == Some(&wanted);
        let found = files.map(|file| fs::read_link(file.path()));
        found.flatten().any(|target| has(&target)).then(|| {
            let name = text(process.path().join("comm"));
            let name: String = name.chars().filter(|c| !c.is_control()).collect();
            format!("{name} (pid {pid})")
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_of_ours_is_found_with_our_name() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let found = holders("udp", address.port());
        let ours = format!("(pid {})", std::process::id());
        assert!(
            found.iter().any(|holder| holder.address == address
                && holder
                    .program
                    .as_ref()
                    .is_some_and(|program| program.contains(&ours))),
            "{found:?}"
        );
    }

    #[test]
    fn connected_sockets_are_nobodys_port() {
        let row_of = |state: &str| {
            row(&format!(
                " 1: 0100007F:0035 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 0"
            ))
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 53));
        assert_eq!(row_of("07"), Some((address, 4711)));
        assert_eq!(row_of("01"), None);
    }
}
