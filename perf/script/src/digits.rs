//! Formats numbers as bytes without the standard formatting code: most of the output is numbers.

/// Most digits of a number, and the widest column that is filled in one step.
const DIGITS: usize = 32;

/// Appends the first `length` bytes of `block`, at most all. To copy a block of known size and to
/// cut it takes less time than to copy a few bytes.
#[inline]
pub(super) fn beginning<const N: usize>(out: &mut Vec<u8>, block: &[u8; N], length: usize) {
    let end = out.len() + length.min(N);
    out.extend_from_slice(block);
    out.truncate(end);
}

/// Appends a number whose digits end in the middle of `field`, right-aligned in `width` bytes. The
/// rest of the field is filled.
#[inline]
fn number(out: &mut Vec<u8>, field: &[u8; 2 * DIGITS], digits: usize, width: usize, fill: u8) {
    for _ in DIGITS..width {
        out.push(fill);
    }
    let shown = digits.max(width.min(DIGITS));
    if let Some(block) = field[DIGITS - shown..].first_chunk::<DIGITS>() {
        beginning(out, block, shown);
    }
}

/// Appends `value` in base 10, right-aligned in `width` bytes.
#[inline]
pub(super) fn decimal(out: &mut Vec<u8>, mut value: u64, width: usize, fill: u8) {
    let mut field = [fill; 2 * DIGITS];
    let mut at = DIGITS;
    loop {
        at -= 1;
        field[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    number(out, &field, DIGITS - at, width, fill);
}

/// Appends `value` in base 10, with its sign, padded with blanks on the left.
#[inline]
pub(super) fn signed(out: &mut Vec<u8>, value: i64, width: usize) {
    if value >= 0 {
        return decimal(out, value.unsigned_abs(), width, b' ');
    }
    let mut text = vec![b'-'];
    decimal(&mut text, value.unsigned_abs(), 0, b' ');
    padded(out, &text, width, b' ');
}

/// Appends `value` in base 16, right-aligned in `width` bytes.
pub(super) fn hexadecimal(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut field = [b' '; 2 * DIGITS];
    let mut at = DIGITS;
    loop {
        at -= 1;
        field[at] = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
        if value == 0 {
            break;
        }
    }
    number(out, &field, DIGITS - at, width, b' ');
}

/// Appends `text`, right-aligned in `width` bytes.
pub(super) fn padded(out: &mut Vec<u8>, text: &[u8], width: usize, fill: u8) {
    for _ in text.len()..width {
        out.push(fill);
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let mut random = Random::new(1);
        for step in 0..200u64 {
            let value = random.bits() >> (step % 64);
            for width in [0, 7, 16, 22, 32, 40] {
                let mut out = Vec::new();
                decimal(&mut out, value, width, b' ');
                assert_eq!(out, format!("{value:width$}").into_bytes());
                out.clear();
                hexadecimal(&mut out, value, width);
                assert_eq!(out, format!("{value:width$x}").into_bytes());
                out.clear();
                let negative = value.cast_signed();
                signed(&mut out, negative, width);
                assert_eq!(out, format!("{negative:width$}").into_bytes());
            }
        }
    }
}
