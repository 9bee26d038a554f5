//! A payload through its `print fmt`.

use super::parse::{Expr, Named, Print};
use super::{Field, Location};
use crate::data::le;
use std::borrow::Cow;

/// Widths and precisions that are believed.
const WIDTH_MAX: usize = 256;

/// The value of an expression without fields.
pub(super) fn constant(of: &Expr) -> u64 {
    let nothing = Record {
        fields: &[],
        payload: &[],
    };
    nothing.number(of)
}

/// Prints a payload.
pub(super) fn print(fields: &[Field], print: &Print, payload: &[u8], out: &mut Vec<u8>) {
    let record = Record { fields, payload };
    let mut arguments = print.arguments.iter();
    let mut text = &print.text[..];
    while let Some(at) = text.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&text[..at]);
        text = &text[at + 1..];
        let Some((spec, rest)) = Spec::parse(text, || {
            let width = arguments.next().map_or(0, |of| record.number(of));
            (width as usize).min(WIDTH_MAX)
        }) else {
            return;
        };
        text = rest;
        match spec.conversion {
            b'%' => out.push(b'%'),
            b's' => {
                let value = arguments
                    .next()
                    .map(|of| record.text(of))
                    .unwrap_or_default();
                let end = spec.precision.unwrap_or(value.len()).min(value.len());
                spec.pad(&value[..end], out);
            }
            _ => {
                let value = arguments.next().map_or(0, |of| record.number(of));
                spec.number(value, out);
            }
        }
        if spec.conversion == b'p' {
            // What kind of pointer; its value is all that can be said here.
            let kind = text
                .iter()
                .take_while(|byte| byte.is_ascii_alphabetic())
                .count();
            text = &text[kind.min(1)..];
        }
    }
    out.extend_from_slice(text);
}

