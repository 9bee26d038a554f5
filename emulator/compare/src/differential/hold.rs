//! Compares a single case with a processor's result, and simplifies failing cases.

use super::compare::{Verdict, compare};
use super::machine::{CaseEnd, Emulated};
use super::subject::{TestInstruction, mode};
use iced_x86::{Decoder, Instruction, InstructionInfoFactory};
use std::fmt;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::differences::DifferenceSet;
use unwind_sim_emulator_native::single::{Mode, Native, NativeCase, NativeState, Outcome};

/// A case on which machine and processor disagree.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The executed case.
    pub case: NativeCase,
    /// Its position in a batch.
    pub index: usize,
    /// The processor's result.
    pub native: (Outcome, NativeState),
    /// The machine's result.
    pub machine: (Outcome, NativeState),
    /// The processor that the machine emulated.
    pub cpu: Processor,
}

impl Failure {
    /// The instruction.
    pub fn insn(&self) -> Instruction {
        let place = Native::place(self.index);
        let options = self.cpu.decoder_options();
        Decoder::with_ip(64, &self.case.code, place, options).decode()
    }
}

/// Shows the instruction, and where the machine's result differs from the processor's.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, machine:", self.insn())?;

        // Only what differs is shown: a state has far more values than anybody reads.
        let ((wanted, native), (outcome, machine)) = (&self.native, &self.machine);
        if outcome != wanted {
            write!(f, " {outcome:x?}")?;
        }

        for (number, (value, wanted)) in machine.gpr.iter().zip(native.gpr).enumerate() {
            if *value != wanted {
                write!(f, " r{number} {value:#x}")?;
            }
        }

        for (name, value, wanted) in [
            ("rip", machine.rip, native.rip),
            ("rflags", machine.rflags, native.rflags),
        ] {
            if value != wanted {
                write!(f, " {name} {value:#x}")?;
            }
        }

        // Bytes from 416 on are reserved or software's (SDM volume 1).
        for (name, used, value, wanted) in [
            (
                "fx",
                self.case.mode != Mode::Plain,
                &machine.fx.legacy[..416],
                &native.fx.legacy[..416],
            ),
            (
                "window",
                self.case.memory,
                &machine.window[..],
                &native.window[..],
            ),
        ] {
            // An area that the case does not use was not transferred, and holds nothing of meaning.
            let words = value.chunks(8).zip(wanted.chunks(8)).enumerate();
            for (number, (value, _)) in words.filter(|(_, (a, b))| used && a != b) {
                write!(f, " {name}+{:#x} {value:02x?}", 8 * number)?;
            }
        }

        let upper = machine.fx.upper.iter().zip(native.fx.upper).enumerate();
        for (number, (value, wanted)) in upper {
            if self.case.mode == Mode::Avx && *value != wanted {
                write!(f, " ymm{number} {value:#034x}:..")?;
            }
        }

        Ok(())
    }
}

/// The outcome of comparing the machine with a result.
#[derive(Clone, Debug)]
pub enum CaseResult {
    /// The results are equal.
    Same,
    /// The results differ only where these entries of the table of differences allow it.
    Open(DifferenceSet),
    /// The results differ.
    Different(Box<Failure>),
    /// The case went where it must not.
    Void,
    /// The machine does not model the instruction.
    Unsupported,
}

/// Executes `case` in the machine, at position `index` of a batch, and compares it with the result
/// of a processor of the kind that the machine emulates.
pub fn hold(
    emulated: &mut Emulated,
    case: &NativeCase,
    index: usize,
    mut native: (Outcome, NativeState),
) -> CaseResult {
    let place = Native::place(index);
    let cpu = emulated.processor();

    // Decoded at its place in the batch: targets and rip-relative operands depend on it.
    let insn = Decoder::with_ip(64, &case.code, place, cpu.decoder_options()).decode();
    let mode = mode(insn.code());

    let subject = TestInstruction::new(
        &cpu,
        insn,
        case.code,
        mode,
        &mut InstructionInfoFactory::new(),
    );

    // The state before, because the machine writes only what the case uses.
    let mut machine = (Outcome::Hung, case.state);
    match emulated.run(case, &mut machine.1) {
        CaseEnd::As(outcome) => machine.0 = outcome,
        CaseEnd::Unsupported => return CaseResult::Unsupported,
    }

    match compare(&subject, case, cpu, &mut native, &machine) {
        Verdict::Same => CaseResult::Same,
        Verdict::Open(used) => CaseResult::Open(used),
        Verdict::Void => CaseResult::Void,
        Verdict::Different => CaseResult::Different(Box::new(Failure {
            case: *case,
            index,
            native,
            machine,
            cpu,
        })),
    }
}

/// Number of ways to simplify a case.
pub(super) const SIMPLER: usize = 16 + 1 + 16 + 24 + 2 + 16;

/// Simplifies the case in one way; false if nothing changes.
pub(super) fn simplify(case: &mut NativeCase, way: usize) -> bool {
    let default = NativeState::default();
    let state = &mut case.state;

    // 16 general registers, rflags, 16 parts of the window, st and xmm, the control words of x87
    // and SSE, upper halves.
    let (from, to) = match way {
        0..16 => return std::mem::take(&mut state.gpr[way]) != 0,
        16 => return std::mem::replace(&mut state.rflags, 0x202) != 0x202,
        17..33 => {
            let range = 64 * (way - 17)..64 * (way - 16);
            (&mut state.window[range.clone()], &default.window[range])
        }
        33..57 => {
            let range = 32 + 16 * (way - 33)..48 + 16 * (way - 33);
            (
                &mut state.fx.legacy[range.clone()],
                &default.fx.legacy[range],
            )
        }
        57 => (&mut state.fx.legacy[..24], &default.fx.legacy[..24]),
        58 => (&mut state.fx.legacy[24..28], &default.fx.legacy[24..28]),
        _ => return std::mem::take(&mut state.fx.upper[way - 59]) != 0,
    };

    let changes = from != to;
    from.copy_from_slice(to);
    changes
}
