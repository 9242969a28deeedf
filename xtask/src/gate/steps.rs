//! The steps of the gate, the quick ones first.

use std::path::Path;

use super::{Outcome, checks};

/// One step of the gate.
#[derive(Debug)]
pub struct Step {
    /// The name that `--only` and `--skip` take.
    pub name: &'static str,
    /// What it proves, in a line.
    pub about: &'static str,
    /// Whether `--fast` runs it.
    pub fast: bool,
    /// The work, on the workspace at a folder.
    pub(super) run: fn(&Path) -> Outcome,
}

/// All steps in the order in which they run.
pub const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "every file is formatted",
        fast: true,
        run: checks::format,
    },
    Step {
        name: "layers",
        about: "floors, purity, rings, unsafe code, file names",
        fast: true,
        run: checks::layers,
    },
    Step {
        name: "sizes",
        about: "no file outgrows the house style",
        fast: true,
        run: checks::sizes,
    },
    Step {
        name: "typos",
        about: "spelling",
        fast: true,
        run: checks::typos,
    },
    Step {
        name: "deny",
        about: "licences, banned crates, sources of the dependencies",
        fast: true,
        run: checks::deny,
    },
    Step {
        name: "advisories",
        about: "known holes and yanked versions among the dependencies",
        fast: false,
        run: checks::advisories,
    },
    Step {
        name: "clippy",
        about: "lints, in all targets, as errors",
        fast: true,
        run: checks::clippy,
    },
    Step {
        name: "tests",
        about: "every test of the workspace",
        fast: false,
        run: checks::tests,
    },
    Step {
        name: "doctests",
        about: "the examples in the documentation run",
        fast: false,
        run: checks::doc_tests,
    },
    Step {
        name: "doc",
        about: "the documentation builds without a warning",
        fast: false,
        run: checks::documentation,
    },
];
