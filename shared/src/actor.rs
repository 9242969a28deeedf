//! How actors and threads end, how often they are started again, and how soon what failed is tried again.

pub mod budget;
pub mod exit;
pub mod waits;
