//! A case as a text file: an instruction, what differs from the default state before it, and what
//! the processor changed.
//!
//! ```text
//! # shld %cl,%ax,%bx
//! code 66 0f a5 c3
//! index 3
//! cpu v2,intel
//! before rax 0x1234
//! before window 0x3f8 00 11 22 33 44 55 66 77
//! after signal 11 14 0x6 0x11001000
//! after rflags 0x246
//! ```
//!
//! `index` is the case's position in a batch, which determines its address. Registers are `rax` to
//! `r15`, `rip` and `rflags`; `fx`, `upper` (the upper halves of ymm registers, 16 bytes each) and
//! `window` are bytes starting at an offset. `after done` means
//! that the case ended without a signal. `cpu` is present if the result depends on the processor,
//! and names the one that gave it. `uses step` executes the instruction by a single step, and `uses
//! middle` puts the window over the boundary between two pages.

use std::fmt::Write;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator_native::single::{Mode, Native, NativeCase, NativeState, Outcome};

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Number of bytes in a line of `fx` or `window`.
const LINE: usize = 16;

/// The contents of a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseFile {
    /// The instruction's bytes.
    pub code: Vec<u8>,
    /// Whether the case includes the x87 and SSE state.
    pub fx: bool,
    /// Whether the case includes the AVX state, too.
    pub avx: bool,
    /// Whether the case includes memory.
    pub memory: bool,
    /// Whether the window lies over the boundary between two pages.
    pub middle: bool,
    /// Whether it is executed by a single step.
    pub step: bool,
    /// The processor that gave the result; `None` if all processors give it.
    pub cpu: Option<Processor>,
    /// Position in a batch.
    pub index: usize,
    /// The state before the instruction.
    pub before: NativeState,
    /// The processor's outcome and the state after.
    pub after: (Outcome, NativeState),
}

