//! The instructions around an address.

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use std::collections::VecDeque;
use unwind_sim_tables::file::File;

/// The number of instructions before the address that are shown.
const BEFORE: usize = 2;
/// The number of instructions after it.
const AFTER: usize = 1;
/// The maximum number of bytes of a function that are decoded to find the instructions before the
/// address.
const BYTES_MAX: u64 = 1 << 16;

/// An instruction.
pub(crate) struct Shown {
    /// Address (svma).
    pub(crate) address: u64,
    /// In the syntax of GNU as.
    pub(crate) text: String,
}

/// The instruction at `address` of the function that starts at `start`, and those around it. Empty
/// if the file has no code there.
pub(crate) fn around(file: &File, start: u64, address: u64) -> Vec<Shown> {
    let is_near = address.checked_sub(start).is_some_and(|d| d <= BYTES_MAX);
    let start = if is_near { start } else { address };
    if file.code_at(address).is_none() {
        return Vec::new();
    }
    let bytes = file.bytes(start);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut before = VecDeque::new();
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    while decoder.ip() < address && decoder.can_decode() {
        let instruction = decoder.decode();
        before.push_back(instruction);
        if before.len() > BEFORE {
            before.pop_front();
        }
    }
    if decoder.ip() != address {
        // The row starts within an instruction.
        let Some(rest) = usize::try_from(address - start)
            .ok()
            .and_then(|s| bytes.get(s..))
        else {
            return Vec::new();
        };
        decoder = Decoder::with_ip(64, rest, address, DecoderOptions::NONE);
        before.clear();
    }
    let mut all: Vec<_> = before.into();
    for _ in 0..=AFTER {
        if decoder.can_decode() {
            all.push(decoder.decode());
        }
    }
    let shown = all.iter().map(|instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        Shown {
            address: instruction.ip(),
            text,
        }
    });
    shown.collect()
}
