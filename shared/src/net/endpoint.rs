//! A socket of QUIC that a member of a cluster speaks through: TLS both ways, windows, datagram sizes.
//!
//! What was measured (two cores, loopback): the cost is CPU per datagram, so the size of datagrams is the lever. It is
//! found out by probing, never set: with segmentation offload, datagrams of 8900 bytes made large sends fail. 6000
//! works, and gives 1.7 times the throughput of 1452 where the path carries it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{EndpointConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
use ring::hmac;
use rustls::client::Resumption;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::credential::Credential;
use super::fault::{CloseCode, NetError};
use super::identity::{Identity, Role};
use super::keyring::{ByFingerprint, Keyring, provider, roots};
use super::stream::Stream;
use crate::ids::ClusterName;
use crate::units::Micros;
use crate::wire::codec::Limits;
use crate::wire::opening::Opening;
use crate::wire::version::{ALPN, JOIN_ALPN};

/// How an endpoint is set up; section `net` of the settings.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Where it listens, or sends from: `net.bind`.
    pub bind: SocketAddr,
    /// Largest datagram to probe for, in bytes, 1200 to 6500: `net.largest_datagram`. None: 6000 on loopback, else 1452.
    pub largest_datagram: Option<u16>,
    /// Bytes of a stream that may be under way: `net.stream_window`. Bandwidth times delay, at least.
    pub stream_window: u32,
    /// Bytes of a connection that may be under way: `net.connection_window`.
    pub connection_window: u32,
    /// A peer that is not heard for so long is gone: `net.idle_timeout`.
    pub idle_timeout: Duration,
    /// An idle connection says so often that it lives: `net.keep_alive`; less than half of the timeout.
    pub keep_alive: Duration,
    /// Streams that a peer may have open at once: `net.max_streams`.
    pub max_streams: u32,
    /// Bytes of each buffer of the socket: `net.socket_buffer`.
    pub socket_buffer: usize,
    /// Largest frames.
    pub limits: Limits,
}

impl EndpointSettings {
    /// What fits most, at an address.
    #[must_use]
    pub fn at(bind: SocketAddr) -> Self {
        Self {
            bind,
            largest_datagram: None,
            stream_window: 32 << 20,
            connection_window: 64 << 20,
            idle_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(4),
            max_streams: 128,
            socket_buffer: 4 << 20,
            limits: Limits::default(),
        }
    }

    fn datagram(&self) -> u16 {
        let fits = if self.bind.ip().is_loopback() {
            6000
        } else {
            1452
        };
        self.largest_datagram.unwrap_or(fits).clamp(1200, 6500)
    }

    fn transport(&self) -> Arc<TransportConfig> {
        let mut transport = TransportConfig::default();
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.datagram());
        let idle = u32::try_from(self.idle_timeout.as_millis()).unwrap_or(u32::MAX);
        transport
            .mtu_discovery_config(Some(discovery))
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u32(self.connection_window))
            .send_window(u64::from(self.connection_window))
            .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
            .keep_alive_interval(Some(self.keep_alive))
            .max_concurrent_bidi_streams(VarInt::from_u32(self.max_streams))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None);
        Arc::new(transport)
    }

    fn socket(&self) -> std::io::Result<std::net::UdpSocket> {
        let domain = socket2::Domain::for_address(self.bind);
        let socket =
            socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
        // The system may give less: that costs speed, not correctness.
        let _ = socket.set_send_buffer_size(self.socket_buffer);
        let _ = socket.set_recv_buffer_size(self.socket_buffer);
        socket.bind(&self.bind.into())?;
        Ok(socket.into())
    }
}

/// A peer that proved who it is.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Who.
    pub identity: Identity,
    /// Until when its certificate holds, since 1970.
    pub until: Micros,
    /// The connection.
    pub connection: quinn::Connection,
    limits: Limits,
}

