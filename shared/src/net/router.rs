//! Takes connections and streams, and hands each to who serves it.
//!
//! - `RO-1` What a peer does wrong ends its own connection, with the reason; nothing else.
//! - `RO-2` No byte of ours is read before the peer proved who it is; who has no certificate is heard for one request to
//!   join, on connections that the peer asked for under the name for that.
//! - `RO-3` A drain lets what runs end, up to its patience, and takes nothing new.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::endpoint::{Endpoint, Peer, close};
use super::fault::{CloseCode, NetError};
use super::permit::{may_ask, may_open};
use super::stream::Stream;
use crate::wire::opening::Opening;
use crate::wire::request::{Joining, Refusal, RefusalCode, Reply, Request};
use crate::wire::version::JOIN_ALPN;

/// What an endpoint does for its peers.
pub trait Service: Send + Sync + 'static {
    /// Answers a request that the caller's role allows; replies go to the stream, which the router ends.
    ///
    /// An error ends the caller's connection: what merely cannot be done is a [`Reply::Refused`].
    fn request(
        &self,
        peer: &Peer,
        request: Request,
        stream: &mut Stream,
        stop: Stop,
    ) -> impl Future<Output = Result<(), NetError>> + Send;

    /// Serves another kind of stream that the peer's role allows, until it ends; finishes its own half.
    ///
    /// An error ends the peer's connection.
    fn stream(
        &self,
        peer: Peer,
        opening: Opening,
        stream: Stream,
        stop: Stop,
    ) -> impl Future<Output = Result<(), NetError>> + Send;

    /// Answers one who has no certificate: with [`Reply::Joined`] or a refusal.
    fn join(&self, joining: Joining) -> impl Future<Output = Reply> + Send {
        let _ = joining;
        let refused = refusal(
            RefusalCode::Forbidden,
            "nobody joins here: ask the coordinator",
        );
        std::future::ready(refused)
    }
}

/// Tells who serves a stream that the end is near.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until it is.
    pub async fn wait(&mut self) {
        // A router that is gone is as good as one that ends.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }

    /// Whether it is.
    #[must_use]
    pub fn is_near(&self) -> bool {
        *self.0.borrow()
    }
}

/// How much a router takes.
#[derive(Clone, Copy, Debug)]
pub struct RouterLimits {
    /// Connections at once.
    pub connections: usize,
    /// A handshake, or the first frame of a stream, takes so long at most.
    pub first_frame: Duration,
}

impl Default for RouterLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            first_frame: Duration::from_secs(10),
        }
    }
}

/// The loop that takes connections.
#[derive(Debug)]
pub struct Router {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    endpoint: Arc<Endpoint>,
}

struct Shared<S> {
    service: S,
    endpoint: Arc<Endpoint>,
    limits: RouterLimits,
    stop: Stop,
    open: AtomicUsize,
}

impl Router {
    /// Starts it on the runtime at hand.
    pub fn start<S: Service>(endpoint: Arc<Endpoint>, service: S, limits: RouterLimits) -> Self {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            service,
            endpoint: Arc::clone(&endpoint),
            limits,
            stop: Stop(stopped),
            open: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(shared));
        Self {
            stop,
            task,
            endpoint,
        }
    }

    /// Takes nothing new, lets what runs end for so long, closes the rest. Whether all ended by itself.
    pub async fn drain(mut self, patience: Duration) -> bool {
        // Nobody listens any more only when the loop ended before.
        let _ = self.stop.send(true);
        let ended = timeout(patience, &mut self.task).await.is_ok();
        self.task.abort();
        self.endpoint
            .close(CloseCode::Shutdown, "this side ends")
            .await;
        ended
    }
}

async fn accept<S: Service>(shared: Arc<Shared<S>>) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            incoming = shared.endpoint.inner().accept() => {
                let Some(incoming) = incoming else { break };
                if shared.open.fetch_add(1, Ordering::AcqRel) >= shared.limits.connections {
                    shared.open.fetch_sub(1, Ordering::AcqRel);
                    incoming.refuse();
                    continue;
                }
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    // Its peer was told why; there is nobody here to tell.
                    let _ = connection(&shared, incoming).await;
                    shared.open.fetch_sub(1, Ordering::AcqRel);
                });
            }
            // Those that ended are forgotten; one that panicked must not keep its place.
            Some(ended) = connections.join_next() => {
                if ended.is_err() {
                    shared.open.fetch_sub(1, Ordering::AcqRel);
                }
            }
            () = stop.wait() => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

