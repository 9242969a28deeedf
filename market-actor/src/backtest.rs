//! Policies against the optimum over many starts of one market.

pub mod run;