/// An error in a case file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct CaseFileError {
    /// Line number, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl CaseFile {
    /// Builds a file from a case and a processor's result.
    pub fn new(
        case: &NativeCase,
        index: usize,
        cpu: Option<Processor>,
        after: (Outcome, NativeState),
    ) -> CaseFile {
        let mut before = case.state;
        before.rip = Native::place(index);
        CaseFile {
            code: case.code[..case.code_len.into()].to_vec(),
            fx: case.mode != Mode::Plain,
            avx: case.mode == Mode::Avx,
            memory: case.memory,
            middle: case.middle,
            step: case.mode == Mode::Step,
            cpu,
            index: index % Native::BATCH,
            before,
            after,
        }
    }

    /// The case to execute.
    pub fn case(&self) -> NativeCase {
        let mode = match (self.step, self.avx, self.fx) {
            (true, ..) => Mode::Step,
            (false, true, _) => Mode::Avx,
            (false, false, true) => Mode::Fx,
            (false, false, false) => Mode::Plain,
        };
        let mut case = NativeCase::new(mode, &self.code);
        case.memory = self.memory;
        case.middle = self.middle;
        case.state = self.before;
        case
    }

    /// The file's text, with `comment` in its first line.
    pub fn text(&self, comment: &str) -> String {
        let mut text = format!("# {comment}\ncode");
        for byte in &self.code {
            // Writing to a string cannot fail.
            let _ = write!(text, " {byte:02x}");
        }

        let _ = writeln!(text, "\nindex {}", self.index);
        if let Some(cpu) = self.cpu {
            let _ = writeln!(text, "cpu {cpu}");
        }

        // `avx` implies `fx` when the file is read.
        let parts = [
            ("fx", self.fx && !self.avx),
            ("avx", self.avx),
            ("memory", self.memory),
            ("middle", self.middle),
            ("step", self.step),
        ];
        for (name, set) in parts {
            if set {
                let _ = writeln!(text, "uses {name}");
            }
        }

        // Only what differs is written: before from an empty state, after from the state before.
        let start = NativeState {
            rip: Native::place(self.index),
            ..NativeState::default()
        };
        self.difference(&mut text, "before", &start, &self.before);

        // A signal's code is not written: reading a file makes it 0.
        match self.after.0 {
            Outcome::Signal {
                signal,
                trapno,
                error_code,
                address,
                ..
            } => {
                let _ = writeln!(
                    text,
                    "after signal {signal} {trapno} {error_code:#x} {address:#x}"
                );
            }
            _ => text.push_str("after done\n"),
        }

        self.difference(&mut text, "after", &self.before, &self.after.1);
        text
    }

    fn difference(&self, text: &mut String, when: &str, old: &NativeState, new: &NativeState) {
        for ((name, old), new) in NAMES.iter().zip(old.gpr).zip(new.gpr) {
            if old != new {
                let _ = writeln!(text, "{when} {name} {new:#x}");
            }
        }

        // rip and rflags are not in the array of general registers.
        for (name, old, new) in [
            ("rip", old.rip, new.rip),
            ("rflags", old.rflags, new.rflags),
        ] {
            if old != new {
                let _ = writeln!(text, "{when} {name} {new:#x}");
            }
        }

        let upper = [old, new].map(|state| bytes(&state.fx.upper));
        for (name, used, old, new) in [
            ("fx", self.fx, &old.fx.legacy[..], &new.fx.legacy[..]),
            ("upper", self.avx, &upper[0], &upper[1]),
            ("window", self.memory, &old.window[..], &new.window[..]),
        ] {
            // By lines, so that a file has only the parts of an area that differ.
            let lines = old.chunks(LINE).zip(new.chunks(LINE)).enumerate();
            for (number, (_, new)) in lines.filter(|(_, (old, new))| used && old != new) {
                let _ = write!(text, "{when} {name} {:#x}", number * LINE);
                for byte in new {
                    let _ = write!(text, " {byte:02x}");
                }
                text.push('\n');
            }
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If a line is invalid, or the code or the outcome is missing.
    pub fn parse(text: &str) -> Result<CaseFile, CaseFileError> {
        let mut file = CaseFile {
            code: Vec::new(),
            fx: false,
            avx: false,
            memory: false,
            middle: false,
            step: false,
            cpu: None,
            index: 0,
            before: NativeState::default(),
            after: (Outcome::Hung, NativeState::default()),
        };

        // `after` lines change a copy of the state before, so all `before` lines precede them.
        let mut ended = false;
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();

            // Lines are counted from 1.
            let fail = |what| CaseFileError {
                line: number + 1,
                what,
            };

            // `None` if the line is known, but its value is wrong.
            let ok = match words[..] {
                [] => Some(()),
                [word, ..] if word.starts_with('#') => Some(()),
                ["code", ref bytes @ ..] if bytes.len() <= 15 => bytes
                    .iter()
                    .map(|byte| u8::from_str_radix(byte, 16).ok())
                    .collect::<Option<_>>()
                    .map(|code| file.code = code),
                // The place of the code follows from the index.
                ["index", index] => index
                    .parse()
                    .ok()
                    .filter(|index| *index < Native::BATCH)
                    .map(|index| {
                        file.index = index;
                        file.before.rip = Native::place(index);
                    }),
                ["uses", "fx"] => {
                    file.fx = true;
                    Some(())
                }
                // The state of AVX includes that of `fx`.
                ["uses", "avx"] => {
                    (file.avx, file.fx) = (true, true);
                    Some(())
                }
                ["uses", "memory"] => {
                    file.memory = true;
                    Some(())
                }
                ["uses", "middle"] => {
                    file.middle = true;
                    Some(())
                }
                // A step compares all registers.
                ["uses", "step"] => {
                    (file.step, file.fx) = (true, true);
                    Some(())
                }
                ["cpu", cpu] => cpu.parse().ok().map(|cpu| file.cpu = Some(cpu)),
                ["before", ref rest @ ..] if !ended => set(&mut file.before, rest),
                ["after", "done"] => {
                    file.after = (Outcome::Done, file.before);
                    ended = true;
                    Some(())
                }
                ["after", "signal", signal, trapno, error_code, address] => {
                    file.after.1 = file.before;
                    ended = true;
                    outcome(signal, trapno, error_code, address)
                        .map(|outcome| file.after.0 = outcome)
                }
                ["after", ref rest @ ..] if ended => set(&mut file.after.1, rest),
                _ => return Err(fail("not a line of a case file")),
            };
            ok.ok_or_else(|| fail("an invalid number or name"))?;
        }

        if file.code.is_empty() || !ended {
            return Err(CaseFileError {
                // No line is to blame.
                line: 0,
                what: "the `code` line, or the `after` line with the outcome, is missing",
            });
        }

        Ok(file)
    }
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn outcome(signal: &str, trapno: &str, error_code: &str, address: &str) -> Option<Outcome> {
    Some(Outcome::Signal {
        signal: signal.parse().ok()?,
        code: 0,
        trapno: number(trapno)?,
        error_code: number(error_code)?,
        address: number(address)?,
    })
}

/// Sets the register or bytes that the words of a line describe.
fn set(state: &mut NativeState, words: &[&str]) -> Option<()> {
    match *words {
        ["rip", value] => state.rip = number(value)?,
        ["rflags", value] => state.rflags = number(value)?,
        [name, value] => {
            let register = NAMES.iter().position(|known| *known == name)?;
            state.gpr[register] = number(value)?;
        }
        ["fx", at, ref rest @ ..] => set_bytes(&mut state.fx.legacy, at, rest)?,
        ["upper", at, ref rest @ ..] => {
            let mut all = bytes(&state.fx.upper);
            set_bytes(&mut all, at, rest)?;
            for (to, from) in state.fx.upper.iter_mut().zip(all.as_chunks::<16>().0) {
                *to = u128::from_le_bytes(*from);
            }
        }
        ["window", at, ref rest @ ..] => set_bytes(&mut state.window, at, rest)?,
        _ => return None,
    }
    Some(())
}

/// Sets the bytes from an offset.
fn set_bytes(bytes: &mut [u8], at: &str, words: &[&str]) -> Option<()> {
    let at = usize::try_from(number(at)?).ok()?;
    let to = bytes.get_mut(at..at.checked_add(words.len())?)?;
    for (byte, word) in to.iter_mut().zip(words) {
        *byte = u8::from_str_radix(word, 16).ok()?;
    }
    Some(())
}

/// The upper halves of ymm registers as bytes.
fn bytes(upper: &[u128; 16]) -> [u8; 256] {
    let mut bytes = [0; 256];
    for (to, from) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(upper) {
        *to = from.to_le_bytes();
    }
    bytes
}
