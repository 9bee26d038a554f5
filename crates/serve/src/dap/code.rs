//! Memory and instructions.

use super::breakpoints::address;
use super::session::{Answer, Session};
use crate::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use unwind_sim_judge::disassembly::listed;
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// The number of bytes of memory in an answer.
const MEMORY_BYTES_MAX: u64 = 1 << 16;
/// The number of instructions in an answer, and before its address.
const INSTRUCTIONS_MAX: u64 = 1 << 12;
/// The number of bytes from the start of a function that are decoded to get to instructions before an
/// address.
const BEFORE_BYTES_MAX: u64 = 1 << 16;

/// The address of a request: its reference and offset.
fn place(arguments: &Value) -> Result<u64, String> {
    let reference = arguments["memoryReference"].as_str();
    let reference = reference.and_then(address);
    let reference = reference.ok_or("memoryReference is not an address such as 0x401000")?;
    let offset = arguments["offset"].as_i64().unwrap_or(0);
    let place = reference.checked_add_signed(offset);
    place.ok_or_else(|| format!("there is no address {reference:#x} + {offset}"))
}

/// An instruction.
struct Line {
    address: u64,
    bytes: Vec<u8>,
    text: Option<String>,
}

impl Session<'_> {
    pub(super) fn read_memory(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let place = match place(arguments) {
            Ok(place) => place,
            Err(why) => return Ok(Err(why)),
        };
        let Some(count) = arguments["count"].as_u64() else {
            return Ok(Err("count is missing".to_owned()));
        };
        // An editor that asks for more gets less, and asks again.
        let mut bytes = vec![0; count.min(MEMORY_BYTES_MAX) as usize];
        let len = self.debuggee.read(place, &mut bytes)?;

        let mut body = json!({
            "address": format!("{place:#x}"),
            "data": STANDARD.encode(&bytes[..len]),
        });
        if len < bytes.len() {
            body["unreadableBytes"] = (bytes.len() - len).into();
        }
        Ok(Ok(body))
    }

    pub(super) fn disassemble(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let place = match place(arguments) {
            Ok(place) => place,
            Err(why) => return Ok(Err(why)),
        };
        let count = arguments["instructionCount"].as_u64().unwrap_or(0);
        let offset = arguments["instructionOffset"].as_i64().unwrap_or(0);
        if count > INSTRUCTIONS_MAX || offset.unsigned_abs() > INSTRUCTIONS_MAX {
            return Ok(Err(format!(
                "at most {INSTRUCTIONS_MAX} instructions are shown at once"
            )));
        }

        // A negative offset asks for that many instructions before the address, not bytes.
        let before = offset.min(0).unsigned_abs() as usize;
        let mut lines = self.before(place, before)?;
        // Exactly as many as were asked for are expected, also where there is no code.
        let lacking = before - lines.len();
        let padding = (1..=lacking as u64).rev().map(|back| {
            let first = lines.first().map_or(place, |line| line.address);
            absent(first.wrapping_sub(back))
        });
        let mut all: Vec<Line> = padding.collect();
        all.append(&mut lines);

        // A positive offset leaves out the first instructions, which must be decoded all the same.
        let skipped = offset.max(0) as usize;
        let wanted = (count as usize + skipped).saturating_sub(all.len());
        all.extend(self.from(place, wanted)?);

        let shown = all.iter().skip(skipped).take(count as usize);
        let mut instructions = Vec::new();
        self.debuggee.with_space(&mut |space| {
            instructions = shown.clone().map(|line| told(space, line)).collect();
        })?;
        Ok(Ok(json!({ "instructions": instructions })))
    }

    /// The last `count` instructions before an address, as far as its function goes.
    fn before(&mut self, place: u64, count: usize) -> Result<Vec<Line>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }

        // Instructions have no fixed length, so decoding must start where one is known to start.
        let mut start = None;
        self.debuggee.with_space(&mut |space| {
            let mapping = space.find(place);
            let symbol = mapping.and_then(|mapping| {
                let svma = mapping.svma(place);
                let symbol = mapping.image.as_ref()?.symbol(svma)?;
                Some(symbol.address.wrapping_add(mapping.bias))
            });
            start = symbol;
        })?;
        let start = start.filter(|&start| start < place && place - start <= BEFORE_BYTES_MAX);
        let Some(start) = start else {
            return Ok(Vec::new());
        };

        let mut lines = self.decoded(start, (place - start) as usize)?;
        // Else the function's instructions do not lead here.
        let end = lines
            .last()
            .map(|line| line.address.wrapping_add(line.bytes.len() as u64));
        if end != Some(place) {
            return Ok(Vec::new());
        }
        Ok(lines.split_off(lines.len().saturating_sub(count)))
    }

    /// `count` instructions from an address on.
    fn from(&mut self, place: u64, count: usize) -> Result<Vec<Line>, Error> {
        let mut lines = self.decoded(place, count * INSN_BYTES_MAX)?;
        lines.truncate(count);
        while lines.len() < count {
            let last = lines.last();
            let next = last.map_or(place, |line| {
                line.address.wrapping_add(line.bytes.len().max(1) as u64)
            });
            lines.push(absent(next));
        }
        Ok(lines)
    }

    /// The instructions in `len` bytes from an address on, as far as there is memory.
    fn decoded(&mut self, place: u64, len: usize) -> Result<Vec<Line>, Error> {
        let mut bytes = vec![0; len];
        let len = self.debuggee.read(place, &mut bytes)?;
        let mut rest = &bytes[..len];
        let mut address = place;
        let mut lines = Vec::new();
        for (len, text) in listed(rest, place) {
            let (bytes, behind) = rest.split_at(len.min(rest.len()));
            lines.push(Line {
                address,
                bytes: bytes.to_vec(),
                text,
            });
            address = address.wrapping_add(len as u64);
            rest = behind;
        }
        Ok(lines)
    }
}

/// A place without code.
fn absent(address: u64) -> Line {
    Line {
        address,
        bytes: Vec::new(),
        text: None,
    }
}

fn told(space: &unwind_sim_unwind::image::AddressSpace, line: &Line) -> Value {
    let text = line.text.as_deref().unwrap_or("(no instruction)");
    let mut one = json!({
        "address": format!("{:#x}", line.address),
        "instruction": text,
    });
    if !line.bytes.is_empty() {
        one["instructionBytes"] = hex_bytes(&line.bytes).into();
    }
    if line.text.is_none() {
        one["presentationHint"] = "invalid".into();
    }
    let location = Location::at(space, line.address);
    if let Some(function) = location.function.filter(|_| location.offset == 0) {
        one["symbol"] = function.into();
    }
    one
}
