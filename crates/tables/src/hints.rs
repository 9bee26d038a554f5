//! What assembly of the kernel tells objtool about its own code: unwind hints, calls within a
//! function, code that cannot be reached or can be after all, functions that are left alone.
//!
//! Only relocatable objects have this: linking drops the `.discard` sections.
//!
//! Sources: Linux `include/linux/objtool.h`, `include/linux/objtool_types.h`,
//! `arch/x86/include/asm/{unwind_hints,orc_types}.h`, `tools/objtool/check.c`; 4.14 to 6.12.

use crate::file::File;
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_unwind::orc::{self, Encoding, EntryType, Layout};
use unwind_sim_unwind::rule::{RuleKind, Value};

const SECTION: &str = ".discard.unwind_hints";
const INTRA_FUNCTION_CALLS: &str = ".discard.intra_function_calls";
const REACHABLE: &str = ".discard.reachable";
const UNREACHABLE: &str = ".discard.unreachable";
const NON_STANDARD: &str = ".discard.func_stack_frame_non_standard";
const ANNOTATIONS: &str = ".discard.annotate_insn";
/// The sizes of `struct unwind_hint`, bytes: since 4.16, and before it had an `end`.
const HINT_LENS: [u64; 2] = [12, 8];
/// `ANNOTYPE_INTRA_FUNCTION_CALL` and `ANNOTYPE_REACHABLE` in `.discard.annotate_insn` (6.13).
const ANNOTYPE_INTRA_FUNCTION_CALL: u32 = 7;
const ANNOTYPE_REACHABLE: u32 = 8;

/// An unwind hint: what holds before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Nothing is known (`UNWIND_HINT_UNDEFINED`).
    Undefined,
    /// There is no caller (`UNWIND_HINT_END_OF_STACK`; `UNWIND_HINT_EMPTY` before 6.4).
    EndOfStack,
    /// A frame, a `struct pt_regs` or an iret frame.
    Frame {
        /// The kind of frame that the hint declares.
        kind: RuleKind,
        /// The CFA, or the address of the saved registers.
        cfa: Value,
    },
    /// All is as at the entry of a function (`UNWIND_HINT_FUNC`).
    Function,
    /// All is as it was at the nearest `UNWIND_HINT_SAVE` before, at this address (svma).
    Restore(Option<u64>),
}

/// What an object's `.discard` sections say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// By the address (svma) of the instruction.
    pub at: BTreeMap<u64, Hint>,
    /// Instructions (svma) that a function ends at though its stack has another height
    /// (`UNWIND_HINT_RET_OFFSET`, 5.8 to 5.11).
    pub uneven_returns: BTreeSet<u64>,
    /// Calls (svma) to the same function, which push without ever returning there.
    pub intra_calls: BTreeSet<u64>,
    /// Where (svma) execution continues, whatever the instruction before is.
    pub reachable: BTreeSet<u64>,
    /// Where (svma) execution never arrives from the instruction before.
    pub unreachable: BTreeSet<u64>,
    /// The starts (svma) of functions that are left alone (`STACK_FRAME_NON_STANDARD`).
    pub non_standard: BTreeSet<u64>,
}

/// Why hints cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {section} at offset {offset:#x}: {what}")]
pub struct HintError {
    /// The file's name.
    pub file: String,
    /// The name of the section that cannot be read.
    pub section: &'static str,
    /// Offset in it, bytes.
    pub offset: u64,
    /// What is wrong, and what to do.
    pub what: &'static str,
}

/// What an entry says.
enum HintRecord {
    Hint(Hint),
    Save,
    UnevenReturn,
}

impl Hints {
    /// Reads the sections of an object whose kernel has ORC in `encoding`: the numbers of hints and
    /// registers changed with those of ORC.
    ///
    /// # Errors
    /// If an entry has another size, an unknown type or register, or refers to nothing.
    pub fn read(file: &File, encoding: Encoding) -> Result<Hints, HintError> {
        let mut out = Hints::default();
        out.read_hints(file, encoding)?;
        out.intra_calls.extend(named(file, INTRA_FUNCTION_CALLS));
        out.reachable.extend(named(file, REACHABLE));
        out.unreachable.extend(named(file, UNREACHABLE));
        out.non_standard.extend(named(file, NON_STANDARD));
        out.read_annotations(file);
        Ok(out)
    }

