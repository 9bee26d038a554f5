//! How rows and functions turned out, and on what the proofs rest.

use super::claim::Subject;
use super::value::Value;
use crate::table::Row;
use std::ops::Range;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;

/// Why something could not be proven.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Doubt {
    /// No way into this code was found.
    Unreached,
    /// No way into this part of a function was found: nothing jumps to it.
    NoEntry,
    /// A jump whose targets are not known.
    IndirectJump,
    /// rsp is not known: the code switched stacks, or computed it.
    StackPointer,
    /// The base of the CFA lies at an unknown distance from the frame.
    Distance,
    /// The value is not known.
    Value,
    /// The table says that there is no caller, which the code cannot tell; or that there is one
    /// where the program starts.
    Outermost,
    /// The slot that the row names lies so far below rsp that a signal or an interrupt overwrites it.
    RedZone,
    /// The row describes a signal frame in a form that is not understood.
    SignalFrame,
    /// Bytes that are not an instruction.
    Undecodable,
    /// Several ways meet, with more different frames than are followed.
    Frames,
    /// The function takes more steps than the limit.
    Limit,
    /// A jump to code that no FDE covers, with a frame of its own.
    LeftTable,
    /// The way to the contradicting state contains a guess.
    Guessed,
    /// The row cannot be read.
    Unreadable,
    /// The function's language-specific data cannot be read, so landing pads are unknown.
    LandingPads,
    /// Another FDE covers the same code.
    Overlap,
    /// There is no code in the file for the range.
    NoCode,
    /// The proof rests on an assumption that was not allowed.
    Assumption,
    /// A row is contradicted, and the baseline has that contradiction.
    Known,
    /// It calls a function of the same file that changes rsp or a callee-saved register.
    Callee,
    /// Code of its convention is not entered by calls, with the return address at rsp.
    Convention,
}

impl Doubt {
    /// All doubts, in the order of reports.
    pub const ALL: [Doubt; 22] = [
        Doubt::Unreached,
        Doubt::NoEntry,
        Doubt::IndirectJump,
        Doubt::StackPointer,
        Doubt::Distance,
        Doubt::Value,
        Doubt::Outermost,
        Doubt::RedZone,
        Doubt::SignalFrame,
        Doubt::Undecodable,
        Doubt::Frames,
        Doubt::Limit,
        Doubt::LeftTable,
        Doubt::Guessed,
        Doubt::Unreadable,
        Doubt::LandingPads,
        Doubt::Overlap,
        Doubt::NoCode,
        Doubt::Assumption,
        Doubt::Callee,
        Doubt::Known,
        Doubt::Convention,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Doubt::Unreached => "unreached",
            Doubt::NoEntry => "no-entry",
            Doubt::IndirectJump => "indirect-jump",
            Doubt::StackPointer => "stack-pointer",
            Doubt::Distance => "distance",
            Doubt::Value => "value",
            Doubt::Outermost => "outermost",
            Doubt::RedZone => "red-zone",
            Doubt::SignalFrame => "signal-frame",
            Doubt::Undecodable => "undecodable",
            Doubt::Frames => "frames",
            Doubt::Limit => "limit",
            Doubt::LeftTable => "left-table",
            Doubt::Guessed => "guessed",
            Doubt::Unreadable => "unreadable",
            Doubt::LandingPads => "landing-pads",
            Doubt::Overlap => "overlap",
            Doubt::NoCode => "no-code",
            Doubt::Assumption => "assumption",
            Doubt::Callee => "callee",
            Doubt::Known => "known",
            Doubt::Convention => "convention",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Doubt::Unreached => "no way into some of the code was found",
            Doubt::NoEntry => "nothing jumps to this part of a function",
            Doubt::IndirectJump => "the targets of a jump are not known",
            Doubt::StackPointer => "rsp is not known: the code switched stacks or computed it",
            Doubt::Distance => "rsp lies at an unknown distance from the frame",
            Doubt::Value => "a value that the row needs is not known",
            Doubt::Outermost => "the code cannot tell whether there is a caller",
            Doubt::RedZone => "a slot lies so far below rsp that a signal overwrites it",
            Doubt::SignalFrame => "a signal frame in a form that is not understood",
            Doubt::Undecodable => "bytes that are not an instruction",
            Doubt::Frames => "too many different frames meet",
            Doubt::Limit => "the function takes more steps than the limit",
            Doubt::LeftTable => "a jump leaves the function with a frame of its own",
            Doubt::Guessed => "the way to a contradiction contains a guess",
            Doubt::Unreadable => "the row cannot be read",
            Doubt::LandingPads => "the data of landing pads cannot be read",
            Doubt::Overlap => "another FDE covers the same code",
            Doubt::NoCode => "the file has no code there",
            Doubt::Assumption => "the proof needs an assumption that was not allowed",
            Doubt::Known => "contradicted, as in the baseline",
            Doubt::Convention => "code of this convention has its frames on another stack",
            Doubt::Callee => "a function that it calls changes rsp or a callee-saved register",
        }
    }
}

