//! Rules that are proven by the code: what may stand for the truth where none was recorded.
//!
//! A rule is given only where every way to an instruction was followed and all of them agree. It is
//! the row's if that is proven there, and otherwise what the code has done; so a missing or wrong
//! row does not matter.

mod shelf;

pub use shelf::FileArena;

use crate::check::{Checked, Options, prove};
use crate::file::File;
use crate::proof::program::Program;
use crate::proof::verdict::{Assumption, Assumptions, Doubt};
use crate::proof::walk::{InsnProof, InsnProofs, Walker};
use hashbrown::HashMap;
use std::rc::Rc;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind};

/// The largest number of functions in a file that is proven. libLLVM has 95,000.
const FUNCTIONS_MAX: usize = 1 << 20;
/// `mov $15, %rax; syscall` and `mov $15, %eax; syscall`: the return from a signal handler.
const SIGNAL_RETURNS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];

/// Why no rule is proven at an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoProof {
    /// Neither a table nor a symbol that is called says where the function begins.
    NoFunction,
    /// The code is not in the recording, and no file with it was found.
    NoCode,
    /// The proof has this doubt there.
    Unproven(Doubt),
    /// No instruction was followed that starts there.
    NotReached,
    /// The return address is not behind a call.
    NotBehindCall,
    /// The file has too many functions.
    TooLarge,
}

impl NoProof {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoProof::NoFunction => "no-function",
            NoProof::NoCode => "no-code",
            NoProof::Unproven(doubt) => doubt.as_str(),
            NoProof::NotReached => "not-reached",
            NoProof::NotBehindCall => "not-behind-call",
            NoProof::TooLarge => "too-large",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            NoProof::NoFunction => "it is not known where the function begins",
            NoProof::NoCode => {
                "the recording has only parts of the code, and no file with it was found"
            }
            NoProof::Unproven(Doubt::StackPointer) => {
                "where the frame is cannot be told from the code"
            }
            NoProof::Unproven(doubt) => doubt.description(),
            NoProof::NotReached => "no way to the instruction was found",
            NoProof::NotBehindCall => "the return address is not behind a call",
            NoProof::TooLarge => "the file has too many functions",
        }
    }
}

/// A proven rule.
#[derive(Clone, Copy, Debug)]
pub struct ProvenRule {
    /// The rule. What is not known of the caller is undefined. [`RuleKind::Outermost`] only where the
    /// program starts, which nothing calls.
    pub rule: Rule,
    /// What the proof rests on.
    pub assumptions: Assumptions,
}

/// What is known of one function.
struct FunctionProof {
    /// The instructions that were followed, by address (svma).
    sights: Vec<(u64, InsnProof)>,
    assumptions: Assumptions,
    /// Whether a table says where the function begins.
    is_listed: bool,
}

/// The proofs of one file, each made when it is first asked for.
pub struct Prover<'f> {
    file: &'f File,
    program: Program<'f>,
    functions: Vec<Checked>,
    owners: Vec<Vec<u32>>,
    known: HashMap<usize, Rc<Result<FunctionProof, NoProof>>>,
    is_too_large: bool,
}

