//! The module tree of one crate, and which module a path means.
//!
//! A module is known by where its file lies: `src/a.rs` and `src/a/mod.rs` are `a`, `src/a/b.rs` is `a::b`,
//! and `src/lib.rs` and `src/main.rs` are the root.

use std::collections::{BTreeMap, BTreeSet};

use super::{Crate, Mention, Scan};

/// Longest chain of re-exports that is followed.
const MOST_HOPS: usize = 8;

/// A module by its segments from the root of the crate; the root is empty.
pub type ModulePath = Vec<String>;

/// The module tree of one crate.
#[derive(Debug)]
pub struct Modules<'a> {
    files: BTreeMap<ModulePath, Vec<(&'a str, &'a Scan)>>,
    tests: BTreeSet<ModulePath>,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Into a module of the same crate.
    Module(ModulePath),
    /// Out of the crate, or to a local name.
    Elsewhere,
}

impl<'a> Modules<'a> {
    /// Lays out the files under `src/` of a crate.
    #[must_use]
    pub fn of(member: &'a Crate) -> Self {
        let mut files: BTreeMap<ModulePath, Vec<_>> = BTreeMap::new();
        let prefix = format!("{}/src/", member.folder);
        for (path, scan) in &member.files {
            let Some(inner) = path.strip_prefix(&prefix) else {
                continue;
            };
            let entry = files.entry(module_path(inner)).or_default();
            entry.push((path.as_str(), scan));
        }
        let mut tests = BTreeSet::new();
        for (module, scans) in &files {
            for child in scans.iter().flat_map(|(_, scan)| &scan.children) {
                if child.test {
                    let mut path = module.clone();
                    path.push(child.name.clone());
                    tests.insert(path);
                }
            }
        }
        Self { files, tests }
    }

    /// Each file with its module, in order of module.
    pub fn files(&self) -> impl Iterator<Item = (&ModulePath, &'a str, &'a Scan)> {
        self.files.iter().flat_map(|(module, scans)| {
            scans.iter().map(move |(path, scan)| (module, *path, *scan))
        })
    }

    /// Whether a module is built for tests only, itself or through a module around it.
    #[must_use]
    pub fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// Finds the module that a path written in `module` leads into, through imports where need be.
    #[must_use]
    pub fn resolve(&self, module: &[String], mention: &Mention) -> Resolved {
        self.follow(module, mention.depth, &mention.path, MOST_HOPS)
    }

    fn follow(&self, module: &[String], depth: usize, path: &[String], hops: usize) -> Resolved {
        let Some((mut at, rest)) = self.start(module, depth, path) else {
            return self.by_import(module, path, hops);
        };
        for (index, segment) in rest.iter().enumerate() {
            let mut deeper = at.clone();
            deeper.push(segment.clone());
            if self.files.contains_key(&deeper) {
                at = deeper;
                continue;
            }
            let Some(import) = self.import(&at, segment).filter(|_| hops > 0) else {
                break;
            };
            let longer: Vec<String> = import.iter().chain(&rest[index + 1..]).cloned().collect();
            return self.follow(&at, 0, &longer, hops - 1);
        }
        Resolved::Module(at)
    }

    /// The module where a path starts, and the segments left to walk.
    fn start<'p>(
        &self,
        module: &[String],
        depth: usize,
        path: &'p [String],
    ) -> Option<(ModulePath, &'p [String])> {
        let first = path.first()?;
        if first == "crate" {
            return Some((ModulePath::new(), &path[1..]));
        }
        let ups = path.iter().take_while(|word| *word == "super").count();
        if first == "self" || ups > 0 {
            let above = ups.saturating_sub(depth).min(module.len());
            // Inside an inline module, `self` means that module: no file of its own.
            let skip = ups.max(1);
            return Some((module[..module.len() - above].to_vec(), &path[skip..]));
        }
        let mut child = module.to_vec();
        child.push(first.clone());
        let known = depth == 0 && self.files.contains_key(&child);
        known.then(|| (child, &path[1..]))
    }

    /// Follows a path that starts with a name some `use` line of the module brought in.
    fn by_import(&self, module: &[String], path: &[String], hops: usize) -> Resolved {
        let import = path.first().and_then(|first| self.import(module, first));
        match import.filter(|import| hops > 0 && import.first() != path.first()) {
            Some(import) => {
                let longer: Vec<String> = import.iter().chain(&path[1..]).cloned().collect();
                self.follow(module, 0, &longer, hops - 1)
            }
            None => Resolved::Elsewhere,
        }
    }

    fn import(&self, module: &[String], name: &str) -> Option<&'a [String]> {
        let scans = self.files.get(module)?;
        let mut names = scans.iter().flat_map(|(_, scan)| &scan.names);
        let found = names.find(|import| import.name == name)?;
        Some(&found.path)
    }
}

fn module_path(inner: &str) -> ModulePath {
    let stem = inner.trim_end_matches(".rs");
    let mut path: ModulePath = stem.split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    if path.len() == 1 && (path[0] == "lib" || path[0] == "main") {
        path.clear();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Dependencies;

    fn member(files: &[(&str, &str)]) -> Crate {
        Crate {
            folder: "k".into(),
            package: "k".into(),
            dependencies: Dependencies::default(),
            files: files
                .iter()
                .map(|(path, text)| (format!("k/src/{path}"), Scan::parse(text).unwrap()))
                .collect(),
        }
    }

    fn targets(modules: &Modules<'_>, file: &str) -> Vec<String> {
        let (module, _, scan) = modules.files().find(|(_, path, _)| *path == file).unwrap();
        scan.mentions
            .iter()
            .map(|mention| match modules.resolve(module, mention) {
                Resolved::Module(path) => path.join("::"),
                Resolved::Elsewhere => "-".into(),
            })
            .collect()
    }

    #[test]
    fn paths_lead_to_the_file_that_defines_the_name() {
        let member = member(&[
            ("lib.rs", "mod job; mod model;"),
            (
                "job.rs",
                "mod check; mod spec; pub use spec::Spec; pub struct Job;",
            ),
            (
                "job/check.rs",
                "use super::{Job, Spec}; use crate::model::Shape; use std::fmt;",
            ),
            (
                "job/spec.rs",
                "mod inner { use super::Y; use super::super::Job; } pub struct Spec;",
            ),
            (
                "model.rs",
                "use crate::{job, job::Spec}; fn f() { job::check::x() }",
            ),
        ]);
        let modules = Modules::of(&member);
        assert_eq!(
            targets(&modules, "k/src/job/check.rs"),
            ["job", "job::spec", "model", "-"]
        );
        assert_eq!(targets(&modules, "k/src/job/spec.rs"), ["job::spec", "job"]);
        let want = ["job", "job::spec", "job::check"];
        assert_eq!(targets(&modules, "k/src/model.rs"), want);
    }

    #[test]
    fn a_test_module_taints_what_lies_in_it() {
        let member = member(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "#[cfg(test)] mod tests;"),
            ("a/tests.rs", "mod deep;"),
            ("a/tests/deep.rs", ""),
        ]);
        let modules = Modules::of(&member);
        let tests: Vec<&str> = modules
            .files()
            .filter(|(module, ..)| modules.is_test(module))
            .map(|(_, path, _)| path)
            .collect();
        assert_eq!(tests, ["k/src/a/tests.rs", "k/src/a/tests/deep.rs"]);
    }
}
