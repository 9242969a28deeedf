//! Words every spotmux crate shares: ids, jobs, model shapes, keyed randomness.
//!
//! The rule of entry: used by two crates, and a word or a manner. Nothing here does I/O, reads a clock or
//! knows a tensor; this file only lists the rooms.
//!
//! | room | one line |
//! | --- | --- |
//! | [`ids`] | names and numbers that identify jobs |
//! | [`job`] | what a tenant asks for: method, optimizer, schedule, data, limits |
//! | [`model`] | layer, head and vocabulary sizes of a backbone; the sites an adapter may attach to |
//! | [`random`] | counter-based randomness: nothing is drawn in an order |
//! | [`strict_json`] | JSON without a key twice |

#![forbid(unsafe_code)]

pub mod ids;
pub mod job;
pub mod model;
pub mod random;
pub mod strict_json;
