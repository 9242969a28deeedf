//! Names of files in the folders of a cluster: `security.directory` and `cluster.state`.

use crate::ids::NodeName;

/// Of the authority, in the directory of certificates.
pub const AUTHORITY: &str = "authority.pem";
/// Of the coordinator's certificate and key, there too.
pub const COORDINATOR: &str = "coordinator.pem";
/// Of what the command line on this machine proves itself with, there too.
pub const OPERATOR: &str = "operator.pem";
/// Of the market actor's certificate and key, there too.
pub const MARKET: &str = "market.pem";
/// Folder of tokens to join, there too.
pub const TOKENS: &str = "tokens";
/// Folder of logs, in the state folder.
pub const LOGS: &str = "logs";
/// Folder of backbones that were fetched from other members, in the state folder.
pub const BACKBONES: &str = "backbones";
/// Folder of the market actor, in the state folder.
pub const MARKET_STATE: &str = "market";
/// Folder of process ids, in the state folder.
pub const PROCESSES: &str = "run";

/// Names of the processes that are no nodes. Logs and process ids of all lie side by side, so that no node may have one.
pub const ROLES: [&str; 3] = ["coordinator", "market-actor", "up"];

/// Of a node's certificate and key, in the directory of certificates.
///
/// ```
/// let name = shared::ids::NodeName::new("n1").unwrap();
/// assert_eq!(shared::config::places::node(&name), "node-n1.pem");
/// ```
#[must_use]
pub fn node(name: &NodeName) -> String {
    format!("node-{name}.pem")
}
