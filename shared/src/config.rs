//! `cluster.toml`: what an operator decides about a cluster, before anything starts.
//!
//! | room | one line |
//! | --- | --- |
//! | [`schema`] | the settings as types, with their defaults |
//! | [`keys`] | every key with its kind, unit, range and cost: what is accepted, and what is told of it |
//! | [`layer`] | what one source says: the file with its lines, a variable, a flag |
//! | [`check`] | what cannot be, over all keys |
//! | [`env`](mod@env) | the names of environment variables |
//! | [`joining`] | what a machine that joins is told of it |
//! | [`market`] | section `market` |
//! | [`places`] | names of files in the folders of a cluster |
//! | `load` | defaults < file < environment < flags; feature `config` |

pub mod check;
pub mod env;
mod gpu_actor;
pub mod joining;
pub mod keys;
pub mod layer;
#[cfg(feature = "config")]
pub mod load;
pub mod market;
pub mod places;
mod plan;
pub mod schema;

use std::fmt;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The file, at this line.
    File {
        /// Its path as given.
        path: String,
        /// From 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        name: String,
    },
    /// `--set` on the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Environment { name } => f.write_str(name),
            Self::Flag => f.write_str("--set"),
        }
    }
}

/// One thing wrong with a configuration: where, which key, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it was said.
    pub origin: Origin,
    /// Dotted path of the key, such as `node[1].listen`; empty when the whole is meant.
    pub key: String,
    /// What is wrong, the limit and the remedy.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}