async fn connection<S: Service>(
    shared: &Arc<Shared<S>>,
    incoming: quinn::Incoming,
) -> Result<(), NetError> {
    let at = incoming.remote_address();
    let patience = shared.limits.first_frame;
    let connection = timeout(patience, incoming.accept()?)
        .await
        .map_err(|_| NetError::silent("its handshake", at))??;
    let handshake = connection.handshake_data();
    let handshake =
        handshake.and_then(|data| data.downcast::<quinn::crypto::rustls::HandshakeData>().ok());
    let alpn = handshake.and_then(|data| data.protocol);
    if alpn.as_deref() == Some(JOIN_ALPN) {
        let joined = timeout(patience, join(shared, &connection)).await;
        let joined = joined.unwrap_or_else(|_| Err(NetError::silent("its request to join", at)));
        return finish(&connection, joined);
    }
    let limits = shared.endpoint.limits();
    let peer = Peer::of(connection, shared.endpoint.cluster(), None, limits)?;
    let mut stop = shared.stop.clone();
    let mut streams = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            halves = peer.connection.accept_bi() => {
                let halves = match halves {
                    Ok(halves) => halves,
                    Err(error) => break Err(error.into()),
                };
                let (shared, peer) = (Arc::clone(shared), peer.clone());
                streams.spawn(async move { stream(&shared, peer, Stream::new(halves, limits)).await });
            }
            Some(ended) = streams.join_next() => match ended {
                // Who loses interest in a stream keeps its others.
                Ok(Ok(()) | Err(NetError::GivenUp { .. })) => {}
                Ok(Err(error)) => break Err(error),
                Err(_) => {
                    peer.close(CloseCode::Internal, "who serves this stream failed");
                    break Ok(());
                }
            },
            () = stop.wait() => {
                while let Some(ended) = streams.join_next().await {
                    // What fails now ends anyway.
                    let _ = ended;
                }
                peer.close(CloseCode::Shutdown, "this side ends");
                break Ok(());
            }
        }
    };
    if let Err(error) = &outcome {
        tell(&peer.connection, error);
    }
    outcome
}

/// Ends a connection with the reason. One that ended already keeps its own: who still reads from it is told that.
fn tell(connection: &quinn::Connection, error: &NetError) {
    if connection.close_reason().is_none() {
        close(connection, error.close_code(), &error.to_string());
    }
}

/// Serves one stream of a peer that is known.
async fn stream<S: Service>(
    shared: &Shared<S>,
    peer: Peer,
    mut stream: Stream,
) -> Result<(), NetError> {
    let patience = shared.limits.first_frame;
    let at = peer.connection.remote_address();
    let opening = timeout(patience, stream.receiver.expect::<Opening>())
        .await
        .map_err(|_| NetError::silent("the first frame of a stream", at))??;
    let (role, host) = (peer.identity.role, shared.endpoint.role());
    if !may_open(role, host, &opening) {
        let reason = format!("a {role} may not open this stream at a {host}: {opening:?}");
        peer.close(CloseCode::Forbidden, &reason);
        return Ok(());
    }
    if opening != Opening::Request {
        return shared
            .service
            .stream(peer, opening, stream, shared.stop.clone())
            .await;
    }
    let request = timeout(patience, stream.receiver.expect::<Request>())
        .await
        .map_err(|_| NetError::silent("a request", at))??;
    if may_ask(role, host, &request) {
        let stop = shared.stop.clone();
        shared
            .service
            .request(&peer, request, &mut stream, stop)
            .await?;
    } else {
        let message = format!(
            "{} may not ask for this: its role does not allow it",
            peer.identity
        );
        stream
            .sender
            .send(&refusal(RefusalCode::Forbidden, &message))
            .await?;
    }
    stream.sender.finish();
    stream.sender.delivered().await
}

/// Hears the one request that needs no certificate.
async fn join<S: Service>(
    shared: &Shared<S>,
    connection: &quinn::Connection,
) -> Result<(), NetError> {
    let halves = connection.accept_bi().await?;
    let mut stream = Stream::new(halves, shared.endpoint.limits());
    let reply = match stream.receiver.expect::<Request>().await? {
        Request::Join(joining) => shared.service.join(joining).await,
        _ => refusal(
            RefusalCode::Forbidden,
            "without a certificate one may only join",
        ),
    };
    stream.sender.send(&reply).await?;
    stream.sender.finish();
    stream.sender.delivered().await
}

fn finish(connection: &quinn::Connection, outcome: Result<(), NetError>) -> Result<(), NetError> {
    match &outcome {
        Ok(()) => close(connection, CloseCode::Done, "all is said"),
        Err(error) => tell(connection, error),
    }
    outcome
}

fn refusal(code: RefusalCode, message: &str) -> Reply {
    Reply::Refused(Refusal {
        code,
        message: message.to_owned(),
    })
}
