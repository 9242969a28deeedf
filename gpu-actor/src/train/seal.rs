//! Texts sealed against any change: they hold the sha256 of themselves with zeros in its place.

use sha2::{Digest, Sha256};
use shared::hexadecimal;

/// What stands in the place of a seal before it is made.
#[must_use]
pub fn open() -> String {
    "0".repeat(64)
}

/// Seals a pretty-printed JSON text whose field `seal` is open.
#[must_use]
pub fn close(text: &str) -> String {
    let seal = hash(text.as_bytes());
    text.replacen(&field(&open()), &field(&seal), 1)
}

/// Whether a text is the one that its seal was made of.
#[must_use]
pub fn holds(text: &str, seal: &str) -> bool {
    let opened = text.replacen(&field(seal), &field(&open()), 1);
    hash(opened.as_bytes()) == seal
}

fn field(seal: &str) -> String {
    format!("\"seal\": \"{seal}\"")
}

/// The sha256 of bytes in lower-case hexadecimal.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    hexadecimal::lower(&Sha256::digest(bytes))
}
