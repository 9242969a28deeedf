//! `unsafe` stands only in the files named for it, and every crate root says so to the compiler.

use super::table::{UNSAFE, lies_in};
use crate::finding::Finding;
use crate::source::Workspace;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &workspace.crates {
        for (path, scan) in &member.files {
            if UNSAFE.iter().any(|(place, _)| lies_in(path, place)) {
                continue;
            }
            for line in &scan.unsafe_lines {
                findings.push(Finding::failure(
                    "unsafe",
                    format!("{path}:{line}"),
                    "no unsafe here: use what the named files of xtask/src/layers/table.rs offer"
                        .into(),
                ));
            }
        }
        let named = UNSAFE
            .iter()
            .any(|(place, _)| place.starts_with(&format!("{}/", member.folder)));
        let wanted = if named { "deny" } else { "forbid" };
        for root in ["lib.rs", "main.rs"] {
            let path = format!("{}/src/{root}", member.folder);
            let Some(scan) = member.files.get(&path) else {
                continue;
            };
            let found = scan.root_attributes.iter().any(|attribute| {
                let attribute: String = attribute.split_whitespace().collect();
                attribute.starts_with(&format!("{wanted}(unsafe_code"))
            });
            if !found {
                let message = format!("the crate root lacks #![{wanted}(unsafe_code)]");
                findings.push(Finding::failure("unsafe", path, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::testing::workspace;

    #[test]
    fn unsafe_outside_the_named_files_and_silent_roots_are_found() {
        let workspace = workspace(
            &[("kernels", &[]), ("data", &[])],
            &[
                ("kernels/src/lib.rs", "#![deny(unsafe_code)] mod cpu;"),
                ("kernels/src/cpu/isa.rs", "unsafe fn f() {}"),
                ("kernels/src/cpu/pool.rs", "fn f() {\n unsafe { g() } }"),
                ("data/src/lib.rs", "#![deny(unsafe_code)]"),
            ],
        );
        let places: Vec<String> = check(&workspace).into_iter().map(|f| f.place).collect();
        assert_eq!(places, ["kernels/src/cpu/pool.rs:2", "data/src/lib.rs"]);
    }
}
