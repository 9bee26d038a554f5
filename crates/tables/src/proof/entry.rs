//! How functions are entered: by calls, or by jumps from another part of the same function.
//!
//! The first row of a function says so, unless it is wrong. Where what the code does leaves only one
//! way in, that decides instead.

use super::body::is_nop;
use super::plt;
use super::program::{Program, Unit};
use crate::file::File;
use crate::table::{Function, Table};
use hashbrown::HashSet;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};

/// How a function is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// By a call to its first instruction.
    Call,
    /// Only by jumps from another part of the same function.
    Part,
    /// By calls to each of its stubs.
    Plt,
    /// By the kernel, on return from a signal handler.
    Signal,
    /// By the processor, which pushes an error code behind the return address (Intel SDM, volume 3,
    /// "Error Code"): an interrupt handler that pops it before `iretq`.
    Interrupt,
    /// By a jump from the first entry of a lazy procedure linkage table, which has pushed two words:
    /// the loader's resolver.
    Resolver,
}

/// What following the functions of a file showed of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryEvidence {
    /// A way from another function leads into it, whether its frame fits or not.
    pub is_led_to: bool,
    /// Something calls it, or jumps to it with everything as at entry.
    pub is_called: bool,
    /// A jump leads to its first instruction with a frame of its own.
    pub is_jumped_to: bool,
    /// All its rows are proven.
    pub is_proven: bool,
    /// It ends with `iretq`, always with one word less on the stack than at entry.
    pub pops_error_code: bool,
}

/// The number of addresses for which there is room at first.
const NAMED_MIN: usize = 1024;

/// What the instructions of a program name, reached or not.
#[derive(Debug, Default)]
pub struct References {
    /// Where direct jumps from one function to another lead (svma), ascending, and the number of the
    /// function that has the jump.
    jumps: Vec<(u64, usize)>,
    /// Where direct calls lead (svma).
    calls: HashSet<u64>,
    /// Where direct calls and jumps in code outside of all functions may lead (svma). Some of that code may
    /// be data.
    outside: HashSet<u64>,
    /// The starts (svma) of functions whose address an instruction computes or contains.
    addresses: HashSet<u64>,
    /// Where something starts (svma), ascending: what instructions and the file's data name, functions,
    /// and where areas of the file end.
    named: Vec<u64>,
}

/// The code (svma) that no function has.
fn outside(file: &File, functions: &[Unit]) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    for code in file.code() {
        let mut at = code.range.start;
        let first = functions.partition_point(|f| f.range.end <= at);
        let inside = functions[first..].iter();
        for function in inside.take_while(|f| f.range.start < code.range.end) {
            out.push(at..function.range.start.max(at));
            at = at.max(function.range.end);
        }
        out.push(at..code.range.end.max(at));
    }
    out.retain(|range| !range.is_empty());
    out
}

impl References {
    pub(super) fn read(file: &File, functions: &[Unit]) -> References {
        let mut out = References::default();

        let starts: HashSet<u64> = functions.iter().map(|f| f.range.start).collect();
        for (index, function) in functions.iter().enumerate() {
            for insn in instructions(file, &function.range) {
                // Only direct branches name their target; where indirect ones lead is found while
                // following the code.
                if insn.op0_kind() == OpKind::NearBranch64 {
                    let target = insn.near_branch64();
                    if insn.flow_control() == FlowControl::Call {
                        out.calls.insert(target);
                    } else if !function.range.contains(&target) {
                        out.jumps.push((target, index));
                    }
                } else if let Some(address) = address(&insn) {
                    // What code names may be a function, or a jump table.
                    out.name(address);
                    if starts.contains(&address) {
                        out.addresses.insert(address);
                    }
                }

                // `jmp *table(,%rax,8)`
                if insn.op_count() > 0 && insn.memory_index() != iced_x86::Register::None {
                    out.name(insn.memory_displacement64());
                }
            }
        }

        for range in outside(file, functions) {
            // Without an FDE it is not known where code starts there, so this may decode data as
            // well.
            let insns = instructions(file, &range);
            let branches = insns.filter(|insn| insn.op0_kind() == OpKind::NearBranch64);
            out.outside
                .extend(branches.map(|insn| insn.near_branch64()));
        }

        // All addresses at which something starts or ends: a jump table goes no further than the
        // next.
        out.named.extend(starts);
        out.named.extend(functions.iter().map(|f| f.range.end));
        out.named
            .extend(file.pointers().iter().map(|pointer| pointer.1));
        out.named.extend(file.area_ends());

        out.named.sort_unstable();
        out.named.dedup();
        out.jumps.sort_unstable();
        out.jumps.dedup();
        out
    }

