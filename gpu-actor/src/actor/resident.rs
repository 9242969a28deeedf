//! Memory that a node has in use, counted as what it offers is: layers, adapters and activations, without the program itself.
//!
//! Pages of files are those of the program, which do not count, and of weights that are used where they lie in their file.
//! Of the latter no more count than the weights of the stage held: what lies beside them in the file, and those of a stage
//! held before, the system takes back when it wants them.

use shared::units::Bytes;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// What of a process is resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resident {
    /// Bytes that no file has.
    own: u64,
    /// Bytes of files.
    files: u64,
}

impl Resident {
    /// Of this process now; nothing where the system does not tell.
    pub(super) fn now() -> Self {
        let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        Self::read(&told).unwrap_or_default()
    }

    /// Of `/proc/PID/statm` (proc(5)): size, resident, of those shared with files, and more, in pages.
    fn read(statm: &str) -> Option<Self> {
        let mut pages = statm.split_whitespace().skip(1).map(str::parse::<u64>);
        let resident = pages.next()?.ok()?.saturating_mul(PAGE);
        let files = pages.next()?.ok()?.saturating_mul(PAGE);
        Some(Self {
            own: resident.saturating_sub(files),
            files,
        })
    }

    /// What is in use beyond the program, with so many bytes of weights held.
    pub(super) fn beyond(&self, program: &Self, weights: u64) -> Bytes {
        let own = self.own.saturating_sub(program.own);
        let files = self.files.saturating_sub(program.files).min(weights);
        Bytes(own.saturating_add(files))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn neither_the_program_nor_more_of_a_file_than_the_weights_counts() {
        let program = Resident::read("9000 30 20 5 0 100 0\n").unwrap();
        let (own, files) = (10 * PAGE, 20 * PAGE);
        assert_eq!(program, Resident { own, files });
        assert_eq!(program.beyond(&program, 1 << 30), Bytes(0));
        // 60 pages of a file were touched, and 50 were taken beside.
        let now = Resident::read("9000 140 80 5 0 100 0").unwrap();
        assert_eq!(now.beyond(&program, 1 << 30), Bytes(110 * PAGE));
        assert_eq!(now.beyond(&program, 40 * PAGE), Bytes(90 * PAGE));
        // Expanded weights are no pages of a file.
        assert_eq!(now.beyond(&program, 0), Bytes(50 * PAGE));
        assert_eq!(Resident::read(""), None);
        assert_eq!(Resident::read("1 x"), None);
    }

    #[test]
    fn a_process_has_memory_of_its_own_where_the_system_tells() {
        let now = Resident::now();
        assert_eq!(
            now.own > 0,
            std::path::Path::new("/proc/self/statm").exists()
        );
    }
}
