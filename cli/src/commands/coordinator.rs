//! `spotmux coordinator`: the process that decides.

use coordinator::actor::RunError;
use coordinator::store::JournalError;
use shared::config::load::Loaded;

use crate::args::CoordinatorArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure};
use crate::process;
use crate::settings::Settings;

/// Runs the command until the cluster is shut down or the process is asked to end.
pub(crate) fn run(args: &CoordinatorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    crate::log_to_stderr(Some(
        settings
            .log
            .as_ref()
            .unwrap_or(&loaded.config.telemetry.log),
    ));
    let told = process::coordinator(&loaded, settings)?;
    let ran = coordinator::actor::run(told, process::asked_to_end());
    ran.map_err(|error| failed(error, &loaded))?;
    Ok(Exit::Done)
}

/// Why it ended; what the disk under the journal refuses has a remedy here.
fn failed(error: RunError, loaded: &Loaded) -> Failure {
    let key = "coordinator.journal";
    let of_journal = match &error {
        RunError::Journal(JournalError::Database { .. }) => true,
        // While it runs, by the words of the same error.
        RunError::Stopped(why) => why.starts_with("the journal ") && why.contains(" failed: "),
        _ => false,
    };
    let failure = Failure {
        exit: Exit::Internal,
        error: error.into(),
        hints: Vec::new(),
    };
    if !of_journal {
        return failure;
    }
    let place = loaded.path_of(&loaded.config.coordinator.journal);
    let place = place.parent().unwrap_or(&place).display().to_string();
    failure.hint(format!(
        "make room in {place}, or change {key} ({})",
        loaded.origin(key)
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::args::ClusterArgs;

    #[test]
    fn a_full_disk_under_the_journal_has_a_remedy_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        std::fs::write(&file, "[model]\npath = 'tiny'\n").unwrap();
        let cluster = ClusterArgs {
            config: Some(file),
            ..ClusterArgs::default()
        };
        let loaded = cluster_file::load(&cluster, &Settings::default()).unwrap();
        let why = "the journal x/journal.db failed: database or disk is full: Error code 13";
        let failure = failed(RunError::Stopped(why.into()), &loaded);
        assert_eq!(failure.message(), why);
        let hint = &failure.hints[0];
        assert!(
            hint.starts_with("make room in ") && hint.contains("coordinator.journal"),
            "{hint}"
        );
        let other = failed(RunError::Stopped("another leads".into()), &loaded);
        assert!(other.hints.is_empty());
    }
}
