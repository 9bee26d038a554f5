//! Writes a program as a case: an assembler file that runs by itself and describes its frames in
//! directives.

use super::build::BuiltProgram;
use super::cfi::dwarf_number as dwarf;
use super::code::{DATA, OWN_STACK, OWN_STACK_SIZE};
use super::defect::DefectKind;
use super::program::RandomProgram;
use super::row::{Cfa, FrameLayout, Gpr, SAVED, Slot, Table};
use iced_x86::{
    Formatter, GasFormatter, Instruction, Mnemonic, OpKind, Register, SymbolResolver, SymbolResult,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

/// Labels are below this, addresses are not.
const LABELS_END: u64 = 0x1_0000;
/// The psABI's number of the return address.
const RA: u16 = 16;

/// A defect of a case: its kind, the table with it, and an executed address at which that is wrong.
pub(super) struct InjectedDefect<'a> {
    pub(super) kind: DefectKind,
    pub(super) table: &'a Table,
    pub(super) at: Option<u64>,
}

/// The case's text. `claim` is one sentence; `group` is the case's folder.
pub(super) fn write(
    program: &RandomProgram,
    built: &BuiltProgram,
    injected: Option<&InjectedDefect<'_>>,
    (group, claim): (&str, &str),
) -> String {
    let names = Rc::new(CodeNames::new(built, injected.and_then(|i| i.at)));
    let mut out = format!(
        "#! claim: {claim}\n#! source: src/random, seed {}\n",
        program.seed
    );
    // Here and below: writing to a string cannot fail.
    let _ = writeln!(out, "#! group: {group}\n#! right: dwarf");

    // A defect for which the format has no word is written into the table itself.
    let word = injected.and_then(|i| inject(i.kind).filter(|_| i.at.is_some()));
    if let Some(word) = word {
        let _ = writeln!(out, "#! inject: {word} at defect");
    }
    let other = injected.map_or(&built.table, |i| i.table);
    let right = if word.is_some() { &built.table } else { other };

    // The chain at the end: from the innermost function that does not return down to the root.
    let finish = (1..=program.finish).rev().map(|n| format!("finish{n} < "));
    let _ = writeln!(out, "#@ ends: {}_start", finish.collect::<String>());

    code(&mut out, built, [right, other], &names);
    data(&mut out, built, &names);
    out.push_str("\n        .section .note.GNU-stack, \"\", @progbits\n");
    out
}

/// The case format's word for a kind of defect, if any.
fn inject(kind: DefectKind) -> Option<&'static str> {
    Some(match kind {
        DefectKind::CfaOffset => "offset",
        DefectKind::CfaRegister => "register",
        DefectKind::MissingRow | DefectKind::MissingEpilogue | DefectKind::NotRestored => {
            "missing-row"
        }
        DefectKind::Late => "late-row",
        DefectKind::Slot | DefectKind::Unsaved | DefectKind::Exchanged => "wrong-slot",
        DefectKind::ReturnAddress => "wrong-ra-slot",
        _ => return None,
    })
}

/// The names of addresses and labels.
struct CodeNames {
    by_address: BTreeMap<u64, Vec<String>>,
    by_label: BTreeMap<u64, String>,
}

impl CodeNames {
    fn new(built: &BuiltProgram, defect: Option<u64>) -> CodeNames {
        let layout = &built.code.layout;
        let insns = || layout.chunks.iter().flat_map(|chunk| &chunk.insns);
        let mut names = CodeNames {
            by_address: BTreeMap::new(),
            by_label: BTreeMap::new(),
        };

        for chunk in &layout.chunks {
            names.add(chunk.range.start, symbol(&chunk.name));
        }

        // What jumps, calls and immediates refer to has to have a name, too.
        let immediates = layout.chunks.iter().flat_map(|chunk| &chunk.immediates);
        let labels = insns().filter_map(|(insn, _)| target(insn));
        for label in labels.chain(immediates.map(|(_, label)| *label)) {
            let address = layout.addresses.get(&label).copied().unwrap_or_default();
            let name = names.get_or_add(address);
            names.by_label.insert(label, name);
        }

        // Data is named if it is an address of an instruction, as in a jump table.
        for word in &built.code.data {
            if built.boundaries.binary_search(word).is_ok() {
                names.get_or_add(*word);
            }
        }

        // The last system call of the functions that end the program.
        let ends = |name: &str| name == "_start" || name.starts_with("finish");
        let ends = layout.chunks.iter().filter(|chunk| ends(&chunk.name));
        let mut insns = ends.flat_map(|chunk| &chunk.insns);
        let exit = insns.rfind(|(insn, _)| insn.mnemonic() == Mnemonic::Syscall);
        if let Some((insn, _)) = exit {
            names.add(insn.ip(), "ends".to_owned());
        }

        if let Some(at) = defect {
            names.add(at, "defect".to_owned());
        }

        names
    }

