//! Prints a payload with its `print fmt`.

use super::parse::{Expr, Print, ValueName};
use super::pointer::{self, Functions};
use super::{Field, Kind, Location, Strings};
use unwind_sim_perf_data::le;

/// Maximum width or precision.
const WIDTH_MAX: usize = 256;

/// Constants whose names libtraceevent knows.
const CONSTANTS: [(&str, u64); 12] = [
    ("HI_SOFTIRQ", 0),
    ("TIMER_SOFTIRQ", 1),
    ("NET_TX_SOFTIRQ", 2),
    ("NET_RX_SOFTIRQ", 3),
    ("BLOCK_SOFTIRQ", 4),
    ("IRQ_POLL_SOFTIRQ", 5),
    ("TASKLET_SOFTIRQ", 6),
    ("SCHED_SOFTIRQ", 7),
    ("HRTIMER_SOFTIRQ", 8),
    ("RCU_SOFTIRQ", 9),
    ("HRTIMER_NORESTART", 0),
    ("HRTIMER_RESTART", 1),
];

/// The value of an expression in a table; all ones if it is unknown or negative, `None` if it is
/// not a constant.
pub(super) fn constant(of: &Expr) -> Option<u64> {
    // A table has no payload, so its fields would all be 0.
    let nothing = Record {
        strings: None,
        fields: &[],
        payload: &[],
    };

    match of {
        Expr::Number(number) => Some(*number),
        Expr::Name(name) => {
            let mut known = CONSTANTS.iter();
            let found = known.find(|(known, _)| known.as_bytes() == &name[..]);
            Some(found.map_or(u64::MAX, |(_, number)| *number))
        }
        Expr::Cast(_, of) => constant(of),
        Expr::Unary(..) | Expr::Binary(..) => {
            let value = nothing.number(of);
            Some(if value.cast_signed() < 0 {
                u64::MAX
            } else {
                value
            })
        }
        _ => None,
    }
}

/// Prints a payload.
pub(super) fn print(
    fields: &[Field],
    print: &Print,
    payload: &[u8],
    strings: &Strings,
    functions: &mut Functions<'_>,
    out: &mut Vec<u8>,
) {
    let record = Record {
        fields,
        payload,
        strings: Some(strings),
    };

    // Each conversion takes the next argument; a missing one is 0.
    let mut arguments = print.arguments.iter();
    let mut text = &print.text[..];
    while let Some(at) = text.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&text[..at]);
        text = &text[at + 1..];

        // A `*` takes its argument before the value does. The width comes from the recording, so it
        // is bounded.
        let mut star = None;
        let Some((spec, rest)) = Spec::parse(text, || {
            let width = arguments.next().map_or(0, |of| record.number(of)) as usize;
            *star.insert(width.min(WIDTH_MAX))
        }) else {
            return;
        };
        text = rest;

        match spec.conversion {
            b'%' => out.push(b'%'),
            b's' => {
                if let Some(of) = arguments.next() {
                    record.string(of, &spec, out);
                }
            }
            b'p' => {
                // Letters behind `%p` choose one of the kernel's own formats (`lib/vsprintf.c`).
                let (kind, rest) = text.split_at(pointer::kind_length(text));
                text = rest;
                if let Some(of) = arguments.next() {
                    pointer::print(&record, of, kind, star.unwrap_or(1), functions, out);
                }
            }
            _ => {
                let value = arguments.next().map_or(0, |of| record.number(of));
                spec.number(value, out);
            }
        }
    }

    out.extend_from_slice(text);
}

