//! Rounds without waiting: whoever drives a session so does other things between two pieces of a long step, and ends it in
//! the middle of one.
//!
//! What was planned and not begun can be taken back at any time, the rest of a step too: it is planned again, and no bit
//! shows it. While somebody is expected all steps are spread over turns ([`Session::keep_turns_short`]), so that who comes
//! waits for a turn at most.

use super::{Run, Session};
use crate::train::engine::{Engine, TurnNumber};
use crate::train::event::Event;

impl<E: Engine> Session<E> {
    /// From the next round that is planned on, or no longer, no turn takes more of a step than the bound on its rows, however
    /// long the other steps are.
    pub fn keep_turns_short(&mut self, short: bool) {
        self.short = short;
    }

    /// Plans what comes next: held-out rows that are due, else rounds.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn plan_on(&mut self) -> Result<(), E::Error> {
        if self.plan_evaluation()? {
            return Ok(());
        }
        self.plan_rounds()
    }

    /// Notes the next thing that is done, a round or held-out rows; none when that is not done yet.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn note_done(&mut self) -> Result<Option<Vec<Event>>, E::Error> {
        if !self
            .next_turn()
            .is_some_and(|turn| self.engine.is_done(turn))
        {
            return Ok(None);
        }
        let mut events = Vec::new();
        self.end_next(&mut events)?;
        Ok(Some(events))
    }

    /// Takes back what is planned and not begun: it is planned again, behind whatever comes before that.
    pub fn make_room(&mut self) {
        for back in self.engine.withdraw() {
            let mut runs = self.runs.values_mut();
            if let Some(run) = runs.find(|run| run.slot == back.slot && run.is_active()) {
                run.take_back(back.step, back.begun);
            }
        }
        let engine = &self.engine;
        self.planned.retain(|turn| engine.holds(*turn));
        self.come_to_halt();
    }

    /// Ends the steps that are begun, with the evaluations due behind them, and plans no other: what is planned and not
    /// begun is planned again when training goes on.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn settle(&mut self) -> Result<Vec<Event>, E::Error> {
        self.begin_settling()?;
        let mut events = Vec::new();
        while self.is_under_way() {
            self.end_next(&mut events)?;
        }
        Ok(events)
    }

    /// Ends what is noted next; the evaluations that are due behind a round come before what closes it.
    fn end_next(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        if self.measured.is_some() {
            self.finish_evaluation(events)?;
        } else {
            self.finish_round(events)?;
            if self.plan_evaluation()? {
                return Ok(());
            }
        }
        self.close_round(events);
        Ok(())
    }

    /// As [`Self::settle`], without waiting: [`Self::note_ended`] notes what ends.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn begin_settling(&mut self) -> Result<(), E::Error> {
        self.make_room();
        let begun = |run: &Run| run.takes_part() && run.begun > 0;
        self.plan_turn(begun, usize::MAX)?;
        Ok(())
    }

    /// While it settles: notes the next thing that is done, of each job as its step ends; none when nothing is.
    /// Evaluations that are due are left out if `measures` does not say otherwise: they are due when training goes on.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn note_ended(&mut self, measures: bool) -> Result<Option<Vec<Event>>, E::Error> {
        if measures && self.measured.is_some() {
            return self.note_done();
        }
        let mut events = Vec::new();
        if let Some(turn) = self.measured.take() {
            self.engine.forget(turn);
            self.close_round(&mut events);
            return Ok(Some(events));
        }
        for at in 0..self.planned.len() {
            let turn = self.planned[at];
            let mut found = self.engine.closed(turn);
            let done = self.engine.is_done(turn);
            if found.is_empty() && !done {
                continue;
            }
            if done {
                self.planned.remove(at);
                found.extend(self.engine.finish(turn)?);
                self.rounds += 1;
            }
            self.note_found(found, &mut events);
            if !(measures && self.plan_evaluation()?) {
                self.close_round(&mut events);
            }
            return Ok(Some(events));
        }
        Ok(None)
    }

    /// What is noted next: held-out rows on their way, or the oldest round.
    #[must_use]
    pub fn next_turn(&self) -> Option<TurnNumber> {
        self.measured.or_else(|| self.planned.front().copied())
    }
}
