//! Asks the planner on a thread of its own: the actor hears everything else meanwhile.

use actix::Recipient;

use super::messages::Arranged;
use super::settings::Clock;
use crate::life::cluster::Question;

/// Answers a question to the actor. A planner that panics gives no answer: jobs train as their first stages see fit.
pub(super) async fn ask(question: Question, actor: Recipient<Arranged>, clock: Clock) {
    let begin = clock();
    match tokio::task::spawn_blocking(move || question.answer()).await {
        Ok(answer) => {
            tracing::debug!(took = %clock().since(begin), "the planner arranged jobs");
            // An actor that is gone asks again when it is back.
            let _ = actor.send(Arranged(answer)).await;
        }
        Err(panic) => tracing::error!(error = %panic, "the planner panicked: report a bug"),
    }
}
