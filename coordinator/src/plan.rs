//! Plans: which jobs share a pass, in which order passes run, how data is cut, where layers lie.
//!
//! Pure functions over integers: microseconds or nanoseconds, bytes, tokens. `plan/README.md` has the properties.
//!
//! | room | one line |
//! | --- | --- |
//! | [`profile`] | what one kind of device takes for each operation: the file |
//! | [`curve`] | a quantity by size: monotone, piecewise linear |

pub mod curve;
pub mod profile;