impl Peer {
    /// Checks who is at the other end.
    pub(super) fn of(
        connection: quinn::Connection,
        cluster: &ClusterName,
        wanted: Option<Role>,
        limits: Limits,
    ) -> Result<Self, NetError> {
        let shown = connection.peer_identity();
        let chain = shown.and_then(|shown| {
            shown
                .downcast::<Vec<rustls::pki_types::CertificateDer<'_>>>()
                .ok()
        });
        let certificate = chain.as_deref().and_then(|chain| chain.first());
        let checked = match certificate {
            None => Err(super::identity::IdentityError::NotOne(0)),
            Some(certificate) => {
                Identity::of_certificate(certificate).and_then(|(identity, life)| {
                    identity.check(cluster, wanted)?;
                    Ok((identity, life.end))
                })
            }
        };
        match checked {
            Ok((identity, until)) => Ok(Self {
                identity,
                until,
                connection,
                limits,
            }),
            Err(error) => {
                close(&connection, CloseCode::Identity, &error.to_string());
                Err(error.into())
            }
        }
    }

    /// Opens a stream and says what it is.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn open(&self, opening: Opening) -> Result<Stream, NetError> {
        let halves = self.connection.open_bi().await?;
        let mut stream = Stream::new(halves, self.limits);
        stream.sender.send(&opening).await?;
        Ok(stream)
    }

    /// Whether the peer ended the connection, and said that its process ends: it does not come back.
    #[must_use]
    pub fn ends(&self) -> bool {
        let closed = match self.connection.close_reason() {
            Some(quinn::ConnectionError::ApplicationClosed(close)) => Some(close.error_code),
            _ => None,
        };
        closed == Some(CloseCode::Shutdown.number())
    }

    /// Ends the connection and says why.
    pub fn close(&self, code: CloseCode, reason: &str) {
        close(&self.connection, code, reason);
    }
}

/// Ends a connection; the reason is cut to what fits into a datagram.
pub(super) fn close(connection: &quinn::Connection, code: CloseCode, reason: &str) {
    connection.close(code.number(), &reason.as_bytes()[..reason.len().min(800)]);
}

/// A member's socket.
#[derive(Debug)]
pub struct Endpoint {
    inner: quinn::Endpoint,
    keyring: Arc<Keyring>,
    cluster: ClusterName,
    role: Role,
    client: quinn::ClientConfig,
    limits: Limits,
}

impl Endpoint {
    /// Opens it; within a runtime of tokio. Who listens can also connect.
    ///
    /// # Errors
    /// [`NetError::Local`] when the address cannot be had, [`NetError::Tls`].
    pub fn open(
        settings: &EndpointSettings,
        credential: &Credential,
        listen: bool,
    ) -> Result<Self, NetError> {
        Self::open_as(settings, credential, listen, ALPN)
    }

    /// One that speaks another version, for tests.
    #[cfg(test)]
    pub(super) fn open_speaking(
        settings: &EndpointSettings,
        credential: &Credential,
        alpn: &[u8],
    ) -> Result<Self, NetError> {
        Self::open_as(settings, credential, false, alpn)
    }

