//! Recorded markets and jobs in them, as the arguments of a command name them.

pub(crate) mod moment;
pub(crate) mod shape;
pub(crate) mod source;
pub(crate) mod threads;
