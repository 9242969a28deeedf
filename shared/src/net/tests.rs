//! Processes of a cluster, all in this one, over loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fetching;
mod hostile;
mod joining;
mod talking;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::authority::{Authority, MEMBER_LIFE};
use super::client::{Client, receive_body};
use super::credential::Credential;
use super::endpoint::{Endpoint, EndpointSettings, Peer};
use super::enroll::Enroller;
use super::fault::{CloseCode, NetError};
use super::identity::{Identity, Role};
use super::router::{Router, RouterLimits, Service, Stop};
use super::shelf::Shelf;
use super::stream::Stream;
use super::token::TokenStore;
use crate::units::{Bytes, Micros};
use crate::wire::notice::Notice;
use crate::wire::opening::Opening;
use crate::wire::order::{Order, Ordered};
use crate::wire::request::{FileRef, Joining, Reply, Request};

/// Longest that any of these tests waits: only a broken one does.
const PATIENCE: Duration = Duration::from_secs(30);

#[expect(
    clippy::disallowed_methods,
    reason = "TLS compares certificates with the clock of the system"
)]
fn now() -> Micros {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    Micros(u64::try_from(since.as_micros()).unwrap())
}

fn settings() -> EndpointSettings {
    EndpointSettings::at("127.0.0.1:0".parse().unwrap())
}

fn who(cluster: &str, role: Role, name: &str) -> Identity {
    Identity {
        cluster: cluster.parse().unwrap(),
        role,
        name: name.parse().unwrap(),
    }
}

/// A coordinator that answers a little of everything.
struct Host {
    enroller: Enroller,
    /// The body of the last upload.
    uploaded: Mutex<Vec<u8>>,
    /// Files of a backbone.
    shelf: Mutex<Arc<Shelf>>,
    /// From which bytes on they were asked for.
    from: Mutex<Vec<u64>>,
}

impl Service for Arc<Host> {
    async fn request(
        &self,
        peer: &Peer,
        request: Request,
        stream: &mut Stream,
        mut stop: Stop,
    ) -> Result<(), NetError> {
        let sender = &mut stream.sender;
        match request {
            Request::PutFile(file) => {
                let mut body = Vec::new();
                let received = receive_body(&mut stream.receiver, &file, &mut body).await;
                let reply = match received {
                    Ok(()) => Reply::Done,
                    Err(error) => invalid(&error.to_string()),
                };
                *self.uploaded.lock().unwrap() = body;
                sender.send(&reply).await
            }
            Request::Fetch(_) => {
                let body = self.uploaded.lock().unwrap().clone();
                sender
                    .send(&Reply::File(file_of("adapter.bin", &body)))
                    .await?;
                sender.send_raw(body.into()).await?;
                sender.send(&Reply::Done).await
            }
            Request::Events { .. } => {
                sender.send(&Reply::Events(Vec::new())).await?;
                stop.wait().await;
                sender.send(&Reply::Done).await
            }
            Request::Renew { signing_request } => {
                let reply = self.enroller.renew(peer, &signing_request, now());
                sender.send(&reply).await
            }
            Request::BackboneFile { file, from } => {
                self.from.lock().unwrap().push(from.0);
                let shelf = Arc::clone(&self.shelf.lock().unwrap());
                shelf.serve(&file, from, stream).await
            }
            Request::Jobs => panic!("what serves a request fails"),
            _ => sender.send(&Reply::Piece(peer.identity.to_string())).await,
        }
    }

    async fn stream(
        &self,
        _: Peer,
        _: Opening,
        mut stream: Stream,
        mut stop: Stop,
    ) -> Result<(), NetError> {
        loop {
            tokio::select! {
                notice = stream.receiver.receive::<Notice>() => {
                    let Some(Notice::Drained { epoch, .. }) = notice? else { break };
                    let order = Order::Release { epoch };
                    let term = crate::ids::Term(1);
                    stream.sender.send(&Ordered { term, order }).await?;
                }
                () = stop.wait() => break,
            }
        }
        stream.sender.finish();
        Ok(())
    }

    async fn join(&self, joining: Joining) -> Reply {
        self.enroller.join(&joining, now())
    }
}

fn invalid(message: &str) -> Reply {
    Reply::Refused(crate::wire::request::Refusal {
        code: crate::wire::request::RefusalCode::Invalid,
        message: message.to_owned(),
    })
}

fn file_of(path: &str, body: &[u8]) -> FileRef {
    use sha2::{Digest, Sha256};
    FileRef {
        path: path.into(),
        sha256: crate::hexadecimal::lower(&Sha256::digest(body)),
        bytes: Bytes(body.len() as u64),
    }
}

/// A cluster of one coordinator.
struct Cluster {
    folder: tempfile::TempDir,
    host: Arc<Host>,
    router: Router,
    address: SocketAddr,
}

impl Cluster {
    fn start(name: &str) -> Self {
        Self::start_with(name, &settings(), RouterLimits::default())
    }

    fn start_with(name: &str, settings: &EndpointSettings, limits: RouterLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authority.pem");
        let authority = Authority::create(&path, &name.parse().unwrap(), now()).unwrap();
        let credential = authority
            .issue(&who(name, Role::Coordinator, "main"), MEMBER_LIFE, now())
            .unwrap();
        let tokens = TokenStore::new(&folder.path().join("tokens"));
        let host = Arc::new(Host {
            enroller: Enroller::new(
                authority,
                tokens,
                MEMBER_LIFE,
                vec![("cluster.name".into(), "\"c\"".into())],
            ),
            uploaded: Mutex::default(),
            shelf: Mutex::new(Arc::new(Shelf::new([], 1, Bytes(u64::MAX)))),
            from: Mutex::default(),
        });
        let endpoint = Arc::new(Endpoint::open(settings, &credential, true).unwrap());
        let address = endpoint.address().unwrap();
        Self {
            router: Router::start(endpoint, Arc::clone(&host), limits),
            folder,
            host,
            address,
        }
    }

    fn credential(&self, role: Role, name: &str) -> Credential {
        let authority = self.host.enroller.authority();
        let identity = who(authority.cluster().as_str(), role, name);
        authority.issue(&identity, MEMBER_LIFE, now()).unwrap()
    }

    fn member(&self, role: Role, name: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint::open(&settings(), &self.credential(role, name), false).unwrap())
    }

    async fn client(&self) -> Client {
        let endpoint = self.member(Role::Client, "me");
        Client::connect(&endpoint, self.address).await.unwrap()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}
