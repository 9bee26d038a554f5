//! Links programs from code sections: functions are cut out and relocated, and subprograms are
//! appended to each program that needs them.

use super::super::error::{ObjectError, ObjectErrorKind as Kind};
use super::super::insn::{INSN_SIZE, Insn, pseudo};
use super::{
    Elf, Function, INSNS_MAX, Maps, Meaning, PROGRAMS_MAX, ProgramDef, Relocation, Section, Symbol,
    TOTAL_INSNS_PER_BYTE, at_most,
};
use std::collections::HashMap;

/// `R_BPF_64_64`: an address in `ld_imm64`.
const R_BPF_64_64: u32 = 1;
/// `R_BPF_64_32`: the target of a call.
const R_BPF_64_32: u32 = 10;
/// The section of subprograms.
const TEXT: &str = ".text";

/// A function of a section.
struct Code<'e, 'a> {
    section: &'e Section<'a>,
    name: &'a str,
    /// First instruction in the section, and the one after the last.
    start: u64,
    end: u64,
}

/// The programs of an object.
pub(super) fn programs(elf: &Elf<'_>, maps: &Maps) -> Result<Vec<ProgramDef>, ObjectError> {
    let functions = functions(elf)?;
    let linker = Linker {
        elf,
        maps,
        functions: &functions,
    };
    let mut programs = Vec::new();

    // Each program gets copies of the functions that it calls, so that a small file could otherwise
    // unfold to very many instructions.
    let size: usize = elf.sections.iter().map(|s| s.bytes.len()).sum();
    let mut room = size.saturating_mul(TOTAL_INSNS_PER_BYTE).min(INSNS_MAX);
    for (index, code) in functions.iter().enumerate() {
        // Functions here are only called by others; they are not programs.
        if code.section.name == TEXT {
            continue;
        }
        at_most(
            programs.len() + 1,
            PROGRAMS_MAX,
            code.section.offset,
            code.section.name,
        )?;

        let program = linker.link(index, room)?;
        room -= program.insns.len();
        programs.push(program);
    }

    if programs.is_empty() {
        return Err(ObjectError::new(Kind::NoProgram, 0, "file"));
    }

    Ok(programs)
}

/// All functions in code sections, by section and offset.
fn functions<'e, 'a>(elf: &'e Elf<'a>) -> Result<Vec<Code<'e, 'a>>, ObjectError> {
    let mut functions = Vec::new();
    for symbol in elf.symbols.iter().filter(|symbol| symbol.is_function) {
        let Some(section) = elf.sections.get(symbol.section) else {
            continue;
        };
        if !section.is_code {
            continue;
        }
        functions.push(cut(section, symbol)?);
    }
    functions.sort_by_key(|code| (code.section.index, code.start));
    // Two names for one function would be two programs that share their instructions.
    functions.dedup_by_key(|code| (code.section.index, code.start));
    Ok(functions)
}

fn cut<'e, 'a>(section: &'e Section<'a>, symbol: &Symbol<'a>) -> Result<Code<'e, 'a>, ObjectError> {
    let unit = INSN_SIZE as u64;
    let error = |kind| {
        let offset = section.offset.saturating_add(symbol.value);
        ObjectError::new(kind, offset, section.name)
    };

    // A function is cut out by its symbol, and both ends must be whole instructions.
    let length = section.bytes.len() as u64;
    if !length.is_multiple_of(unit) {
        return Err(error(Kind::CodeSize(length)));
    }
    for part in [symbol.value, symbol.size] {
        if !part.is_multiple_of(unit) {
            return Err(error(Kind::CodeSize(part)));
        }
    }

    // Both are from the file: the sum may wrap. A function of no instructions has no end.
    let end = symbol.value.checked_add(symbol.size);
    if symbol.size == 0 || end.is_none_or(|end| end > length) {
        let name = symbol.name.to_owned();
        return Err(error(Kind::FunctionOutside { name }));
    }

    Ok(Code {
        section,
        name: symbol.name,
        start: symbol.value / unit,
        end: (symbol.value + symbol.size) / unit,
    })
}

struct Linker<'l, 'e, 'a> {
    elf: &'e Elf<'a>,
    maps: &'l Maps,
    functions: &'l [Code<'e, 'a>],
}

