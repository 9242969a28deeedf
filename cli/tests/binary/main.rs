//! The `spotmux` binary as users meet it: pages, codes, files, and what it says when something is wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

mod demo;
mod errors;
mod help;
mod hub;
mod killed;
mod pull;
mod resume;
mod sandbox;
mod tenants;
mod training;