    fn read_hints(&mut self, file: &File, encoding: Encoding) -> Result<(), HintError> {
        let Some(range) = file.section_range(SECTION) else {
            return Ok(());
        };
        let size = range.end - range.start;
        let wrong = |offset, what| HintError {
            file: file.name().to_owned(),
            section: SECTION,
            offset,
            what,
        };

        let notes = file.notes(&range);
        let lies = |len: u64| {
            let places = (range.start..range.end).step_by(len as usize);
            size % len == 0 && places.eq(notes.iter().map(|note| note.0))
        };
        // No field says how large an entry is, but each has a relocation at its start.
        let len = HINT_LENS.into_iter().find(|&len| lies(len));
        let len = len.ok_or_else(|| {
            let what = "not an array of struct unwind_hint, each with a relocation; \
                        generate works on objects as the compiler wrote them";
            wrong(0, what)
        })?;

        let mut saves = BTreeSet::new();
        let mut restores = Vec::new();
        for &(at, address) in notes {
            let offset = at - range.start;
            let bytes = file.bytes(at);
            let bytes = bytes.get(..len as usize);
            let bytes = bytes.ok_or_else(|| wrong(offset, "the section is cut short"))?;

            if file.code_at(address).is_none() {
                return Err(wrong(offset, "a hint for an address without code"));
            }

            match entry(bytes, encoding).map_err(|what| wrong(offset, what))? {
                HintRecord::Hint(Hint::Restore(_)) => restores.push(address),
                HintRecord::Hint(hint) => {
                    self.at.insert(address, hint);
                }
                HintRecord::Save => {
                    saves.insert(address);
                }
                HintRecord::UnevenReturn => {
                    self.uneven_returns.insert(address);
                }
            }
        }

        // A save may follow in the section what restores it: only now all are known.
        for address in restores {
            let section = file.code_at(address).map_or(0, |code| code.range.start);
            let save = saves.range(section..address).next_back().copied();
            self.at.insert(address, Hint::Restore(save));
        }
        Ok(())
    }

    fn read_annotations(&mut self, file: &File) {
        for &(at, address) in file
            .section_range(ANNOTATIONS)
            .map_or(&[][..], |r| file.notes(&r))
        {
            let kind = file.bytes(at + 4).first_chunk().copied();
            match kind.map(u32::from_le_bytes) {
                Some(ANNOTYPE_INTRA_FUNCTION_CALL) => self.intra_calls.insert(address),
                Some(ANNOTYPE_REACHABLE) => self.reachable.insert(address),
                _ => false,
            };
        }
    }
}

/// The entry of these bytes.
fn entry(bytes: &[u8], encoding: Encoding) -> Result<HintRecord, &'static str> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let (number, kind) = (byte(6), byte(7));

    // `end` is the last byte, `signal` the one before it in 6.3, and the only one later.
    let (signal, end) = match encoding.layout {
        Layout::V4_14 => (false, byte(8) != 0),
        Layout::V6_3 => (byte(8) != 0, byte(9) != 0),
        Layout::V6_4 | Layout::V7_1 => (byte(8) != 0, false),
    };

    let frame = |kind, signal| {
        let wrong = "unknown sp_reg; the layout of --to must be that of the object's kernel";
        let entry = orc::Entry {
            sp_reg: encoding.layout.reg(number).ok_or(wrong)?,
            sp_offset: i16::from_le_bytes([byte(4), byte(5)]),
            kind,
            signal,
            ..orc::Entry::UNDEFINED
        };
        let rule = entry.rule(encoding.sp_indirect).map_err(|_| wrong)?;
        let (kind, cfa) = (rule.kind, rule.cfa);
        Ok(HintRecord::Hint(Hint::Frame { kind, cfa }))
    };

    let call = || frame(EntryType::Call, signal);
    let regs = || frame(EntryType::Regs, true);
    let partial = || frame(EntryType::RegsPartial, true);
    let unknown = Err("unknown type; the layout of --to must be that of the object's kernel");

    // The numbers of the types changed with 6.4, when undefined and end of stack got their own.
    if encoding.layout >= Layout::V6_4 {
        return match kind {
            0 => Ok(HintRecord::Hint(Hint::Undefined)),
            1 => Ok(HintRecord::Hint(Hint::EndOfStack)),
            2 => call(),
            3 => regs(),
            4 => partial(),
            5 => Ok(HintRecord::Hint(Hint::Function)),
            6 => Ok(HintRecord::Save),
            7 => Ok(HintRecord::Hint(Hint::Restore(None))),
            _ => unknown,
        };
    }

    let is_old = Encoding::ALL.first() == Some(&encoding);
    match kind {
        0 if number == 0 && end => Ok(HintRecord::Hint(Hint::EndOfStack)),
        0 if number == 0 => Ok(HintRecord::Hint(Hint::Undefined)),
        0 => call(),
        1 => regs(),
        2 => partial(),
        // To 5.7 a 3 saved; to 5.11 it was a return with a register.
        3 if is_old && number == 0 => Ok(HintRecord::Save),
        3 if is_old => Ok(HintRecord::UnevenReturn),
        4 if is_old => Ok(HintRecord::Hint(Hint::Restore(None))),
        5 if is_old => Ok(HintRecord::UnevenReturn),
        3 => Ok(HintRecord::Hint(Hint::Function)),
        // `UNWIND_HINT_ENTRY`: a machine entry, which has no stack.
        4 => Ok(HintRecord::Hint(Hint::EndOfStack)),
        5 => Ok(HintRecord::Save),
        6 => Ok(HintRecord::Hint(Hint::Restore(None))),
        _ => unknown,
    }
}

/// What a section of references refers to, whatever their size (svma).
fn named(file: &File, section: &str) -> impl Iterator<Item = u64> {
    let range = file.section_range(section);
    let notes = range.map_or(&[][..], |range| file.notes(&range));
    notes.iter().map(|note| note.1)
}