/// Prints a field without a `print fmt`.
pub(super) fn plain(field: &Field, payload: &[u8], out: &mut Vec<u8>) {
    let record = Record {
        fields: std::slice::from_ref(field),
        payload,
        strings: None,
    };

    // An array is text if it is declared as such and has only text, otherwise bytes.
    if field.element.is_some() {
        let bytes = record.bytes(0);
        let text = le::until_nul(bytes);
        // As libtraceevent's `is_printable_array`.
        let is_text = |byte: &u8| byte.is_ascii_graphic() || b" \t\n\x0b\x0c\r".contains(byte);
        if field.text && text.iter().all(is_text) {
            return out.extend_from_slice(text);
        }

        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return out.extend_from_slice(format!("ARRAY[{}]", hex.join(", ")).as_bytes());
    }

    // The width and sign are those of the field's own type.
    let value = record.number(&Expr::Field(0));
    let signed = sized(value, field.size, true).cast_signed();
    let text = match (field.kind, field.signed, field.size) {
        (Kind::Pointer, ..) | (Kind::Long, false, _) | (Kind::Long, true, 4) => {
            format!("0x{value:x}")
        }
        (_, true, 2) => format!("{signed:2}"),
        (_, true, _) => signed.to_string(),
        (_, false, _) => value.to_string(),
    };

    out.extend_from_slice(text.as_bytes());
}

/// A conversion: what follows a `%`.
struct Spec {
    left: bool,
    zero: bool,
    alternate: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    /// Size of the number in bytes.
    size: usize,
    conversion: u8,
}

impl Spec {
    /// Parses a conversion; returns it and the rest. `star` returns widths given by `*`.
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

        // Flags, width, precision and size are taken in any order.
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
                // Behind another digit, a zero belongs to the width.
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
                // `hh` is a single byte.
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

    /// Prints a string, cut to the precision.
    fn string(&self, text: &[u8], out: &mut Vec<u8>) {
        let end = self.precision.unwrap_or(text.len()).min(text.len());
        self.pad(&text[..end], out);
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

    // libtraceevent prints by the size that the format says, not by that of the field.
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
            b'o' => ("", format!("{value:o}")),
            b'c' => return self.pad(&[value as u8], out),
            _ => ("", value.to_string()),
        };

        // With a precision, or `-`, C ignores the flag `0` (C17, 7.21.6.1).
        let wanted = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };

        let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
        self.pad(format!("{sign}{zeros}{digits}").as_bytes(), out);
    }
}

/// The lowest `size` bytes of a number.
fn sized(value: u64, size: usize, signed: bool) -> u64 {
    let unused = 64 - 8 * size.clamp(1, 8) as u32;
    let high = value << unused;
    if signed {
        (high.cast_signed() >> unused).cast_unsigned()
    } else {
        high >> unused
    }
}

/// The number at an offset; 0 if it is not in the payload or its size is not that of a number.
fn number_at(payload: &[u8], offset: usize, size: usize, signed: bool) -> u64 {
    if !matches!(size, 1 | 2 | 4 | 8) {
        return 0;
    }
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

/// A payload and its fields.
pub(super) struct Record<'a> {
    fields: &'a [Field],
    payload: &'a [u8],
    /// Strings that pointers point to.
    strings: Option<&'a Strings>,
}

impl<'a> Record<'a> {
    /// The offset and length of a field's data.
    fn extent(&self, number: usize) -> (usize, usize) {
        let Some(field) = self.fields.get(number) else {
            return (0, 0);
        };
        match field.location {
            None => (field.offset, field.size),
            Some(location) => {
                let word = le::u32_at(self.payload, field.offset).unwrap_or(0);
                let base = match location {
                    Location::Payload => 0,
                    Location::Field => field.offset.saturating_add(4),
                };
                ((word & 0xffff) as usize + base, (word >> 16) as usize)
            }
        }
    }

