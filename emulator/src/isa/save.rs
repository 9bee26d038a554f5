//! Saving and restoring the x87 and SSE state: fxsave, fxrstor, xsave, xsavec, xsaveopt, xrstor.
//!
//! Source: Intel SDM volume 1, section 10.5 and chapter 13. The only components are x87 and SSE, so
//! an area is the same in standard and in compacted form. Unlike on processors, `xsaveopt` never
//! omits components that were not modified.

use crate::float::x87::F80;
use crate::op::{Flow, Op, Run, flow, raise};
use crate::processor::Pointers;
use crate::state::fpu::Fpu;
use crate::state::{MXCSR_DEFAULT, State, reg};
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    // Instruction and operand addresses are stored as 32 bits with selectors, or as 64 bits.
    op.extra = u8::from(matches!(
        insn.mnemonic(),
        Fxsave64 | Fxrstor64 | Xsave64 | Xsavec64 | Xsaveopt64 | Xrstor64
    ));
    Some(match insn.mnemonic() {
        Fxsave | Fxsave64 => fxsave,
        Fxrstor | Fxrstor64 => fxrstor,
        Xsave | Xsave64 => xsave::<STANDARD>,
        Xsaveopt | Xsaveopt64 => xsave::<OPTIMIZED>,
        Xsavec | Xsavec64 => xsave::<COMPACTED>,
        Xrstor | Xrstor64 => xrstor,
        // `cpuid` does not announce them.
        Xsaves | Xsaves64 | Xrstors | Xrstors64 => crate::op::invalid,
        _ => return None,
    })
}

/// The states that can be saved (XCR0): x87 and SSE.
pub(super) const XCR0: u64 = X87 | SSE;
const X87: u64 = 1;
const SSE: u64 = 1 << 1;

/// Width of a linear address, bits.
pub(super) const LINEAR_BITS: u32 = 48;

/// Bytes that `fxsave` writes, of the 512 in its area.
const FX_SIZE: usize = 416;
/// Offset of the `xsave` header.
const HEADER: usize = 512;
/// Size of the `xsave` area, bytes.
pub(super) const XSAVE_SIZE: usize = HEADER + 64;
/// The bit of XCOMP_BV that says that the form is compacted.
const IS_COMPACTED: u64 = 1 << 63;

// Offsets in the area.
const MXCSR: usize = 24;
const REGISTERS: usize = 32;
const XMM: usize = 160;
const XSTATE_BV: usize = HEADER;
const XCOMP_BV: usize = HEADER + 8;

