//! Which instructions are executed, which are excluded, and why; and with which operands and ends.

use super::encodings::Encodings;
use super::subject::{TestInstruction, address};
use super::values::Element;
use iced_x86::{Code, CpuidFeature, EncodingKind, Mnemonic};
use unwind_sim_emulator_native::single::{MIDDLE_PAGES, Mode, NativeCase, NativeState, Outcome};

/// Why a code is excluded, if it is: by design its result differs between the two, or its effect
/// would outlast the case.
pub fn excluded(code: Code) -> Option<&'static str> {
    use Mnemonic::*;

    if is_beyond(code) {
        return Some("no processor that the machine follows has it");
    }

    Some(match code.mnemonic() {
        // Each reason says why a comparison of both sides would show nothing, or harm later cases.
        Cpuid => "the machine has its own cpuid",
        Rdtsc | Rdtscp | Rdpmc => "depends on the time",
        Rdrand | Rdseed => "random",
        Rdpid | Xgetbv | Rdpkru | Lsl | Lar | Verr | Verw => "depends on the kernel",
        Sgdt | Sidt | Sldt | Str | Smsw => "the kernel emulates it",
        Syscall | Sysenter | Int | Int1 | Into => "enters the kernel",
        Wrfsbase | Wrgsbase | Wrpkru => "its effect outlasts the case",
        Lss | Lfs | Lgs => "its effect outlasts the case",
        Xsaves | Xsaves64 | Xrstors | Xrstors64 => "the machine has no supervisor's state",
        _ => match code {
            // Segment registers and their bases stay as they are after the case. `mov` to them has
            // codes of its own within a mnemonic that is otherwise compared.
            Code::Mov_Sreg_rm16
            | Code::Mov_Sreg_r32m16
            | Code::Mov_Sreg_r64m16
            | Code::Popw_FS
            | Code::Popq_FS
            | Code::Popw_GS
            | Code::Popq_GS => "its effect outlasts the case",
            _ => return None,
        },
    })
}

/// Whether an instruction with a VEX prefix belongs to AVX-512, AMX or another extension that is
/// #UD in the machine, while this computer's processor may have it.
fn is_beyond(code: Code) -> bool {
    use CpuidFeature::*;
    code.encoding() == EncodingKind::VEX
        && !code.cpuid_features().iter().all(|feature| {
            matches!(
                feature,
                AVX | AVX2 | FMA | F16C | BMI1 | BMI2 | AES | VAES | PCLMULQDQ | VPCLMULQDQ | GFNI
            )
        })
}

/// What a case was, and what happened in it, as far as [`Coverage`] counts it: names in the order of
/// the bits of a case.
pub const TRAITS: [&str; 18] = [
    "done",
    "page-fault",
    "protection",
    "undefined",
    "exception",
    "two-pages",
    "rounding",
    "ftz",
    "daz",
    "unmasked",
    "invalid",
    "denormal",
    "zero-divide",
    "overflow",
    "underflow",
    "inexact",
    "nan",
    "upper",
];

// Offsets in the state that FXSAVE stores, and bits of MXCSR.
const STATUS: usize = 2;
const MXCSR: usize = 24;
const DAZ: u32 = 1 << 6;
const MASKS: u32 = 0x1f80;
const ROUNDING: u32 = 3 << 13;
const FTZ: u32 = 1 << 15;
/// The exceptions in MXCSR and in the x87 status word.
const EXCEPTIONS: u32 = 0x3f;

/// The traits of a case that ended so on the processor, as bits.
pub(super) fn traits(
    subject: &TestInstruction,
    case: &NativeCase,
    native: &(Outcome, NativeState),
) -> u32 {
    // Bit 1 is #PF; 2 is #SS, #GP or #AC; 3 is #UD; 4 is any other signal.
    let mut all = match native.0 {
        Outcome::Signal { trapno: 14, .. } => 1 << 1,
        Outcome::Signal {
            trapno: 12 | 13 | 17,
            ..
        } => 1 << 2,
        Outcome::Signal { trapno: 6, .. } => 1 << 3,
        Outcome::Signal { .. } => 1 << 4,
        _ => 1,
    };

    if case.memory && case.middle && native.0 == Outcome::Done {
        // The boundary between the two pages of the window in the middle.
        let mut accesses = subject.accesses.iter();
        let crosses = accesses.any(|access| {
            let start = address(subject, access, case);
            start < MIDDLE && start.wrapping_add(access.size.into()) > MIDDLE
        });
        all |= u32::from(crosses) << 5;
    }

    // Without the x87 and SSE state there is no MXCSR to look at.
    if case.mode == Mode::Plain {
        return all;
    }

    let word = |state: &NativeState, at: usize| {
        let bytes = [0, 1, 2, 3].map(|byte| state.fx.legacy[at + byte]);
        u32::from_le_bytes(bytes)
    };

    let before = word(&case.state, MXCSR);
    // The flags are sticky: only those that were clear before tell.
    let new = |at| word(&native.1, at) & !word(&case.state, at) & EXCEPTIONS;
    all |= u32::from(before & ROUNDING != 0) << 6
        | u32::from(before & FTZ != 0) << 7
        | u32::from(before & DAZ != 0) << 8
        | u32::from(before & MASKS != MASKS) << 9
        | (new(MXCSR) | new(STATUS)) << 10
        | u32::from(has_nan(subject, case)) << 16;

    if case.mode == Mode::Avx {
        all |= u32::from(case.state.fx.upper != [0; 16]) << 17;
    }
    all
}

/// The boundary between the two pages.
const MIDDLE: u64 = MIDDLE_PAGES.start + 0x1000;

/// Whether a register operand has a NaN in its lowest element.
fn has_nan(subject: &TestInstruction, case: &NativeCase) -> bool {
    let insn = &subject.insn;
    (0..insn.op_count()).any(|number| {
        let register = insn.op_register(number);
        let value = case.state.fx.ymm(register.number())[0];
        register.is_vector_register()
            && match subject.element {
                Element::Single => f32::from_bits(value as u32).is_nan(),
                Element::Double => f64::from_bits(value as u64).is_nan(),
                Element::Other => false,
            }
    })
}

/// Counts of executed cases by code.
#[derive(Clone, Debug)]
pub struct Coverage {
    cases: Vec<u64>,
    traits: Vec<[u64; TRAITS.len()]>,
}

impl Coverage {
    /// Coverage without any cases.
    pub fn new() -> Coverage {
        let codes = Code::values().len();
        Coverage {
            cases: vec![0; codes],
            traits: vec![[0; TRAITS.len()]; codes],
        }
    }

    /// Counts a case that agreed, with its [`traits`].
    pub(super) fn add(&mut self, code: Code, traits: u32) {
        self.cases[code as usize] += 1;
        let counts = &mut self.traits[code as usize];
        for (number, count) in counts.iter_mut().enumerate() {
            *count += u64::from(traits >> number & 1);
        }
    }

    /// The number of cases of a code that agreed.
    pub fn cases(&self, code: Code) -> u64 {
        self.cases[code as usize]
    }

    /// The number of these with each trait, in the order of [`TRAITS`].
    pub fn traits(&self, code: Code) -> [u64; TRAITS.len()] {
        self.traits[code as usize]
    }

    /// The number of these that ended with a signal.
    pub fn faults(&self, code: Code) -> u64 {
        self.traits(code)[1..5].iter().sum()
    }
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage::new()
    }
}

/// All codes that are not excluded, in the order of iced's list.
pub(super) fn included(encodings: &Encodings) -> Vec<Code> {
    encodings
        .codes()
        .filter(|code| excluded(*code).is_none())
        .collect()
}