    fn open_as(
        settings: &EndpointSettings,
        credential: &Credential,
        listen: bool,
        alpn: &[u8],
    ) -> Result<Self, NetError> {
        let keyring = Arc::new(Keyring::new(credential)?);
        let roots = roots(credential.authority())?;
        let transport = settings.transport();

        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_cert_resolver(keyring.clone());
        tls.alpn_protocols = vec![alpn.to_vec()];
        // A resumed session would not look at the certificate again: it may have expired.
        tls.resumption = Resumption::disabled();
        let client = client_config(tls, &transport)?;

        let mut server = None;
        if listen {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                // Who comes to join has none yet. Who is no joiner is refused right after the handshake.
                .allow_unauthenticated()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
            let mut tls = rustls::ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(keyring.clone());
            tls.alpn_protocols = vec![alpn.to_vec()];
            if credential.identity.role == Role::Coordinator {
                tls.alpn_protocols.push(JOIN_ALPN.to_vec());
            }
            tls.session_storage = Arc::new(NoServerSessionStorage {});
            tls.send_tls13_tickets = 0;
            let quic = QuicServerConfig::try_from(tls)
                .map_err(|error| rustls::Error::General(error.to_string()))?;
            let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic));
            config.transport_config(transport);
            server = Some(config);
        }
        Ok(Self {
            inner: open(settings, server, reset_key(credential))?,
            keyring,
            cluster: credential.identity.cluster.clone(),
            role: credential.identity.role,
            client,
            limits: settings.limits,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// [`NetError::Local`].
    pub fn address(&self) -> Result<SocketAddr, NetError> {
        self.inner.local_addr().map_err(|source| NetError::Local {
            what: "tell the address of the socket".into(),
            source,
        })
    }

    /// Connects to a member of a role; who answers must prove to be one.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn connect(&self, address: SocketAddr, role: Role) -> Result<Peer, NetError> {
        let connecting = self
            .inner
            .connect_with(self.client.clone(), address, &role.dns_name())
            .map_err(|error| NetError::Lost {
                reason: format!("{address}: {error}"),
            })?;
        let connection = connecting.await?;
        Peer::of(connection, &self.cluster, Some(role), self.limits)
    }

    /// Shows this credential from now on; connections that stand are kept.
    ///
    /// # Errors
    /// [`NetError::Tls`].
    pub fn renew(&self, credential: &Credential) -> Result<(), NetError> {
        Ok(self.keyring.replace(credential)?)
    }

    /// Closes all connections and waits until the peers know.
    pub async fn close(&self, code: CloseCode, reason: &str) {
        self.inner.close(code.number(), reason.as_bytes());
        self.inner.wait_idle().await;
    }

    pub(super) fn inner(&self) -> &quinn::Endpoint {
        &self.inner
    }

    pub(super) fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }
}

/// Connects without a certificate, to join; believes the authority of the token only.
///
/// # Errors
/// [`NetError`].
pub(super) async fn connect_to_join(
    settings: &EndpointSettings,
    address: SocketAddr,
    fingerprint: [u8; 32],
) -> Result<(quinn::Endpoint, quinn::Connection), NetError> {
    let verifier = ByFingerprint {
        fingerprint,
        provider: provider(),
    };
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    tls.alpn_protocols = vec![JOIN_ALPN.to_vec()];
    tls.resumption = Resumption::disabled();
    let config = client_config(tls, &settings.transport())?;
    // Who joins has no key yet, and no connection that would outlive it.
    let reset_key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
        .map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
    let endpoint = open(settings, None, reset_key)?;
    let connecting = endpoint
        .connect_with(config, address, &Role::Coordinator.dns_name())
        .map_err(|error| NetError::Lost {
            reason: format!("{address}: {error}"),
        })?;
    let connection = connecting.await?;
    Ok((endpoint, connection))
}

fn client_config(
    tls: rustls::ClientConfig,
    transport: &Arc<TransportConfig>,
) -> Result<quinn::ClientConfig, NetError> {
    let quic = QuicClientConfig::try_from(tls)
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = quinn::ClientConfig::new(Arc::new(quic));
    config.transport_config(Arc::clone(transport));
    Ok(config)
}

/// A process that starts again with the same key tells peers at their next packet that it knows none of their
/// connections; they need not wait for silence.
fn reset_key(credential: &Credential) -> hmac::Key {
    let seed = hmac::Key::new(hmac::HMAC_SHA256, credential.key().secret_der());
    let derived = hmac::sign(&seed, b"spotmux stateless reset");
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

fn open(
    settings: &EndpointSettings,
    server: Option<quinn::ServerConfig>,
    reset_key: hmac::Key,
) -> Result<quinn::Endpoint, NetError> {
    let local = |source| NetError::Local {
        what: format!(
            "open a socket at {} (is another process there?)",
            settings.bind
        ),
        source,
    };
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    config
        .max_udp_payload_size(settings.datagram())
        .map_err(|error| local(std::io::Error::other(error)))?;
    let socket = settings.socket().map_err(local)?;
    let runtime = quinn::default_runtime()
        .ok_or_else(|| local(std::io::Error::other("there is no runtime of tokio")))?;
    quinn::Endpoint::new(config, server, socket, runtime).map_err(local)
}
