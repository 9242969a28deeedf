//! A coordinator reached over QUIC.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shared::config::load::Loaded;
use shared::config::places;
use shared::net::client::{Client, ClientError};
use shared::net::credential::Credential;
use shared::net::endpoint::{Endpoint, EndpointSettings};
use shared::net::fault::{CloseCode, NetError};
use shared::net::renew::{self, RenewError};
use shared::wire::request::{FileRef, Reply, Request};
use tokio::runtime::{Builder, Runtime};

use super::{Control, Flow};
use crate::clock::{self, Stopwatch};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::process;
use crate::remark;
use crate::security;
use crate::shown;

/// How long a coordinator may take to answer a greeting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a wait looks whether the user wants no more of it.
const LOOK: Duration = Duration::from_millis(200);

/// A connection.
pub(crate) struct Quic {
    runtime: Runtime,
    client: Client,
    interrupt: Interrupt,
    endpoint: Arc<Endpoint>,
    credential: PathBuf,
    /// Most time for an answer, where it is not the user who waits.
    patience: Option<Duration>,
}

impl Quic {
    /// Connects as the operator of this machine.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] when nobody answers or the certificate is not believed; [`Exit::NotFound`] when there is
    /// no certificate.
    pub(crate) fn connect(loaded: &Loaded, interrupt: &Interrupt) -> Result<Self, Failure> {
        Self::connect_within(loaded, interrupt, PATIENCE, || {})
    }

    /// The same, again and again for at least so long while nobody answers; `waits` hears once that it is so.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) fn connect_within(
        loaded: &Loaded,
        interrupt: &Interrupt,
        patience: Duration,
        waits: impl FnOnce(),
    ) -> Result<Self, Failure> {
        let credential = security::operator(loaded)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("the system refuses a thread")
            .or_exit(Exit::Internal)?;
        let address = from_here(loaded.config.coordinator.listen);
        let greet = || {
            let greeted = async {
                let mut settings = EndpointSettings::at(source(address));
                settings.limits = process::limits(loaded);
                let endpoint = Arc::new(Endpoint::open(&settings, &credential, false)?);
                let client = Client::connect(&endpoint, address).await?;
                Ok((endpoint, client))
            };
            let unanswered = || NetError::Lost {
                reason: format!("nobody answers within {} s", PATIENCE.as_secs()),
            };
            // A greeting that was lost is sent again later each time: a new one finds who just came.
            let bounded = async {
                let greeted = tokio::time::timeout(PATIENCE, greeted).await;
                greeted.unwrap_or_else(|_| Err(unanswered()))
            };
            runtime.block_on(unless_asked(interrupt, bounded))
        };
        let begun = Stopwatch::start();
        let mut waits = Some(waits);
        let connected = loop {
            match greet()? {
                Err(NetError::Lost { .. }) if begun.elapsed() < patience => {
                    if let Some(waits) = waits.take() {
                        waits();
                    }
                    // Where the system itself says at once that nobody is there.
                    let _ = runtime.block_on(async {
                        let pause = tokio::time::timeout(LOOK, std::future::pending::<()>());
                        unless_asked(interrupt, pause).await
                    })?;
                }
                connected => break connected,
            }
        };
        let (endpoint, client) = connected.map_err(|error| {
            let key = "coordinator.listen";
            let place = loaded.origin(key);
            let message =
                format!("cannot reach the coordinator at {address} ({key}, {place}): {error}");
            Failure::new(exit_of(&error), message)
                .hint("is it running? spotmux up starts a cluster on this machine; spotmux doctor looks for more")
        })?;
        let quic = Self {
            runtime,
            client,
            interrupt: interrupt.clone(),
            endpoint,
            credential: security::directory(loaded).join(places::OPERATOR),
            patience: None,
        };
        quic.renew_in_time(&credential);
        Ok(quic)
    }

    /// The same, that takes an answer which does not come within this time for none.
    pub(crate) fn answering_within(self, patience: Duration) -> Self {
        let patience = Some(patience);
        Self { patience, ..self }
    }

    /// Has a certificate that is past two thirds of its life made anew; what keeps it from that is told, and no more.
    fn renew_in_time(&self, held: &Credential) {
        let now = clock::now();
        if now < held.renewal() {
            return;
        }
        if let Err(failure) = self.renew(held) {
            remark::say(&format!(
                "note: the certificate {} expires in {} and was not renewed: {}",
                self.credential.display(),
                shown::span(held.life.end.since(now)),
                failure.message()
            ));
        }
    }

    /// Has the certificate made anew, and keeps it in its file.
    ///
    /// # Errors
    /// A refusal, [`Exit::Unreachable`], or [`Exit::Internal`] when the file cannot be written.
    pub(crate) fn renew(&self, held: &Credential) -> Result<Credential, Failure> {
        let renewal = renew::renew(&self.client, &self.endpoint, held, &self.credential);
        let renewed = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, renewal).await });
        match renewed {
            Ok(Ok(fresh)) => Ok(fresh),
            Ok(Err(RenewError::Client(error))) => Err(told(error)),
            Ok(Err(error @ RenewError::File(_))) => Err(error).or_exit(Exit::Internal),
            Ok(Err(error)) => Err(error).or_exit(Exit::Coordinator),
            Err(_) => Err(no_answer(PATIENCE)),
        }
    }

    /// The file of the certificate that is shown.
    pub(crate) fn credential(&self) -> &Path {
        &self.credential
    }

    /// Waits for an answer, or until the user wants no more of it.
    fn wait<T>(&self, answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
        let answered = unless_asked(&self.interrupt, answer);
        let answered = within(self.patience, answered);
        self.runtime.block_on(answered)?.map_err(told)
    }
}

