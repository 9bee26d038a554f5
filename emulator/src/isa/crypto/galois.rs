//! Arithmetic of polynomials over GF(2): pclmulqdq, and GFNI on bytes.
//!
//! Source: Intel SDM volume 2, PCLMULQDQ and GF2P8AFFINEQB and related instructions.

use super::aes::{INVERSES, POLYNOMIAL};

/// The product of two elements of AES's field.
pub(super) const fn byte_product(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    product
}

/// The carry-less product of the halves that bits 0 and 4 of `which` select.
pub(super) fn product(a: u128, b: u128, which: u8) -> u128 {
    let a = u128::from(if which & 1 != 0 { a >> 64 } else { a } as u64);
    let mut b = if which & 0x10 != 0 { b >> 64 } else { b } as u64;
    let mut product = 0;
    while b != 0 {
        product ^= a << b.trailing_zeros();
        b &= b - 1;
    }
    product
}

/// The products of the bytes.
pub(super) fn multiply(a: u128, b: u128) -> u128 {
    let (mut a, b) = (a.to_le_bytes(), b.to_le_bytes());
    for (a, b) in a.iter_mut().zip(b) {
        *a = byte_product(*a, b);
    }
    u128::from_le_bytes(a)
}

/// Each byte multiplied by the matrix in the same 8 bytes of the second operand, plus the
/// immediate. The highest byte of a matrix gives the lowest bit.
pub(super) fn affine(a: u128, matrices: u128, add: u8) -> u128 {
    let mut bytes = a.to_le_bytes();
    for (position, byte) in bytes.iter_mut().enumerate() {
        let matrix = (matrices >> (position / 8 * 64)) as u64;
        let rows = matrix.to_be_bytes();
        let mut result = add;
        for (bit, row) in rows.into_iter().enumerate() {
            result ^= ((row & *byte).count_ones() as u8 & 1) << bit;
        }
        *byte = result;
    }
    u128::from_le_bytes(bytes)
}

/// The same for the inverse of each byte.
pub(super) fn affine_of_inverse(a: u128, matrices: u128, add: u8) -> u128 {
    let inverses = a.to_le_bytes().map(|byte| INVERSES[usize::from(byte)]);
    affine(u128::from_le_bytes(inverses), matrices, add)
}