impl Linker<'_, '_, '_> {
    /// A program with all functions that it calls, of at most `room` instructions.
    fn link(&self, entry: usize, room: usize) -> Result<ProgramDef, ObjectError> {
        let code = &self.functions[entry];

        let mut insns: Vec<Insn> = Vec::new();
        // Functions in the order in which they are appended; the list grows as calls are found.
        let mut needed = vec![entry];
        let mut starts = HashMap::from([(entry, 0)]);
        let mut open: Vec<(usize, usize)> = Vec::new();

        let mut next = 0;
        while let Some(&function) = needed.get(next) {
            next += 1;

            // Known from here on; calls to it that come earlier are patched at the end.
            let part = &self.functions[function];
            starts.insert(function, insns.len());

            // Tested before the function is copied, so that no program grows beyond the limit.
            let count = part.end - part.start + insns.len() as u64;
            if count > room as u64 {
                let limit = room as u64;
                let kind = Kind::TooLong { count, limit };
                return Err(ObjectError::new(kind, part.section.offset, part.name));
            }

            let mut place = part.start;
            while place < part.end {
                let mut insn = self.insn(part.section, place);
                let mut second = None;

                // A call is followed even if its immediate is already right: the functions are
                // moved together.
                let target = self.relocate(part.section, place, &mut insn, &mut second)?;
                if let Some(target) = target {
                    starts.entry(target).or_insert_with(|| {
                        needed.push(target);
                        0
                    });
                    open.push((insns.len(), target));
                }

                insns.push(insn);
                place += 1;

                // Both halves at once: the second one is not an instruction, and has no relocation.
                if insn.is_ld_imm64() && place < part.end {
                    let mut half = self.insn(part.section, place);
                    half.imm = second.unwrap_or(half.imm);
                    insns.push(half);
                    place += 1;
                }
            }
        }

        // Only now are all functions at their places.
        for (at, target) in open {
            let start = starts.get(&target).map_or(0, |start| *start) as i64;
            // Both are below INSNS_MAX.
            insns[at].imm = (start - at as i64 - 1) as i32;
        }

        // The names of functions are for messages only.
        let functions = needed.iter().map(|function| Function {
            name: self.functions[*function].name.to_owned(),
            start: starts[function],
        });
        Ok(ProgramDef {
            name: code.name.to_owned(),
            section: code.section.name.to_owned(),
            offset: code.section.offset + code.start * INSN_SIZE as u64,
            functions: functions.collect(),
            insns,
        })
    }

    fn insn(&self, section: &Section<'_>, place: u64) -> Insn {
        let (insns, _) = section.bytes.as_chunks::<INSN_SIZE>();
        let bytes = usize::try_from(place).ok().and_then(|at| insns.get(at));
        Insn::decode(bytes.copied().unwrap_or_default())
    }

    /// Relocates an instruction; `second` becomes the immediate of the second half. Returns the
    /// function that it refers to, if any.
    fn relocate(
        &self,
        section: &Section<'_>,
        place: u64,
        insn: &mut Insn,
        second: &mut Option<i32>,
    ) -> Result<Option<usize>, ObjectError> {
        let relocation = self.elf.relocation(section.index, place);
        let offset = section.offset + place * INSN_SIZE as u64;
        let error = |kind, relocation: Option<&Relocation>| {
            let offset = relocation.map_or(offset, |relocation| relocation.offset);
            ObjectError::new(kind, offset, section.name)
        };

        // Within a section, the assembler has resolved calls itself.
        let Some(relocation) = relocation else {
            if insn.is_subprogram_call() || (insn.is_ld_imm64() && insn.src == pseudo::FUNC) {
                let target = place as i64 + i64::from(insn.imm) + 1;
                let function = self.function(section.index, target);
                let function = function.ok_or_else(|| error(Kind::CallTarget(target), None))?;
                return Ok(Some(function));
            }
            return Ok(None);
        };

        // What the symbol is decides what the instruction becomes.
        let symbol = self.elf.symbol_of(relocation)?;
        let fail = |kind| Err(error(kind, Some(relocation)));
        // An `extern`, which only a running kernel or another object could resolve.
        if symbol.section == 0 {
            return fail(Kind::Undefined(symbol.name.to_owned()));
        }

        let in_code = self
            .elf
            .sections
            .get(symbol.section)
            .is_some_and(|section| section.is_code);

        // The kind of a relocation must fit the instruction: a wrong one would patch another field.
        match relocation.kind {
            R_BPF_64_32 if insn.is_subprogram_call() && in_code => {
                // The symbol is the section or the function; the immediate is -1 for its start.
                let target = (symbol.value / 8) as i64 + i64::from(insn.imm) + 1;
                match self.function(symbol.section, target) {
                    Some(function) => Ok(Some(function)),
                    None => fail(Kind::CallTarget(target)),
                }
            }
            R_BPF_64_64 if insn.is_ld_imm64() && in_code => {
                // The address of a function: the immediate counts bytes.
                let target = (symbol.value as i64 + i64::from(insn.imm)) / 8;
                insn.src = pseudo::FUNC;
                match self.function(symbol.section, target) {
                    Some(function) => Ok(Some(function)),
                    None => fail(Kind::CallTarget(target)),
                }
            }
            R_BPF_64_64 if insn.is_ld_imm64() => match self.maps.meaning(symbol) {
                Some(Meaning::Map(map)) => {
                    insn.src = pseudo::MAP_FD;
                    insn.imm = map as i32;
                    Ok(None)
                }
                Some(Meaning::Value(map)) => {
                    // A variable is an offset in the value of its section's map.
                    *second = Some((symbol.value as i32).wrapping_add(insn.imm));
                    insn.src = pseudo::MAP_VALUE;
                    insn.imm = map as i32;
                    Ok(None)
                }
                None => fail(Kind::ReferTo(symbol.name.to_owned())),
            },
            R_BPF_64_64 | R_BPF_64_32 => fail(Kind::RelocationTarget),
            other => fail(Kind::RelocationType(other)),
        }
    }

    /// The function that starts at an instruction of a section.
    fn function(&self, section: usize, target: i64) -> Option<usize> {
        let target = u64::try_from(target).ok()?;
        let place = (section, target);
        let found = self
            .functions
            .binary_search_by_key(&place, |code| (code.section.index, code.start));
        found.ok()
    }
}
