//! Watches spot markets: what machines cost and how many there are, what both will be, which to hold.
//!
//! It proposes; the coordinator disposes.

#![forbid(unsafe_code)]

pub mod actor;
pub mod admission;
pub mod backtest;
pub mod broker;
pub mod custody;
pub mod explain;
pub mod feed;
pub mod forecast;
pub mod market;
pub mod money;
pub mod now;
pub mod oracle;
pub mod plot;
pub mod policy;
pub mod problem;
pub mod provider;
pub mod select;
pub mod terms;
pub mod utility;
pub mod whatif;