    /// Something starts at `address` (svma). Most addresses are named many times, so the list gets more
    /// memory only if it is half full without repetitions.
    fn name(&mut self, address: u64) {
        if self.named.len() == self.named.capacity() {
            self.named.sort_unstable();
            self.named.dedup();
            if self.named.len() * 2 >= self.named.capacity() {
                self.named.reserve(self.named.capacity().max(NAMED_MIN));
            }
        }
        self.named.push(address);
    }

    /// Whether a direct call leads to `address` (svma).
    pub fn has_call(&self, address: u64) -> bool {
        self.calls.contains(&address)
    }

    /// Whether a direct call, or a jump of code that is in no function, leads to `address` (svma).
    pub fn leads_to(&self, address: u64) -> bool {
        self.has_call(address) || self.outside.contains(&address)
    }

    /// Whether a direct jump of another function leads to the first address of `range` (svma), or
    /// one of a function that `counts` further into it.
    pub fn has_jump_into(&self, range: &Range<u64>, counts: impl Fn(usize) -> bool) -> bool {
        let first = self.jumps.partition_point(|jump| jump.0 < range.start);
        let mut into = self.jumps[first..]
            .iter()
            .take_while(|jump| jump.0 < range.end);
        into.any(|&(target, from)| target == range.start || counts(from))
    }

    /// Whether a direct jump of a function that is not `own` leads to `address` (svma).
    pub fn has_jump_from_other(&self, address: u64, own: impl Fn(usize) -> bool) -> bool {
        let first = self.jumps.partition_point(|jump| jump.0 < address);
        let mut here = self.jumps[first..].iter().take_while(|j| j.0 == address);
        here.any(|&(_, from)| !own(from))
    }

    /// The next address (svma) behind `address` that something names.
    pub fn next_named(&self, address: u64) -> Option<u64> {
        let after = self.named.partition_point(|&named| named <= address);
        self.named.get(after).copied()
    }

    /// Whether an instruction computes or contains `address` (svma), where a function starts.
    pub fn has_address(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }
}

/// The address that an instruction computes from its own, or contains.
fn address(insn: &Instruction) -> Option<u64> {
    if insn.is_ip_rel_memory_operand() {
        return Some(insn.memory_displacement64());
    }
    let mut kinds = insn.op_kinds();
    let place = kinds.position(|kind| {
        matches!(
            kind,
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
        )
    })?;
    Some(insn.immediate(u32::try_from(place).ok()?))
}

impl Program<'_> {
    /// How function `index` must be entered instead, after all were followed.
    ///
    /// - What passed for the loader's resolver, and does not fit, is called.
    /// - What passed for a part, and no instruction of another function jumps to, is called: there
    ///   is no other way to execute it. Functions that `is_orphan`, to which no way was found
    ///   either, may be its own parts, and jump back into it.
    /// - What passed for a function, is not called, and ends with `iretq` one word above where it
    ///   began is an interrupt handler with an error code.
    /// - What passed for a function, and is only jumped to with a frame of its own, is a part.
    pub fn reconsider(
        &self,
        index: usize,
        seen: EntryEvidence,
        is_orphan: impl Fn(usize) -> bool,
    ) -> Option<Entry> {
        let unit = self.functions.get(index)?;
        let start = unit.range.start;

        match unit.entry {
            Entry::Resolver if !seen.is_proven => Some(Entry::Call),
            Entry::Part if !seen.is_led_to => {
                let references = self.references();

                // Pointers in data may be those of a jump table that leads into the part.
                let is_table_entry = |pointer: &(u64, u64)| unit.range.contains(&pointer.1);
                let is_called = self.is_pointed_to(start)
                    || references.has_call(start)
                    || !is_named_as_part(self.file, start)
                        && !self.file.pointers().iter().any(is_table_entry)
                        && !references.has_jump_into(&unit.range, |from| !is_orphan(from));
                is_called.then_some(Entry::Call)
            }

            // A handler is entered by the processor alone, so anything that calls the function
            // speaks against it.
            Entry::Call
                if seen.pops_error_code
                    && !seen.is_called
                    && !seen.is_jumped_to
                    && !self.references().has_call(start) =>
            {
                Some(Entry::Interrupt)
            }
            Entry::Call if seen.is_jumped_to && !seen.is_called && !self.is_called(start) => {
                // A symbol, a pointer or the entry of the file says that somebody may call it; a
                // cold part of GCC has a name of its own.
                let mut names = self.file.names_at(start).peekable();
                let is_named = names.peek().is_some() && !is_named_as_part(self.file, start);
                let is_known = is_named
                    || self.references().has_call(start)
                    || self.file.entry() == Some(start)
                    || self.is_pointed_to(start)
                    || self.references().has_address(start);
                (!is_known).then_some(Entry::Part)
            }
            _ => None,
        }
    }
}