    fn add(&mut self, address: u64, name: String) {
        self.by_address.entry(address).or_default().push(name);
    }

    fn get_or_add(&mut self, address: u64) -> String {
        let names = self.by_address.entry(address).or_default();
        if names.is_empty() {
            names.push(format!(".L{address:x}"));
        }
        names[0].clone()
    }

    fn of_data(address: u64) -> Option<String> {
        let is_data = (DATA..OWN_STACK - OWN_STACK_SIZE).contains(&address);
        is_data.then(|| format!("data+{}", address - DATA))
    }

    /// The name of a label or of an address in the data.
    fn of_operand(&self, value: u64) -> Option<String> {
        let name = self.by_label.get(&value).cloned();
        name.or_else(|| CodeNames::of_data(value))
    }

    fn of_word(&self, word: u64) -> String {
        match self.by_address.get(&word).and_then(|names| names.first()) {
            Some(name) => name.clone(),
            None if word == OWN_STACK - OWN_STACK_SIZE => "own_stack".to_owned(),
            None => word.to_string(),
        }
    }
}

fn symbol(name: &str) -> String {
    name.replace('.', "_")
}

/// The label to which an instruction refers.
fn target(insn: &Instruction) -> Option<u64> {
    let is_branch = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
    let label = match is_branch {
        true => insn.near_branch64(),
        false if insn.memory_base() == Register::RIP => insn.memory_displacement64(),
        false => return None,
    };
    (label < LABELS_END).then_some(label)
}

struct Resolver(Rc<CodeNames>);

impl SymbolResolver for Resolver {
    fn symbol(
        &mut self,
        insn: &Instruction,
        _: u32,
        operand: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let name = match insn.op_kind(operand?) {
            OpKind::NearBranch64 => self.0.by_label.get(&address).cloned()?,
            OpKind::Memory => CodeNames::of_data(address)?,
            _ => return None,
        };
        Some(SymbolResult::with_string(address, name))
    }
}

/// An instruction in assembler syntax.
fn line(formatter: &mut GasFormatter, insn: &Instruction, names: &CodeNames) -> String {
    if insn.memory_base() == Register::RIP {
        let name = names.of_operand(insn.memory_displacement64());
        let register = format!("{:?}", insn.op0_register()).to_lowercase();
        return format!("lea {}(%rip), %{register}", name.unwrap_or_default());
    }
    // Without a register operand, only the suffix determines the size.
    let has = |wanted| (0..insn.op_count()).any(|n| insn.op_kind(n) == wanted);
    let is_branch = insn.is_call_near_indirect() || insn.is_jmp_near_indirect();
    let suffix = has(OpKind::Memory) && !has(OpKind::Register) && !is_branch;
    formatter
        .options_mut()
        .set_gas_show_mnemonic_size_suffix(suffix);
    let mut out = String::new();
    formatter.format(insn, &mut out);
    out
}

fn code(out: &mut String, built: &BuiltProgram, tables: [&Table; 2], names: &Rc<CodeNames>) {
    let resolver = Box::new(Resolver(names.clone()));
    let mut formatter = GasFormatter::with_options(Some(resolver), None);

    for chunk in &built.code.layout.chunks {
        let name = symbol(&chunk.name);
        let section = if chunk.name.contains(".cold") {
            ".text.unlikely, \"ax\", @progbits"
        } else {
            ".text"
        };
        let _ = writeln!(out, "\n        .section {section}");

        // The linker looks for it.
        if name == "_start" {
            out.push_str("        .globl  _start\n");
        }

        // Symbols need a type and a size, or a function would have no end.
        let _ = writeln!(out, "        .type   {name}, @function");
        for (number, (insn, _)) in chunk.insns.iter().enumerate() {
            // A defect may end a unit inside the function.
            choice(
                out,
                &tables.map(|table| {
                    let end = if number > 0 {
                        ended(table, insn.ip())
                    } else {
                        String::new()
                    };
                    end + &directives(table, insn.ip())
                }),
            );
            for name in names.by_address.get(&insn.ip()).into_iter().flatten() {
                let _ = writeln!(out, "{name}:");
            }

            let immediate = chunk.immediates.iter().find(|(at, _)| *at == number);

            // An address is written as a symbol, since the assembler decides where code goes.
            let text = match immediate.and_then(|(_, label)| names.of_operand(*label)) {
                Some(name) => format!("push ${name}"),
                None => line(&mut formatter, insn, names),
            };
            let _ = writeln!(out, "        {text}");
        }

        choice(out, &tables.map(|table| ended(table, chunk.range.end)));
        let _ = writeln!(out, "        .size   {name}, . - {name}");
    }
}

