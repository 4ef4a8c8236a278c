//! Reports of the site's daemons, as `bentpipe status` gives them.

use anyhow::Result;
use serde_json::Value;

use super::Site;
use crate::status::report;

impl Site {
    /// Report of the client. Totals, flows and states in it are of the moment of this call; rates and round-trip times are up
    /// to a second old.
    pub fn client_report(&self) -> Result<Value> {
        let socket = self.client_home().join("client.sock");
        report(self.config.program, &socket)
    }

    /// Report of the server. Figures about its clients are up to a second old.
    pub fn server_report(&self) -> Result<Value> {
        let socket = self.topology.directory().join("server.sock");
        report(self.config.server_program, &socket)
    }
}
