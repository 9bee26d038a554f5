//! Which payloads are stored compressed.

use super::*;

#[test]
fn a_block_is_compressed_if_that_saves_an_eighth() {
    // (compressed, plain)
    for saves in [(8, 10), (16, 19), (7, 8), (0, 1)] {
        assert!(shrinks(saves.0, saves.1), "{saves:?}");
    }
    for wastes in [(8, 9), (16, 18), (7, 7), (9, 8), (0, 0)] {
        assert!(!shrinks(wastes.0, wastes.1), "{wastes:?}");
    }
}
