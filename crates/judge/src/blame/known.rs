//! Wrong rows that are known: the classes of docs/findings.md.
//!
//! A contradiction belongs to a class if its cause, the code around it and its possible authors fit.
//! That says what it looks like; the proof does not depend on it.

use super::writers::{Kind, MONO, Writer};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_tables::blame::{Cause, CodeContext};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::program::Entry;
use unwind_sim_tables::proof::value::Value;
use unwind_sim_tables::proof::verdict::Contradiction;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{self, Base};

/// The words by which compilers are known in `.comment` and `DW_AT_producer`.
const GCC: &[&str] = &["GCC: ", "GNU "];
const LLVM: &[&str] = &["clang", "rustc", "LLVM", "ldc", "LDC"];
/// How many instructions behind a moved stack pointer the call is that it is moved for.
const TO_CALL_MAX: usize = 24;
/// How many instructions behind the system call the child marks its stack.
const BEHIND_SYSCALL_MAX: i32 = 8;
/// How many instructions behind a pushed argument the next one is pushed.
const TO_PUSH_MAX: usize = 4;
/// How many instructions of a function are looked at for the alignment of its frame.
const PROLOGUE_MAX: usize = 24;

/// A contradiction with what is known of it.
pub(super) struct Seen<'a> {
    pub(super) file: &'a File,
    /// The start of the function (svma).
    pub(super) start: u64,
    pub(super) entry: Entry,
    pub(super) convention: Convention,
    /// The number of the function's rows.
    pub(super) rows: u32,
    pub(super) wrong: &'a Contradiction,
    pub(super) around: &'a CodeContext,
    pub(super) cause: Cause,
    pub(super) writer: &'a Writer,
}

