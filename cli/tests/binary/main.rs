//! The `spotmux` binary as users meet it: pages, codes, files, and what it says when something is wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

mod adapters;
mod again;
mod demo;
mod errors;
mod finished;
mod frozen;
mod help;
mod hub;
mod inputs;
mod killed;
mod merged;
mod modules;
mod operator;
mod planning;
mod pull;
mod resume;
mod samples;
mod sandbox;
mod scale;
mod streams;
mod tenants;
mod training;
