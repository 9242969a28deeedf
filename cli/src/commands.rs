//! One file a command: arguments in, results out.

pub(crate) mod adapter_import;
pub(crate) mod adapter_inspect;
pub(crate) mod adapter_merge;
pub(crate) mod bench_train;
pub(crate) mod data_check;
pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod model_inspect;
pub(crate) mod model_pull;
pub(crate) mod model_tiny;
pub(crate) mod train;