/// A class of wrong rows.
pub struct Known {
    /// The stable name.
    pub id: &'static str,
    /// The program that writes such rows.
    pub who: &'static str,
    /// What is wrong.
    pub what: &'static str,
    is_it: fn(&Seen<'_>) -> bool,
}

/// All classes; the first one that fits counts.
pub const KNOWN: &[Known] = &[
    Known {
        id: "clone-child",
        who: "by design (sanitizers)",
        what: "the child of clone has no caller, and marks that with rbp = 0",
        is_it: |seen| {
            let is_mark = seen.cause == Cause::Changed
                && seen.wrong.subject == Subject::Register(Reg::Rbp)
                && seen.wrong.found == Value::Const(0);
            let is_outermost = seen.wrong.subject == Subject::ReturnAddress;
            (is_mark || is_outermost) && seen.is_behind_syscall()
        },
    },
    Known {
        id: "mono-mark",
        who: "Mono's AOT compiler",
        what: "the rows of the epilogue stand right behind the prologue: where the state is remembered, \
               `.debug_frame` misses the advance to there",
        is_it: |seen| {
            let is_mono = seen.writer.tools.iter().any(|tool| tool == MONO);
            is_mono && seen.wrong.table == TableKind::DebugFrame
        },
    },
    Known {
        id: "ocaml-behind-end",
        who: "OCaml's compiler",
        what: "the calls behind a function's end, which grow the stack or run the collector, have the \
               row of the body, although the jump there comes from before its frame",
        is_it: |seen| {
            let is_call = |i: &Instruction| {
                let is_number = i.mnemonic() == Mnemonic::Push && i.try_immediate(0).is_ok();
                is_number || i.mnemonic() == Mnemonic::Call
            };
            seen.convention == Convention::Ocaml
                && seen.wrong.subject == Subject::Cfa
                && seen.around.is_jump_target
                && seen.is_at(is_call)
        },
    },
    Known {
        id: "gcc-realigned",
        who: "GCC",
        what: "in the epilogue of a realigned frame, registers are taken from slots relative to rbp \
               after rbp was restored",
        is_it: |seen| {
            seen.cause == Cause::BaseLost && seen.writer.may_be(GCC) && seen.is_realigned()
        },
    },
    Known {
        id: "inline-asm-push",
        who: "inline assembly",
        what: "a push or pushf without a row",
        is_it: |seen| {
            let is_pushf =
                |i: &Instruction| matches!(i.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq);
            seen.cause == Cause::Push
                && seen.rows > 1
                && (seen.is_before(is_pushf)
                    || !seen.calls_soon() && !seen.pushes_soon() && seen.writer.kind != Kind::Hand)
        },
    },
    Known {
        id: "llvm-epilogue",
        who: "LLVM",
        what: "an epilogue's `add $N, %rsp` before a conditional jump has no row",
        is_it: |seen| {
            seen.cause == Cause::Raised
                && seen.writer.may_be(LLVM)
                && seen.is_before(|i| i.mnemonic() == Mnemonic::Add)
                && !seen.is_at(|i| i.mnemonic() == Mnemonic::Ret)
        },
    },
    Known {
        id: "llvm-call",
        who: "LLVM",
        what: "rsp is lowered or an argument pushed for a call, and one instruction has no row",
        is_it: |seen| {
            matches!(seen.cause, Cause::Push | Cause::Lowered)
                && seen.rows > 1
                && seen.writer.kind != Kind::Hand
                && seen.writer.may_be(LLVM)
                && (seen.calls_soon() || seen.pushes_soon())
        },
    },
    Known {
        id: "llvm-early-exit",
        who: "LLVM",
        what: "an early exit jumps to the `ret` of the epilogue, where registers are said to be in \
               slots that this way never wrote",
        is_it: |seen| {
            seen.cause == Cause::Way
                && seen.writer.may_be(LLVM)
                && matches!(seen.wrong.subject, Subject::Register(_))
                && seen
                    .around
                    .at
                    .is_some_and(|i| i.mnemonic() == Mnemonic::Ret)
        },
    },
    Known {
        id: "gas-cold-part",
        who: "GNU as",
        what: "the first rules of a cold part are in its CIE, and DW_CFA_restore goes back to them",
        is_it: |seen| {
            seen.entry == Entry::Part
                && seen.writer.may_be(GCC)
                && matches!(seen.cause, Cause::NotSaved | Cause::Way)
                && matches!(seen.wrong.subject, Subject::Register(_))
        },
    },
    Known {
        id: "inline-asm-cpuid",
        who: "inline assembly",
        what: "cpuid with rbx kept in another register",
        is_it: |seen| {
            let is_cpuid = |i: &Instruction| i.mnemonic() == Mnemonic::Cpuid;
            seen.cause == Cause::Changed && (seen.is_before(is_cpuid) || seen.is_at(is_cpuid))
        },
    },
    Known {
        id: "early-restore",
        who: "Intel's compiler (SVML)",
        what: "a callee-saved register is said to be the caller's before the `pop` that restores it",
        is_it: |seen| {
            seen.cause == Cause::Early && matches!(seen.wrong.subject, Subject::Register(_))
        },
    },
    Known {
        id: "hand-changed",
        who: "assembly by hand (OpenSSL, libgcrypt, glibc), or C with a register that GCC keeps for a \
              global variable (PHP, GHC)",
        what: "code with a convention of its own changes a callee-saved register without a row",
        is_it: |seen| seen.cause == Cause::Changed && seen.writer.may_be_hand(),
    },
    Known {
        id: "hand-no-row",
        who: "assembly by hand (libmvec, GMP, OpenSSL)",
        what: "code that pushes or lowers rsp has one row for all of it",
        is_it: |seen| {
            matches!(seen.cause, Cause::Push | Cause::Lowered)
                && seen.rows == 1
                && seen.writer.may_be_hand()
        },
    },
    Known {
        id: "hand-other-register",
        who: "assembly by hand (glibc's libmvec, OpenSSL)",
        what: "the row names another register than the one that the code stores there",
        is_it: |seen| {
            let is_other = |of: Reg| {
                matches!(seen.wrong.found, Value::Entry { reg, offset: 0 }
                    if reg != of && Reg::CALLEE_SAVED.contains(&reg))
            };
            seen.writer.may_be_hand()
                && matches!(seen.cause, Cause::Slot | Cause::NotSaved)
                && matches!(seen.wrong.subject, Subject::Register(reg) if is_other(reg))
        },
    },
    Known {
        id: "hand-aligned-slots",
        who: "assembly by hand (libgcrypt)",
        what: "registers are stored relative to an aligned rsp, and their slots are given by the CFA",
        is_it: |seen| {
            matches!(seen.cause, Cause::Slot | Cause::NotSaved)
                && matches!(seen.wrong.subject, Subject::Register(_))
                && seen.writer.may_be_hand()
                && seen.is_realigned()
        },
    },
    Known {
        id: "hand-added",
        who: "assembly by hand (OpenSSL)",
        what: "where a frame is taken off, the row adds its size to the CFA's offset",
        is_it: |seen| {
            let moved = seen.around.before.as_ref().and_then(|i| {
                let moved = unwind_sim_tables::blame::moved(i)?;
                (moved > 0).then_some(moved)
            });
            let off = match seen.wrong.found {
                Value::Entry {
                    reg: Reg::Rsp,
                    offset,
                } => i64::from(offset) - 8,
                _ => return false,
            };
            seen.cause == Cause::Distance
                && seen.writer.may_be_hand()
                && moved.is_some_and(|moved| off > moved)
        },
    },
    Known {
        id: "hand-moved-cfa",
        who: "assembly by hand (glibc's libmvec)",
        what: "a push moves the CFA along, although it goes by rbp",
        is_it: |seen| {
            let is_by_rbp = matches!(
                seen.wrong.rule.cfa,
                rule::Value::Offset { base: Base::Reg(reg), .. } if reg != Reg::Rsp
            );
            seen.cause == Cause::Distance
                && is_by_rbp
                && seen.writer.may_be_hand()
                && seen.is_before(|i| i.mnemonic() == Mnemonic::Push)
        },
    },
    Known {
        id: "ld-plt",
        who: "a linker",
        what: "an entry of .plt is described by the formula for other entries",
        is_it: |seen| seen.cause == Cause::Plt,
    },
];

impl Seen<'_> {
    /// The class that fits.
    pub(super) fn known(&self) -> Option<&'static Known> {
        KNOWN.iter().find(|known| (known.is_it)(self))
    }

    fn is_before(&self, is_it: impl Fn(&Instruction) -> bool) -> bool {
        self.around.before.as_ref().is_some_and(is_it)
    }

    fn is_at(&self, is_it: impl Fn(&Instruction) -> bool) -> bool {
        self.around.at.as_ref().is_some_and(is_it)
    }

    fn code_from(&self, address: u64) -> impl Iterator<Item = Instruction> {
        let bytes = match self.file.code_at(address) {
            Some(_) => self.file.bytes(address),
            None => &[],
        };
        let options = iced_x86::DecoderOptions::NONE;
        let mut decoder = iced_x86::Decoder::with_ip(64, bytes, address, options);
        std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
    }

    /// Whether the code from the wrong row on calls before it returns.
    fn calls_soon(&self) -> bool {
        let insns = self.code_from(self.wrong.pc).take(TO_CALL_MAX);
        let mut insns = insns.take_while(|i| i.mnemonic() != Mnemonic::Ret);
        insns.any(|i| i.is_call_near() || i.is_call_near_indirect())
    }

    /// Whether a system call is among the last instructions before the wrong row.
    fn is_behind_syscall(&self) -> bool {
        let mut left = 0;
        for insn in self
            .code_from(self.start)
            .take_while(|i| i.ip() < self.wrong.pc)
        {
            left = match insn.mnemonic() {
                Mnemonic::Syscall => BEHIND_SYSCALL_MAX,
                _ => left - i32::from(left > 0),
            };
        }
        left > 0
    }

    /// Whether another argument is pushed behind the wrong row.
    fn pushes_soon(&self) -> bool {
        let mut insns = self.code_from(self.wrong.pc).take(TO_PUSH_MAX);
        insns.any(|i| i.mnemonic() == Mnemonic::Push)
    }

    /// Whether the function aligns rsp in its prologue: `lea 8(%rsp), %r10; and $-32, %rsp`.
    fn is_realigned(&self) -> bool {
        let mut insns = self.code_from(self.start).take(PROLOGUE_MAX);
        insns.any(|i| {
            i.mnemonic() == Mnemonic::And
                && i.op0_kind() == OpKind::Register
                && i.op0_register() == Register::RSP
        })
    }
}
