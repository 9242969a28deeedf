//! What the environment says: the one place that reads it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use shared::config::env::{CACHE, CONFIG, HUB_TOKEN, LOG, PREFIX, PYTHON, STORE};

/// The environment of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Folder of fetched models, if one can be named.
    pub(crate) models: Option<PathBuf>,
    /// Python interpreter.
    pub(crate) python: OsString,
    /// Log filter.
    pub(crate) log: Option<String>,
    /// Key for gated models.
    pub(crate) hub_token: Option<String>,
    /// The cluster's file.
    pub(crate) config: Option<PathBuf>,
    /// Variables that set keys of that file.
    pub(crate) over: Vec<(String, String)>,
    /// Options of the bucket that a store may be: region, keys, endpoint.
    pub(crate) store_options: BTreeMap<String, String>,
}

impl Settings {
    /// Reads the process environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the command line is the shell that reads the environment, here and nowhere else"
    )]
    pub(crate) fn from_environment() -> Self {
        let over = env::vars_os()
            .filter_map(|(name, value)| {
                // A value that is no text is refused where it is read: it is not left out.
                let name = name.into_string().ok()?;
                Some((name, value.to_string_lossy().into_owned()))
            })
            .filter(|(name, _)| name.starts_with(PREFIX));
        Self {
            over: over.collect(),
            ..Self::read(|name| env::var_os(name).filter(|value| !value.is_empty()))
        }
    }

    fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let base = get(CACHE)
            .or_else(|| get("XDG_CACHE_HOME"))
            .map(PathBuf::from)
            .or_else(|| get("HOME").map(|home| PathBuf::from(home).join(".cache")));
        Self {
            models: base.map(|base| base.join("spotmux").join("models")),
            python: get(PYTHON).unwrap_or_else(|| "python3".into()),
            log: get(LOG).and_then(|text| text.into_string().ok()),
            hub_token: get(HUB_TOKEN).and_then(|text| text.into_string().ok()),
            config: get(CONFIG).map(PathBuf::from),
            over: Vec::new(),
            store_options: STORE
                .iter()
                .filter_map(|(name, option)| {
                    let value = get(name)?.into_string().ok()?;
                    Some(((*option).to_owned(), value))
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Settings::read(|name| find(name).map(|(_, value)| value.into())).models
    }

    #[test]
    fn the_cache_is_ours_then_the_desktops_then_home() {
        let all = [(CACHE, "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(models(&all), Some("/a/spotmux/models".into()));
        assert_eq!(models(&all[1..]), Some("/b/spotmux/models".into()));
        assert_eq!(models(&all[2..]), Some("/c/.cache/spotmux/models".into()));
        assert_eq!(models(&[]), None);
    }
}
