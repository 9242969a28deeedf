//! The engine, made to run what references and properties ask for.

pub mod contestant;
pub mod dequantised;
pub mod steps;