impl<'f> Prover<'f> {
    /// Learns what functions of `file` do, on this many threads.
    pub fn new(file: &'f File, threads: usize) -> Prover<'f> {
        let program = Program::with_unlisted(file);
        let is_too_large = program.functions.len() > FUNCTIONS_MAX;
        if is_too_large {
            return Prover {
                file,
                program,
                functions: Vec::new(),
                owners: Vec::new(),
                known: HashMap::new(),
                is_too_large,
            };
        }

        let options = Options {
            threads,
            ..Options::default()
        };
        let proven = prove(program, &options);

        Prover {
            file,
            program: proven.program,
            functions: proven.functions,
            owners: proven.owners,
            known: HashMap::new(),
            is_too_large,
        }
    }

    /// The bytes that the expressions of rules are ranges of.
    pub fn expressions(&self) -> &[u8] {
        self.program.tables.first().map_or(&[], |t| t.section())
    }

    /// The rule for the frame whose pc (svma) is `pc`.
    ///
    /// # Errors
    /// Why none is proven.
    pub fn rule(&mut self, pc: CodeAddress) -> Result<ProvenRule, NoProof> {
        if self.is_too_large {
            return Err(NoProof::TooLarge);
        }

        // Where the kernel or the loader starts a program, nothing has been called; the loader's own
        // start often has neither a row nor a symbol with a size.
        if pc.is_instruction() && self.file.entry() == Some(pc.value()) {
            return Ok(ProvenRule {
                rule: OUTERMOST,
                assumptions: Assumptions::NONE,
            });
        }

        let at = pc.symbol_address();
        let index = self.program.function_at(at);
        let index = index.ok_or(if self.file.bytes(at).is_empty() {
            NoProof::NoCode
        } else {
            NoProof::NoFunction
        })?;

        let known = match self.known.get(&index) {
            Some(known) => known.clone(),
            None => {
                let known = Rc::new(self.look(index));
                self.known.insert(index, known.clone());
                known
            }
        };

        let known = (*known).as_ref().map_err(|why| *why)?;
        let after = known.sights.partition_point(|(start, _)| *start <= at);
        let (start, sight) = match after.checked_sub(1) {
            Some(index) => &known.sights[index],
            None => return Err(NoProof::NotReached),
        };
        let assumptions = known.assumptions;

        // A pc is where an instruction starts; a return address, where one ends.
        let is_there = match pc {
            CodeAddress::Instruction(pc) => *start == pc,
            CodeAddress::Return(pc) => sight.end == pc,
        };
        if !is_there {
            return Err(NoProof::NotReached);
        }

        let rule = match sight.rule {
            _ if !known.is_listed && self.program.is_start(at) => OUTERMOST,
            Err(Doubt::Outermost) if self.program.is_start(at) => OUTERMOST,
            Err(doubt) => return Err(NoProof::Unproven(doubt)),
            Ok(rule) => rule,
        };

        // A signal handler returns to the first instruction of the trampoline.
        let is_called = sight.is_call || rule.kind == RuleKind::Signal;
        if !pc.is_instruction() && !is_called {
            return Err(NoProof::NotBehindCall);
        }

        Ok(ProvenRule { rule, assumptions })
    }

    /// Follows function `index` again, and all that lead into it.
    fn look(&self, index: usize) -> Result<FunctionProof, NoProof> {
        let checked = self.functions.get(index).ok_or(NoProof::NoFunction)?;
        let start = checked.range.start;

        let mut tables = self.program.tables.iter();
        let is_listed =
            tables.any(|t| t.kind() != TableKind::Orc && t.function_at(start).is_some());

        // A symbol may name code that is not entered by calls.
        if !is_listed && !self.program.is_called(start) && !self.program.is_start(start) {
            return Err(NoProof::NoFunction);
        }

        let owners = &self.owners[index];
        let with_owners = std::iter::once(checked).chain(
            owners
                .iter()
                .filter_map(|&o| self.functions.get(o as usize)),
        );

        let mut assumptions = Assumptions::NONE;
        // A way that is hidden in one of them may lead into this function.
        for function in with_owners {
            assumptions.add_all(function.verdict.assumptions);
            let mut doubts = function.verdict.doubts.iter().map(|d| d.0);
            match doubts.find(|&doubt| hides_ways(doubt)) {
                Some(Doubt::NoCode) => return Err(NoProof::NoCode),
                Some(doubt) => return Err(NoProof::Unproven(doubt)),
                None => {}
            }
        }

        // Followed once more: of single instructions nothing was kept the first time.
        let mut walker = Walker::new(&self.program);
        let mut sights = InsnProofs::of(index);
        // Each of them may lead there by other ways, and all must agree.
        for &owner in owners {
            let (followed, seen) = walker.look(owner as usize, sights);
            sights = seen;
            let misfits = followed.iter().flat_map(|f| &f.misfits);
            if misfits.into_iter().any(|m| m.function == index) {
                assumptions.add(Assumption::Unreachable);
            }
        }

        let mut sights = sights.finish();
        for (pc, sight) in &mut sights {
            let is_signal = sight.rule.is_ok_and(|rule| rule.kind == RuleKind::Signal);
            if is_signal {
                assumptions.add(Assumption::SignalFrames);
            } else if self.returns_from_signal(*pc) {
                sight.rule = Err(Doubt::SignalFrame);
            }
        }

        Ok(FunctionProof {
            sights,
            assumptions,
            is_listed,
        })
    }

    /// Whether the instruction at `pc` (svma), or the one before it, belongs to a signal trampoline:
    /// nothing calls that, whatever its row says.
    fn returns_from_signal(&self, pc: u64) -> bool {
        let is_syscall = self.file.bytes(pc).starts_with(&[0x0f, 0x05]);
        SIGNAL_RETURNS.iter().any(|code| {
            let before = (code.len() - 2) as u64;
            let start = if is_syscall {
                pc.wrapping_sub(before)
            } else {
                pc
            };
            self.file.bytes(start).starts_with(code)
        })
    }
}

/// The rule where a program starts.
const OUTERMOST: Rule = Rule {
    kind: RuleKind::Outermost,
    by_frame_pointer: false,
    cfa: unwind_sim_unwind::rule::Value::Undefined,
    ra: unwind_sim_unwind::rule::Value::Undefined,
    sp: unwind_sim_unwind::rule::Value::Unspecified,
    saved: [unwind_sim_unwind::rule::Value::Undefined; 6],
};

/// Whether a doubt means that there may be ways to any instruction of the function that were not
/// followed. The others are about what a row says.
fn hides_ways(doubt: Doubt) -> bool {
    match doubt {
        Doubt::StackPointer
        | Doubt::Distance
        | Doubt::Value
        | Doubt::Outermost
        | Doubt::RedZone
        | Doubt::SignalFrame
        | Doubt::Frames
        | Doubt::Guessed
        | Doubt::Unreadable
        | Doubt::Assumption
        | Doubt::Known => false,
        Doubt::Unreached
        | Doubt::NoEntry
        | Doubt::IndirectJump
        | Doubt::Undecodable
        | Doubt::Limit
        | Doubt::LeftTable
        | Doubt::LandingPads
        | Doubt::Overlap
        | Doubt::NoCode
        | Doubt::Convention
        | Doubt::Callee => true,
    }
}
