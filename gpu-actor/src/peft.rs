//! PEFT methods: which parameters they have, how these start, and how they travel in files.

pub mod adapter_hub;
pub mod config;
mod config_error;
pub mod files;
pub mod going_on;
pub mod init;
pub mod layout;
pub mod mask;
pub mod merge;
pub mod modules;
pub mod tensors;
mod weights_file;
