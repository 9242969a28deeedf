//! Fused, row-invariant operations on flat `(tokens, width)` arrays of `f32`.
//!
//! Each operation has a plain version in [`reference`](mod@reference) (slow, `f64`, the judge of every test), a public
//! entry in [`ops`] (formula, shapes, checks) and fast code under [`cpu`]. One contract rules them all: an output
//! element is made by one canonical order of additions, whatever the number of rows, the position of a row among
//! them, the threads or the instruction set. That is what lets a job not notice its neighbours.
//!
//! | operation | shapes | plain version |
//! | --- | --- | --- |
//! | [`ops::linear`] | x `(rows, in)`, W `(out, in)` in any [`weight::Format`], y `(rows, out)` | `reference::linear` |
//! | [`ops::thin`] | parts of rows with their own A `(rank, in)` and B `(rank, out)` | `reference::thin` |
//! | [`ops::block_sum`] | partial sums by block of at most 64 rows, added by a fixed tree | `reference::block_sum` |
//! | [`ops::attention`] | q `(rows, heads * head_dim)`, keys and values `(tokens, kv_heads * head_dim)` | `reference::attention` |
//! | [`ops::rms_norm`] | x `(rows, width)`, weight `(width)` | `reference::rms_norm` |
//! | [`ops::rope`] | x `(rows, heads * head_dim)`, positions `(rows)` | `reference::rope` |
//! | [`ops::swiglu`] | gate, up `(rows, intermediate)` | `reference::swiglu` |
//! | [`ops::elementwise`] | sums, scales and activations of `(rows, width)` | `reference::elementwise` |
//! | [`ops::head`] | x `(rows, hidden)`, W `(vocab, hidden)`, targets `(rows)`: losses and their gradient, fused | `reference::head` |
//! | [`ops::dora`] | row norms of W + scale B A, `(out)` | `reference::dora` |
//! | [`ops::sparse`] | a delta at fixed places of `(out, in)` | `reference::sparse` |
//! | [`ops::optimizer`] | flat values, gradient and moments | `reference::optimizer` |

#![deny(unsafe_code)]

pub mod cpu;
pub mod ops;
pub mod peer;
pub mod reference;
pub mod weight;

#[cfg(test)]
mod testing;