/// What proofs rest on. The list is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Assumption {
    /// A callee returns with rsp as before the call, and with the callee-saved registers unchanged
    /// (psABI, section 3.2).
    Callees,
    /// A store through a pointer or with an unknown index does not hit the frame's save slots.
    Stores,
    /// Some calls do not return: to functions known by name, and where otherwise the code behind the
    /// call would contradict itself.
    NoReturn,
    /// A jump table whose length the code does not limit ends where an entry leaves the function.
    JumpTables,
    /// The kernel's signal frame, or rather its `struct ucontext`, lies where it does in Linux.
    SignalFrames,
    /// An exception continues at its landing pad with the frame's own rsp and callee-saved
    /// registers (Itanium C++ ABI).
    LandingPads,
    /// A call whose exception would continue at a landing pad with a frame that does not fit there,
    /// where others do, throws none: the called function calls nothing. Calls that cannot throw lie in
    /// the ranges of others.
    Unreachable,
    /// The kernel changes a module's code, and continues behind faults and warnings, as the module's
    /// sections say.
    KernelEdges,
}

impl Assumption {
    /// All assumptions.
    pub const ALL: [Assumption; 8] = [
        Assumption::Callees,
        Assumption::Stores,
        Assumption::NoReturn,
        Assumption::JumpTables,
        Assumption::SignalFrames,
        Assumption::LandingPads,
        Assumption::Unreachable,
        Assumption::KernelEdges,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Assumption::Callees => "callees",
            Assumption::Stores => "stores",
            Assumption::NoReturn => "no-return",
            Assumption::JumpTables => "jump-tables",
            Assumption::SignalFrames => "signal-frames",
            Assumption::LandingPads => "landing-pads",
            Assumption::Unreachable => "unreachable",
            Assumption::KernelEdges => "kernel-edges",
        }
    }
}

/// A set of assumptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Assumptions(u16);

impl Assumptions {
    /// No assumption: the proof rests on the code alone.
    pub const NONE: Assumptions = Assumptions(0);
    /// All of the list.
    pub const ALL: Assumptions = Assumptions((1 << Assumption::ALL.len()) - 1);

    /// Adds one.
    pub fn add(&mut self, assumption: Assumption) {
        self.0 |= 1 << assumption as u8;
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: Assumptions) {
        self.0 |= other.0;
    }

    /// Whether it is in the set.
    pub const fn has(self, assumption: Assumption) -> bool {
        self.0 & 1 << assumption as u8 != 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Assumption> {
        Assumption::ALL.into_iter().filter(move |a| self.has(*a))
    }
}

/// A claim that the code contradicts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contradiction {
    /// The table.
    pub table: TableKind,
    /// The addresses (svma) of the row; of code without a row, those reached one after the other.
    pub row: Range<u64>,
    /// Offset in the section of what made the row, bytes; of code without a row, that of the FDE
    /// which ends too early, or begins too late.
    pub row_offset: u64,
    /// The first instruction (svma) at which it was found.
    pub pc: u64,
    /// What the row says; nothing where there is none.
    pub rule: Rule,
    /// What the claim is about.
    pub subject: Subject,
    /// What the row's rule evaluates to there.
    pub found: Value,
    /// What is known of rsp at that instruction.
    pub sp: Value,
    /// The row that would be right there, if it can be computed.
    pub right: Option<Rule>,
    /// The jumps (svma of the instruction, and of its target) on the way from the function's entry.
    pub path: Vec<(u64, u64)>,
    /// A jump (svma of the instruction, and of its target) from another function, with whose frame the
    /// row is right.
    pub fits: Option<(u64, u64)>,
}

impl Contradiction {
    /// The stable code of what is wrong.
    pub fn code(&self) -> Code {
        match self.subject {
            Subject::Cfa | Subject::Sp => Code::WrongCfa,
            Subject::ReturnAddress => Code::WrongReturnAddress,
            Subject::Register(_) => Code::WrongRegister,
            Subject::Row => Code::NoRowForExecuted,
        }
    }

    /// Whether both are about the same claim of the same row.
    pub fn is_same(&self, other: &Contradiction) -> bool {
        let key = |c: &Contradiction| (c.table, c.row.start, c.subject);
        key(self) == key(other)
    }
}