/// The number of the system call `rt_sigreturn`.
const RT_SIGRETURN: u64 = 15;
/// The maximum number of instructions of a signal trampoline.
const TRAMPOLINE_MAX: usize = 8;

/// The instruction `nop`.
const NOP: u8 = 0x90;

/// How the function is entered, by what its own table says of its first instruction, by where it
/// lies, and by what is known to be called.
pub(super) fn entry(
    file: &File,
    table: &Table,
    function: &Function,
    called: &HashSet<u64>,
) -> Entry {
    let start = function.range.start;
    let section = file.code_at(start);

    // The sections that linkers make for stubs: `.plt`, `.plt.sec`, `.plt.got`, `.iplt`.
    if section.is_some_and(|s| s.name.starts_with(".plt") || s.name == ".iplt") {
        return Entry::Plt;
    }
    // Without section headers there is no name, and only the code tells.
    if section.is_some_and(|s| s.name.is_empty()) && plt::is_table(file, &function.range) {
        return Entry::Plt;
    }

    // A function without a row is taken for one that is called.
    let Some(first) = table.rows(function).next() else {
        return Entry::Call;
    };

    if first.rule.kind == RuleKind::Signal
        && (is_trampoline(file, &function.range) || !is_entry_rule(first.rule))
    {
        return Entry::Signal;
    }

    // What is known to be called is a function, whatever its first row says.
    if called.contains(&start) || first.rule.kind == RuleKind::Outermost {
        return Entry::Call;
    }

    // GCC begins a cold part with a nop if a landing pad would be its first instruction.
    if let Some(second) = table.rows(function).nth(1)
        && first.end - first.start == 1
        && file.bytes(first.start).first() == Some(&NOP)
        && !is_entry_rule(second.rule)
    {
        return Entry::Part;
    }

    // At the entry of a function that is called, the CFA is rsp+8.
    match first.rule {
        rule if is_resolver_rule(rule) && jumps_anywhere(file, &function.range) => Entry::Resolver,
        rule if is_entry_rule(rule) => Entry::Call,
        _ => Entry::Part,
    }
}

/// Whether this is the rule of a function's first instruction: the return address on top of the
/// stack, and nothing saved.
fn is_entry_rule(rule: &Rule) -> bool {
    let unchanged = |v: Value| matches!(v, Value::Same | Value::Unspecified);
    rule.cfa == Value::reg(Reg::Rsp, 8) && rule.saved.into_iter().all(unchanged)
}

/// Whether this is the rule of a function's first instruction behind two more words.
fn is_resolver_rule(rule: &Rule) -> bool {
    let shifted = Rule {
        cfa: Value::reg(Reg::Rsp, 8),
        ..*rule
    };
    rule.cfa == Value::reg(Reg::Rsp, 24) && is_entry_rule(&shifted)
}

/// Whether the code in `range` (svma) returns from a signal handler: `mov $15, %eax; syscall`.
fn is_trampoline(file: &File, range: &Range<u64>) -> bool {
    let mut number = 0;
    for insn in instructions(file, range).take(TRAMPOLINE_MAX) {
        match insn.mnemonic() {
            Mnemonic::Mov if insn.op0_register().full_register() == Register::RAX => {
                number = insn.try_immediate(1).unwrap_or(0);
            }
            Mnemonic::Syscall => return number == RT_SIGRETURN,
            _ if is_nop(&insn) => {}
            _ => return false,
        }
    }
    false
}

/// Whether an instruction in `range` (svma) jumps to an address that it does not contain.
fn jumps_anywhere(file: &File, range: &Range<u64>) -> bool {
    let mut insns = instructions(file, range);
    insns.any(|insn| insn.flow_control() == FlowControl::IndirectBranch)
}

/// The instructions in `range` (svma), one behind the other.
pub fn instructions<'f>(
    file: &'f File,
    range: &Range<u64>,
) -> impl Iterator<Item = Instruction> + 'f {
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let bytes = file.bytes(range.start);
    let bytes = &bytes[..bytes.len().min(length)];
    Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE).into_iter()
}

/// Whether the name of a symbol at `address` says that this is a part of a function.
fn is_named_as_part(file: &File, address: u64) -> bool {
    let mut names = file.names_at(address);
    names.any(Symbol::is_named_as_part)
}
