//! What code does that objtool warns about, in its words.
//!
//! Source: Linux `tools/objtool/check.c`, 6.1 and 6.12; `tools/objtool/Documentation/objtool.txt`.
//! Not here: rules that are not about stacks (`--uaccess`, `--noinstr`, `--ibt`, ..).

use super::rows::FrameKind;
use crate::proof::state::State;
use crate::proof::value::Value;
use std::fmt;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base, Rule};

/// objtool's numbers for what is not a register.
const UNDEFINED: i32 = -1;
const CFA: i32 = -2;
const SP_INDIRECT: i32 = -3;
const BP_INDIRECT: i32 = -4;

/// A register and an offset, in objtool's numbers: `cfa1=4+64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseOffset {
    /// The register's number in instructions, or a negative one.
    pub base: i32,
    /// Offset, bytes.
    pub offset: i32,
}

/// A rule of the kernel that code breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breach {
    /// No way leads to the instruction.
    Unreachable,
    /// Ways that lead to the instruction have the frame in different places.
    CfaMismatch(BaseOffset, BaseOffset),
    /// Ways that lead to the instruction have a register in different places.
    RegMismatch(i32, BaseOffset, BaseOffset),
    /// Ways that lead to the instruction have different kinds of frames.
    TypeMismatch,
    /// A return with something left on the stack.
    Return,
    /// A tail call with something left on the stack.
    SiblingCall,
    /// rbp was saved and used, but not as a frame pointer (in kernels with frame pointers).
    ScratchBp,
    /// A call in a function without a frame (in kernels with frame pointers).
    NoFrame,
    /// The function does not end.
    FallsThrough {
        /// The function behind it.
        next: String,
    },
    /// An instruction that uses the stack where a hint says that nothing is known of it.
    UndefinedStack,
    /// An alternative has another frame than the code that it replaces.
    Alternatives,
    /// rsp is aligned, and nothing keeps the frame.
    Realignment,
    /// rsp becomes something else.
    StackRegister,
    /// An instruction that leaves the kernel, in a function.
    ContextSwitch,
    /// A call into the middle of the function, which no annotation allows.
    IntraFunctionCall,
}

impl Breach {
    /// The stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Breach::Unreachable => "unreachable",
            Breach::CfaMismatch(..) => "cfa-mismatch",
            Breach::RegMismatch(..) => "register-mismatch",
            Breach::TypeMismatch => "type-mismatch",
            Breach::Return => "return",
            Breach::SiblingCall => "sibling-call",
            Breach::ScratchBp => "scratch-bp",
            Breach::NoFrame => "no-frame",
            Breach::FallsThrough { .. } => "falls-through",
            Breach::UndefinedStack => "undefined-stack",
            Breach::Alternatives => "alternatives",
            Breach::Realignment => "realignment",
            Breach::StackRegister => "stack-register",
            Breach::ContextSwitch => "context-switch",
            Breach::IntraFunctionCall => "intra-function-call",
        }
    }

    /// How two frames differ.
    pub(super) fn between(old: (&State, FrameKind), new: (&State, FrameKind)) -> Breach {
        let rows = [old, new].map(|(state, frame)| super::rows::row(state, frame));
        let [Some(a), Some(b)] = rows else {
            let cfa = |row: Option<Rule>, state: &State| match row {
                Some(row) => based(row.cfa),
                None => by_sp(state),
            };
            return Breach::CfaMismatch(cfa(rows[0], old.0), cfa(rows[1], new.0));
        };
        if a.cfa != b.cfa {
            return Breach::CfaMismatch(based(a.cfa), based(b.cfa));
        }
        let regs = Reg::CALLEE_SAVED.into_iter();
        let differing = regs.map(|reg| (reg, a.saved(reg), b.saved(reg)));
        let mut differing = differing.filter(|(_, a, b)| a != b);
        match differing.next() {
            Some((reg, a, b)) if old.1 == new.1 => {
                Breach::RegMismatch(encoded(reg), based(a), based(b))
            }
            _ => Breach::TypeMismatch,
        }
    }
}

