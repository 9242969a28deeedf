//! The broker against worlds that are played, by what they show.

mod machines;
mod money;
mod plans;
mod pools;
mod restarts;
mod thoughts;
mod world;
