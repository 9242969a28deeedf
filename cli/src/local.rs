//! A cluster of processes on this machine.
//!
//! | room | one line |
//! | --- | --- |
//! | [`cluster`] | what must hold before it starts, who the processes are, whether it serves |
//! | [`watch`] | what is done when a process ends, is ready, or shall end: pure |
//! | [`family`] | the processes themselves: started, heard, ended |
//! | [`free`] | addresses that nobody has |
//! | [`kept`] | what is durable of its jobs once it has ended |
//! | [`state`] | who runs, in files: locks, process ids, logs |

pub(crate) mod cluster;
pub(crate) mod family;
pub(crate) mod free;
pub(crate) mod kept;
pub(crate) mod machines;
pub(crate) mod state;
pub(crate) mod watch;
