//! SIGHUP: certificate, hubs and clients are read again.

use std::rc::Rc;

use super::OriginServer;
use super::guests::GuestPeer;
use super::tls::Speakers;
use crate::config::OriginConfig;
use crate::events;
use crate::process;

impl OriginServer {
    /// Takes over certificate and lists, or keeps those that are in force if one of the new ones cannot be used.
    pub(super) fn reload(&self) {
        let read = OriginConfig::load(&self.config.file).map_err(|fault| fault.to_string());
        let read = read.and_then(|fresh| {
            let speakers = Speakers::read(&fresh, &self.unlisted);
            Ok((speakers.map_err(|fault| fault.to_string())?, fresh))
        });
        let (speakers, fresh) = match read {
            Ok(read) => read,
            Err(fault) => {
                tracing::error!("not reloaded, certificate and lists stay as they were: {fault}");
                return;
            }
        };
        let speakers = Rc::new(speakers);
        self.speakers.replace(speakers.clone());
        self.certified.set(process::now());
        self.sessions
            .retain(|client, hub| speakers.is_hub(&hub) && speakers.may_have_objects(&client));
        self.guests.retain(|peer| match peer {
            GuestPeer::Hub(key) => speakers.is_hub(&key),
            GuestPeer::Client(_) | GuestPeer::Host(_) => true,
        });
        let left = self.needing_restart(&fresh);
        let left = match left.is_empty() {
            true => String::new(),
            false => format!("; changed but needs a restart: {}", left.join(", ")),
        };
        tracing::info!(
            target: events::STATE,
            "reloaded: certificate {}, {}{left}",
            fresh.certificate.display(),
            speakers.lists()
        );
        self.tell_of_certificate();
    }

    /// Keys of the file that were changed and are not taken over.
    fn needing_restart(&self, fresh: &OriginConfig) -> Vec<&'static str> {
        let own = &self.config;
        let path = |config: &OriginConfig| config.monitoring.status_socket.as_deref().cloned();
        let metrics = |config: &OriginConfig| config.monitoring.metrics.as_deref().copied();
        let changed = [
            ("listen", *own.listen != *fresh.listen),
            ("upstream", own.upstream != fresh.upstream),
            ("proxy_protocol", own.proxy_protocol != fresh.proxy_protocol),
            ("status_socket", path(own) != path(fresh)),
            ("metrics", metrics(own) != metrics(fresh)),
            ("sandbox", own.sandbox != fresh.sandbox),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }
}
