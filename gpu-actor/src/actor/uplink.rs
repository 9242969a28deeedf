//! The connection to the coordinator: orders in, notices out, and again when it breaks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shared::net::backoff::Backoff;
use shared::net::client::Client;
use shared::net::credential::Credential;
use shared::net::endpoint::{Endpoint, Peer};
use shared::net::fault::{CloseCode, NetError};
use shared::net::identity::Role;
use shared::net::renew;
use shared::wire::notice::Notice;
use shared::wire::opening::Opening;
use shared::wire::order::Ordered;
use tokio::sync::{mpsc, oneshot};

use super::settings::NodeSettings;

/// What the uplink tells the stage actor.
#[derive(Debug)]
pub(super) enum Uplinked {
    /// The coordinator is reached; notices go here.
    Up(mpsc::Sender<Notice>),
    /// It ordered something.
    Ordered(Box<Ordered>),
    /// It is no longer reached.
    Down,
}

/// Notices that may wait for the network; one more is refused: the connection ends, and the node starts over.
const OUTBOX: usize = 4096;

/// Reasons why the coordinator is not reached that are told in a row, at most.
const REASONS: usize = 16;

/// A renewal that failed is tried again after so long.
const AGAIN: Duration = Duration::from_secs(30);

/// Keeps the connection up for as long as anybody listens, or until the process ends: that is the last word on it, so
/// that the coordinator does not wait for the node to come back.
pub(super) async fn run(
    settings: NodeSettings,
    endpoint: Arc<Endpoint>,
    told: mpsc::Sender<Uplinked>,
    mut end: oneshot::Receiver<()>,
) {
    let mut backoff = Backoff::new(
        Duration::from_millis(100),
        Duration::from_secs(3),
        settings.incarnation,
    );
    let own = Credential::load(&settings.credential);
    let mut troubles = Troubles::default();
    loop {
        if let Ok(own) = &own
            && let Err(error) = renew::show_file(&endpoint, own, &settings.credential)
        {
            tracing::debug!(%error, "the certificate that was read last is shown");
        }
        match endpoint
            .connect(settings.coordinator, Role::Coordinator)
            .await
        {
            Ok(peer) => {
                troubles.over();
                let renewing = tokio::spawn(renew_while_up(
                    settings.clone(),
                    Arc::clone(&endpoint),
                    peer.clone(),
                ));
                let mut heard = false;
                let ended = until_end(&peer, &told, &mut heard, &mut end).await;
                renewing.abort();
                let Some(ended) = ended else {
                    return;
                };
                // Who is sent away at once must not come back at once.
                if heard {
                    backoff.reset();
                }
                if let Err(error) = ended {
                    tracing::warn!(%error, "the coordinator is gone");
                }
                if told.send(Uplinked::Down).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if troubles.is_news(&reason) {
                    tracing::warn!(reason, "the coordinator is not reached, and is tried again");
                }
            }
        }
        if told.is_closed() {
            return;
        }
        backoff.pause().await;
    }
}

/// Why the coordinator is not reached: told once for each reason, however often it is tried.
#[derive(Debug, Default)]
struct Troubles(BTreeSet<String>);

impl Troubles {
    /// Whether this reason was not told since it was reached last.
    fn is_news(&mut self, reason: &str) -> bool {
        self.0.len() < REASONS && self.0.insert(reason.to_owned())
    }

    /// It is reached.
    fn over(&mut self) {
        self.0.clear();
    }
}

/// Serves a connection to its end, or to that of the process: then nothing comes back, and the coordinator was told.
async fn until_end(
    peer: &Peer,
    told: &mpsc::Sender<Uplinked>,
    heard: &mut bool,
    end: &mut oneshot::Receiver<()>,
) -> Option<Result<(), NetError>> {
    let serving = serve(peer, told, heard);
    tokio::pin!(serving);
    tokio::select! {
        biased;
        _ = end => {
            // Before the stream goes, whose end alone would say less.
            peer.close(CloseCode::Shutdown, "this node ends");
            None
        }
        ended = &mut serving => Some(ended),
    }
}

/// Serves a connection to its end; notes whether the coordinator ordered anything.
async fn serve(
    peer: &Peer,
    told: &mpsc::Sender<Uplinked>,
    heard: &mut bool,
) -> Result<(), NetError> {
    let mut stream = peer.open(Opening::Node).await?;
    let (outbox, mut notices) = mpsc::channel(OUTBOX);
    if told.send(Uplinked::Up(outbox)).await.is_err() {
        return Ok(());
    }
    loop {
        tokio::select! {
            order = stream.receiver.receive::<Ordered>() => match order? {
                None => return Ok(()),
                Some(order) => {
                    *heard = true;
                    if told.send(Uplinked::Ordered(Box::new(order))).await.is_err() {
                        return Ok(());
                    }
                }
            },
            notice = notices.recv() => match notice {
                // The stage actor gave the connection up.
                None => return Ok(()),
                Some(notice) => stream.sender.send(&notice).await?,
            },
        }
    }
}

/// Renews the certificate in time; while the coordinator is away it stays as it is.
async fn renew_while_up(settings: NodeSettings, endpoint: Arc<Endpoint>, peer: Peer) {
    loop {
        let renewed = match Credential::load(&settings.credential) {
            Ok(held) => {
                while let Some(wait) = renew::next_look(&held, (settings.clock)()) {
                    pause(wait).await;
                }
                let client = Client::over(peer.clone());
                let renewed = renew::renew(&client, &endpoint, &held, &settings.credential).await;
                renewed.map(|_| ()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match renewed {
            Ok(()) => tracing::info!("certificate renewed"),
            Err(error) => {
                tracing::warn!(error, "certificate not renewed");
                pause(AGAIN).await;
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell waits until a certificate is to be renewed"
)]
async fn pause(so_long: Duration) {
    tokio::time::sleep(so_long).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_why_the_coordinator_is_not_reached_is_told_once_until_it_is() {
        let mut troubles = Troubles::default();
        for round in 0..2 {
            assert!(troubles.is_news("nobody answers"), "{round}");
            assert!(troubles.is_news("the certificate is of another cluster"));
            assert!(!troubles.is_news("nobody answers"));
            troubles.over();
        }
        let told = (0..100).filter(|n| troubles.is_news(&n.to_string()));
        assert_eq!(told.count(), REASONS);
    }
}