/// A claim that is wrong on a way which may not exist, and right or not known on others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guess {
    /// The claim. `None` if the frame does not fit the row at all where the way leads.
    pub claim: Option<GuessedClaim>,
    /// The first instruction (svma) at which it was found.
    pub pc: u64,
    /// The jumps (svma of the instruction, and of its target) on the way from the function's entry.
    pub path: Vec<(u64, u64)>,
    /// The instruction (svma) that would overwrite the claim's slot, if that is what is wrong.
    pub store: Option<u64>,
    /// Where the way parts from others, if that is known: the last such place before the store, or the
    /// jump or trap that was guessed.
    pub fork: Option<Fork>,
}

/// What a [`Guess`] is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuessedClaim {
    /// The table.
    pub table: TableKind,
    /// The first address (svma) of the row.
    pub row: u64,
    /// What the claim is about.
    pub subject: Subject,
    /// What the row's rule evaluates to on that way.
    pub found: Value,
}

/// An instruction behind which there are several ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    /// Its address (svma).
    pub at: u64,
    /// Where the way goes on (svma).
    pub to: u64,
    /// Where the other one does (svma); `None` for a jump through a register or a table.
    pub other: Option<u64>,
}

/// The maximum number of guesses that are kept of a function.
pub(super) const GUESSES_MAX: usize = 4;

/// How a function's rows turned out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionVerdict {
    /// Claims that the code contradicts, by address.
    pub contradictions: Vec<Contradiction>,
    /// Why claims could not be proven, and the first address (svma) of each.
    pub doubts: Vec<(Doubt, u64)>,
    /// What would be wrong on ways that may not exist ([`Doubt::Guessed`]): the first on each way, and
    /// a few of them.
    pub guesses: Vec<Guess>,
    /// What the proofs rest on.
    pub assumptions: Assumptions,
    /// Addresses (svma) at which a proven slot lies below rsp.
    pub below_sp: u32,
    /// The number of rows of all tables, and of those without contradiction and doubt.
    pub rows: u32,
    /// The number of these rows that are proven.
    pub rows_proven: u32,
}

/// The outcome for a function or a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// Every claim is what the code does, at every address.
    Proven,
    /// It could not be told.
    Unproven,
    /// A claim is not what the code does.
    Contradicted,
}

impl FunctionVerdict {
    /// The outcome.
    pub fn verdict(&self) -> Verdict {
        if !self.contradictions.is_empty() {
            Verdict::Contradicted
        } else if !self.doubts.is_empty() {
            Verdict::Unproven
        } else {
            Verdict::Proven
        }
    }

    /// Adds what another way into the function showed.
    pub fn add(&mut self, other: FunctionVerdict) {
        for theirs in other.contradictions {
            if !self.contradictions.iter().any(|mine| mine.is_same(&theirs)) {
                self.contradictions.push(theirs);
            }
        }
        for (doubt, at) in other.doubts {
            self.doubt(doubt, at);
        }
        for guess in other.guesses {
            self.guess(guess);
        }
        self.assumptions.add_all(other.assumptions);
        self.below_sp = self.below_sp.saturating_add(other.below_sp);
    }

    /// Whether this claim of the row is contradicted already.
    pub fn contradicts(&self, table: TableKind, row: &Row<'_>, subject: Subject) -> bool {
        self.contradictions
            .iter()
            .any(|c| c.table == table && c.row.start == row.start && c.subject == subject)
    }

    /// Puts findings in the order of addresses.
    pub fn sort(&mut self) {
        self.contradictions
            .sort_by_key(|c| (c.pc, c.table, c.subject));
        // What is behind bytes that are not decoded is unreached for that reason.
        if self
            .doubts
            .iter()
            .any(|doubt| doubt.0 == Doubt::Undecodable)
        {
            self.doubts.retain(|doubt| doubt.0 != Doubt::Unreached);
        }
        self.doubts.sort_unstable();
        self.guesses.sort_by_key(|guess| guess.pc);
    }

    /// Adds a guess, unless one is known for the same register on the same way.
    pub(super) fn guess(&mut self, guess: Guess) {
        let key = |guess: &Guess| {
            let claim = guess.claim.as_ref();
            claim.map(|claim| (claim.table, claim.subject))
        };
        let is_same = |known: &Guess| key(known) == key(&guess) && known.path == guess.path;
        let is_known = self.guesses.iter().any(is_same);
        if !is_known && self.guesses.len() < GUESSES_MAX {
            self.guesses.push(guess);
        }
    }

    /// Adds a doubt, unless it was known.
    pub fn doubt(&mut self, doubt: Doubt, at: u64) {
        match self.doubts.iter_mut().find(|d| d.0 == doubt) {
            Some(known) => known.1 = known.1.min(at),
            None => self.doubts.push((doubt, at)),
        }
    }
}
