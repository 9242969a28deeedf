//! The pure machines: jobs, nodes, plans, moves, and all of it together.

pub mod admission;
pub mod cluster;
pub mod device;
pub mod floor;
pub mod layout;
pub mod ledger;
pub mod membership;
pub mod placement;
pub mod strain;
pub mod transition;
