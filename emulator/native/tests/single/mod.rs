//! Single instructions on the processor: their results, their faults, and that no case affects the
//! next. The expected values come from the Intel SDM, volumes 1 and 2.

use crate::random::Random;
use unwind_sim_emulator_native::single::{
    CODE_RANGE, Mode, Native, NativeCase, NativeError, NativeState, Outcome, WINDOW, WINDOW_PAGE,
    WINDOW_SIZE,
};

mod endings;
mod integer;
mod vector;

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RBX: usize = 3;
const RSP: usize = 4;
const RSI: usize = 6;
const RDI: usize = 7;
const R15: usize = 15;

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const DF: u64 = 1 << 10;
const OF: u64 = 1 << 11;
const NT: u64 = 1 << 14;
const AC: u64 = 1 << 18;
const ID: u64 = 1 << 21;
const STATUS: u64 = CF | PF | AF | ZF | SF | OF;
/// IF and bit 1.
const ALWAYS: u64 = 0x202;

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGSYS: i32 = 31;

const SP: u64 = WINDOW + 512;

fn spawn(test: &str) -> Option<Native> {
    match Native::spawn() {
        Ok(native) => Some(native),
        Err(error) if error.is_denied() => {
            crate::skip::skip(
                test,
                format_args!("single instructions are denied: {error}"),
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn case(mode: Mode, code: &[u8], gpr: &[(usize, u64)]) -> NativeCase {
    let mut case = NativeCase::new(mode, code);
    case.state.gpr[RSP] = SP;
    for &(register, value) in gpr {
        case.state.gpr[register] = value;
    }
    case
}

fn run_all(native: &mut Native, cases: &[NativeCase]) -> Vec<(Outcome, NativeState)> {
    let mut results = vec![(Outcome::Hung, NativeState::default()); cases.len()];
    native.run(cases, &mut results).expect("the cases run");
    results
}

/// The mode that loads all registers.
fn whole() -> Mode {
    if Native::has_avx() {
        Mode::Avx
    } else {
        Mode::Fx
    }
}

/// Runs `case` between two that check their initial state: every register, flag and byte of memory
/// survives a `nop` in the mode that loads them all.
fn run(native: &mut Native, case: NativeCase) -> (Outcome, NativeState) {
    let mut nop = full(whole(), 7);
    nop.state.rflags = STATUS | DF | ID;
    let results = run_all(native, &[nop, case, nop]);
    for (index, (outcome, state)) in [(0, &results[0]), (2, &results[2])] {
        assert_eq!(*outcome, Outcome::Done);
        let mut expected = nop.state;
        expected.rip = Native::place(index) + 1;
        expected.rflags |= ALWAYS;
        assert_eq!(*state, expected);
    }
    results[1]
}

/// Runs `case`, which must complete, and returns the state after it.
fn done(native: &mut Native, case: NativeCase) -> NativeState {
    let (outcome, state) = run(native, case);
    assert_eq!(outcome, Outcome::Done);
    state
}

/// A `nop` that starts with a different value everywhere.
fn full(mode: Mode, seed: u64) -> NativeCase {
    let mut random = Random::new(seed);
    let mut case = NativeCase::new(mode, &[0x90]);
    case.state.gpr.fill_with(|| random.bits());
    random.fill(&mut case.state.window);
    let fx = &mut case.state.fx.legacy;
    fx[2..4].copy_from_slice(&0x3800_u16.to_le_bytes()); // FSW: TOP is 7
    fx[4] = 0x80; // FTW: ST(0) is not empty
    fx[24..28].copy_from_slice(&0xff80_u32.to_le_bytes()); // MXCSR: all masked, FTZ, round to zero
    fx[28..32].copy_from_slice(&0_u32.to_le_bytes());
    for register in 0..8 {
        random.fill(&mut fx[32 + 16 * register..][..10]);
    }
    random.fill(&mut fx[160..416]);

    // MXCSR_MASK is stored with the processor's value, and not loaded.
    fx[28..32].copy_from_slice(&mxcsr_mask());
    if mode == Mode::Avx || mode == Mode::Step && Native::has_avx() {
        case.state
            .fx
            .upper
            .fill_with(|| u128::from(random.bits()) << 64 | 1);
    }
    case
}

fn mxcsr_mask() -> [u8; 4] {
    #[repr(align(16))]
    struct Area([u8; 512]);
    let mut area = Area([0; 512]);

    // SAFETY: every x86-64 processor has FXSAVE, and the area has its size and alignment.
    unsafe { std::arch::x86_64::_fxsave64(area.0.as_mut_ptr()) };
    *area.0[28..].first_chunk().expect("four bytes")
}

fn window_word(state: &NativeState, address: u64) -> u64 {
    let at = (address - WINDOW) as usize;
    u64::from_le_bytes(state.window[at..at + 8].try_into().expect("a word"))
}

fn set_window(state: &mut NativeState, address: u64, bytes: &[u8]) {
    let at = (address - WINDOW) as usize;
    state.window[at..at + bytes.len()].copy_from_slice(bytes);
}

fn set_xmm(state: &mut NativeState, register: usize, low: f64) {
    state.fx.legacy[160 + 16 * register..][..8].copy_from_slice(&low.to_le_bytes());
}

fn xmm(state: &NativeState, register: usize) -> f64 {
    let bytes = state.fx.legacy[160 + 16 * register..].first_chunk();
    f64::from_le_bytes(*bytes.expect("eight bytes"))
}

fn mxcsr(state: &NativeState) -> u32 {
    state.fx.mxcsr()
}

fn set_mxcsr(state: &mut NativeState, value: u32) {
    state.fx.set_mxcsr(value);
}

/// The x87 status word.
fn fsw(state: &NativeState) -> u16 {
    u16::from_le_bytes([state.fx.legacy[2], state.fx.legacy[3]])
}
