//! Which words can be addresses.

/// Whether a word can be an address on x86-64 with four levels of page tables: bits 47 to 63 are
/// equal (Intel SDM, volume 1, 3.3.7.1). Eight characters of text never are.
pub(super) fn is_address(word: u64) -> bool {
    matches!(word.cast_signed() >> 47, 0 | -1)
}
