//! Has questions answered on a thread of their own, one after the other: the actor hears of machines meanwhile.

use actix::Addr;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::market::MarketActor;
use super::messages::Heard;
use crate::broker::Event;
use crate::broker::thought::Question;

/// Works until nobody asks or listens, or an answer panics.
pub(super) async fn run(mut questions: mpsc::Receiver<Question>, actor: Addr<MarketActor>) {
    while let Some(question) = questions.recv().await {
        let Ok(answer) = spawn_blocking(move || question.answer()).await else {
            return;
        };
        let event = Event::Thought(Box::new(answer));
        if actor.send(Heard(event)).await.is_err() {
            return;
        }
    }
}
