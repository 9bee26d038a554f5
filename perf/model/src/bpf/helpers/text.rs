//! `trace_printk`: the conversions that `bpf_bprintf_prepare` takes, without those for kernel
//! pointers; and `strncmp`.

use super::{AllowedCaller, Row, size_argument};
use crate::bpf::env::Space;
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::vm::Vm;
use std::fmt::Write as _;

pub(super) const HELPERS: &[Row] = &[
    (6, AllowedCaller::Gpl, trace_printk),
    (182, AllowedCaller::All, strncmp),
];

/// The longest line, bytes (`MAX_BPRINTF_BUF` of the kernel).
const LINE_MAX: usize = 1024;

/// `trace_printk(format, size, a, b, c)`.
fn trace_printk(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    let size = size_argument(vm, "trace_printk", 2)?;
    let format = vm.read(vm.reg(1)?, size)?;
    let Some(end) = format.iter().position(|byte| *byte == 0) else {
        return Ok(Errno::Einval.as_result());
    };
    match text(vm, &format[..end])? {
        Some(mut line) => {
            line.truncate(line.floor_char_boundary(LINE_MAX));
            vm.env.print(&line);
            Ok(line.len() as u64)
        }
        None => Ok(Errno::Einval.as_result()),
    }
}

/// `strncmp(s1, s1_sz, s2)`: s1 has `s1_sz` bytes, s2 ends in a NUL.
fn strncmp(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "strncmp";
    let size = size_argument(vm, NAME, 2)?;
    let one = vm.read(vm.reg(1)?, size)?;
    let other = vm.reg(3)?;
    for (at, byte) in (0..).zip(one) {
        let against = vm.read(other.wrapping_add(at), 1)?;
        let order = byte.cmp(&against[0]) as i64;
        if order != 0 || byte == 0 {
            return Ok(order as u64);
        }
    }
    Ok(0)
}

/// The line; `None` for a conversion that the kernel refuses.
fn text(vm: &mut Vm<'_>, format: &[u8]) -> Result<Option<String>, FaultKind> {
    let mut line = String::new();
    let mut argument = 3;
    let mut rest = format;

    while let [byte, more @ ..] = rest {
        rest = more;
        if *byte != b'%' {
            line.push(char::from(*byte));
            continue;
        }

        if let [b'%', more @ ..] = rest {
            line.push('%');
            rest = more;
            continue;
        }

        // Of all that a format can say, the width and the padding with zeros are kept.
        let is_padded = rest.first() == Some(&b'0');
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let width = rest[..digits].iter().fold(0, |width: usize, digit| {
            (width * 10 + usize::from(digit - b'0')).min(LINE_MAX)
        });
        rest = &rest[digits..];

        let longs = rest.iter().take_while(|byte| **byte == b'l').count();
        let Some((conversion, more)) = rest.get(longs..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        rest = more;

        // `bpf_trace_printk` has three arguments, in R3 to R5.
        if argument > 5 || longs > 2 {
            return Ok(None);
        }

        // An argument that the program has not set is a fault, as for the verifier.
        let value = vm.reg(argument)?;
        argument += 1;

        let is_long = longs > 0;
        // Without `l`, C takes an int: the lower half.
        let unsigned = if is_long {
            value
        } else {
            u64::from(value as u32)
        };
        let signed = if is_long {
            value as i64
        } else {
            i64::from(value as i32)
        };

        let word = match conversion {
            b'd' | b'i' => signed.to_string(),
            b'u' => unsigned.to_string(),
            b'x' => format!("{unsigned:x}"),
            b'X' => format!("{unsigned:X}"),
            b'p' => format!("{value:016x}"),
            b'c' => char::from(value as u8).to_string(),
            b's' => string(vm, value),
            _ => return Ok(None),
        };
        // Writing to a string cannot fail.
        let _ = if is_padded {
            write!(line, "{word:0>width$}")
        } else {
            write!(line, "{word:>width$}")
        };
    }

    Ok(Some(line))
}

/// The text at an address, which may be the program's own.
fn string(vm: &mut Vm<'_>, address: u64) -> String {
    let mut text = Vec::new();
    while text.len() < LINE_MAX {
        let at = address.wrapping_add(text.len() as u64);
        let own = vm.read(at, 1).ok().map(|bytes| bytes[0]);
        let byte = own.or_else(|| {
            let mut byte = [0];
            vm.env.read(Space::Any, at, &mut byte).then_some(byte[0])
        });
        match byte {
            Some(byte) if byte != 0 => text.push(byte),
            _ => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
