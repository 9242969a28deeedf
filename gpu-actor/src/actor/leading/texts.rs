//! Texts on their way: made one after another, token by token, so that orders are heard between two tokens.
//!
//! - `TX-1` Every sample that is asked for is answered once, with its end or with why it has none; one that nobody waits for any
//!   more is not, and no token of it is made.
//! - `TX-2` While jobs train, a round is taken for every [`TOKENS_A_ROUND`] tokens, and one for a text that has fewer: between
//!   tokens where it leaves the weights of the text as they are, else behind the text, before the next one.
//! - `TX-3` A text is made with the weights of one step: it ends early where a drain ends a step of its job that was begun.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use shared::wire::order::SampleOrder;

use super::{Event, Leading, ReplicaError, Search, name, stored_sample};
use crate::artifacts::manifest::StateManifest;
use crate::replica::lead::{SampleError, Text, TextRequest};
use crate::sample::choice::Sampling;

/// Tokens of texts for which one round is taken.
pub(super) const TOKENS_A_ROUND: u32 = 16;

/// Samples that may be asked for and not answered.
pub(super) const MOST: usize = 64;

/// Samples that were asked for.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Numbers of those that are not answered.
    asked: BTreeSet<u64>,
    /// Not begun, each with the states that it can be made with should its job not be here.
    waiting: VecDeque<(SampleOrder, Vec<StateManifest>)>,
    /// The one that is being made, with its tokens so far.
    under: Option<(u64, Text, u32)>,
    /// Rounds to be taken for the tokens made.
    owed: u32,
}

impl Texts {
    /// Whether there is a token to be made.
    #[cfg(test)]
    pub(super) fn are_under_way(&self) -> bool {
        self.under.is_some() || !self.waiting.is_empty()
    }

    /// One more is asked for.
    pub(super) fn ask(&mut self, order: &SampleOrder) {
        self.asked.insert(order.number);
    }

    /// Whether anybody waits for one.
    pub(super) fn are_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// So many rounds have ended.
    pub(super) fn rounds_taken(&mut self, rounds: u64) {
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        self.owed = self.owed.saturating_sub(rounds);
    }

    /// No job trains: nobody waits for texts.
    pub(super) fn owe_nothing(&mut self) {
        self.owed = 0;
    }
}