    /// The bytes of a field's data.
    pub(super) fn bytes(&self, number: usize) -> &'a [u8] {
        let (start, size) = self.extent(number);
        let end = start.saturating_add(size).min(self.payload.len());
        self.payload.get(start..end).unwrap_or_default()
    }

    /// The payload from the start of a field's data.
    fn from(&self, number: usize) -> &'a [u8] {
        self.payload
            .get(self.extent(number).0..)
            .unwrap_or_default()
    }

    /// The bytes of the field itself, even if they only locate its data.
    pub(super) fn place(&self, number: usize) -> &'a [u8] {
        let field = self.fields.get(number);
        let range = field.map(|field| field.offset..field.offset.saturating_add(field.size));
        range
            .and_then(|range| self.payload.get(range))
            .unwrap_or_default()
    }

    /// The value of an expression. All values are unsigned: a negative one is very large.
    pub(super) fn number(&self, of: &Expr) -> u64 {
        match of {
            Expr::Number(number) => *number,
            Expr::Field(number) => self.fields.get(*number).map_or(0, |field| {
                number_at(self.payload, field.offset, field.size, false)
            }),
            Expr::Index(of, index) => self.element(of, index),
            Expr::Unary(operator, of) => {
                let value = self.number(of);
                match *operator {
                    "!" => u64::from(value == 0),
                    "~" => !value,
                    "-" => value.wrapping_neg(),
                    _ => value,
                }
            }
            Expr::Binary(operator, left, right) => {
                binary(operator, self.number(left), self.number(right))
            }
            Expr::Choice(condition, yes, no) => {
                let taken = if self.number(condition) != 0 { yes } else { no };
                self.number(taken)
            }
            // A cast only cuts: it never extends the sign.
            Expr::Cast(to, of) => sized(self.number(of), to.size, false),
            Expr::DynamicLen(number) => self.extent(*number).1 as u64,
            // What has no number is 0, as in libtraceevent's `eval_num_arg`.
            Expr::Text(_)
            | Expr::Name(_)
            | Expr::Str(_)
            | Expr::Dynamic(_)
            | Expr::Mask(..)
            | Expr::Flags(..)
            | Expr::Symbolic(..)
            | Expr::Array(..)
            | Expr::Hex(..) => 0,
        }
    }

    /// An element of an array field, or of the data that a field locates.
    fn element(&self, mut of: &Expr, index: &Expr) -> u64 {
        let index = self.number(index) as usize;
        let mut kept = None;
        while let Expr::Cast(to, inner) = of {
            kept = kept.or(Some(to.target));
            of = inner;
        }
        let value = match *of {
            Expr::Field(number) => self.fields.get(number).map_or(0, |field| {
                let size = field.element.unwrap_or(field.size);
                number_at(self.place(number), index.saturating_mul(size), size, false)
            }),
            // libtraceevent indexes bytes here, not elements.
            Expr::Dynamic(number) => {
                let element = self.fields.get(number).and_then(|field| field.element);
                number_at(self.from(number), index, element.unwrap_or(8), false)
            }
            _ => 0,
        };
        sized(value, kept.unwrap_or(8), false)
    }

    /// Prints `{0x1,0x2}`: `count` numbers of `size` bytes each.
    fn array(&self, data: &Expr, count: &Expr, size: &Expr, out: &mut Vec<u8>) {
        let bytes = match *data {
            Expr::Field(number) => self.place(number),
            Expr::Dynamic(number) => self.bytes(number),
            _ => &[],
        };
        let size = (self.number(size) as usize).clamp(1, 8);
        let elements = bytes.chunks_exact(size).take(self.number(count) as usize);
        let numbers = elements.map(|element| {
            let number = number_at(element, 0, size, false);
            format!("0x{number:x}")
        });
        let all: Vec<String> = numbers.collect();
        out.extend_from_slice(format!("{{{}}}", all.join(",")).as_bytes());
    }

    /// Prints an expression with `%s`. Widths apply to names; numbers without a name are printed as
    /// they are.
    fn string(&self, of: &Expr, spec: &Spec, out: &mut Vec<u8>) {
        match of {
            Expr::Text(text) => spec.string(text, out),
            Expr::Field(number) => match self.fields.get(*number) {
                // A pointer
                Some(field) if field.size == 8 && field.element.is_none() => {
                    let address = self.number(of);
                    match self.strings.and_then(|strings| strings.get(&address)) {
                        Some(text) => out.extend_from_slice(text),
                        None => out.extend_from_slice(format!("{address:x}").as_bytes()),
                    }
                }
                _ => spec.string(le::until_nul(self.place(*number)), out),
            },
            Expr::Str(number) => spec.string(le::until_nul(self.from(*number)), out),
            // Only the branch that is taken is looked at.
            Expr::Choice(condition, yes, no) => {
                let taken = if self.number(condition) != 0 { yes } else { no };
                self.string(taken, spec, out);
            }
            Expr::Flags(value, between, table) => {
                flags(self.number(value), between, table, spec, out);
            }
            // An unknown value is printed as a number.
            Expr::Symbolic(value, table) => {
                let value = self.number(value);
                match table.iter().find(|(number, _)| *number == value) {
                    Some((_, name)) => spec.string(name, out),
                    None => out.extend_from_slice(format!("0x{value:x}").as_bytes()),
                }
            }
            Expr::Hex(bytes, length, between) => {
                let length = self.number(length) as usize;
                // The length is not checked: bytes after the field are shown, too.
                let bytes = match **bytes {
                    Expr::Field(number) | Expr::Dynamic(number) => self.from(number),
                    _ => &[],
                };
                let hex = bytes.iter().take(length).map(|byte| format!("{byte:02x}"));
                out.extend_from_slice(hex.collect::<Vec<_>>().join(between).as_bytes());
            }
            Expr::Array(data, count, size) => self.array(data, count, size, out),
            Expr::Mask(number, true) => spec.string(&bits(self.bytes(*number)), out),
            Expr::Mask(number, false) => spec.string(&bitmask(self.bytes(*number)), out),
            Expr::Name(name) => spec.string(name, out),
            _ => {}
        }
    }
}

