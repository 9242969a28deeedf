//! The broker against worlds that are played, by what they show.

mod idle;
mod late;
mod machines;
mod money;
mod places;
mod plans;
mod pools;
mod rest;
mod restarts;
pub(crate) mod thoughts;
mod world;
