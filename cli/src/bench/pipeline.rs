//! Pieces of `spotmux bench pipeline`.
//!
//! | room | one line |
//! | --- | --- |
//! | [`site`] | a folder with a model, data and jobs; processes in it |
//! | [`running`] | a cluster of processes, and what its events tell |
//! | [`history`] | from steps to speed and stall: pure |
//! | [`bubble`] | from spans to the share of time in which devices wait: pure |
//! | [`figures`] | what was found, for programs and for people |

pub(crate) mod bubble;
pub(crate) mod figures;
pub(crate) mod history;
pub(crate) mod running;
pub(crate) mod site;
