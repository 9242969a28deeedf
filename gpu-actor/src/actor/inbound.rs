//! What goes to the stage actor from other threads, in its order.

use std::sync::Arc;

use actix::Addr;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::running::Report;
use super::stage::{Happened, StageActor, Uplink};
use super::uplink::Uplinked;
use crate::duty::Event;

/// Passes on to the actor what the uplink tells, until either ends.
pub(super) async fn pass_on(mut told: mpsc::Receiver<Uplinked>, actor: Addr<StageActor>) {
    while let Some(told) = told.recv().await {
        if actor.send(Uplink(told)).await.is_err() {
            return;
        }
    }
}

/// Reports of stage threads go through the network's runtime to the actor, in their order. What waits is bounded by the
/// work of a stage: a report is a step, an evaluation or a state.
pub(super) fn reporter(network: &Runtime, actor: Addr<StageActor>) -> Report {
    let (out, mut reports) = mpsc::unbounded_channel::<Event>();
    network.spawn(async move {
        while let Some(event) = reports.recv().await {
            if actor.send(Happened(event)).await.is_err() {
                return;
            }
        }
    });
    Arc::new(move |event| {
        // An actor that is gone hears nothing more.
        let _ = out.send(event);
    })
}
