//! What `spotmux demo` is made of.
//!
//! | room | one line |
//! | --- | --- |
//! | [`kit`] | what it brings along: jobs, samples, questions |
//! | [`scene`] | the acts: asked, trained, asked again |
//! | [`lodging`] | a cluster of its own: written, started, ended |
//! | [`tour`] | the jobs on that cluster, from submission to adapters |
//! | [`heard`] | the cluster's events as those of a training session: pure |
//! | [`question`] | its questions, asked of the cluster |
//! | [`shift`] | one stage moved while it trains, and what that cost: pure |
//! | [`steady`] | a line to a coordinator that may be started again |
//! | [`report`] | the page at the end |

pub(crate) mod heard;
pub(crate) mod kit;
pub(crate) mod lodging;
pub(crate) mod question;
pub(crate) mod report;
pub(crate) mod scene;
pub(crate) mod shift;
pub(crate) mod steady;
pub(crate) mod tour;
