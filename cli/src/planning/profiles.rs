//! Profiles: from files, or of devices whose peaks are known.

use std::path::Path;

use anyhow::Context;
use coordinator::plan::profile::{Peak, Profile};
use data::regular;
use shared::suggest;

use crate::exit::{Exit, Failure, OrExit};

/// Largest profile read.
const LIMIT: u64 = 64 << 20;

/// Devices by the word of the command line.
const KNOWN: [(&str, Peak); 4] = [
    ("a40", Peak::A40),
    ("a100", Peak::A100),
    ("h100", Peak::H100),
    ("rtx4090", Peak::RTX4090),
];

/// Reads a profile.
///
/// # Errors
/// [`Exit::NotFound`] when it is absent, [`Exit::BadInput`] with the key that is wrong.
pub(crate) fn read(path: &Path) -> Result<Profile, Failure> {
    let text = regular::read_text(path, LIMIT)
        .with_context(|| format!("cannot read the profile {}", path.display()))
        .or_exit(Exit::BadInput)?;
    Profile::parse(&text)
        .with_context(|| path.display().to_string())
        .or_exit(Exit::BadInput)
        .map_err(|failure| failure.hint("measure one: spotmux profile -o FILE"))
}

/// The profile of a device: one that was read, by its name; else a known one, by its word or its name. `others` are words
/// that the caller takes beside these.
///
/// # Errors
/// What may be given instead.
pub(crate) fn named(word: &str, read: &[Profile], others: &[&str]) -> Result<Profile, String> {
    if let Some(profile) = read.iter().find(|profile| profile.device == word) {
        return Ok(profile.clone());
    }
    let known = KNOWN
        .iter()
        .find(|(short, peak)| *short == word || peak.device == word);
    known
        .map(|(_, peak)| Profile::peak(peak))
        .ok_or_else(|| unknown(word, read, others))
}

fn unknown(word: &str, read: &[Profile], others: &[&str]) -> String {
    let words = || {
        let known = KNOWN.iter().map(|(short, _)| *short);
        known
            .chain(others.iter().copied())
            .chain(read.iter().map(|profile| profile.device.as_str()))
    };
    let listed: Vec<&str> = words().collect();
    format!(
        "{word:?} is no known device: one of {}, or measured by `spotmux profile` and given as --profile{}",
        listed.join(", "),
        suggest::clause(word, words())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_its_word_and_its_name() {
        let by_word = named("h100", &[], &[]).expect("known");
        assert_eq!(named("NVIDIA H100", &[], &[]), Ok(by_word));
        let said = named("h10", &[], &[]).expect_err("unknown");
        assert!(said.contains("rtx4090") && said.contains("h100"), "{said}");
        // A word that is not taken is not suggested.
        let said = named("cpu", &[], &[]).expect_err("unknown here");
        assert!(
            !said.contains(", cpu") && !said.contains("did you mean"),
            "{said}"
        );
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.json");
        std::fs::write(&path, r#"{"format":"safetensors","version":1}"#).expect("written");
        let failure = read(&path).expect_err("foreign");
        assert_eq!(failure.exit, Exit::BadInput);
        assert!(
            failure.message().contains("another file"),
            "{}",
            failure.message()
        );
        assert_eq!(
            read(&folder.path().join("no")).expect_err("absent").exit,
            Exit::NotFound
        );
    }
}
