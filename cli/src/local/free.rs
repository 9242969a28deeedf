//! Addresses of this machine that nobody has.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// Where the processes of a cluster can listen.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// The coordinator (UDP).
    pub(crate) coordinator: SocketAddr,
    /// Its metrics (TCP).
    pub(crate) metrics: SocketAddr,
    /// The nodes (UDP).
    pub(crate) nodes: Vec<SocketAddr>,
}

impl Free {
    /// For so many nodes. All were held at once, so that none is given twice.
    ///
    /// # Errors
    /// When the system gives no address.
    pub(crate) fn find(nodes: usize) -> io::Result<Self> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let metrics = TcpListener::bind(anywhere)?;
        let coordinator = UdpSocket::bind(anywhere)?;
        let sockets = (0..nodes)
            .map(|_| UdpSocket::bind(anywhere))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            coordinator: coordinator.local_addr()?,
            metrics: metrics.local_addr()?,
            nodes: sockets
                .iter()
                .map(UdpSocket::local_addr)
                .collect::<io::Result<_>>()?,
        })
    }
}
