//! No ring of files inside a crate.
//!
//! A parent and what lies below it may know each other, since children are how a parent is cut up; among all
//! other files imports form no ring. An import through a re-export counts for the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};

use super::table::HALVES;
use crate::finding::Finding;
use crate::source::{Crate, ModulePath, Modules, Resolved, Workspace};

/// File -> file it imports -> where, the first time.
type Imports = BTreeMap<ModulePath, BTreeMap<ModulePath, String>>;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let crates = workspace.crates.iter();
    crates
        .flat_map(|member| {
            let imports = imports(member);
            let found = rings(&imports);
            let found: Vec<Finding> = found.iter().map(|ring| describe(&imports, ring)).collect();
            found
        })
        .collect()
}

fn imports(member: &Crate) -> Imports {
    let modules = Modules::of(member);
    let mut imports = Imports::new();
    for (module, path, scan) in modules.files() {
        if modules.is_test(module) {
            continue;
        }
        for mention in scan.mentions.iter().filter(|mention| !mention.test) {
            let Resolved::Module(target) = modules.resolve(module, mention) else {
                continue;
            };
            let related = module.starts_with(&target) || target.starts_with(module);
            if related || are_halves(&member.folder, module, &target) {
                continue;
            }
            let targets = imports.entry(module.clone()).or_default();
            targets
                .entry(target)
                .or_insert_with(|| format!("{path}:{}", mention.line));
        }
    }
    imports
}

/// Whether two files are halves of one thing, by the table.
fn are_halves(folder: &str, a: &[String], b: &[String]) -> bool {
    let (Some(a), Some(b)) = (a.get(..2), b.get(..2)) else {
        return false;
    };
    HALVES.iter().any(|halves| {
        let [one, other] = halves.between;
        let between = (a[0] == one && b[0] == other) || (a[0] == other && b[0] == one);
        halves.folder == folder && between && a[1] == b[1]
    })
}

/// One shortest ring for each set of files that reach each other.
fn rings(imports: &Imports) -> Vec<Vec<&ModulePath>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in imports.keys() {
        if seen.contains(module) {
            continue;
        }
        if let Some(ring) = shortest_ring(imports, module) {
            seen.extend(ring.iter().copied());
            found.push(ring);
        }
    }
    found
}

/// The shortest way from a file back to itself, by breadth-first search.
fn shortest_ring<'a>(imports: &'a Imports, start: &'a ModulePath) -> Option<Vec<&'a ModulePath>> {
    let mut came_from: BTreeMap<&ModulePath, &ModulePath> = BTreeMap::new();
    let mut front = vec![start];
    while !front.is_empty() {
        let mut next = Vec::new();
        for module in front {
            for target in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
                if target == start {
                    let mut ring = vec![module];
                    while let Some(&before) = came_from.get(ring[ring.len() - 1]) {
                        ring.push(before);
                    }
                    ring.reverse();
                    return Some(ring);
                }
                if !came_from.contains_key(target) {
                    came_from.insert(target, module);
                    next.push(target);
                }
            }
        }
        front = next;
    }
    None
}

fn describe(imports: &Imports, ring: &[&ModulePath]) -> Finding {
    let arrow = |at: usize| {
        let (from, to) = (ring[at], ring[(at + 1) % ring.len()]);
        (from, to, &imports[from][to])
    };
    let arrows: Vec<String> = (0..ring.len())
        .map(|at| {
            let (from, to, place) = arrow(at);
            format!("{} -> {} ({place})", from.join("::"), to.join("::"))
        })
        .collect();
    let message = format!(
        "a ring of files: {}; move what both need to a third, or pass it in",
        arrows.join(", ")
    );
    Finding::failure("ring", arrow(0).2.as_str(), message)
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
    fn files_in_a_ring_are_found_with_their_lines() {
        let found = found(&[
            ("data/src/lib.rs", "mod a; mod b; mod c;"),
            ("data/src/a.rs", "use crate::b::X;"),
            ("data/src/b.rs", "use crate::c::Y;"),
            ("data/src/c.rs", "mod deep; pub use deep::Y;"),
            ("data/src/c/deep.rs", "\nuse crate::a;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        for arrow in [
            "a -> b (data/src/a.rs:1)",
            "b -> c::deep (data/src/b.rs:1)",
            "c::deep -> a (data/src/c/deep.rs:2)",
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
    fn halves_of_one_operation_may_know_each_other_and_strangers_may_not() {
        let found = check(&workspace(
            &[("kernels", &[])],
            &[
                ("kernels/src/lib.rs", "mod cpu; mod ops;"),
                ("kernels/src/cpu.rs", "mod rope; mod norm;"),
                ("kernels/src/ops.rs", "mod rope; mod norm;"),
                ("kernels/src/ops/rope.rs", "use crate::cpu::rope::f;"),
                (
                    "kernels/src/cpu/rope.rs",
                    "use crate::ops::{rope::Table, norm::X};",
                ),
                ("kernels/src/ops/norm.rs", "use crate::cpu::rope::f;"),
                ("kernels/src/cpu/norm.rs", ""),
            ],
        ));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].message.contains("ops::norm -> cpu::rope"),
            "{found:?}"
        );
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