/// A value in objtool's numbers.
fn based(value: rule::Value) -> BaseOffset {
    let (base, offset) = match value {
        rule::Value::Offset { base, offset } => (number(base), offset),
        rule::Value::Load {
            base: Base::Reg(Reg::Rsp),
            addend,
            ..
        } => (SP_INDIRECT, addend),
        rule::Value::Load {
            base: Base::Reg(Reg::Rbp),
            offset,
            ..
        } => (BP_INDIRECT, offset),
        rule::Value::Load { base, offset, .. } => (number(base), offset),
        _ => (UNDEFINED, 0),
    };
    BaseOffset { base, offset }
}

/// rsp's distance from the CFA, where there is no row.
fn by_sp(state: &State) -> BaseOffset {
    match state.reg(Reg::Rsp) {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => BaseOffset {
            base: number(Base::Reg(Reg::Rsp)),
            offset: 8i32.saturating_sub(offset),
        },
        _ => BaseOffset {
            base: UNDEFINED,
            offset: 0,
        },
    }
}

/// objtool numbers registers as instructions do (`tools/objtool/arch/x86/include/arch/cfi_regs.h`,
/// 6.1).
fn number(base: Base) -> i32 {
    match base {
        Base::Cfa => CFA,
        Base::Reg(reg) => encoded(reg),
    }
}

fn encoded(reg: Reg) -> i32 {
    let number = Reg::BY_NUMBER.iter().position(|&other| other == reg);
    number
        .and_then(|n| i32::try_from(n).ok())
        .unwrap_or(UNDEFINED)
}

impl fmt::Display for BaseOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:+}", self.base, self.offset)
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The words are those of objtool, so that a search for a message finds both.
        match self {
            Breach::Unreachable => f.write_str("unreachable instruction"),
            Breach::CfaMismatch(a, b) => {
                write!(f, "stack state mismatch: cfa1={a} cfa2={b}")
            }
            Breach::RegMismatch(reg, a, b) => {
                write!(f, "stack state mismatch: reg1[{reg}]={a} reg2[{reg}]={b}")
            }
            Breach::TypeMismatch => f.write_str("stack state mismatch: type1 and type2 differ"),
            Breach::Return => f.write_str("return with modified stack frame"),
            Breach::SiblingCall => {
                f.write_str("sibling call from callable instruction with modified stack frame")
            }
            Breach::ScratchBp => f.write_str("BP used as a scratch register"),
            Breach::NoFrame => f.write_str("call without frame pointer save/setup"),
            Breach::FallsThrough { next } => write!(f, "falls through to next function {next}()"),
            Breach::UndefinedStack => f.write_str("undefined stack state"),
            Breach::Alternatives => f.write_str("stack layout conflict in alternatives"),
            Breach::Realignment => f.write_str("unsupported stack pointer realignment"),
            Breach::StackRegister => f.write_str("unsupported stack register modification"),
            Breach::ContextSwitch => f.write_str("unsupported instruction in callable function"),
            Breach::IntraFunctionCall => f.write_str("unannotated intra-function call"),
        }
    }
}

/// Whether something is left on the stack: rsp is not as at entry, or a register that was saved does
/// not have its value again.
pub(super) fn is_modified(state: &State) -> bool {
    let is_lost = |reg: Reg| {
        let entry = Value::entry(reg);
        state.reg(reg) != entry && state.slots().any(|slot| slot.value == entry)
    };
    state.reg(Reg::Rsp) != Value::frame(0) || Reg::CALLEE_SAVED.into_iter().any(is_lost)
}

/// Whether `state` has a frame as kernels with frame pointers need it before a call.
pub(super) fn has_frame(state: &State) -> bool {
    let by_rbp = rule::Value::reg(Reg::Rbp, 16);
    let is_realigned = |cfa| {
        matches!(
            cfa,
            rule::Value::Load {
                base: Base::Reg(Reg::Rbp),
                ..
            }
        )
    };
    // Most calls of kernels without frame pointers need no whole row.
    super::rows::cfa(state).is_some_and(|cfa| cfa == by_rbp || is_realigned(cfa))
        && super::rows::row(state, FrameKind::Function).is_some_and(|row| {
            is_realigned(row.cfa) || row.saved(Reg::Rbp) == rule::Value::at_cfa(-16)
        })
}
