//! The connection of a node: its notices in, orders out.

use actix::Addr;
use shared::net::endpoint::Peer;
use shared::net::fault::{CloseCode, NetError};
use shared::net::router::Stop;
use shared::net::stream::Stream;
use shared::wire::notice::Notice;
use tokio::sync::mpsc;

use super::coordinator::CoordinatorActor;
use super::farewell::Farewell;
use super::messages::{Arrived, Left, ORDERS, ToNode, Told};
use super::renewal::{expired, send_away};
use super::settings::Clock;

/// Serves a node for as long as its connection lasts.
pub(super) async fn serve(
    peer: Peer,
    mut stream: Stream,
    actor: &Addr<CoordinatorActor>,
    wall: &Clock,
    mut stop: Stop,
) -> Result<(), NetError> {
    let (orders, mut inbox) = mpsc::channel(ORDERS);
    let Ok(link) = actor.send(Arrived(orders)).await else {
        return Ok(());
    };
    let ending = peer.clone();
    let _left = Farewell::new(actor, move || Left {
        link,
        said_so: ending.ends(),
    });
    let expired = expired(&peer, wall);
    tokio::pin!(expired);
    loop {
        tokio::select! {
            notice = stream.receiver.receive::<Notice>() => match notice {
                Err(error) => return Err(error),
                Ok(None) => return Ok(()),
                Ok(Some(notice)) => {
                    if let Some(fault) = impostor(&peer, &notice) {
                        peer.close(CloseCode::Identity, &fault);
                        return Ok(());
                    }
                    if actor.send(Told(link, notice)).await.is_err() {
                        return Ok(());
                    }
                }
            },
            told = inbox.recv() => match told {
                Some(ToNode::Order(ordered)) => match stream.sender.send(&*ordered).await {
                    // Nothing of it was sent: one order that cannot be is no reason to end a node's work.
                    Err(NetError::Codec(error)) => {
                        tracing::error!(node = peer.identity.name.as_str(), %error, "an order is not sent");
                    }
                    sent => sent?,
                },
                Some(ToNode::Close(reason)) => {
                    peer.close(CloseCode::Forbidden, &reason);
                    return Ok(());
                }
                None => {
                    peer.close(CloseCode::Busy, "orders wait for longer than the node may take");
                    return Ok(());
                }
            },
            () = &mut expired => {
                send_away(&peer);
                return Ok(());
            }
            () = stop.wait() => return Ok(()),
        }
    }
}

/// A node may speak for nobody else.
fn impostor(peer: &Peer, notice: &Notice) -> Option<String> {
    let Notice::Hello(hello) = notice else {
        return None;
    };
    let own = peer.identity.name.as_str();
    (hello.node.as_str() != own).then(|| {
        format!(
            "the certificate is of {own}, and node {} says hello",
            hello.node
        )
    })
}