fn no_answer(patience: Duration) -> Failure {
    let message = format!("no answer within {} s", patience.as_secs());
    Failure::new(Exit::Unreachable, message)
}

/// What comes, if it does so in time.
async fn within<T>(
    patience: Option<Duration>,
    coming: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(patience) = patience else {
        return coming.await;
    };
    let come = tokio::time::timeout(patience, coming).await;
    come.unwrap_or_else(|_| Err(no_answer(patience)))
}

/// What comes, unless the user wants no more of it before.
async fn unless_asked<T>(
    interrupt: &Interrupt,
    coming: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut coming = std::pin::pin!(coming);
    loop {
        match tokio::time::timeout(LOOK, &mut coming).await {
            Ok(come) => return Ok(come),
            Err(_) => interrupt.check()?,
        }
    }
}

impl Control for Quic {
    fn request(&self, request: &Request) -> Result<Reply, Failure> {
        self.wait(self.client.request(request))
    }

    fn stream(
        &self,
        request: &Request,
        take: &mut dyn FnMut(Reply) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        let mut replies = self.wait(self.client.ask(request))?;
        while let Some(reply) = self.wait(replies.next())? {
            if take(reply)? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }

    fn upload(&self, file: &FileRef, path: &Path) -> Result<(), Failure> {
        self.wait(self.client.upload(file, path))
    }

    fn download(&self, request: &Request, folder: &Path) -> Result<Vec<FileRef>, Failure> {
        self.wait(self.client.download(request, folder))
    }
}

/// An error with its code.
fn told(error: ClientError) -> Failure {
    let exit = match &error {
        ClientError::Refused(refusal) => refusal.code.into(),
        ClientError::Net(error) => exit_of(error),
        ClientError::Unfitting { .. } => Exit::Coordinator,
        ClientError::File { .. } => Exit::BadInput,
        ClientError::Local { .. } => Exit::Internal,
    };
    Failure {
        exit,
        error: error.into(),
        hints: Vec::new(),
    }
}

pub(crate) fn exit_of(error: &NetError) -> Exit {
    match error {
        NetError::Closed {
            code: CloseCode::Forbidden,
            ..
        } => Exit::Forbidden,
        NetError::Closed {
            code: CloseCode::Busy,
            ..
        } => Exit::Busy,
        NetError::Local { .. } | NetError::Tls(_) => Exit::Internal,
        _ => Exit::Unreachable,
    }
}

/// Where a listening address is reached from this machine: one of all addresses is reached on loopback.
pub(crate) fn from_here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The address to send from.
pub(crate) fn source(target: SocketAddr) -> SocketAddr {
    let ip = match target.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_address_of_all_is_reached_on_loopback() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(from_here(at("0.0.0.0:7")), at("127.0.0.1:7"));
        assert_eq!(from_here(at("[::]:7")), at("[::1]:7"));
        assert_eq!(from_here(at("10.0.0.1:7")), at("10.0.0.1:7"));
        assert_eq!(source(at("127.0.0.1:7")), at("127.0.0.1:0"));
        assert_eq!(source(at("10.0.0.1:7")), at("0.0.0.0:0"));
    }

    #[test]
    fn an_answer_that_never_comes_is_not_waited_for() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let never = || std::future::pending::<Result<(), Failure>>();
        let patience = Some(Duration::from_millis(1));
        let failure = runtime.block_on(within(patience, never())).unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        let long = Some(PATIENCE);
        let answered = runtime.block_on(within(long, std::future::ready(Ok(7))));
        assert_eq!(answered.unwrap(), 7);
        let interrupt = Interrupt::default();
        interrupt.ask();
        let asked = async { unless_asked(&interrupt, never()).await? };
        let failure = runtime.block_on(within(long, asked)).unwrap_err();
        assert_eq!(failure.exit, Exit::Interrupted);
    }

    #[test]
    fn nobody_there_is_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        // A port that was just free.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        std::fs::write(&path, format!("[coordinator]\nlisten = '{address}'\n")).unwrap();
        let loaded = shared::config::load::load(&path, [], &[]).unwrap();
        let interrupt = Interrupt::default();
        let absent = Quic::connect(&loaded, &interrupt).map(drop).unwrap_err();
        assert_eq!(absent.exit, Exit::NotFound);
        security::ensure(&loaded).unwrap();
        let mut waited = false;
        let patience = Duration::from_millis(1);
        let reached = Quic::connect_within(&loaded, &interrupt, patience, || waited = true);
        let failure = reached.map(drop).unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(!waited, "one greeting takes longer than that");
        let longer = PATIENCE * 4;
        let stops = || interrupt.ask();
        let stopped = Quic::connect_within(&loaded, &interrupt, longer, stops);
        assert_eq!(stopped.map(drop).unwrap_err().exit, Exit::Interrupted);
        assert!(
            failure.message().contains("cluster.toml:2"),
            "{}",
            failure.message()
        );
    }
}
