//! Prefixes behind this client that the server routes here as they are: those that both ends' files name. What the server
//! routes and this client does not name is not let in (`client/intercept`).

use ipnet::IpNet;

/// Outcome of the prefixes in the configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Routes {
    /// The server routes them here, now or when it was last heard of.
    pub(super) routed: Vec<IpNet>,
    /// Prefixes that the server does not route here.
    pub(super) refused: Vec<IpNet>,
}

impl Routes {
    /// Of `wanted`, where the server routes `granted`.
    fn new(wanted: &[IpNet], granted: &[IpNet]) -> Self {
        let is_granted = |prefix: &&IpNet| granted.iter().any(|whole| whole.contains(*prefix));
        let (routed, refused) = wanted.iter().partition(is_granted);
        Self { routed, refused }
    }

    /// Takes in what the server of a new tunnel has `granted` of what is `wanted`, and says so if that is news.
    pub(super) fn learn(&mut self, wanted: &[IpNet], granted: &[IpNet]) {
        let routes = Self::new(wanted, granted);
        if *self == routes {
            return;
        }
        if !routes.routed.is_empty() {
            tracing::info!("routed here as they are: {}", list(&routes.routed));
        }
        if !routes.refused.is_empty() {
            let refused = list(&routes.refused);
            tracing::warn!(
                "the server does not route {refused} to this client; name it in `routes` of this client's [[client]] there"
            );
        }
        *self = routes;
    }
}

fn list(prefixes: &[IpNet]) -> String {
    let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
    prefixes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_routed_if_it_is_whole_within_what_the_server_routes() {
        let nets = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let wanted = nets(&["10.1.5.0/24", "10.0.0.0/8", "10.2.0.0/16", "fd00:1::/64"]);
        let granted = nets(&["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/65"]);
        let routes = Routes::new(&wanted, &granted);
        assert_eq!(routes.routed, nets(&["10.1.5.0/24", "10.2.0.0/16"]));
        assert_eq!(routes.refused, nets(&["10.0.0.0/8", "fd00:1::/64"]));
    }
}
