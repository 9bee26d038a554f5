//! Formats numbers and bytes in hexadecimal.

/// The number with a prefix: `0x1f`.
pub fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// Two digits for each byte, without a prefix.
pub fn hex_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
}
