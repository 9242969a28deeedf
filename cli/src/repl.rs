//! The admin shell: every line is a command of the same tree.
//!
//! | room | one line |
//! | --- | --- |
//! | [`words`] | a line as words, with quotes |
//! | [`complete`] | what may come next, from the tree and the cluster |
//! | [`live`] | names of jobs and nodes, asked from the cluster |
//! | [`line`](mod@line) | one line, done |

pub(crate) mod complete;
pub(crate) mod line;
pub(crate) mod live;
pub(crate) mod words;
