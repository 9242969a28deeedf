//! The network of a process: a thread of its own, and the port that it listens at.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::credential::Credential;
use super::endpoint::{Endpoint, EndpointSettings};
use super::fault::NetError;

/// Starts the thread and opens the port; the runtime must be dropped outside of any other.
///
/// # Errors
/// [`NetError::Local`] when the system gives no thread or the address cannot be had, [`NetError::Tls`].
pub fn start(
    settings: &EndpointSettings,
    credential: &Credential,
) -> Result<(Runtime, Arc<Endpoint>), NetError> {
    let network = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("network")
        .enable_all()
        .build()
        .map_err(|source| NetError::Local {
            what: "start the thread of the network".into(),
            source,
        })?;
    let endpoint = {
        let _inside = network.enter();
        Arc::new(Endpoint::open(settings, credential, true)?)
    };
    Ok((network, endpoint))
}