/// Applies an operator to two numbers like the processor: shifts use six bits.
fn binary(operator: &str, a: u64, b: u64) -> u64 {
    match operator {
        "&&" => u64::from(a != 0 && b != 0),
        "||" => u64::from(a != 0 || b != 0),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => u64::from(a == b),
        "!=" => u64::from(a != b),
        "<" => u64::from(a < b),
        ">" => u64::from(a > b),
        "<=" => u64::from(a <= b),
        ">=" => u64::from(a >= b),
        "<<" => a.wrapping_shl(b as u32),
        ">>" => a.wrapping_shr(b as u32),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b).unwrap_or(0),
        _ => a.checked_rem(b).unwrap_or(0),
    }
}

/// The set bits of a mask: `0-3,8`.
fn bits(bytes: &[u8]) -> Vec<u8> {
    let is_set = |bit: &usize| bytes[bit / 8] >> (bit % 8) & 1 == 1;
    let set = (0..8 * bytes.len()).filter(is_set);
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for bit in set {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == bit => *last = bit,
            _ => runs.push((bit, bit)),
        }
    }
    let texts = runs.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    texts.collect::<Vec<_>>().join(",").into_bytes()
}

/// The bytes of a mask in hexadecimal, the highest first, with a comma at every 32 bits.
fn bitmask(bytes: &[u8]) -> Vec<u8> {
    let words = bytes.chunks(4).rev().map(|word| {
        let digits = word.iter().rev().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    words.collect::<Vec<_>>().join(",").into_bytes()
}

/// The names of the flags that are set.
fn flags(mut value: u64, between: &[u8], table: &[ValueName], spec: &Spec, out: &mut Vec<u8>) {
    let mut some = false;
    for (flag, name) in table {
        if flag.cast_signed() < 0 && value == 0 {
            return spec.string(name, out);
        }
        if flag.cast_signed() > 0 && value & flag == *flag {
            if some {
                out.extend_from_slice(between);
            }
            some = true;
            spec.string(name, out);
            value &= !flag;
        }
    }
    if value != 0 {
        if some {
            out.extend_from_slice(between);
        }
        out.extend_from_slice(format!("0x{value:x}").as_bytes());
    }
}
