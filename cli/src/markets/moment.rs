//! A moment in the life of a job in a recorded market, and who decides in it.

use market_actor::backtest::cell::day;
use market_actor::explain::{Decider, Explanation, at_slot};
use market_actor::market::Market;
use market_actor::policy::{Memory, Policy, Safety};
use market_actor::problem::Problem;
use market_actor::problem::episode::{Course, Outcome, play};
use market_actor::select::pool::{Library, Source};
use market_actor::select::word;

use crate::args::MomentArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::markets::shape::shapes;

/// Slots of a forecast that are shown.
pub(crate) const AHEAD: u32 = 6;

/// A job, where it begins and who decides.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// The job.
    pub(crate) problem: Problem,
    /// Index of its first slot.
    pub(crate) start: usize,
    /// Slot of the job that is looked at.
    pub(crate) at: u32,
    policy: Policy,
    source: Source,
}

impl Moment {
    /// The moment that arguments name in a market.
    ///
    /// # Errors
    /// When an argument is none, or the job cannot be.
    pub(crate) fn of(args: &MomentArgs, market: &Market) -> Result<Self, Failure> {
        let (_, shape) = shapes(&args.shape)?.swap_remove(0);
        let problem = shape.problem(market).or_exit(Exit::BadInput)?;
        let slots = market.slots.len();
        let start = args.start.unwrap_or(slots * 2 / 3);
        if start >= slots {
            let message = format!("--start {start} is not before the trace's end at slot {slots}");
            return Err(Failure::new(Exit::BadInput, message));
        }
        if args.at >= problem.hard_deadline {
            let message = format!(
                "--at {} is not before the job's hard deadline of {} slots",
                args.at, problem.hard_deadline
            );
            return Err(Failure::new(Exit::BadInput, message));
        }
        Ok(Self {
            problem,
            start,
            at: args.at,
            policy: word::policy(&args.policy).or_exit(Exit::Usage)?,
            source: word::foresight(&args.forecast, day(market)).or_exit(Exit::Usage)?,
        })
    }

    /// Index in the market of the slot that is looked at.
    pub(crate) fn index(&self) -> usize {
        self.start + self.at as usize
    }

    /// What is decided in a market, and why.
    ///
    /// # Errors
    /// When the job is over by then.
    pub(crate) fn explained(&self, market: &Market) -> Result<Explanation, Failure> {
        let course = Course::plain(market, self.start);
        let told = self.source.with(market, &Library::new(), |foresight| {
            let decider = Decider {
                policy: self.policy,
                foresight,
                safety: Safety::default(),
            };
            at_slot(&self.problem, &course, &decider, self.at, AHEAD)
        });
        told.ok_or_else(|| {
            let done = self.lived(market).completed.unwrap_or_default();
            let message = format!(
                "the job is done after {done} slots: --at {} is later",
                self.at
            );
            Failure::new(Exit::BadInput, message)
        })
    }

    /// The whole life of the job in a market.
    pub(crate) fn lived(&self, market: &Market) -> Outcome {
        let course = Course::plain(market, self.start);
        let mut memory = Memory::since(self.start as u64);
        self.source.with(market, &Library::new(), |foresight| {
            play(&self.problem, &course, |situation| {
                self.policy
                    .decide(situation, foresight, &mut memory, Safety::default())
            })
        })
    }
}