/// Writes the directives of both tables: the correct one, and the one with a defect.
fn choice(out: &mut String, [right, other]: &[String; 2]) {
    if right == other {
        out.push_str(right);
    } else {
        let _ = write!(
            out,
            "        .ifdef  DEFECT\n{other}        .else\n{right}        .endif\n"
        );
    }
}

/// The directives for a table's row that starts at an address.
fn directives(table: &Table, address: u64) -> String {
    let Some(unit) = table.0.iter().find(|unit| unit.range.contains(&address)) else {
        return String::new();
    };
    let Some(index) = unit.rows.iter().position(|(start, _)| *start == address) else {
        return String::new();
    };

    let mut out = String::new();
    // Only where a row starts does the assembler need to be told.
    let row = unit.rows[index].1;
    let before = match index.checked_sub(1) {
        Some(before) => Some(unit.rows[before].1),
        None if unit.signal => {
            // `simple` leaves out the initial rules: the CIE of signals has none.
            out.push_str("        .cfi_startproc simple\n        .cfi_signal_frame\n");
            None
        }
        None => {
            out.push_str("        .cfi_startproc\n");
            Some(FrameLayout::ENTRY)
        }
    };

    if before.is_none_or(|before| before.cfa != row.cfa) {
        match row.cfa {
            Cfa::Offset(base, offset) => {
                let _ = writeln!(out, "        .cfi_def_cfa {}, {offset}", dwarf(base));
            }
            Cfa::Load(base, offset) => {
                let mut expression = address_of(base, offset);
                // 0x06 is `DW_OP_deref`, and 0x0f is `DW_CFA_def_cfa_expression`.
                expression.push(0x06);
                escape(&mut out, &[0x0f], &expression);
            }
        }
    }

    // Directives say what changes, so a row is written as the difference from the one before.
    let old = |index: usize| before.map_or(Slot::Same, |before| before.saved[index]);
    for (index, slot) in row.saved.into_iter().enumerate() {
        if old(index) != slot {
            register(&mut out, dwarf(SAVED[index]), slot);
        }
    }

    if before.is_none_or(|before| before.ra != row.ra) {
        register(&mut out, RA, row.ra);
    }
    out
}

/// The directive for the end of a unit at this address.
fn ended(table: &Table, address: u64) -> String {
    if table.0.iter().any(|unit| unit.range.end == address) {
        "        .cfi_endproc\n".to_owned()
    } else {
        String::new()
    }
}

fn register(out: &mut String, number: u16, slot: Slot) {
    let _ = match slot {
        Slot::Same => writeln!(out, "        .cfi_same_value {number}"),
        Slot::Undefined => writeln!(out, "        .cfi_undefined {number}"),
        Slot::At(offset) => writeln!(out, "        .cfi_offset {number}, {offset}"),
        Slot::Register(other) => writeln!(out, "        .cfi_register {number}, {}", dwarf(other)),
        // No directive can name a label.
        Slot::Code(_) => writeln!(out, "        .cfi_undefined {number}"),
        Slot::Load(base, offset) => {
            escape(out, &[0x10, number as u8], &address_of(base, offset));
            Ok(())
        }
    };
}

/// `DW_OP_bregN offset`.
fn address_of(base: Gpr, offset: i32) -> Vec<u8> {
    let low = (offset & 0x7f) as u8 | 0x80;
    vec![0x70 + dwarf(base) as u8, low, (offset >> 7 & 0x7f) as u8]
}

fn escape(out: &mut String, head: &[u8], expression: &[u8]) {
    let length = [expression.len() as u8];
    let bytes = head.iter().chain(&length).chain(expression);
    let bytes: Vec<String> = bytes.map(|byte| format!("{byte:#x}")).collect();
    let _ = writeln!(out, "        .cfi_escape {}", bytes.join(", "));
}

fn data(out: &mut String, built: &BuiltProgram, names: &CodeNames) {
    out.push_str("\n        .data\n        .balign  8\ndata:\n");
    for &word in &built.code.data {
        let _ = writeln!(out, "        .quad   {}", names.of_word(word));
    }
    let _ = writeln!(
        out,
        "\n        .bss\n        .balign  16\nown_stack:\n        .zero   {OWN_STACK_SIZE}"
    );
}
