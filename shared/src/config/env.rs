//! The names of environment variables, all of them here.

/// Folder under which `spotmux/models` is kept; absent: `$XDG_CACHE_HOME`, then `~/.cache`.
pub const CACHE: &str = "SPOTMUX_CACHE";
/// The Python interpreter whose pip fetches packages; absent: `python3`.
pub const PYTHON: &str = "SPOTMUX_PYTHON";
/// What is logged, such as `debug` or `gpu_actor=trace`; absent: warnings.
pub const LOG: &str = "SPOTMUX_LOG";
/// The cluster's file, where `--config` is not given; absent: `cluster.toml`.
pub const CONFIG: &str = "SPOTMUX_CONFIG";
/// Key for gated models of the model hub.
pub const HUB_TOKEN: &str = "HF_TOKEN";
/// Start of the variables that set a key of `cluster.toml`: `SPOTMUX__PLAN__STAGES=2` is `plan.stages = 2`.
pub const PREFIX: &str = "SPOTMUX__";

/// The key that a variable sets; none when the variable is not for us.
///
/// ```
/// use shared::config::env::{key_of, name_of};
///
/// assert_eq!(key_of("SPOTMUX__PLAN__STAGES").as_deref(), Some("plan.stages"));
/// assert_eq!(name_of("gpu_actor.memory_mib"), "SPOTMUX__GPU_ACTOR__MEMORY_MIB");
/// assert_eq!(key_of("SPOTMUX_LOG"), None);
/// ```
#[must_use]
pub fn key_of(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    Some(rest.to_ascii_lowercase().replace("__", "."))
}

/// The variable that sets a key.
#[must_use]
pub fn name_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

/// Options of a bucket of artifacts: the variable that other tools read too, and what the store calls it.
pub const STORE: [(&str, &str); 5] = [
    ("AWS_REGION", "region"),
    ("AWS_ACCESS_KEY_ID", "access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
    ("AWS_SESSION_TOKEN", "token"),
    ("AWS_ENDPOINT_URL", "endpoint"),
];
