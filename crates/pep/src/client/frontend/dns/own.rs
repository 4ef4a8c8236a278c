//! Names that this client itself has to know: those that datagrams of SOCKS5 applications go to.

use std::net::IpAddr;
use std::rc::Rc;

use bentpipe_proto::dns::{Answer, Query, Room};
use bentpipe_proto::tunnel::HostName;
use tokio::sync::mpsc;

use super::{Asker, Dns, Question};

impl Dns {
    /// The addresses of `name` of one family, asked on behalf of `host`: what is answered to hosts is answered here.
    pub(in crate::client::frontend) async fn addresses(
        self: &Rc<Self>,
        name: &HostName,
        ipv6: bool,
        host: IpAddr,
    ) -> Vec<IpAddr> {
        let Some(query) = Query::for_addresses(name.as_str(), ipv6) else {
            return Vec::new();
        };
        let (sender, mut answers) = mpsc::unbounded_channel();
        let asked = Question {
            host: host.to_canonical(),
            resolver: None,
        };
        let at_once = self.handle(Asker::Tcp(sender), asked, &query.encode(), Room::Stream);
        let message = match at_once {
            Some(message) => Some(message),
            None => answers.recv().await,
        };
        let answer = message.and_then(|message| Answer::decode(&message, &query).ok());
        answer.map_or_else(Vec::new, |answer| answer.addresses().collect())
    }
}
