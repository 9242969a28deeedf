//! Floors, purity, rings, unsafe code and file names.
//!
//! The rules are data in `layers/table.rs`; a new crate or shell file is entered there, in one place.
//!
//! - **floor**: a crate imports only crates of its row, in the manifest and in the code. Tensors, transport and
//!   `anyhow` stay out of the crates that must not know them.
//! - **pure**: pure folders name no clock, no environment, no file, no network, no process and do not print.
//!   Their tests may.
//! - **ring**: files of a crate do not import each other in a ring. A parent and what lies below it may know
//!   each other, and so may the halves of one operation. Tests do not count.
//! - **unsafe**: only in the files named for it, and every crate root says so to the compiler.
//! - **name**: no file called utils, common, helpers, manager or misc.
//! - **table**: the table itself names no file that is gone.

mod floors;
mod names;
mod purity;
mod rings;
mod safety;
mod stale;
pub mod table;
#[cfg(test)]
mod testing;

use crate::finding::Finding;
use crate::source::Workspace;

/// Lists everything that breaks a rule, by rule and place.
#[must_use]
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(floors::check(workspace));
    findings.extend(purity::check(workspace));
    findings.extend(rings::check(workspace));
    findings.extend(safety::check(workspace));
    findings.extend(names::check(workspace));
    findings.extend(stale::check(workspace));
    findings
}
