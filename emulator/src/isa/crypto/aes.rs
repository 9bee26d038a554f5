//! Rounds of AES on a state of 16 bytes, column by column, the first byte lowest.
//!
//! Source: FIPS 197; Intel SDM volume 2, AESENC and related instructions.

use super::galois::byte_product;

/// The polynomial of the field, x^8 + x^4 + x^3 + x + 1, without x^8.
pub(super) const POLYNOMIAL: u8 = 0x1b;

/// The multiplicative inverses, and 0 for 0.
pub(super) const INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    // Powers of 3, which generates the field's group, and of its inverse, 0xf6.
    let (mut power, mut inverse) = (1_u8, 1_u8);
    let mut exponent = 0;
    while exponent < 255 {
        inverses[power as usize] = inverse;
        power = byte_product(power, 3);
        inverse = byte_product(inverse, 0xf6);
        exponent += 1;
    }
    inverses
};

const BOX: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let x = INVERSES[byte];
        table[byte] =
            x ^ x.rotate_left(1) ^ x.rotate_left(2) ^ x.rotate_left(3) ^ x.rotate_left(4) ^ 0x63;
        byte += 1;
    }
    table
};

const INVERSE_BOX: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[BOX[byte] as usize] = byte as u8;
        byte += 1;
    }
    table
};

/// The products of all bytes with a column, as bytes of a word.
const fn products(column: [u8; 4]) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut row = 0;
        while row < 4 {
            table[byte] |= (byte_product(byte as u8, column[row]) as u32) << (8 * row);
            row += 1;
        }
        byte += 1;
    }
    table
}

/// The first columns of the matrices of MixColumns and its inverse; the others are rotations.
static MIX: [u32; 256] = products([2, 1, 1, 3]);
static INVERSE_MIX: [u32; 256] = products([14, 9, 13, 11]);

fn mix(state: u128, table: &[u32; 256]) -> u128 {
    let column = |number: u32| {
        let bytes = ((state >> (32 * number)) as u32).to_le_bytes();
        let [a, b, c, d] = bytes.map(|byte| table[usize::from(byte)]);
        let column = a ^ b.rotate_left(8) ^ c.rotate_left(16) ^ d.rotate_left(24);
        u128::from(column) << (32 * number)
    };
    column(0) | column(1) | column(2) | column(3)
}

/// Substitutes each byte, and rotates row `n` by `n` times `columns` columns to the left.
fn substitute(state: u128, table: &[u8; 256], columns: usize) -> u128 {
    let from = state.to_le_bytes();
    let mut to = [0; 16];
    for (position, byte) in to.iter_mut().enumerate() {
        let row = position % 4;
        *byte = table[usize::from(from[(position + 4 * row * columns) % 16])];
    }
    u128::from_le_bytes(to)
}

pub(super) fn encrypt(state: u128, key: u128) -> u128 {
    mix(substitute(state, &BOX, 1), &MIX) ^ key
}

pub(super) fn encrypt_last(state: u128, key: u128) -> u128 {
    substitute(state, &BOX, 1) ^ key
}

pub(super) fn decrypt(state: u128, key: u128) -> u128 {
    invert_mix(substitute(state, &INVERSE_BOX, 3)) ^ key
}

pub(super) fn decrypt_last(state: u128, key: u128) -> u128 {
    substitute(state, &INVERSE_BOX, 3) ^ key
}

pub(super) fn invert_mix(key: u128) -> u128 {
    mix(key, &INVERSE_MIX)
}

/// The words for the next round key: `aeskeygenassist`.
pub(super) fn assist(key: u128, round: u8) -> u128 {
    let word = |number: u32| {
        let bytes = ((key >> (32 * number)) as u32).to_le_bytes();
        u32::from_le_bytes(bytes.map(|byte| BOX[usize::from(byte)]))
    };
    let (x1, x3) = (word(1), word(3));
    let next = |x: u32| x.rotate_right(8) ^ u32::from(round);
    let words = [x1, next(x1), x3, next(x3)];
    let all = words.into_iter().rev();
    all.fold(0, |all, word| all << 32 | u128::from(word))
}
