//! Formats numbers as bytes without the standard formatting code: most of the output is numbers.

/// Appends `value` in base 10, right-aligned in `width` bytes.
pub(super) fn decimal(out: &mut Vec<u8>, mut value: u64, width: usize, fill: u8) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    padded(out, &digits[at..], width, fill);
}

/// Appends `value` in base 10, with its sign, padded with blanks on the left.
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
    let mut digits = [0; 16];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
        if value == 0 {
            break;
        }
    }
    padded(out, &digits[at..], width, b' ');
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

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let mut value: u64 = 1;
        for step in 0..200u64 {
            value = value.wrapping_mul(6364136223846793005).wrapping_add(step) >> (step % 64);
            for width in [0, 7, 16, 22] {
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