impl Leading<'_> {
    /// Takes a text on: the state of a job that is not here is looked for beside training.
    pub(super) fn sample(&mut self, order: SampleOrder) {
        let number = order.number;
        if self.texts.asked.len() >= MOST {
            let why = format!("{MOST} samples wait on this replica: ask again when some are made");
            (self.around.report)(Event::SampleEnded(number, Err(why)));
            return;
        }
        self.texts.ask(&order);
        match order.job {
            Some(job) if self.lead.progress(&name(job)).is_none() => {
                let search = Search {
                    store: Arc::clone(&self.around.store),
                    backbone: self.around.backbone.clone(),
                    shape: Arc::clone(&self.around.shape),
                };
                let found = self.outside.searches.clone();
                stored_sample::start(job, order, search, found, self.lead.bell());
            }
            _ => self.texts.waiting.push_back((order, Vec::new())),
        }
    }

    /// The states of a job that is not here were looked for.
    pub(super) fn host(&mut self, order: SampleOrder, states: Result<Vec<StateManifest>, String>) {
        if !self.texts.asked.contains(&order.number) {
            return;
        }
        let here = order
            .job
            .is_some_and(|job| self.lead.progress(&name(job)).is_some());
        match states {
            Err(why) if !here => self.answer(order.number, Err(why)),
            states => {
                let states = states.unwrap_or_default();
                self.texts.waiting.push_back((order, states));
            }
        }
    }

    /// Makes one token, if it comes before the next round or none is taken; whether it did anything.
    pub(super) fn write_on(&mut self, working: bool) -> Result<bool, ReplicaError> {
        // It would wait for whole steps, and a drain for it.
        if self.lead.is_settling() {
            return Ok(false);
        }
        while self.texts.under.is_none() && self.texts.owed == 0 {
            let Some((order, states)) = self.texts.waiting.pop_front() else {
                return Ok(false);
            };
            match self.begin(&order, &states)? {
                Ok(text) => self.texts.under = Some((order.number, text, 0)),
                Err(error) => self.answer(order.number, Err(error.to_string())),
            }
        }
        if working && !self.holds_rounds() {
            return Ok(false);
        }
        // It is behind what stages have, and not behind rounds.
        self.lead.make_room()?;
        let Some((number, text, made)) = &mut self.texts.under else {
            return Ok(false);
        };
        let outcome = match self.lead.next_token(text)? {
            Ok(Some(token)) => {
                *made += 1;
                if made.is_multiple_of(TOKENS_A_ROUND) {
                    self.texts.owed += 1;
                }
                (self.around.report)(Event::Piece(*number, vec![token]));
                return Ok(true);
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        self.end_text(outcome)?;
        Ok(true)
    }

    /// Steps that are begun are going to end. TX-3
    pub(super) fn end_text_of_step(&mut self) -> Result<(), ReplicaError> {
        let under = self.texts.under.as_ref();
        match under.is_some_and(|(_, text, _)| self.lead.changes(text)) {
            true => self.end_text(Err("the step of its job ends: ask again".to_owned())),
            false => Ok(()),
        }
    }

    /// Nobody waits for a text any more. TX-1
    pub(super) fn let_text_go(&mut self, number: u64) -> Result<(), ReplicaError> {
        self.texts.asked.remove(&number);
        self.texts
            .waiting
            .retain(|(order, _)| order.number != number);
        match &self.texts.under {
            Some((under, ..)) if *under == number => self.end_text(Ok(())),
            _ => Ok(()),
        }
    }

    fn end_text(&mut self, outcome: Result<(), String>) -> Result<(), ReplicaError> {
        let Some((number, text, made)) = self.texts.under.take() else {
            return Ok(());
        };
        if !made.is_multiple_of(TOKENS_A_ROUND) {
            self.texts.owed += 1;
        }
        self.answer(number, outcome);
        self.lead.end_text(&text)
    }

    /// Whether the next token comes before the next round.
    pub(super) fn holds_rounds(&self) -> bool {
        let under = self.texts.under.as_ref();
        under.is_some_and(|(_, text, _)| self.texts.owed == 0 || self.lead.trains(text))
    }

    /// The lead ends: who waits for a text is told so.
    pub(super) fn end_texts(&mut self, why: &str) {
        for number in std::mem::take(&mut self.texts.asked) {
            (self.around.report)(Event::SampleEnded(number, Err(why.to_owned())));
        }
    }

    /// Begins a text with the job as it is here, else with the first of these states whose parts are sound; for no job,
    /// by the backbone alone.
    fn begin(
        &mut self,
        order: &SampleOrder,
        states: &[StateManifest],
    ) -> Result<Result<Text, SampleError>, ReplicaError> {
        let job = order.job.map(name);
        let request = TextRequest {
            job: job.as_ref(),
            prompt: &order.prompt,
            sampling: Sampling {
                temperature: f64::from(order.temperature),
                top_k: order.top_k as usize,
                top_p: f64::from(order.top_p),
                seed: order.seed,
            },
            limit: order.max_tokens as usize,
            stops: &order.stops,
        };
        let here = job
            .as_ref()
            .is_some_and(|job| self.lead.progress(job).is_some());
        let mut begun = None;
        for state in states.iter().filter(|_| !here) {
            let made = self.lead.begin_stored_text(state, &request)?;
            let Err(SampleError::State { problem, .. }) = &made else {
                return Ok(made);
            };
            tracing::warn!(job = %state.job, problem, "state skipped");
            begun = Some(made);
        }
        Ok(begun.unwrap_or_else(|| self.lead.begin_text(&request)))
    }

    fn answer(&mut self, number: u64, outcome: Result<(), String>) {
        // TX-1
        if self.texts.asked.remove(&number) {
            (self.around.report)(Event::SampleEnded(number, outcome));
        }
    }
}
