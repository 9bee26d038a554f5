//! Which instructions are executed, which are excluded, and why.

use super::encodings::Encodings;
use iced_x86::{Code, CpuidFeature, EncodingKind, Mnemonic};

/// Why a code is excluded, if it is: by design its result differs between the two, or its effect
/// would outlast the case.
pub fn excluded(code: Code) -> Option<&'static str> {
    use Mnemonic::*;
    if is_beyond(code) {
        return Some("no processor that the machine follows has it");
    }
    Some(match code.mnemonic() {
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

/// Counts of executed cases by code.
#[derive(Clone, Debug)]
pub struct Coverage {
    cases: Vec<u64>,
    faults: Vec<u64>,
}

impl Coverage {
    /// Coverage without any cases.
    pub fn new() -> Coverage {
        let codes = Code::values().len();
        Coverage {
            cases: vec![0; codes],
            faults: vec![0; codes],
        }
    }

    /// Counts a case that agreed; `fault` says whether it ended with a signal.
    pub fn add(&mut self, code: Code, fault: bool) {
        self.cases[code as usize] += 1;
        self.faults[code as usize] += u64::from(fault);
    }

    /// The number of cases of a code that agreed.
    pub fn cases(&self, code: Code) -> u64 {
        self.cases[code as usize]
    }

    /// The number of these that ended with a signal.
    pub fn faults(&self, code: Code) -> u64 {
        self.faults[code as usize]
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
