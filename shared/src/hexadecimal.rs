//! Bytes in lower-case hexadecimal: hashes, tokens, names of traces.

/// Two digits a byte.
///
/// ```
/// assert_eq!(shared::hexadecimal::lower(&[0, 255, 16]), "00ff10");
/// ```
#[must_use]
pub fn lower(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
