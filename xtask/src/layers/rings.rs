//! No ring of files inside a crate.
//!
//! A file and the folder of the same name are one unit. At each level of the module tree, the units side by side
//! import each other without a ring; a parent and its own children may know each other, since children are how
//! a parent is cut up. Imports through a re-export count for the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::source::{Crate, Modules, Resolved, Workspace};

/// For each folder of modules: unit -> unit it imports -> where, the first time.
type Level<'a> = BTreeMap<&'a str, BTreeMap<String, String>>;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Finding> {
    let modules = Modules::of(member);
    let mut levels: BTreeMap<&[String], Level<'_>> = BTreeMap::new();
    for (module, path, scan) in modules.files() {
        if modules.is_test(module) {
            continue;
        }
        for mention in scan.mentions.iter().filter(|mention| !mention.test) {
            let Resolved::Module(target) = modules.resolve(module, mention) else {
                continue;
            };
            let same = module
                .iter()
                .zip(&target)
                .take_while(|(a, b)| a == b)
                .count();
            if let (Some(from), Some(to)) = (module.get(same), target.get(same)) {
                levels
                    .entry(&module[..same])
                    .or_default()
                    .entry(from)
                    .or_default()
                    .entry(to.clone())
                    .or_insert_with(|| format!("{path}:{}", mention.line));
            }
        }
    }
    levels
        .values()
        .flat_map(|level| rings(level).into_iter().map(|ring| describe(level, &ring)))
        .collect()
}

/// One shortest ring for each set of units that reach each other.
fn rings<'a>(level: &'a Level<'a>) -> Vec<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for &unit in level.keys() {
        if seen.contains(unit) {
            continue;
        }
        if let Some(ring) = shortest_ring(level, unit) {
            seen.extend(ring.iter().copied());
            found.push(ring);
        }
    }
    found
}

/// The shortest way from a unit back to itself, by breadth-first search.
fn shortest_ring<'a>(level: &'a Level<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut front = vec![start];
    while !front.is_empty() {
        let mut next = Vec::new();
        for unit in front {
            for target in level.get(unit).into_iter().flat_map(BTreeMap::keys) {
                if target == start {
                    let mut ring = vec![unit];
                    while let Some(&before) = came_from.get(ring[ring.len() - 1]) {
                        ring.push(before);
                    }
                    ring.reverse();
                    return Some(ring);
                }
                if !came_from.contains_key(target.as_str()) {
                    came_from.insert(target, unit);
                    next.push(target.as_str());
                }
            }
        }
        front = next;
    }
    None
}

fn describe(level: &Level<'_>, ring: &[&str]) -> Finding {
    let place = |at: usize| {
        let (from, to) = (ring[at], ring[(at + 1) % ring.len()]);
        (from, to, &level[from][to])
    };
    let arrows: Vec<String> = (0..ring.len())
        .map(|at| {
            let (from, to, place) = place(at);
            format!("{from} -> {to} ({place})")
        })
        .collect();
    let message = format!(
        "a ring of files: {}; move what both need to a third, or pass it in",
        arrows.join(", ")
    );
    Finding::failure("ring", place(0).2.as_str(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::testing::workspace;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&workspace(&[("data", &[])], files))
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn siblings_in_a_ring_are_found_with_their_lines() {
        let found = found(&[
            ("data/src/lib.rs", "mod a; mod b; mod c;"),
            ("data/src/a.rs", "use crate::b::X;"),
            ("data/src/b.rs", "use crate::c::deep::Y;"),
            ("data/src/c.rs", "mod deep;"),
            ("data/src/c/deep.rs", "\nuse crate::a;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        for arrow in [
            "a -> b (data/src/a.rs:1)",
            "b -> c",
            "c -> a (data/src/c/deep.rs:2)",
        ] {
            assert!(found[0].contains(arrow), "{found:?} lacks {arrow}");
        }
    }

    #[test]
    fn parents_know_their_children_and_tests_do_not_count() {
        let found = found(&[
            ("data/src/lib.rs", "mod job; mod model;"),
            (
                "data/src/job.rs",
                "mod check; pub use check::Problem; pub struct Job;",
            ),
            (
                "data/src/job/check.rs",
                "use super::Job; use crate::model::Shape;",
            ),
            (
                "data/src/model.rs",
                "#[cfg(test)] mod tests { use crate::job::Job; }",
            ),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_ring_through_a_re_export_is_a_ring() {
        let found = found(&[
            ("data/src/lib.rs", "mod job;"),
            (
                "data/src/job.rs",
                "mod a; mod b; pub use a::A; pub use b::B;",
            ),
            ("data/src/job/a.rs", "use super::B;"),
            ("data/src/job/b.rs", "use super::A;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
