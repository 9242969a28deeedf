//! Fused, row-invariant operations on flat `(tokens, width)` arrays of `f32`.
//!
//! Each operation has a plain version in [`reference`](mod@reference) (slow, `f64`, the judge of every test), a public
//! entry in [`ops`] (formula, shapes, checks) and fast code under [`cpu`]. One contract rules them all: an output
//! element is made by one canonical order of additions, whatever the number of rows, the position of a row among
//! them, the threads or the instruction set. That is what lets a job not notice its neighbours.

#![deny(unsafe_code)]

pub mod cpu;
pub mod ops;
pub mod peer;
pub mod reference;
pub mod weight;

#[cfg(test)]
mod testing;
