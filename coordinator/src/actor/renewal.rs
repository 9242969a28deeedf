//! Certificates in time: the coordinator's own is renewed, or where the authority is elsewhere looked for in its file, and
//! connections end with those of their peers.

use std::sync::Arc;
use std::time::Duration;

use shared::net::credential::Credential;
use shared::net::endpoint::{Endpoint, Peer};
use shared::net::enroll::Enroller;
use shared::net::fault::CloseCode;
use shared::net::renew::{LOOK, next_look};

use super::settings::{Clock, CoordinatorSettings};

/// A renewal that failed is tried again after so long.
const AGAIN: Duration = Duration::from_secs(30);

/// Renews the coordinator's own certificate, by its own authority, again and again.
pub(super) async fn run(
    settings: CoordinatorSettings,
    endpoint: Arc<Endpoint>,
    enroller: Arc<Enroller>,
) {
    loop {
        if let Err(error) = renew(&settings, &endpoint, &enroller).await {
            tracing::warn!(error, "the coordinator's certificate is not renewed");
            pause(AGAIN).await;
        }
    }
}

/// Waits until it is time, and renews once.
async fn renew(
    settings: &CoordinatorSettings,
    endpoint: &Endpoint,
    enroller: &Enroller,
) -> Result<(), String> {
    let held = Credential::load(&settings.credential).map_err(|error| error.to_string())?;
    while let Some(wait) = next_look(&held, (settings.wall)()) {
        pause(wait).await;
    }
    let (life, now) = (settings.certificate_life, (settings.wall)());
    let fresh = enroller.authority().issue(&held.identity, life, now);
    let fresh = fresh.map_err(|error| error.to_string())?;
    fresh
        .save(&settings.credential)
        .map_err(|error| error.to_string())?;
    endpoint.renew(&fresh).map_err(|error| error.to_string())
}

/// Shows the certificate in the coordinator's file whenever that is another than the one shown, and says when one is due: nobody
/// here can make it.
pub(super) async fn look(settings: CoordinatorSettings, endpoint: Arc<Endpoint>) {
    let mut shown: Option<Credential> = None;
    let mut told = false;
    loop {
        match Credential::load(&settings.credential) {
            Ok(found) => {
                let due = next_look(&found, (settings.wall)()).is_none();
                if due && !told {
                    tracing::warn!(
                        file = %settings.credential.display(),
                        until = found.life.end.seconds(),
                        "the coordinator's certificate is due to be renewed, and the authority is not here: put one of spotmux ca \
                         issue --role coordinator in its place"
                    );
                }
                told = due;
                if shown.as_ref().is_none_or(|shown| shown.life != found.life) {
                    match endpoint.renew(&found) {
                        Ok(()) => shown = Some(found),
                        Err(error) => {
                            tracing::warn!(%error, "the coordinator's certificate is not shown")
                        }
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the coordinator's certificate cannot be read"),
        }
        pause(LOOK).await;
    }
}

/// Ends when the certificate that a peer showed holds no longer. A peer that has a newer one connects again with it.
pub(super) async fn expired(peer: &Peer, wall: &Clock) {
    loop {
        let left = peer.until.since(wall());
        if left.0 == 0 {
            return;
        }
        pause(Duration::from_micros(left.0).min(LOOK)).await;
    }
}

/// Ends the connection of a peer whose certificate expired.
pub(super) fn send_away(peer: &Peer) {
    let reason = "the certificate of this connection expired: connect again with a renewed one";
    peer.close(CloseCode::Identity, reason);
}

#[expect(
    clippy::disallowed_methods,
    reason = "certificates are renewed and expire by the clock, which nobody announces"
)]
async fn pause(so_long: Duration) {
    tokio::time::sleep(so_long).await;
}
