//! One file a command: arguments in, results out.

pub(crate) mod model_pull;