/// A field without a `print fmt`.
pub(super) fn plain(field: &Field, payload: &[u8], out: &mut Vec<u8>) {
    let fields = std::slice::from_ref(field);
    let record = Record { fields, payload };
    if field.text {
        return out.extend_from_slice(&record.text(&Expr::Field(0)));
    }
    let value = record.number(&Expr::Field(0));
    let text = match field.signed {
        true => value.cast_signed().to_string(),
        false => value.to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

/// What stands behind a `%`.
struct Spec {
    left: bool,
    zero: bool,
    alternate: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of the number.
    size: usize,
    conversion: u8,
}

impl Spec {
    /// Reads what is behind a `%`, and what follows. `star` is asked for widths given by `*`.
    fn parse(mut text: &[u8], mut star: impl FnMut() -> usize) -> Option<(Spec, &[u8])> {
        let mut spec = Spec {
            left: false,
            zero: false,
            alternate: false,
            plus: false,
            width: 0,
            precision: None,
            size: 4,
            conversion: 0,
        };
        let mut fraction = false;
        loop {
            let (&byte, rest) = text.split_first()?;
            text = rest;
            let digit = usize::from(byte.wrapping_sub(b'0'));
            match byte {
                b'-' => spec.left = true,
                b'#' => spec.alternate = true,
                b'+' => spec.plus = true,
                b' ' => {}
                b'0' if spec.width == 0 && !fraction => spec.zero = true,
                b'.' => {
                    fraction = true;
                    spec.precision = Some(0);
                }
                b'*' if fraction => spec.precision = Some(star()),
                b'*' => spec.width = star(),
                b'0'..=b'9' if fraction => {
                    let before = spec.precision.unwrap_or(0);
                    spec.precision = Some((before * 10 + digit).min(WIDTH_MAX));
                }
                b'0'..=b'9' => spec.width = (spec.width * 10 + digit).min(WIDTH_MAX),
                b'l' | b'z' | b'j' | b't' | b'L' => spec.size = 8,
                b'h' => spec.size /= 2,
                b'p' => {
                    spec.conversion = b'p';
                    spec.size = 8;
                    return Some((spec, text));
                }
                conversion => {
                    spec.conversion = conversion;
                    return Some((spec, text));
                }
            }
        }
    }

    fn pad(&self, text: &[u8], out: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(text.len());
        let blanks = std::iter::repeat_n(b' ', missing);
        if self.left {
            out.extend_from_slice(text);
            out.extend(blanks);
        } else {
            out.extend(blanks);
            out.extend_from_slice(text);
        }
    }

    fn number(&self, value: u64, out: &mut Vec<u8>) {
        let value = sized(value, self.size, matches!(self.conversion, b'd' | b'i'));
        let (sign, digits) = match self.conversion {
            b'd' | b'i' => {
                let signed = value.cast_signed();
                let sign = match signed {
                    ..0 => "-",
                    _ if self.plus => "+",
                    _ => "",
                };
                (sign, signed.unsigned_abs().to_string())
            }
            b'x' if self.alternate && value != 0 => ("0x", format!("{value:x}")),
            b'X' if self.alternate && value != 0 => ("0X", format!("{value:X}")),
            b'x' => ("", format!("{value:x}")),
            b'X' => ("", format!("{value:X}")),
            b'p' => return self.pad(format!("0x{value:x}").as_bytes(), out),
            b'o' => ("", format!("{value:o}")),
            b'c' => return self.pad(&[value as u8], out),
            _ => ("", value.to_string()),
        };
        let wanted = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
        self.pad(format!("{sign}{zeros}{digits}").as_bytes(), out);
    }
}

/// The low bytes of a number.
fn sized(value: u64, size: usize, signed: bool) -> u64 {
    let unused = 64 - 8 * size.clamp(1, 8) as u32;
    let high = value << unused;
    match signed {
        true => (high.cast_signed() >> unused).cast_unsigned(),
        false => high >> unused,
    }
}

/// The number at an offset; 0 if it is not there.
fn number_at(payload: &[u8], offset: usize, size: usize, signed: bool) -> u64 {
    let size = size.min(8);
    let Some(bytes) = offset
        .checked_add(size)
        .and_then(|end| payload.get(offset..end))
    else {
        return 0;
    };
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    sized(u64::from_le_bytes(word), size, signed)
}

/// A payload with its fields.
struct Record<'a> {
    fields: &'a [Field],
    payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// The bytes of a field, wherever they are.
    fn bytes(&self, number: usize) -> &'a [u8] {
        let Some(field) = self.fields.get(number) else {
            return &[];
        };
        let (start, size) = match field.location {
            None => (field.offset, field.size),
            Some(location) => {
                let word = le::u32_at(self.payload, field.offset).unwrap_or(0);
                let base = match location {
                    Location::Payload => 0,
                    Location::Field => field.offset.saturating_add(4),
                };
                ((word & 0xffff) as usize + base, (word >> 16) as usize)
            }
        };
        let end = start.saturating_add(size).min(self.payload.len());
        self.payload.get(start..end).unwrap_or_default()
    }

    fn number(&self, of: &Expr) -> u64 {
        match of {
            Expr::Number(number) => *number,
            Expr::Field(number) => self.fields.get(*number).map_or(0, |field| {
                number_at(self.payload, field.offset, field.size, field.signed)
            }),
            Expr::Index(number, index) => self.fields.get(*number).map_or(0, |field| {
                let element = field.element.unwrap_or(field.size);
                let skip = (self.number(index) as usize).saturating_mul(element);
                let bytes = self.bytes(*number);
                number_at(bytes, skip, element, field.signed)
            }),
            Expr::Unary(operator, of) => {
                let value = self.number(of);
                match *operator {
                    "!" => u64::from(value == 0),
                    "~" => !value,
                    "-" => value.wrapping_neg(),
                    _ => value,
                }
            }
            Expr::Binary(operator, left, right) => self.binary(operator, left, right),
            Expr::Choice(condition, yes, no) => {
                let taken = if self.number(condition) != 0 { yes } else { no };
                self.number(taken)
            }
            Expr::Cast(size, signed, of) => sized(self.number(of), *size, *signed),
            Expr::DynamicLen(number) => self.bytes(*number).len() as u64,
            Expr::Flags(value, ..) | Expr::Symbolic(value, _) => self.number(value),
            Expr::Text(_) | Expr::Str(_) | Expr::Hex(..) => 0,
        }
    }

    fn binary(&self, operator: &str, left: &Expr, right: &Expr) -> u64 {
        let a = self.number(left);
        match operator {
            "&&" => return u64::from(a != 0 && self.number(right) != 0),
            "||" => return u64::from(a != 0 || self.number(right) != 0),
            _ => {}
        }
        let b = self.number(right);
        let (sa, sb) = (a.cast_signed(), b.cast_signed());
        match operator {
            "|" => a | b,
            "^" => a ^ b,
            "&" => a & b,
            "==" => u64::from(a == b),
            "!=" => u64::from(a != b),
            "<" => u64::from(sa < sb),
            ">" => u64::from(sa > sb),
            "<=" => u64::from(sa <= sb),
            ">=" => u64::from(sa >= sb),
            "<<" => a.checked_shl(b as u32).unwrap_or(0),
            ">>" => a.checked_shr(b as u32).unwrap_or(0),
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" => a.checked_div(b).unwrap_or(0),
            _ => a.checked_rem(b).unwrap_or(0),
        }
    }

    fn text<'t>(&self, of: &'t Expr) -> Cow<'t, [u8]>
    where
        'a: 't,
    {
        match of {
            Expr::Text(text) => text.into(),
            Expr::Field(number) | Expr::Str(number) => le::until_nul(self.bytes(*number)).into(),
            Expr::Choice(condition, yes, no) => {
                let taken = if self.number(condition) != 0 { yes } else { no };
                self.text(taken)
            }
            Expr::Flags(value, between, table) => flags(self.number(value), between, table).into(),
            Expr::Symbolic(value, table) => {
                let value = self.number(value);
                match table.iter().find(|(number, _)| *number == value) {
                    Some((_, name)) => name.into(),
                    None => format!("0x{value:x}").into_bytes().into(),
                }
            }
            Expr::Hex(bytes, length, between) => {
                let length = self.number(length) as usize;
                let bytes = match **bytes {
                    Expr::Field(number) => self.bytes(number),
                    _ => &[],
                };
                let hex = bytes.iter().take(length).map(|byte| format!("{byte:02x}"));
                hex.collect::<Vec<_>>().join(between).into_bytes().into()
            }
            Expr::Cast(_, _, of) => self.text(of),
            _ => Cow::Borrowed(b""),
        }
    }
}

/// The names of the flags that are set.
fn flags(mut value: u64, between: &[u8], table: &[Named]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut some = false;
    let mut add = |name: &[u8], out: &mut Vec<u8>| {
        if some {
            out.extend_from_slice(between);
        }
        some = true;
        out.extend_from_slice(name);
    };
    for (flag, name) in table {
        if *flag == 0 && value == 0 && out.is_empty() {
            return name.clone();
        }
        if *flag != 0 && value & flag == *flag {
            add(name, &mut out);
            value &= !flag;
        }
    }
    if value != 0 {
        add(format!("0x{value:x}").as_bytes(), &mut out);
    }
    out
}
