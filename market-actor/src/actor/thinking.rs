//! Has questions answered on a thread of their own, one after the other: the actor hears of machines meanwhile.

use actix::Recipient;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::error::RunError;
use super::messages::Heard;
use crate::broker::Event;
use crate::broker::thought::Question;

/// Hands a question to who answers. Few are open at a time: where one finds no room, none is answered any more, and who waits for
/// one would decide nothing.
///
/// # Errors
/// [`RunError::Ended`], which ends the process.
pub(super) fn hand(to: &mpsc::Sender<Question>, question: Question) -> Result<(), RunError> {
    let part = "plans and learns";
    to.try_send(question).map_err(|_| RunError::Ended { part })
}

/// Works until nobody asks or listens, or an answer panics.
pub(super) async fn run(mut questions: mpsc::Receiver<Question>, actor: Recipient<Heard>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::tests::thoughts::open_question;

    #[test]
    fn a_question_that_finds_nobody_ends_the_process() {
        let (to, mut from) = mpsc::channel(1);
        let question = open_question();
        assert!(hand(&to, question.clone()).is_ok());
        let full = hand(&to, question.clone());
        assert!(matches!(full, Err(RunError::Ended { .. })), "{full:?}");
        assert!(from.try_recv().is_ok());
        drop(from);
        assert!(hand(&to, question).is_err());
    }
}
