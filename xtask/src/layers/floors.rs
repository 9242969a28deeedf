//! Which crate may import which.

use super::table::{FLOORS, Floor};
use crate::finding::Finding;
use crate::source::{Crate, MentionKind, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = check_table();
    for member in &workspace.crates {
        match FLOORS.iter().find(|floor| floor.folder == member.folder) {
            None => findings.push(Finding::failure(
                "floor",
                format!("{}/Cargo.toml", member.folder),
                "the crate has no floor: enter it in xtask/src/layers/table.rs".into(),
            )),
            Some(floor) => {
                findings.extend(check_manifest(workspace, member, floor));
                findings.extend(check_code(workspace, member, floor));
            }
        }
    }
    findings
}

/// Arrows in the table go down; `xtask` imports nothing and may be imported from its own floor.
fn check_table() -> Vec<Finding> {
    let mut findings = Vec::new();
    for floor in FLOORS {
        for import in floor.imports {
            let below = FLOORS.iter().find(|other| other.folder == *import);
            let down = below.is_some_and(|b| b.number < floor.number || b.folder == "xtask");
            if !down {
                findings.push(Finding::failure(
                    "table",
                    "xtask/src/layers/table.rs",
                    format!(
                        "{} may not import {import}: arrows only go down",
                        floor.folder
                    ),
                ));
            }
        }
    }
    findings
}

fn check_manifest(workspace: &Workspace, member: &Crate, floor: &Floor) -> Vec<Finding> {
    let place = format!("{}/Cargo.toml", member.folder);
    let ours = |name: &str| workspace.crates.iter().any(|other| other.package == name);
    let all = member.dependencies.normal.iter();
    let sideways = all
        .chain(&member.dependencies.development)
        .filter(|name| ours(name) && !floor.imports.contains(&name.as_str()))
        .map(|name| sideways(place.clone(), member, floor, name));
    let refused = member
        .dependencies
        .normal
        .iter()
        .filter(|name| floor.refuses.contains(&name.as_str()))
        .map(|name| {
            let message = format!(
                "{} must not know {name}: move what needs it up, or to the crate whose trade it is",
                member.package
            );
            Finding::failure("floor", place.clone(), message)
        });
    sideways.chain(refused).collect()
}

/// Cargo already refuses a crate that the manifest lacks; this names the line.
fn check_code(workspace: &Workspace, member: &Crate, floor: &Floor) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, scan) in &member.files {
        for mention in &scan.mentions {
            let first = &mention.path[0];
            let other = workspace
                .crates
                .iter()
                .find(|other| other.ident() == *first && other.folder != member.folder);
            let Some(other) = other.filter(|_| mention.kind == MentionKind::Import) else {
                continue;
            };
            let local = scan.children.iter().any(|child| child.name == *first);
            if !local && !floor.imports.contains(&other.folder.as_str()) {
                let place = format!("{path}:{}", mention.line);
                findings.push(sideways(place, member, floor, &other.package));
            }
        }
    }
    findings
}

fn sideways(place: String, member: &Crate, floor: &Floor, name: &str) -> Finding {
    let allowed = if floor.imports.is_empty() {
        "nothing of ours".to_owned()
    } else {
        floor.imports.join(", ")
    };
    let message = format!(
        "{} (floor {}) imports {name}; it may import {allowed}",
        member.package, floor.number
    );
    Finding::failure("floor", place, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::testing::workspace;

    #[test]
    fn the_table_only_points_down() {
        assert_eq!(check_table(), []);
    }

    #[test]
    fn sideways_and_upward_imports_are_found_in_manifest_and_code() {
        let workspace = workspace(
            &[
                ("shared", &[]),
                ("kernels", &["shared"]),
                ("gpu-actor", &["kernels"]),
            ],
            &[
                ("kernels/src/lib.rs", "use shared::ids;"),
                ("gpu-actor/src/lib.rs", "use kernels::cpu;"),
            ],
        );
        let places: Vec<String> = check(&workspace).into_iter().map(|f| f.place).collect();
        assert_eq!(places, ["kernels/Cargo.toml", "kernels/src/lib.rs:1"]);
    }

    #[test]
    fn tensors_stay_out_of_data_and_strangers_need_a_floor() {
        let workspace = workspace(&[("data", &["candle-core"]), ("attic", &[])], &[]);
        let found: Vec<String> = check(&workspace).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains("data must not know candle-core"),
            "{found:?}"
        );
        assert!(found[1].contains("has no floor"), "{found:?}");
    }

    #[test]
    fn a_module_of_its_own_with_the_name_of_a_crate_is_no_import() {
        let workspace = workspace(
            &[("data", &[]), ("shared", &[])],
            &[("shared/src/lib.rs", "mod data; use data::X;")],
        );
        assert_eq!(check(&workspace), []);
    }
}