fn put<const N: usize>(area: &mut [u8], at: usize, bytes: [u8; N]) {
    area[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(area: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&area[at..at + N]);
    bytes
}

/// Writes the x87 component.
fn put_x87(state: &State, area: &mut [u8], wide: bool) {
    let fpu = &state.fpu;
    put(area, 0, fpu.control_word().to_le_bytes());
    put(area, 2, fpu.status_word().to_le_bytes());
    put(area, 4, u16::from(!fpu.empty).to_le_bytes());
    area[5] = 0;
    let pointers = match state.processor.pointers() {
        _ if fpu.is_pending() => Some((fpu.opcode, fpu.instruction, fpu.data)),
        Pointers::Always => Some((fpu.opcode, fpu.instruction, fpu.data)),
        Pointers::Zero => Some((0, 0, 0)),
        Pointers::Kept => None,
    };
    if let Some((opcode, instruction, data)) = pointers {
        let mask = if wide { u64::MAX } else { u32::MAX.into() };
        put(area, 6, opcode.to_le_bytes());
        put(area, 8, (instruction & mask).to_le_bytes());
        put(area, 16, (data & mask).to_le_bytes());
    }
    for position in 0..8 {
        let at = REGISTERS + 16 * usize::from(position);
        put(area, at, fpu.content(position).to_bytes());
        put(area, at + 10, [0; 6]);
    }
}

/// Reads the x87 component.
fn get_x87(fpu: &mut Fpu, pointers: Pointers, area: &[u8], wide: bool) {
    let word = |at| u16::from_le_bytes(get(area, at));
    fpu.set_control_word(word(0));
    fpu.set_status_word(word(2));
    fpu.empty = !area[4];
    if pointers != Pointers::Kept || fpu.is_pending() {
        fpu.opcode = word(6) & 0x7ff;
        let mask = if wide { u64::MAX } else { u32::MAX.into() };
        // A linear address has as many bits as `cpuid` says (leaf 0x8000_0008).
        let unused = 64 - LINEAR_BITS;
        let instruction = u64::from_le_bytes(get(area, 8)) & mask;
        fpu.instruction = (instruction.cast_signed() << unused >> unused).cast_unsigned();
        fpu.data = u64::from_le_bytes(get(area, 16)) & mask;
    }
    for position in 0..8 {
        let number = (usize::from(fpu.top) + position) & 7;
        fpu.registers[number] = F80::from_bytes(get(area, REGISTERS + 16 * position));
    }
}

fn put_mxcsr(state: &State, area: &mut [u8]) {
    put(area, MXCSR, state.mxcsr.to_le_bytes());
    put(area, MXCSR + 4, state.processor.mxcsr_mask().to_le_bytes());
}

/// MXCSR in an area; `None` if bits outside `mask` are set.
fn get_mxcsr(mask: u32, area: &[u8]) -> Option<u32> {
    let mxcsr = u32::from_le_bytes(get(area, MXCSR));
    (mxcsr & !mask == 0).then_some(mxcsr)
}

fn put_xmm(state: &State, area: &mut [u8]) {
    for (number, register) in state.xmm.iter().enumerate() {
        put(area, XMM + 16 * number, register.to_le_bytes());
    }
}

fn get_xmm(state: &mut State, area: &[u8]) {
    for (number, register) in state.xmm.iter_mut().enumerate() {
        *register = u128::from_le_bytes(get(area, XMM + 16 * number));
    }
}

impl State {
    /// The x87 and SSE state as FXSAVE64 stores it; zero after xmm15.
    pub fn fx_image(&self) -> [u8; 512] {
        let mut area = [0; 512];
        put_fx(self, &mut area, true);
        area
    }

    /// Restores the state as FXRSTOR64 does. `None`, with nothing changed, if reserved bits of
    /// MXCSR are set.
    pub fn set_fx_image(&mut self, area: &[u8; 512]) -> Option<()> {
        get_fx(self, area, true)
    }

    /// Resets the x87 and SSE state to that of a new program.
    pub(crate) fn reset_fx(&mut self) {
        self.fpu = Fpu::default();
        self.mxcsr = MXCSR_DEFAULT;
        self.xmm = [0; 16];
    }
}

fn put_fx(state: &State, area: &mut [u8], wide: bool) {
    put_x87(state, area, wide);
    put_mxcsr(state, area);
    put_xmm(state, area);
}

fn get_fx(state: &mut State, area: &[u8], wide: bool) -> Option<()> {
    state.mxcsr = get_mxcsr(state.processor.mxcsr_mask(), area)?;
    get_x87(&mut state.fpu, state.processor.pointers(), area, wide);
    get_xmm(state, area);
    Some(())
}

fn fxsave(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    if !address.is_multiple_of(16) {
        return raise(state, Exception::GeneralProtection);
    }
    if state.memory.check_store(address, HEADER).is_none() {
        return Flow::Stop;
    }
    let mut area = [0; FX_SIZE];
    if state.processor.pointers() == Pointers::Kept {
        let Some(old) = state.memory.load_bytes(address) else {
            return Flow::Stop;
        };
        area = old;
    }
    put_fx(state, &mut area, op.extra != 0);
    flow(state.memory.store_bytes(address, area))
}

fn fxrstor(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    if !address.is_multiple_of(16) {
        return raise(state, Exception::GeneralProtection);
    }
    let Some(area) = state.memory.load_bytes::<HEADER>(address) else {
        return Flow::Stop;
    };
    match get_fx(state, &area, op.extra != 0) {
        Some(()) => Flow::Next,
        None => raise(state, Exception::GeneralProtection),
    }
}

/// The components requested in edx and eax.
fn requested(state: &State) -> u64 {
    (state.gpr[reg::RAX] & 0xffff_ffff | state.gpr[reg::RDX] << 32) & XCR0
}

/// The components that are not in their reset state (XINUSE).
pub(super) fn in_use(state: &State) -> u64 {
    let x87 = if state.fpu == Fpu::default() { 0 } else { X87 };
    let sse = if state.xmm == [0; 16] { 0 } else { SSE };
    x87 | sse
}

/// `xsave`.
const STANDARD: u8 = 0;
/// `xsaveopt`.
const OPTIMIZED: u8 = 1;
/// `xsavec`.
const COMPACTED: u8 = 2;

fn xsave<const FORM: u8>(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    if !address.is_multiple_of(64) {
        return raise(state, Exception::GeneralProtection);
    }
    if state.memory.check_store(address, XSAVE_SIZE).is_none() {
        return Flow::Stop;
    }
    let Some(mut area) = state.memory.load_bytes::<XSAVE_SIZE>(address) else {
        return Flow::Stop;
    };
    let requested = requested(state);
    let mut in_use = in_use(state);
    if FORM == COMPACTED && state.mxcsr != MXCSR_DEFAULT {
        in_use |= SSE;
    }
    let written = match FORM {
        STANDARD => requested,
        _ => requested & in_use,
    };
    if written & X87 != 0 {
        put_x87(state, &mut area, op.extra != 0);
    }
    if written & SSE != 0 {
        put_xmm(state, &mut area);
    }
    let mxcsr = if FORM == COMPACTED {
        written
    } else {
        requested
    };
    if mxcsr & SSE != 0 {
        put_mxcsr(state, &mut area);
    }
    let mut components = requested & in_use;
    if FORM == COMPACTED {
        put(
            &mut area,
            XCOMP_BV,
            (requested | IS_COMPACTED).to_le_bytes(),
        );
    } else {
        components |= u64::from_le_bytes(get(&area, XSTATE_BV)) & !requested;
    }
    put(&mut area, XSTATE_BV, components.to_le_bytes());
    flow(state.memory.store_bytes(address, area))
}

fn xrstor(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    if !address.is_multiple_of(64) {
        return raise(state, Exception::GeneralProtection);
    }
    let Some(area) = state.memory.load_bytes::<XSAVE_SIZE>(address) else {
        return Flow::Stop;
    };
    let requested = requested(state);
    let present = u64::from_le_bytes(get(&area, XSTATE_BV));
    let form = u64::from_le_bytes(get(&area, XCOMP_BV));
    let is_compacted = form & IS_COMPACTED != 0;
    // Reserved bytes: all after XCOMP_BV in compacted form, otherwise XCOMP_BV and the 8 bytes
    // after it.
    let (allowed, reserved) = if is_compacted {
        (form & XCR0, XCOMP_BV + 8..XSAVE_SIZE)
    } else {
        (XCR0, XCOMP_BV..XCOMP_BV + 16)
    };
    let is_bad = present & !allowed != 0
        || is_compacted && form & !IS_COMPACTED & !XCR0 != 0
        || area[reserved].iter().any(|&byte| byte != 0);
    let mxcsr = if is_compacted && present & SSE == 0 {
        Some(MXCSR_DEFAULT)
    } else if requested & SSE != 0 {
        get_mxcsr(state.processor.mxcsr_mask(), &area)
    } else {
        Some(state.mxcsr)
    };
    let Some(mxcsr) = mxcsr.filter(|_| !is_bad) else {
        return raise(state, Exception::GeneralProtection);
    };
    if requested & X87 != 0 {
        state.fpu = Fpu::default();
        if present & X87 != 0 {
            get_x87(
                &mut state.fpu,
                state.processor.pointers(),
                &area,
                op.extra != 0,
            );
        }
    }
    if requested & SSE != 0 {
        state.mxcsr = mxcsr;
        state.xmm = [0; 16];
        if present & SSE != 0 {
            get_xmm(state, &area);
        }
    }
    Flow::Next
}
