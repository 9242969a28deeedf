//! The cluster's file: which one, and what holds over it.

use std::path::PathBuf;

use shared::config::env;
use shared::config::load::{self, LoadError, Loaded};

use crate::args::ClusterArgs;
use crate::exit::{self, Failure};
use crate::settings::Settings;

/// The name that is looked for where none is given.
pub(crate) const NAME: &str = "cluster.toml";

/// Loads the file that the arguments or the environment name.
///
/// # Errors
/// [`crate::exit::Exit::NotFound`] when there is none, [`crate::exit::Exit::BadInput`] with everything that cannot be.
pub(crate) fn load(args: &ClusterArgs, settings: &Settings) -> Result<Loaded, Failure> {
    let given = args.config.clone().or_else(|| settings.config.clone());
    let path = given.clone().unwrap_or_else(|| PathBuf::from(NAME));
    load::load(&path, settings.over.iter().cloned(), &args.set).map_err(|error| {
        let exit = exit::of_input(&error);
        let failure = Failure {
            exit,
            hints: Vec::new(),
            error: error.into(),
        };
        match failure.error.downcast_ref() {
            Some(LoadError::Read { .. }) if given.is_none() => failure.hint(format!(
                "name the cluster's file with --config or {}, or write one: spotmux config init",
                env::CONFIG
            )),
            _ => failure,
        }
    })
}
