//! How actors and threads end, and how often they are started again.

pub mod budget;
pub mod exit;
